"""Errors of each dtype and of TF32 in models of real sizes, compared with double."""

import pytest
import torch
from core_cases import make_case
from core_harness import describe, make_data
from core_library import Model

# Layers, units, batch, steps.
SIZES = [(2, 650, 20, 35), (4, 512, 64, 50), (1, 512, 1, 100), (2, 1500, 20, 35), (4, 1024, 64, 50)]
# By name: the dtype, what the model allows, the largest error allowed.
PRECISIONS = {
    "float": (torch.float32, {}, 1e-5),
    "float, highest": (torch.float32, {"precision": "highest", "allow_tf32": True}, 1e-5),
    "TF32": (torch.float32, {"allow_tf32": True}, 2e-3),
    "float, medium": (torch.float32, {"precision": "medium"}, 2e-3),
    "half": (torch.float16, {}, 5e-3),
    "bfloat16": (torch.bfloat16, {}, 2e-2),
}


def train(core, device, case, dtype, options):
    """Returns all results and gradients of a step, as double."""

    def place(tensors):
        return {name: one.to(device, dtype).contiguous() for name, one in tensors.items()}

    description = describe(case, **options)._replace(dtype=dtype)
    inputs, backprops, _ = make_data(case)
    with Model(core, description, device) as model:
        done = model.forward(place(inputs))
        found = dict(done.results, **model.backward(done, place(backprops)))
    return {name: one.double().cpu() for name, one in found.items()}


def errors(found, expected):
    """Returns the largest error over the largest magnitude, and the RMS error over the RMS."""
    difference = found - expected
    largest = difference.abs().max() / expected.abs().max()
    return float(largest), float((difference.square().mean() / expected.square().mean()).sqrt())


@pytest.mark.gpu_only
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "%dx%d-b%d-t%d" % size)
def test_errors_of_each_precision(core, device, record_property, size):
    layers, units, batch, steps = size
    shape = dict(num_layers=layers, num_units=units, input_size=units, batch=batch, steps=steps)
    case = make_case(direction="unidirectional", **shape)
    expected = train(core, device, case, torch.float64, {})
    for name, (dtype, options, allowed) in PRECISIONS.items():
        found = train(core, device, case, dtype, options)
        rows = {key: errors(found[key], value) for key, value in expected.items()}
        record_property(name, {key: ["%.1e" % one for one in row] for key, row in rows.items()})
        assert max(largest for largest, _ in rows.values()) <= allowed, (name, rows)
