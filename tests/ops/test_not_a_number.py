"""NaN and infinity as data propagate as the arithmetic implies, and no further."""

import numpy as np
import pytest

from helpers import reference
from helpers.networks import (
    every_dtype,
    every_mode,
    every_mode_and_direction,
    model,
    run_network,
    seeded_arrays,
)
from helpers.op_harness import TOLERANCES, Network

pytestmark = pytest.mark.once

ROW = 2


def network_and_arrays(rnn_mode, direction="unidirectional", dtype="float32"):
    """Returns a configuration and finite arrays with batch 5 and 6 steps."""
    configuration = model(rnn_mode, direction, num_units=9)
    return configuration, seeded_arrays(configuration, 5, 6, dtype)


def other_rows(array):
    return np.delete(array, ROW, axis=1)


def assert_other_rows_agree(found, good, tolerance):
    """Asserts that the results of all rows except ROW are finite and unchanged."""
    for name, value in good.items():
        if name != "d_params":
            expected = other_rows(value)
            assert np.isfinite(other_rows(found[name])).all(), name
            error = np.abs(other_rows(found[name]) - expected).max()
            assert error <= tolerance * np.abs(expected).max(), name


@every_dtype
@every_mode_and_direction
@pytest.mark.parametrize("where", ["input", "input_h"])
def test_nan_in_a_row_stays_in_the_row(rnn_mode, direction, dtype, where):
    configuration, arrays = network_and_arrays(rnn_mode, direction, dtype)
    with Network(configuration, dtype) as network:
        good = network.run(arrays)
        spoiled = dict(arrays, **{where: arrays[where].copy()})
        # NaN in the first step, or in every layer's state, makes all later values of the row NaN.
        spoiled[where][: 1 if where == "input" else None, ROW, 1] = np.nan
        found = network.run(spoiled)
    assert_other_rows_agree(found, good, TOLERANCES[dtype])
    is_nan = np.isnan(found["output"][:, ROW, : configuration.num_units])
    assert is_nan.all(), "relu and clipping must not swallow a NaN"
    assert np.isnan(found["output_h"][-1, ROW]).all()
    if rnn_mode != "rnn_relu":  # its slope is 0 or 1 for any argument
        assert np.isnan(found["d_input"][:, ROW]).all()
    assert np.isnan(found["d_params"]).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_mode
def test_nan_in_late_steps_leaves_early_outputs(rnn_mode, dtype):
    configuration, arrays = network_and_arrays(rnn_mode, dtype=dtype)
    with Network(configuration, dtype) as network:
        good = network.run(arrays)["output"]
        arrays["input"][3, :, :] = np.nan
        found = network.run(arrays)["output"]
    assert np.isnan(found[3:]).all()
    np.testing.assert_array_equal(found[:3], good[:3])


@every_mode
def test_nan_in_params_spreads_everywhere(rnn_mode):
    configuration, arrays = network_and_arrays(rnn_mode, "bidirectional")
    arrays["params"][:] = np.nan
    found = run_network(configuration, "float32", arrays)
    assert all(np.isnan(found[name]).all() for name in ("output", "output_h", "d_params"))


@every_mode
def test_nan_in_an_output_gradient(rnn_mode):
    """A NaN in an output gradient leaves the outputs alone and reaches the gradients of its row."""
    configuration, arrays = network_and_arrays(rnn_mode, dtype="float64")
    with Network(configuration, "float64") as network:
        good = network.run(arrays)
        arrays["output_h_backprop"][:, ROW] = np.nan
        found = network.run(arrays)
    assert_other_rows_agree(found, good, TOLERANCES["float64"])
    np.testing.assert_array_equal(found["output"], good["output"])
    assert np.isnan(found["d_input_h"][:, ROW]).any()
    assert np.isnan(found["d_params"]).any()


@every_dtype
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_tanh"])
def test_infinity_saturates(rnn_mode, sign, dtype):
    """A bounded activation saturates for an infinite argument as for a huge one.

    Exponentials must not turn infinity or a large number into NaN.
    """
    configuration = model(rnn_mode, num_layers=1, num_units=9)
    arrays = seeded_arrays(configuration, 5, 3, dtype)
    results = []
    for large in (np.inf, 60000.0):
        weights, biases = reference.params_to_canonical(configuration, arrays["params"])
        biases[-1][...] = 0.0
        biases[0][...] = sign * large
        for bias in biases[1 : configuration.gates]:
            bias[...] = sign * large
        with Network(configuration, dtype) as network:
            results.append(network.forward(arrays))
    for name, value in results[0].items():
        assert np.isfinite(value).all(), name
        np.testing.assert_array_equal(value, results[1][name])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinity_passes_through_relu(dtype):
    configuration, arrays = network_and_arrays("rnn_relu", dtype=dtype)
    arrays["params"] = np.abs(arrays["params"])
    arrays["input"][2, ROW, 1] = np.inf
    found = run_network(configuration, dtype, arrays)["output"]
    assert np.isfinite(found[:2]).all() and np.isfinite(other_rows(found)).all()
    assert np.isposinf(found[2:, ROW]).all()


def test_huge_numbers_in_half_become_infinity_not_garbage():
    """A result above 65504, the largest float16, becomes infinity."""
    configuration = model("rnn_relu", num_layers=1, num_units=3)
    arrays = seeded_arrays(configuration, 2, 2, "float16")
    arrays["params"] = np.abs(arrays["params"])
    arrays["input"][...] = 60000.0
    arrays["params"][: 3 * 4] = 2.0
    found = run_network(configuration, "float16", arrays, ["output"])
    assert np.isposinf(found["output"]).all()
