"""The core's calls: repeatability, changing shapes, algorithms, streams, and refused arguments."""

import pytest
import torch
import torch_oracle
from core_cases import DTYPES, TOLERANCES, make_case
from core_harness import (
    assert_close,
    check_case,
    describe,
    fetch,
    is_refused,
    make_data,
    place,
    run_core,
    run_inference,
    train,
)
from core_library import (
    ALGORITHMS,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    CoreError,
    Description,
    GuardedBuffer,
    Model,
)

FORCED_ALGORITHMS = [
    name if name == "standard" else pytest.param(name, marks=pytest.mark.persistent)
    for name in ALGORITHMS
    if name != "auto"
]


def assert_same_bits(found, expected, context):
    """Asserts that two dicts of tensors have equal values."""
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert bool((found[name] == tensor).all()), (name, context)


@pytest.mark.parametrize("lengths", ["full", "zeros"])
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_relu", "rnn_tanh"])
def test_deterministic_results_repeat_bit_for_bit(core, device, rnn_mode, dtype, lengths):
    """A new model repeats the results bit for bit, also after other work on the device."""
    case = make_case(rnn_mode, dtype, lengths, num_units=128, batch=33, steps=20)
    if is_refused(core, case, device):
        return
    data = make_data(case)
    options = dict(dropout=0.25, seed=3, deterministic=True)
    first = run_core(core, case, device, data, **options)
    torch.ones(1000, 1000, device=device) @ torch.ones(1000, 1000, device=device)
    for _ in range(3):
        assert_same_bits(run_core(core, case, device, data, **options), first, str(case))


def test_one_model_for_changing_shapes_and_lengths(core, device):
    """One model creates plans on demand and never uses a plan of another shape."""
    small = make_case(lengths="zeros", batch=3, steps=5)
    cases = [
        small,
        small._replace(batch=7),
        small._replace(steps=11),
        small._replace(lengths="mixed"),
        small._replace(lengths="full"),
        small._replace(time_major=False),
        small,
    ]
    with Model(core, describe(small), device) as model:
        for case in cases:
            data = make_data(case)
            found = train(model, case, device, data)
            expected = torch_oracle.run(case.network, *data)
            assert_close(found, expected, TOLERANCES[torch.float32], str(case))


@pytest.mark.parametrize("offset", [16, 64])
@pytest.mark.parametrize("dtype", ["float", "half"])
def test_buffers_with_other_alignment_than_cudnns(core, device, monkeypatch, dtype, offset):
    """Parameters, their gradient, workspaces and reserve spaces; PyTorch aligns to 512 bytes."""
    case = make_case("lstm", dtype, "mixed", batch=5, steps=8)
    data = make_data(case)
    expected = torch_oracle.run(case.network, *data)
    inputs, backprops, lengths = data
    monkeypatch.setattr(GuardedBuffer, "offset", offset)
    with Model(core, describe(case), device) as model:
        placed = place(inputs, device)
        before = torch.zeros_like(placed["params"][: offset // placed["params"].element_size()])
        placed["params"] = torch.cat([before, placed["params"]])[len(before) :]
        assert placed["params"].data_ptr() % 256 == offset or device.type == "cpu"
        done = model.forward(placed, lengths=lengths)
        gradients = model.backward(done, place(backprops, device))
    found = fetch(dict(done.results, **gradients))
    assert_close(found, expected, TOLERANCES[DTYPES[dtype]], str(case), case.network)


def test_many_lengths_for_one_shape(core, device):
    """Thirty calls of one model, each with different lengths, give correct results."""
    case = make_case("gru", batch=5, steps=8)
    generator = torch.Generator().manual_seed(1)
    inputs = torch_oracle.random_inputs(case.network, 5, 8, torch.float32, 2)
    with Model(core, describe(case), device) as model:
        for _ in range(30):
            lengths = torch.randint(0, 9, [5], generator=generator).tolist()
            done = model.forward(place(inputs, device), lengths=lengths)
            expected = torch_oracle.run(case.network, inputs, lengths=lengths)
            assert_close(fetch(done.results), expected, TOLERANCES[torch.float32], str(lengths))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_units": 0},
        {"num_units": -5},
        {"num_layers": 0},
        {"input_size": -1},
        {"num_proj": 65},
        {"num_proj": -1},
        {"dropout": 1.5},
        {"dropout": float("nan")},
        {"num_units": 2**62},
        {"num_layers": 2**40, "num_units": 2**40},
    ],
    ids=str,
)
def test_invalid_models_are_refused(core, device, changes):
    values = dict(rnn_mode="lstm", num_layers=2, num_units=64, input_size=32)
    with pytest.raises(CoreError) as caught:
        with Model(core, Description(**dict(values, **changes)), device) as model:
            model.prepare(model.make_call(3, 2))
    assert caught.value.code == INVALID_ARGUMENT, caught.value.text
    assert any(name in caught.value.text for name in list(changes) + ["size"]), caught.value.text


