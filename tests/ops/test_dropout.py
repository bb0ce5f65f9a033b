"""Dropout: where it acts, its rate and scale, its seeds, and that both passes use one pattern.

The tests find an op's pattern by running the op on a special network, whose output shows the input
of one layer and nothing else; see `pattern_of_layer`.
"""

import numpy as np
import pytest

from helpers import reference
from helpers.cases import COLUMNS, output_shapes, random_arrays, relu_distance
from helpers.op_harness import Network, assert_close, assert_same_bits, run_reference

MODES = COLUMNS["rnn_mode"]
DIRECTIONS = COLUMNS["direction"]


def model(rnn_mode="lstm", direction="unidirectional", num_layers=2, num_units=16, input_size=4):
    return reference.Configuration(
        rnn_mode, "linear_input", direction, num_layers, num_units, input_size
    )


def some_arrays(configuration, batch=3, steps=4, dtype="float64", seed=0):
    random = np.random.RandomState(seed)
    while True:
        arrays = random_arrays(configuration, batch, steps, dtype, random)
        if relu_distance(configuration, arrays) > 1e-6:
            return arrays


# --- finding the pattern ---


def passing_on_params(configuration, layer, half):
    """Returns parameters with which `layer` shows its input and lower layers give a constant.

    In `layer`, unit j of each direction depends only on input element half * units + j, and is zero
    exactly where that element is zero.
    """
    units = configuration.num_units
    params = np.zeros(reference.params_size(configuration))
    candidate_gate = {"lstm": 2, "gru": 2}.get(configuration.rnn_mode, 0)
    for region in reference.regions(configuration):
        size = int(np.prod(region.shape))
        tensor = params[region.offset : region.offset + size].reshape(region.shape)
        is_candidate = region.gate == candidate_gate
        if region.kind == "W" and region.layer == layer and is_candidate:
            tensor[:, half * units : (half + 1) * units] = np.eye(units)
        if region.kind == "bW" and region.layer < layer and is_candidate:
            tensor[...] = 1.0
        # Close the forget or update gate, so that nothing carries over from the previous step.
        if region.kind == "bW" and region.gate == 1 and configuration.gates > 1:
            tensor[...] = -1000.0
    return params


def shown_by_layer(configuration, layer, half, batch, steps, dropout, seed):
    """Returns the output of the `passing_on_params` network: 0 where the layer drops its input."""
    shapes = output_shapes(configuration, batch, steps)
    arrays = {
        "input": np.zeros((steps, batch, configuration.input_size)),
        "input_h": np.zeros(shapes["output_h"]),
        "input_c": np.zeros(shapes["output_c"]),
        "params": passing_on_params(configuration, layer, half),
    }
    with Network(configuration, "float64", dropout=dropout, seed=seed) as network:
        return network.run(arrays, ["output"])["output"]


def pattern_of_layer(configuration, layer, batch, steps, dropout, seed):
    """Returns the factors by which the op multiplies the input of `layer`: [steps, batch, width].

    Runs a network of only layer + 1 layers, because the pattern of a layer's input must not depend
    on the layers above it.
    """
    cut = configuration._replace(num_layers=layer + 1)
    halves = []
    for half in range(configuration.directions):
        shown = shown_by_layer(cut, layer, half, batch, steps, dropout, seed)
        by_direction = np.split(shown, configuration.directions, axis=2)
        # Both directions of a layer read the same input.
        np.testing.assert_array_equal(by_direction[0] != 0.0, by_direction[-1] != 0.0)
        halves.append((by_direction[0] != 0.0) / (1.0 - dropout))
    return np.concatenate(halves, axis=2)


