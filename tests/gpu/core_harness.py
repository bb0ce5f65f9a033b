"""Runs cases of core_cases.py on the core and compares the results with the oracle."""

import re

import numpy
import pytest
import torch
import torch_oracle
from core_cases import DTYPES, PERSISTENT_TOLERANCES, TOLERANCES
from core_library import UNIMPLEMENTED, CoreError, Description, Model

# How much of an error is shown: records keep its last 3000 characters.
_SHOWN_TENSORS, _SHOWN_PARTS, _SHOWN_VALUES = 3, 8, 6


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


def assert_close(found, expected, tolerance, context, network=None):
    """Asserts that two dicts of tensors agree in names, shapes and values.

    Args:
      found: a dict of tensors.
      expected: a dict of tensors.
      tolerance: the largest allowed relative error of each tensor.
      context: the start of the error's text.
      network: if given, the error names the parts of params_backprop that are wrong.
    """
    problem = find_problem(found, expected, tolerance, network)
    if problem:
        raise AssertionError(f"{context}\n{problem}")


def find_problem(found, expected, tolerance, network=None):
    """Returns the differences for which `assert_close` fails, as text; "" if there are none.

    On a borrowed machine the text is all that is left of the tensors.
    """
    shapes, expected_shapes = (
        {name: list(tensor.shape) for name, tensor in sorted(tensors.items())}
        for tensors in (found, expected)
    )
    if shapes != expected_shapes:
        return f"found tensors of shapes {shapes}, expected {expected_shapes}"
    errors = {name: relative_error(found[name], tensor) for name, tensor in expected.items()}
    wrong = [name for name, error in errors.items() if not error <= tolerance]
    if not wrong:
        return ""
    text = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
    lines = [f"relative errors (allowed {tolerance:g}): {text}"]
    lines += [_describe_error(name, found[name], expected[name]) for name in wrong[:_SHOWN_TENSORS]]
    if network is not None and "params_backprop" in wrong:
        parts = network.split(found["params_backprop"])
        expected_parts = network.split(expected["params_backprop"])
        errors = {key: relative_error(part, expected_parts[key]) for key, part in parts.items()}
        wrong = [key for key, error in errors.items() if not error <= tolerance]
        text = ", ".join(f"{key} {errors[key]:.1e}" for key in wrong[:_SHOWN_PARTS])
        lines.append(
            f"params_backprop differs in {len(wrong)} of {len(parts)} parts, (layer, direction,"
            f" name), by relative errors: {text}"
        )
    return "\n".join(lines)


def _describe_error(name, found, expected):
    """Returns where the error of a tensor is largest, and the first values of both."""
    finite = torch.isfinite(found)
    errors = torch.where(finite, (found - expected).abs(), torch.full_like(found, float("inf")))
    place = tuple(int(i) for i in numpy.unravel_index(int(errors.argmax()), tuple(errors.shape)))
    values, expected_values = (
        " ".join(f"{value:.6g}" for value in tensor.flatten()[:_SHOWN_VALUES].tolist())
        for tensor in (found, expected)
    )
    return (
        f"{name} {list(found.shape)}: largest error {float(errors[place]):.3g} at {list(place)},"
        f" where {float(found[place]):.9g} was found and {float(expected[place]):.9g} expected;"
        f" {int((~finite).sum())} of {found.numel()} elements are not finite\n"
        f"  found    {values}\n  expected {expected_values}"
    )


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


def train(model, case, device, data, **call_options):
    """Returns results and gradients of a training step, time-major in float64 on the host."""
    inputs, backprops, lengths = data
    options = dict(call_options, lengths=lengths, time_major=case.time_major)
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
    is_standard = description_options.get("algorithm", "standard") == "standard"
    tolerance = (TOLERANCES if is_standard else PERSISTENT_TOLERANCES)[DTYPES[case.dtype]]
    found = run_core(library, case, device, data, **description_options)
    assert_close(found, expected, tolerance, f"training: {case}", case.network)
    found = run_inference(library, case, device, data, dropout=0.5, **description_options)
    results = {name: tensor for name, tensor in expected.items() if not name.endswith("backprop")}
    assert_close(found, results, tolerance, f"inference: {case}")
