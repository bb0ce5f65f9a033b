"""CUDA graphs that record the core's calls. They need a GPU: the mock records nothing."""

import pytest
import torch
import torch_oracle
from core_cases import DTYPES, TOLERANCES, make_case
from core_harness import assert_close, describe, fetch, make_data, place
from core_library import ForwardPass, Model

pytestmark = pytest.mark.gpu_only

REPLAYS = 3


class Training:
    """A training step in memory of its own, which may run in a graph."""

    def __init__(self, model, inputs, backprops, lengths):
        self.model, self.inputs = model, inputs
        self.call = model.make_call(*inputs["input"].shape[:2], lengths=lengths)
        sizes = model.prepare(self.call)
        self._forward, written = model.make_forward_buffers(inputs, self.call, sizes)
        self.results = {name: written[name].tensor for name in model.output_shapes(self.call)}
        done = ForwardPass(
            self.results, self.call, inputs, written["reserve_space"], sizes, lengths
        )
        self._backward, gradients = model.make_backward_buffers(done, backprops)
        for name in inputs:
            self.results[name + "_backprop"] = gradients[name + "_backprop"].tensor
        self._memory = (written, gradients)

    def run(self):
        with self.model.prepared(self.call) as (prepared, _):
            self.model.run_forward(prepared, self._forward)
        with self.model.prepared(self.call) as (prepared, _):
            self.model.run_backward(prepared, self._backward)


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("lengths", ["full", "mixed"])
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_a_graph_repeats_a_training_step(core, device, rnn_mode, lengths, dtype):
    """With new inputs in the same memory, and calls with other lengths between two replays."""
    case = make_case(rnn_mode, dtype, lengths, batch=5, steps=8)
    inputs, backprops, sequence_lengths = make_data(case)
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    with Model(core, describe(case), device) as model, torch.cuda.stream(stream):
        step = Training(model, place(inputs, device), place(backprops, device), sequence_lengths)
        step.run()  # A call is recorded only after it has run once.
        with torch.cuda.graph(graph, stream=stream):
            step.run()
        for seed in range(REPLAYS):
            inputs = torch_oracle.random_inputs(case.network, 5, 8, DTYPES[dtype], seed)
            for name, tensor in inputs.items():
                step.inputs[name].copy_(tensor)
            model.forward(place(inputs, device), lengths=[seed, 1, 2, 3, 8])
            for tensor in step.results.values():
                tensor.fill_(float("nan"))
            graph.replay()
            stream.synchronize()
            expected = torch_oracle.run(case.network, inputs, backprops, sequence_lengths)
            tolerance = TOLERANCES[DTYPES[dtype]]
            assert_close(fetch(step.results), expected, tolerance, f"{case}, replay {seed}")
