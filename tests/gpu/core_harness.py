"""Runs cases of core_cases.py on the core and compares the results with the oracle."""

import re

import pytest
import torch
import torch_oracle
from core_cases import DTYPES, TOLERANCES
from core_library import UNIMPLEMENTED, CoreError, Description, Model


def describe(case, **options):
    """Returns the core's `Description` of a case; `options` are further fields."""
    return Description(
        rnn_mode=case.rnn_mode,
        num_layers=case.num_layers,
        num_units=case.num_units,
        input_size=case.input_size,
        dtype=DTYPES[case.dtype],
        input_mode=case.input_mode,
        direction=case.direction,
        num_proj=case.num_proj,
        **options,
    )


def place(tensors, device, time_major=True):
    """Copies time-major host tensors to the device, as batch-major unless `time_major`."""
    return {
        name: (tensor if time_major or tensor.dim() == 1 else tensor.transpose(0, 1))
        .contiguous()
        .to(device)
        for name, tensor in tensors.items()
    }


def fetch(tensors, time_major=True):
    """Copies tensors from the device to time-major float64 host tensors."""
    return {
        name: (tensor if time_major or tensor.dim() == 1 else tensor.transpose(0, 1)).cpu().double()
        for name, tensor in tensors.items()
    }


def spoil_padding(tensors, names, lengths):
    """Fills the padding of time-major tensors with NaN, to detect reads of it."""
    if lengths is not None:
        for name in names:
            for index, length in enumerate(lengths):
                tensors[name][length:, index] = float("nan")


def relative_error(found, expected):
    """Returns the largest difference over the largest expected magnitude, or inf if not finite."""
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    if not expected.numel():
        return 0.0
    largest = float(expected.abs().max())
    error = float((found - expected).abs().max())
    return error / largest if largest else error


def assert_close(found, expected, tolerance, context):
    """Asserts that two dicts of tensors agree in names, shapes and values."""
    assert sorted(found) == sorted(expected), context
    errors = {}
    for name, tensor in expected.items():
        assert found[name].shape == tensor.shape, (name, found[name].shape, tensor.shape, context)
        errors[name] = relative_error(found[name], tensor)
    wrong = {name: error for name, error in errors.items() if not error <= tolerance}
    assert not wrong, f"{context}\nrelative errors {errors}, allowed {tolerance:g}"


def make_data(case):
    """Returns inputs and result gradients, time-major on the host, and lengths."""
    dtype = DTYPES[case.dtype]
    lengths = case.sequence_lengths()
    inputs = torch_oracle.random_inputs(case.network, case.batch, case.steps, dtype, case.seed)
    results = torch_oracle.run(case.network, inputs, lengths=lengths)
    results = {name: tensor.to(dtype) for name, tensor in results.items()}
    backprops = torch_oracle.random_backprops(case.network, results, case.seed)
    spoil_padding(inputs, ["input"], lengths)
    spoil_padding(backprops, ["output_backprop"], lengths)
    return inputs, backprops, lengths


def train(model, case, device, data):
    """Returns results and gradients of a training step, time-major in float64 on the host."""
    inputs, backprops, lengths = data
    options = dict(lengths=lengths, time_major=case.time_major)
    done = model.forward(place(inputs, device, case.time_major), **options)
    gradients = model.backward(done, place(backprops, device, case.time_major))
    return fetch(dict(done.results, **gradients), case.time_major)


def run_core(library, case, device, data, **description_options):
    """Returns the results of `train` for a new model."""
    with Model(library, describe(case, **description_options), device) as model:
        return train(model, case, device, data)


def run_inference(library, case, device, data, **description_options):
    """Returns the results of inference, time-major in float64 on the host."""
    inputs, _, lengths = data
    options = dict(lengths=lengths, time_major=case.time_major, is_training=False)
    with Model(library, describe(case, **description_options), device) as model:
        done = model.forward(place(inputs, device, case.time_major), **options)
        return fetch(done.results, case.time_major)


def is_refused(library, case, device):
    """Returns whether cuDNN is too old for the case's dtype; checks that the core says so."""
    if case.dtype != "bfloat16" or not library.is_on_gpu(device):
        return False
    version = re.search(r"cuDNN (\d+)\.(\d+)", library.gpu_report()).groups()
    if tuple(map(int, version)) >= (9, 13):
        return False
    with pytest.raises(CoreError, match=r"cuDNN 9\.13\.0 and newer") as caught:
        run_core(library, case, device, make_data(case))
    assert caught.value.code == UNIMPLEMENTED
    return True


def check_case(library, case, device, **description_options):
    """Checks training with all gradients, and inference, where dropout must have no effect."""
    if is_refused(library, case, device):
        return
    data = make_data(case)
    inputs, backprops, lengths = data
    expected = torch_oracle.run(case.network, inputs, backprops, lengths)
    tolerance = TOLERANCES[DTYPES[case.dtype]]
    found = run_core(library, case, device, data, **description_options)
    assert_close(found, expected, tolerance, f"training: {case}")
    found = run_inference(library, case, device, data, dropout=0.5, **description_options)
    results = {name: tensor for name, tensor in expected.items() if not name.endswith("backprop")}
    assert_close(found, results, tolerance, f"inference: {case}")
