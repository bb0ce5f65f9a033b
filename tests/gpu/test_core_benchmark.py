"""Bare cuDNN, the benchmark's baseline, gives the same bits as the core."""

import importlib
import os
import sys

import pytest
import torch
import torch_oracle
from core_cases import PERSISTENT_TOLERANCES, TOLERANCES
from core_harness import assert_close, fetch
from core_library import Description, Model
from torch_oracle import Network

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def benchmark_modules(core, device, monkeypatch):
    """Yields modules of the benchmark; bare cuDNN uses the mock if the core does."""
    for folder in ("", "workers"):
        monkeypatch.syspath_prepend(os.path.join(ROOT, "benchmarks", folder))
    if device.type == "cpu":
        mock = os.environ["CUDNN_RNN_MOCK_CUDNN"]
        monkeypatch.setenv("CUDNN_RNN_BENCHMARK_CUDNN", mock)
    import configurations
    import cudnn_network
    import peers
    import problem

    yield configurations, cudnn_network, peers, problem
    for name in (
        "configurations",
        "core_network",
        "cudnn_network",
        "peers",
        "problem",
        "torch_network",
    ):
        sys.modules.pop(name, None)


# The algorithms of peers.GPU_PEERS["persistent"] and ["core"].
PERSISTENT = [
    pytest.param(name, marks=pytest.mark.persistent)
    for name in ("persist_static", "persist_static_small_h", "persist_dynamic")
]
STANDARD_AND_AUTO = ["standard", pytest.param("auto", marks=pytest.mark.persistent)]


@pytest.mark.cudnn_only
def test_every_algorithm_of_bare_cudnn_is_tested(benchmark_modules):
    _, _, peers, _ = benchmark_modules
    measured = peers.GPU_PEERS["cudnn"] + peers.GPU_PEERS["persistent"]
    tested = ["standard"] + [one.values[0] for one in PERSISTENT]
    assert sorted(peer.options["algorithm"] for peer in measured) == sorted(tested)


@pytest.mark.cudnn_only
@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("algorithm", ["standard"] + PERSISTENT)
def test_bare_cudnn(core, benchmark_modules, device, algorithm, rnn_mode, direction, dtype):
    """The algorithm gives correct results, those of the core, or is refused; standard must work."""
    configurations, cudnn_network, _, problem = benchmark_modules
    network = Network(rnn_mode, direction, 2, 64, 64, "linear_input", 0)
    for is_training in (True, False):
        configuration = configurations.Configuration(
            "gpu", rnn_mode, 2, 64, 64, direction, 4, 6, False, is_training, dtype
        )
        arrays = problem.make_problem(configuration)
        inputs = problem.array_names("input", configuration) + ["params"]
        outputs = problem.array_names("output", configuration)
        options = {"device": device.type, "threads": None, "algorithm": algorithm}
        try:
            run = cudnn_network.Network(configuration, arrays, options)
        except problem.Refused:
            assert algorithm != "standard"
            continue
        run.step()
        tensors = fetch(run.tensors)
        # A weight space without gaps between its regions equals the parameter buffer.
        assert tensors["params"].numel() == network.params_size()
        backprops = {name + "_backprop": tensors[name + "_backprop"] for name in outputs}
        expected = torch_oracle.run(
            network,
            {name: tensors[name] for name in inputs},
            backprops if is_training else None,
        )
        computed = outputs + [name + "_backprop" for name in inputs] * is_training
        found = {name: tensors[name] for name in computed}
        dtypes = {"float": torch.float32, "half": torch.float16}
        tolerances = TOLERANCES if algorithm == "standard" else PERSISTENT_TOLERANCES
        text = f"{algorithm} {configuration}"
        assert_close(found, expected, tolerances[dtypes[dtype]], text)
        inputs = {name: run.tensors[name].clone() for name in inputs}
        backprops = {name: run.tensors[name].clone() for name in backprops}
        run.close()
        description = Description(
            rnn_mode, 2, 64, 64, dtypes[dtype], direction=direction, algorithm=algorithm
        )
        with Model(core, description, device) as model:
            done = model.forward(inputs, is_training=is_training)
            gradients = model.backward(done, backprops) if is_training else {}
            of_core = fetch(dict(done.results, **gradients))
        differing = [name for name in found if not torch.equal(found[name], of_core[name])]
        assert not differing, (text, differing)


@pytest.mark.gpu_only
@pytest.mark.parametrize("algorithm", STANDARD_AND_AUTO)
@pytest.mark.parametrize("is_training", [True, False])
def test_a_step_does_not_wait_for_the_device(benchmark_modules, is_training, algorithm):
    """A step after the first few is queued behind a kernel of 0.1 s before that kernel ends."""
    configurations, _, _, problem = benchmark_modules
    core_network = importlib.import_module("core_network")
    torch_network = importlib.import_module("torch_network")
    configuration = configurations.Configuration(
        "gpu", "lstm", 1, 64, 64, "unidirectional", 4, 6, False, is_training
    )
    options = {"device": "cuda", "threads": None, "algorithm": algorithm}
    run = core_network.Network(configuration, problem.make_problem(configuration), options)
    for _ in range(3):
        run.step()
    launched, done = torch_network.launch_on_gpu(run.step)
    run.close()
    assert launched < done / 2, (launched, done)
