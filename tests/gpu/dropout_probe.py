"""Makes the pattern of the core's dropout visible.

The parameters of a probe model are such that its output shows which elements of the second layer's
input were kept. The pattern depends only on the seeds and the call, so the same seeds drop the same
elements with other parameters, and the oracle can use the mask. cuDNN draws a mask for each
direction, the CPU's kernels one for both.
"""

import torch
import torch_oracle
from core_cases import DTYPES, Case
from core_harness import describe, fetch, place
from core_library import Model

SEEDS = {"seed": 87654, "seed2": 4321}
# The probe and the run that is compared with the oracle must use the same algorithm.
OPTIONS = dict(SEEDS, deterministic=True)


def make_case(rnn_mode, direction="unidirectional", dtype="float", lengths="full", **sizes):
    """Returns a case with two layers."""
    values = dict({"num_units": 64, "input_size": 24, "batch": 6, "steps": 9}, **sizes)
    return Case(rnn_mode, direction, 2, dtype, "linear_input", lengths, True, 0, *values.values())


def probe_inputs(case, half=0):
    """Returns inputs for which |output| > 0.1 exactly where the second layer's input was kept.

    The first layer's matrices are 0; its biases make its outputs constant and far from 0. In each
    direction of the second layer, the input matrix of the new value is the identity on that `half`
    of the input, the output of a direction; biases hold the other gates open and the memory shut.
    """
    network, units = case.network, case.num_units
    dtype = DTYPES[case.dtype]
    shapes = torch_oracle.state_shapes(network, case.batch)
    inputs = {"input": torch.zeros(case.steps, case.batch, case.input_size, dtype=dtype)}
    inputs.update((name, torch.zeros(shape, dtype=dtype)) for name, shape in shapes.items())
    inputs["params"] = torch.zeros(network.params_size(), dtype=dtype)
    views = network.split(inputs["params"])
    gates = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "u", "n")}.get(case.rnn_mode, ("n",))
    new_value = gates.index("g" if case.rnn_mode == "lstm" else "n")
    biases = {"i": 20.0, "f": -20.0, "o": 20.0, "r": 0.0, "u": -20.0}
    for layer in range(2):
        for direction in range(network.directions):
            bias = views[layer, direction, "bias_ih"]
            for index, gate in enumerate(gates):
                rows = slice(index * units, (index + 1) * units)
                if gate in biases:
                    bias[rows] = biases[gate]
                elif layer == 0:
                    bias[rows] = 1.0
            if layer == 1:
                rows = slice(new_value * units, (new_value + 1) * units)
                columns = slice(half * units, (half + 1) * units)
                matrix = views[1, direction, "weight_ih"]
                matrix[rows, columns] = torch.eye(units, dtype=dtype)
    return inputs


def find_kept(library, case, device, dropout, lengths=None, dropout_call=0, model=None):
    """Returns which elements of its input each direction of the second layer keeps, on the host.

    A bool tensor of shape [directions, T, B, width].
    """

    def run(model):
        halves = []
        for half in range(case.network.directions):
            inputs = place(probe_inputs(case, half), device)
            done = model.forward(inputs, lengths=lengths, dropout_call=dropout_call)
            output = fetch(done.results)["output"]
            assert bool(torch.isfinite(output).all()), f"dropout {dropout}: output is not finite"
            halves.append(torch.stack(output.split(case.num_units, dim=-1)).abs() > 0.1)
        return torch.cat(halves, dim=-1)

    if model is not None:
        return run(model)
    with Model(library, describe(case, dropout=dropout, **OPTIONS), device) as model:
        return run(model)