@pytest.mark.parametrize("lengths", [[1, 2, 9], [1, -1, 2], [2**31 - 1, 1, 1]], ids=str)
def test_lengths_out_of_range_are_refused(core, device, lengths):
    case = make_case(batch=3, steps=8)
    inputs = torch_oracle.random_inputs(case.network, 3, 8, torch.float32, 1)
    with Model(core, describe(case), device) as model:
        with pytest.raises(CoreError) as caught:
            model.forward(place(inputs, device), lengths=lengths)
        assert caught.value.code == INVALID_ARGUMENT
        assert "sequence_lengths" in caught.value.text
        model.forward(place(inputs, device), lengths=[1, 0, 8])


def test_reserve_space_of_another_size_is_refused(core, device):
    case = make_case()
    inputs, backprops, _ = make_data(case)
    with Model(core, describe(case), device) as model:
        done = model.forward(place(inputs, device))
        whole = done.sizes.reserve_space_bytes
        for size in (0, whole - 1, whole + 64):
            with pytest.raises(CoreError) as caught:
                model.backward(done, place(backprops, device), reserve_space_bytes=size)
            assert caught.value.code == INVALID_ARGUMENT
            assert "reserve_space" in caught.value.text and str(size) in caught.value.text
        model.backward(done, place(backprops, device))


@pytest.mark.gpu_only
def test_the_report_names_the_libraries_in_use(core):
    report = core.gpu_report()
    version = torch.backends.cudnn.version()
    text = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    assert text in report, report
    assert "libcudnn" in report and "NVIDIA driver" in report, report


@pytest.mark.cudnn_only
@pytest.mark.parametrize("lengths", ["full", "mixed"])
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_relu", "rnn_tanh"])
@pytest.mark.parametrize("algorithm", FORCED_ALGORITHMS)
def test_forced_algorithm(core, device, algorithm, rnn_mode, dtype, lengths):
    """The requested algorithm gives correct results, or an error names it; standard must work."""
    for direction in ("unidirectional", "bidirectional"):
        for num_units in (64, 128):
            case = make_case(
                rnn_mode, dtype, lengths, direction=direction, num_units=num_units, batch=4
            )
            if is_refused(core, case, device):
                continue
            try:
                with Model(core, describe(case, algorithm=algorithm), device) as model:
                    call = model.make_call(case.steps, case.batch, lengths=case.sequence_lengths())
                    chosen = ALGORITHMS[model.prepare(call).choice.algorithm]
            except CoreError as error:
                assert algorithm != "standard", error
                assert error.code in (UNIMPLEMENTED, INVALID_ARGUMENT), error
                assert algorithm in error.text, error
                continue
            assert chosen == algorithm
            check_case(core, case, device, algorithm=algorithm)


@pytest.mark.cudnn_only
@pytest.mark.persistent
@pytest.mark.parametrize("dtype", ["half", "float"])
@pytest.mark.parametrize("batch", [1, 3, 12])
def test_persist_static_of_any_batch_size(core, device, batch, dtype):
    """Sizes that `auto` tries on sm_90: PyTorch uses multiples of 8 alone."""
    case = make_case("lstm", dtype, num_units=512, input_size=512, batch=batch)
    check_case(core, case, device, algorithm="persist_static")


