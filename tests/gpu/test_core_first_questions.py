"""What only a GPU can answer, to be asked first: one part of this file for each question."""

import time

import pytest
import torch
import torch_oracle
from core_cases import DIRECTIONS, DTYPES, RNN_MODES, TOLERANCES, Case
from core_harness import (
    assert_close,
    describe,
    fetch,
    find_problem,
    make_data,
    place,
    run_core,
    run_inference,
)
from core_library import INVALID_ARGUMENT, CoreError, CoreLibrary, Model
from core_threads import make_streams, train_at_once
from dropout_probe import OPTIONS, find_kept, make_case

# The largest number of steps that cuDNN accepts.
MAX_STEPS = 65535
THREADS = 8
# The driver gives out device memory in pieces of this size.
BYTES_PER_PIECE = 2**21


@pytest.mark.parametrize("dtype", ["float", "half", "double"])
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_gradient_with_dropout(core, device, rnn_mode, dtype):
    """Results and gradients are those of the mask that the probe finds."""
    case = make_case(rnn_mode, "bidirectional", dtype)
    data = make_data(case)
    kept = find_kept(core, case, device, 0.5)
    assert 0.4 < float(kept.double().mean()) < 0.6
    expected = torch_oracle.run(case.network, *data, masks={1: 2.0 * kept.double()})
    found = run_core(core, case, device, data, dropout=0.5, **OPTIONS)
    assert_close(found, expected, TOLERANCES[DTYPES[dtype]], f"dropout: {case}", case.network)


@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_gradient_with_dropout_is_the_slope_of_the_loss(core, device, rnn_mode):
    """Central differences of the core's own results, along a random direction; no mask is known."""
    case = make_case(rnn_mode, "bidirectional", "double", num_units=8)
    inputs, backprops, _ = make_data(case)
    generator = torch.Generator().manual_seed(case.seed)
    directions = {
        name: torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        for name, tensor in inputs.items()
    }

    def run(model, distance):
        moved = {name: inputs[name] + distance * directions[name] for name in inputs}
        done = model.forward(place(moved, device))
        results = fetch(done.results)
        loss = sum(float((results[name] * backprops[name + "_backprop"]).sum()) for name in results)
        return done, loss

    with Model(core, describe(case, dropout=0.5, **OPTIONS), device) as model:
        gradients = fetch(model.backward(run(model, 0.0)[0], place(backprops, device)))
        slope = (run(model, 1e-6)[1] - run(model, -1e-6)[1]) / 2e-6
    products = {name: gradients[name + "_backprop"] * directions[name] for name in inputs}
    expected = sum(float(product.sum()) for product in products.values())
    size = sum(float((product**2).sum()) for product in products.values()) ** 0.5
    # The differences of losses round at 1e-16 * |loss| / 1e-6.
    assert abs(slope - expected) <= 1e-6 * size, (slope, expected, size)


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_dropout_of_everything(core, device, rnn_mode, dtype):
    """With dropout 1.0, the inputs of all layers but the first are 0, not 0 / 0."""
    case = make_case(rnn_mode, "bidirectional", dtype)._replace(num_layers=3)
    inputs, backprops, _ = data = make_data(case)
    masks = dict.fromkeys((1, 2), torch.zeros([], dtype=torch.float64))
    tolerance = TOLERANCES[DTYPES[dtype]]
    expected = torch_oracle.run(case.network, *data, masks=masks)
    found = run_core(core, case, device, data, dropout=1.0, **OPTIONS)
    assert_close(found, expected, tolerance, f"dropout 1.0: {case}", case.network)
    # Without gradients of its last states, the first layer has none at all.
    for name in ("output_h_backprop", "output_c_backprop"):
        if name in backprops:
            backprops[name][: case.network.directions] = 0.0
    found = run_core(core, case, device, (inputs, backprops, None), dropout=1.0, **OPTIONS)
    parts = case.network.split(found["params_backprop"])
    first = {key: part for key, part in parts.items() if key[0] == 0}
    first["input"] = found["input_backprop"]
    first["input_h"] = found["input_h_backprop"][: case.network.directions]
    wrong = {key: part.flatten()[:6] for key, part in first.items() if not bool((part == 0).all())}
    assert not wrong, (str(case), wrong)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_biases_of_a_skipped_input(core, device, rnn_mode, direction):
    """They act, and have gradients: the first layer has no matrix for its input, but its biases."""
    case = Case(rnn_mode, direction, 2, "float", "skip_input", "full", True, 0, 33, 33, 4, 7)
    network, tolerance = case.network, TOLERANCES[torch.float32]
    inputs, backprops, _ = data = make_data(case)
    expected = torch_oracle.run(network, *data)
    found = run_core(core, case, device, data)
    assert_close(found, expected, tolerance, f"skip_input: {case}", network)
    # A bias's gradient is small beside that of a matrix, so each is compared by itself.
    gradients, expected_gradients = (
        network.split(tensors["params_backprop"]) for tensors in (found, expected)
    )
    for key in [key for key in gradients if key[2].startswith("bias")]:
        assert bool((expected_gradients[key] != 0).any()), key
        part = {str(key): gradients[key]}, {str(key): expected_gradients[key]}
        assert_close(*part, tolerance, f"skip_input: {case}")
    # The comparison sees if one of the first layer's biases is missing.
    for direction_index in range(network.directions):
        for name in ("bias_ih", "bias_hh"):
            without = dict(inputs, params=inputs["params"].clone())
            bias = network.split(without["params"])[0, direction_index, name]
            assert bool((bias != 0).all())
            bias.zero_()
            other = torch_oracle.run(network, without, backprops)
            assert find_problem(found, other, 100 * tolerance), (direction_index, name)