@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_rate_and_scale(dropout, dtype):
    """Every element is zero or 1 / (1 - dropout), and the fraction of zeros is as expected."""
    configuration = model("rnn_relu", num_units=64)
    batch, steps = 20, 50
    shapes = output_shapes(configuration, batch, steps)
    arrays = {
        "input": np.zeros((steps, batch, configuration.input_size), dtype),
        "input_h": np.zeros(shapes["output_h"], dtype),
        "params": passing_on_params(configuration, 1, 0).astype(dtype),
    }
    with Network(configuration, dtype, dropout=dropout, seed=3) as network:
        shown = network.run(arrays, ["output"])["output"].astype(np.float64)
    kept = shown != 0.0
    tolerance = {"float64": 1e-7, "float32": 1e-6, "float16": 1e-3}[dtype]
    np.testing.assert_allclose(shown[kept], 1.0 / (1.0 - dropout), rtol=tolerance)
    standard_error = np.sqrt(dropout * (1.0 - dropout) / shown.size)
    assert abs((1.0 - kept.mean()) - dropout) < 4.0 * standard_error
    # Whole rows, steps or units are not dropped: each slice has its own mixture.
    for axis, width in enumerate(shown.shape):
        others = tuple(other for other in range(3) if other != axis)
        rates = 1.0 - kept.mean(axis=others)
        slice_error = np.sqrt(dropout * (1.0 - dropout) * width / shown.size)
        assert np.abs(rates - dropout).max() < 5.0 * slice_error
        assert rates.std() > 0.5 * slice_error


@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize("rnn_mode", MODES)
def test_patterns_are_unrelated(rnn_mode):
    """The patterns of layers, steps, rows and units are independent."""
    batch, steps, units = 8, 40, 32
    configuration = model(rnn_mode, num_layers=3, num_units=units)
    patterns = [
        pattern_of_layer(configuration, layer, batch, steps, 0.5, seed=5) - 1.0 for layer in (1, 2)
    ]
    # Products of two independent signs have mean 0 and standard error 1 / sqrt(count).
    pairs = [(patterns[0], patterns[1])]
    for pattern in patterns:
        for axis in range(3):
            for shift in (1, 2, 4):
                pairs.append((pattern, np.roll(pattern, shift, axis)))
    for first, second in pairs:
        correlation = (first * second).mean()
        assert abs(correlation) < 4.5 / np.sqrt(first.size)


@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", MODES)
@pytest.mark.parametrize("dropout", [0.3, 0.6])
def test_both_passes_use_the_pattern(rnn_mode, direction, dropout):
    """Outputs and all gradients match the reference with the op's pattern."""
    configuration = model(rnn_mode, direction, num_layers=3, num_units=5)
    arrays = some_arrays(configuration)
    steps, batch = arrays["input"].shape[:2]
    masks = [None] + [
        pattern_of_layer(configuration, layer, batch, steps, dropout, seed=11) for layer in (1, 2)
    ]
    assert all(0.0 < (mask == 0.0).mean() < 1.0 for mask in masks[1:])
    expected = run_reference(configuration, arrays, masks)
    undropped = run_reference(configuration, arrays)
    assert np.abs(expected["output"] - undropped["output"]).max() > 1e-3
    with Network(configuration, "float64", dropout=dropout, seed=11) as network:
        # The rate is a float attribute: 1 / (1 - 0.3f) is not quite 1 / (1 - 0.3).
        assert_close(network.run(arrays), expected, 1e-6, (rnn_mode, direction, dropout))


# --- seeds and repeated calls ---


@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize("switch", ["1", "true"])
@pytest.mark.parametrize("rnn_mode", MODES)
def test_with_the_switch_calls_repeat(rnn_mode, switch, monkeypatch):
    monkeypatch.setenv("TF_CUDNN_RESET_RND_GEN_STATE", switch)
    configuration = model(rnn_mode)
    arrays = some_arrays(configuration)
    with Network(configuration, "float64", dropout=0.5, seed=1, seed2=2) as network:
        first = network.run(arrays)
        for _ in range(3):
            assert_same_bits(network.run(arrays), first)
    with Network(configuration, "float64", dropout=0.5, seed=1, seed2=2) as network:
        assert_same_bits(network.run(arrays), first)


def test_without_the_switch_calls_differ():
    """Each training call drops different elements; the seed determines the sequence of patterns."""
    configuration = model(num_units=32)
    arrays = some_arrays(configuration)
    sequences = []
    for _ in range(2):
        with Network(configuration, "float64", dropout=0.5, seed=1, seed2=2) as network:
            sequences.append([network.run(arrays) for _ in range(4)])
    for first in range(4):
        assert_same_bits(sequences[0][first], sequences[1][first])
        for second in range(first):
            difference = sequences[0][first]["output"] - sequences[0][second]["output"]
            assert np.abs(difference).max() > 1e-3