@pytest.mark.cudnn_only
@pytest.mark.parametrize("algorithm", FORCED_ALGORITHMS)
def test_refused_algorithm_leaves_the_device_usable(core, device, algorithm):
    """After an error for projection, double or zero lengths, the device still works."""
    case = make_case(dtype="double", lengths="zeros", num_proj=16)
    try:
        check_case(core, case, device, algorithm=algorithm)
    except CoreError as error:
        assert algorithm != "standard" and algorithm in error.text, error
    check_case(core, case, device)


@pytest.mark.cudnn_only
@pytest.mark.persistent
def test_automatic_choice_is_the_same_in_training_forward_and_backward(core, device):
    """The automatic algorithm gives correct results; deterministic models use the standard one."""
    case = make_case(num_layers=1, direction="unidirectional", num_units=512, batch=1, steps=100)
    check_case(core, case, device, algorithm="auto")
    with Model(core, describe(case, algorithm="auto", deterministic=True), device) as model:
        sizes = model.prepare(model.make_call(case.steps, case.batch))
    assert ALGORITHMS[sizes.choice.algorithm] == "standard"


@pytest.mark.gpu_only
def test_float_is_not_tf32_unless_allowed(core, device):
    """TF32 rounds the factors to 11 bits: an error about a thousand times that of float."""
    case = make_case(direction="unidirectional", num_units=512, input_size=512, batch=64)
    data = make_data(case)
    inputs = data[0]
    expected = torch_oracle.run(case.network, inputs)
    exact = run_inference(core, case, device, data)
    assert_close(exact, expected, TOLERANCES[torch.float32], str(case))
    allowed = run_inference(core, case, device, data, allow_tf32=True)
    assert_close(allowed, expected, 5e-3, str(case))


@pytest.mark.gpu_only
def test_other_streams(core, device):
    """Work is queued on the call's stream, after the work already queued there."""
    case = make_case("gru")
    inputs, backprops, _ = make_data(case)
    expected = torch_oracle.run(case.network, inputs, backprops)
    for _ in range(3):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            with Model(core, describe(case), device) as model:
                placed = place(inputs, device)
                late = torch.zeros_like(placed["input"])
                torch.cuda._sleep(20_000_000)
                late.copy_(placed["input"])
                done = model.forward(dict(placed, input=late))
                gradients = model.backward(done, place(backprops, device))
                found = fetch(dict(done.results, **gradients))
        assert_close(found, expected, TOLERANCES[torch.float32], str(case))


@pytest.mark.gpu_only
@pytest.mark.fills_memory
def test_calls_succeed_again_after_out_of_memory(core, device):
    """If the GPU is full, allocating the dropout state is refused; later calls work."""
    case = make_case(num_units=256)
    data = make_data(case)
    torch.cuda.empty_cache()
    fill, size = [], torch.cuda.mem_get_info()[0]
    while size >= 2**12:
        try:
            fill.append(torch.empty(size, dtype=torch.uint8, device=device))
        except torch.cuda.OutOfMemoryError:
            size //= 2
    with pytest.raises((CoreError, torch.cuda.OutOfMemoryError)) as caught:
        with Model(core, describe(case, dropout=0.5), device) as model:
            model.prepare(model.make_call(case.steps, case.batch))
    del fill
    torch.cuda.empty_cache()
    assert isinstance(caught.value, CoreError), caught.value
    assert caught.value.code == RESOURCE_EXHAUSTED, caught.value
    assert "memory" in caught.value.text
    expected = torch_oracle.run(case.network, *data)
    found = run_core(core, case, device, data)
    assert_close(found, expected, TOLERANCES[torch.float32], str(case))


@pytest.mark.gpu_only
def test_params_in_host_memory_are_refused(core, device):
    case = make_case("gru")
    inputs = make_data(case)[0]
    placed = place(inputs, device)
    with Model(core, describe(case), device) as model:
        with pytest.raises(AssertionError, match="params"):
            model.forward(dict(placed, params=inputs["params"]))
        model.forward(placed)