def make_long_case(steps):
    """Returns a case with many steps of a small model."""
    sizes = (2, 1, 1, steps)  # num_units, input_size, batch, steps
    return Case("rnn_tanh", "unidirectional", 1, "double", "linear_input", "full", True, 0, *sizes)


@pytest.mark.cudnn_only
def test_too_many_steps(core, device):
    """More steps than cuDNN takes are refused by an error that says what to do."""
    case = make_long_case(MAX_STEPS + 1)
    steps = case.steps
    inputs = torch_oracle.random_inputs(case.network, 1, steps, torch.float64, case.seed)
    with Model(core, describe(case), device) as model:
        with pytest.raises(CoreError) as caught:
            model.forward(place(inputs, device))
        assert caught.value.code == INVALID_ARGUMENT, caught.value
        for part in ("steps", str(MAX_STEPS), str(steps), "CPU"):
            assert part in caught.value.text, caught.value
        model.forward(place(dict(inputs, input=inputs["input"][:9]), device))


def check_threads(core, device, streams, steps=5):
    """Trains in one thread for each stream at once; all results must be right."""
    case = Case("lstm", "bidirectional", 2, "float", "linear_input", "full", True, 0, 64, 32, 9, 12)
    data = make_data(case)
    expected = torch_oracle.run(case.network, *data)
    results = train_at_once(core, case, device, data, streams, steps)
    for index, found in enumerate(results):
        context = f"thread {index} of {len(streams)}: {case}"
        assert_close(found, expected, TOLERANCES[torch.float32], context, case.network)


@pytest.mark.parametrize("shares_stream", [True, False])
def test_threads_at_once(core, device, shares_stream):
    streams = make_streams(core, device, THREADS)
    check_threads(core, device, streams[:1] * THREADS if shares_stream else streams)


def used_memory(core, device):
    """Returns the bytes in use on the GPU besides PyTorch's; on the mock, the number of handles."""
    if device.type != "cuda":
        return core.mock_handles()
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


@pytest.mark.cudnn_only
def test_memory_of_handles(core, device, record_property):
    """Threads that call at once on one stream share its handle."""
    streams = make_streams(core, device, THREADS + 3)
    used = [used_memory(core, device)]
    time.sleep(0.2)
    if used_memory(core, device) != used[0]:
        pytest.skip("another process is using the GPU, so the memory of handles cannot be measured")
    names = ("1 thread", "1 thread, another stream", "8 threads, 1 stream", "8 threads, 8 streams")
    for chosen in (streams[:1], streams[1:2], streams[2:3] * THREADS, streams[3:]):
        check_threads(core, device, chosen)
        used.append(used_memory(core, device))
    needed = {name: after - before for name, before, after in zip(names, used, used[1:])}
    record_property("memory", dict(needed, before=used[0]))
    # On an H200: 10, 8, 10 and 70 MiB. The driver rounds each to its pieces.
    rounding = BYTES_PER_PIECE if device.type == "cuda" else 0
    handle = max(needed["1 thread"], needed["1 thread, another stream"]) + rounding
    assert needed["8 threads, 1 stream"] <= handle, needed
    assert needed["8 threads, 8 streams"] <= THREADS * handle, needed


@pytest.mark.cudnn_only
def test_most_steps(core, device, record_property):
    """cuDNN takes 65,535 steps. PyTorch's gradient takes 22 s, so the CPU's kernels compute it."""
    case = make_long_case(MAX_STEPS)
    data = make_data(case)
    on_cpu = run_core(CoreLibrary(), case, torch.device("cpu"), data)
    expected = torch_oracle.run(case.network, data[0])
    assert_close({name: on_cpu[name] for name in expected}, expected, 1e-12, f"on the CPU: {case}")
    began = time.monotonic()
    found = run_core(core, case, device, data)
    record_property("seconds", time.monotonic() - began)
    assert_close(found, on_cpu, TOLERANCES[torch.float64], str(case))
    found = run_inference(core, case, device, data)
    assert_close(found, expected, TOLERANCES[torch.float64], f"inference: {case}")
