"""NaN and infinity as data propagate as the arithmetic implies, and no further."""

import numpy as np
import pytest

from helpers import reference
from helpers.cases import COLUMNS, random_arrays, relu_distance
from helpers.op_harness import TOLERANCES, Network

MODES = COLUMNS["rnn_mode"]
DIRECTIONS = COLUMNS["direction"]
ROW = 2


def network_and_arrays(rnn_mode, direction, dtype):
    """Returns a configuration and finite arrays with batch 5 and 6 steps."""
    configuration = reference.Configuration(rnn_mode, "linear_input", direction, 2, 9, 4)
    for seed in range(100):
        arrays = random_arrays(configuration, 5, 6, dtype, np.random.RandomState(seed))
        if rnn_mode != "rnn_relu" or relu_distance(configuration, arrays) > 1e-5:
            return configuration, arrays
    raise AssertionError("no data away from the kink of relu")


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


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", MODES)
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
    units = configuration.num_units
    assert np.isnan(found["output"][:, ROW, :units]).all(), (
        "relu and clipping must not swallow a NaN"
    )
    assert np.isnan(found["output_h"][-1, ROW]).all()
    if rnn_mode != "rnn_relu":  # its slope is 0 or 1 for any argument
        assert np.isnan(found["d_input"][:, ROW]).all()
    assert np.isnan(found["d_params"]).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rnn_mode", MODES)
def test_nan_in_late_steps_leaves_early_outputs(rnn_mode, dtype):
    configuration, arrays = network_and_arrays(rnn_mode, "unidirectional", dtype)
    with Network(configuration, dtype) as network:
        good = network.run(arrays)["output"]
        arrays["input"][3, :, :] = np.nan
        found = network.run(arrays)["output"]
    assert np.isnan(found[3:]).all()
    np.testing.assert_array_equal(found[:3], good[:3])


@pytest.mark.parametrize("rnn_mode", MODES)
def test_nan_in_params_spreads_everywhere(rnn_mode):
    configuration, arrays = network_and_arrays(rnn_mode, "bidirectional", "float32")
    arrays["params"][:] = np.nan
    with Network(configuration, "float32") as network:
        found = network.run(arrays)
    assert all(np.isnan(found[name]).all() for name in ("output", "output_h", "d_params"))


@pytest.mark.parametrize("rnn_mode", MODES)
def test_nan_in_an_output_gradient(rnn_mode):
    """A NaN in an output gradient leaves the outputs alone and reaches the gradients of its row."""
    configuration, arrays = network_and_arrays(rnn_mode, "unidirectional", "float64")
    with Network(configuration, "float64") as network:
        good = network.run(arrays)
        arrays["output_h_backprop"][:, ROW] = np.nan
        found = network.run(arrays)
    assert_other_rows_agree(found, good, TOLERANCES["float64"])
    np.testing.assert_array_equal(found["output"], good["output"])
    assert np.isnan(found["d_input_h"][:, ROW]).any()
    assert np.isnan(found["d_params"]).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_tanh"])
def test_infinity_saturates(rnn_mode, sign, dtype):
    """A bounded activation saturates for an infinite argument as for a huge one.

    Exponentials must not turn infinity or a large number into NaN.
    """
    configuration = reference.Configuration(rnn_mode, "linear_input", "unidirectional", 1, 9, 4)
    random = np.random.RandomState(0)
    arrays = random_arrays(configuration, 5, 3, dtype, random)
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
    configuration, arrays = network_and_arrays("rnn_relu", "unidirectional", dtype)
    arrays["params"] = np.abs(arrays["params"])
    arrays["input"][2, ROW, 1] = np.inf
    with Network(configuration, dtype) as network:
        found = network.run(arrays)["output"]
    assert np.isfinite(found[:2]).all() and np.isfinite(other_rows(found)).all()
    assert np.isposinf(found[2:, ROW]).all()


def test_huge_numbers_in_half_become_infinity_not_garbage():
    """A result above 65504, the largest float16, becomes infinity."""
    configuration = reference.Configuration("rnn_relu", "linear_input", "unidirectional", 1, 3, 4)
    arrays = random_arrays(configuration, 2, 2, "float16", np.random.RandomState(0))
    arrays["params"] = np.abs(arrays["params"])
    arrays["input"][...] = 60000.0
    arrays["params"][: 3 * 4] = 2.0
    with Network(configuration, "float16") as network:
        assert np.isposinf(network.forward(arrays)["output"]).all()