def test_gradients_belong_to_their_own_call():
    """Without the switch, too, the gradients use the pattern of the same call."""
    configuration = model("rnn_tanh", num_units=6)
    steps, batch = 3, 2
    shapes = output_shapes(configuration, batch, steps)
    # The last layer shows its input. Where its output is 0, no gradient may reach layer 0.
    arrays = {
        "input": np.zeros((steps, batch, configuration.input_size)),
        "input_h": np.zeros(shapes["output_h"]),
        "params": passing_on_params(configuration, 1, 0),
        "output_backprop": np.ones(shapes["output"]),
        "output_h_backprop": np.zeros(shapes["output_h"]),
    }
    with Network(configuration, "float64", dropout=0.5, seed=1) as network:
        for _ in range(5):
            found = network.run(arrays)
            kept = found["output"] != 0.0
            assert 0 < kept.sum() < kept.size
            d_bias = reference.params_to_canonical(configuration, found["d_params"])[1][0]
            layer_0 = np.tanh(1.0)
            slope = 2.0 * (1.0 - np.tanh(2.0 * layer_0) ** 2) * (1.0 - layer_0**2)
            np.testing.assert_allclose(d_bias, slope * kept.sum(axis=(0, 1)), rtol=1e-6)


@pytest.mark.usefixtures("fixed_dropout_pattern")
def test_seed_and_seed2_both_matter():
    configuration = model(num_units=32)
    arrays = some_arrays(configuration)
    outputs = []
    for seed, seed2 in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2**40, 1), (-1, 0)):
        with Network(configuration, "float64", dropout=0.5, seed=seed, seed2=seed2) as network:
            outputs.append(network.run(arrays, ["output"])["output"])
    for second in range(len(outputs)):
        for first in range(second):
            assert np.abs(outputs[first] - outputs[second]).max() > 1e-3, (first, second)


# --- where it acts ---


@pytest.mark.parametrize("dropout", [0.5, 1.0])
def test_inference_ignores_dropout(dropout):
    configuration = model(num_layers=3)
    arrays = some_arrays(configuration)
    results = []
    for rate in (0.0, dropout):
        with Network(configuration, "float64", dropout=rate, is_training=False) as network:
            results.append(network.run(arrays))
    assert_same_bits(results[0], results[1])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_one_layer_has_nothing_to_drop(rnn_mode, direction):
    configuration = model(rnn_mode, direction, num_layers=1)
    arrays = some_arrays(configuration)
    results = []
    for rate in (0.0, 0.5, 1.0):
        with Network(configuration, "float64", dropout=rate, seed=1) as network:
            results.append(network.run(arrays))
    assert_same_bits(results[1], results[0])
    assert_same_bits(results[2], results[0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_dropping_everything(rnn_mode, direction, dtype):
    """Upper layers see zeros, not 0 / 0, and no gradient flows back from them."""
    configuration = model(rnn_mode, direction, num_layers=3, num_units=5)
    arrays = some_arrays(configuration, dtype=dtype)
    steps, batch = arrays["input"].shape[:2]
    zeros = [None] + [np.zeros((steps, batch, configuration.width(1)))] * 2
    expected = run_reference(configuration, arrays, zeros)
    with Network(configuration, dtype, dropout=1.0, seed=1) as network:
        found = network.run(arrays)
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3}[dtype]
    assert_close(found, expected, tolerance, (rnn_mode, direction, dtype))


@pytest.mark.usefixtures("fixed_dropout_pattern")
def test_all_dtypes_drop_the_same_elements():
    """The pattern does not depend on the dtype."""
    configuration = model("rnn_relu", num_units=16)
    shapes = output_shapes(configuration, 3, 4)
    shown = []
    for dtype in ("float64", "float32", "float16"):
        arrays = {
            "input": np.zeros((4, 3, configuration.input_size), dtype),
            "input_h": np.zeros(shapes["output_h"], dtype),
            "params": passing_on_params(configuration, 1, 0).astype(dtype),
        }
        with Network(configuration, dtype, dropout=0.5, seed=9) as network:
            shown.append(network.run(arrays, ["output"])["output"] != 0.0)
    assert 0.0 < shown[0].mean() < 1.0
    np.testing.assert_array_equal(shown[0], shown[1])
    np.testing.assert_array_equal(shown[0], shown[2])
