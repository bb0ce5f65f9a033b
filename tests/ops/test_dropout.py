"""Dropout: where it acts, its rate and scale, its seeds, and that both passes use one pattern.

The tests find an op's pattern by running the op on a special network, whose output shows the input
of one layer and nothing else; see `pattern_of_layer`.
"""

import itertools

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
from helpers.op_harness import TOLERANCES, Network, assert_close, assert_same_bits, run_reference

pytestmark = pytest.mark.once

BATCH, STEPS = 3, 4
fixed_pattern = pytest.mark.usefixtures("fixed_dropout_pattern")


def some_arrays(configuration, dtype="float64"):
    return seeded_arrays(configuration, BATCH, STEPS, dtype)


def assert_all_differ(outputs):
    for one, two in itertools.combinations(outputs, 2):
        assert np.abs(one - two).max() > 1e-3


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
        tensor = reference.view(params, region)
        is_candidate = region.gate == candidate_gate
        if region.kind == "W" and region.layer == layer and is_candidate:
            tensor[:, half * units : (half + 1) * units] = np.eye(units)
        if region.kind == "bW" and region.layer < layer and is_candidate:
            tensor[...] = 1.0
        # Close the forget or update gate, so that nothing carries over from the previous step.
        if region.kind == "bW" and region.gate == 1 and configuration.gates > 1:
            tensor[...] = -1000.0
    return params


def showing_arrays(configuration, batch, steps, layer=1, half=0, dtype="float64"):
    """Returns inputs with which the output is 0 where `layer` drops its input."""
    arrays = seeded_arrays(configuration, batch, steps, dtype)
    arrays = {name: np.zeros_like(array) for name, array in arrays.items()}
    arrays["params"] = passing_on_params(configuration, layer, half).astype(dtype)
    return arrays


def pattern_of_layer(configuration, layer, batch, steps, dropout, seed):
    """Returns the factors by which the op multiplies the input of `layer`: [steps, batch, width].

    Runs a network of only layer + 1 layers, because the pattern of a layer's input must not depend
    on the layers above it.
    """
    cut = configuration._replace(num_layers=layer + 1)
    halves = []
    for half in range(configuration.directions):
        arrays = showing_arrays(cut, batch, steps, layer, half)
        shown = run_network(cut, "float64", arrays, dropout=dropout, seed=seed)["output"]
        by_direction = np.split(shown, configuration.directions, axis=2)
        # Both directions of a layer read the same input.
        np.testing.assert_array_equal(by_direction[0] != 0.0, by_direction[-1] != 0.0)
        halves.append((by_direction[0] != 0.0) / (1.0 - dropout))
    return np.concatenate(halves, axis=2)


@fixed_pattern
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.8])
@every_dtype
def test_rate_and_scale(dropout, dtype):
    """Every element is zero or 1 / (1 - dropout), and the fraction of zeros is as expected."""
    configuration = model("rnn_relu", num_units=64)
    arrays = showing_arrays(configuration, 20, 50, dtype=dtype)
    shown = run_network(configuration, dtype, arrays, ["output"], dropout=dropout, seed=3)["output"]
    shown = shown.astype(np.float64)
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


@fixed_pattern
@every_mode
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


@fixed_pattern
@every_mode_and_direction
@pytest.mark.parametrize("dropout", [0.3, 0.6])
def test_both_passes_use_the_pattern(rnn_mode, direction, dropout):
    """Outputs and all gradients match the reference with the op's pattern."""
    configuration = model(rnn_mode, direction, num_layers=3, num_units=5)
    arrays = some_arrays(configuration)
    masks = [None] + [
        pattern_of_layer(configuration, layer, BATCH, STEPS, dropout, seed=11) for layer in (1, 2)
    ]
    assert all(0.0 < (mask == 0.0).mean() < 1.0 for mask in masks[1:])
    expected = run_reference(configuration, arrays, masks)
    undropped = run_reference(configuration, arrays)
    assert_all_differ([expected["output"], undropped["output"]])
    with Network(configuration, "float64", dropout=dropout, seed=11) as network:
        # The rate is a float attribute: 1 / (1 - 0.3f) is not quite 1 / (1 - 0.3).
        assert_close(network.run(arrays), expected, 1e-6, (rnn_mode, direction, dropout))


# --- seeds and repeated calls ---


@pytest.mark.parametrize("switch", ["1", "true"])
@every_mode
def test_with_the_switch_calls_repeat(rnn_mode, switch, monkeypatch):
    monkeypatch.setenv("TF_CUDNN_RESET_RND_GEN_STATE", switch)
    configuration = model(rnn_mode)
    arrays = some_arrays(configuration)
    first = None
    for _ in range(2):
        with Network(configuration, "float64", dropout=0.5, seed=1, seed2=2) as network:
            for _ in range(4):
                found = network.run(arrays)
                first = first or found
                assert_same_bits(found, first)


def test_without_the_switch_calls_differ():
    """Each training call drops different elements; the seed determines the sequence of patterns."""
    configuration = model(num_units=32)
    arrays = some_arrays(configuration)
    sequences = []
    for _ in range(2):
        with Network(configuration, "float64", dropout=0.5, seed=1, seed2=2) as network:
            sequences.append([network.run(arrays) for _ in range(4)])
    for first, second in zip(*sequences):
        assert_same_bits(first, second)
    assert_all_differ([found["output"] for found in sequences[0]])


def test_gradients_belong_to_their_own_call():
    """Without the switch, too, the gradients use the pattern of the same call."""
    configuration = model("rnn_tanh", num_units=6)
    # The last layer shows its input. Where its output is 0, no gradient may reach layer 0.
    arrays = showing_arrays(configuration, 2, 3)
    arrays["output_backprop"][...] = 1.0
    with Network(configuration, "float64", dropout=0.5, seed=1) as network:
        for _ in range(5):
            found = network.run(arrays)
            kept = found["output"] != 0.0
            assert 0 < kept.sum() < kept.size
            d_bias = reference.params_to_canonical(configuration, found["d_params"])[1][0]
            layer_0 = np.tanh(1.0)
            slope = 2.0 * (1.0 - np.tanh(2.0 * layer_0) ** 2) * (1.0 - layer_0**2)
            np.testing.assert_allclose(d_bias, slope * kept.sum(axis=(0, 1)), rtol=1e-6)


@fixed_pattern
def test_seed_and_seed2_both_matter():
    configuration = model(num_units=32)
    arrays = some_arrays(configuration)
    outputs = []
    for seed, seed2 in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2**40, 1), (-1, 0)):
        options = dict(dropout=0.5, seed=seed, seed2=seed2)
        outputs.append(run_network(configuration, "float64", arrays, **options)["output"])
    assert_all_differ(outputs)


# --- where it acts ---


@pytest.mark.parametrize("dropout", [0.5, 1.0])
def test_inference_ignores_dropout(dropout):
    configuration = model(num_layers=3)
    arrays = some_arrays(configuration)
    first, second = (
        run_network(configuration, "float64", arrays, dropout=rate, is_training=False)
        for rate in (0.0, dropout)
    )
    assert_same_bits(first, second)


@every_mode_and_direction
def test_one_layer_has_nothing_to_drop(rnn_mode, direction):
    configuration = model(rnn_mode, direction, num_layers=1)
    arrays = some_arrays(configuration)
    expected = run_network(configuration, "float64", arrays, seed=1)
    for rate in (0.5, 1.0):
        found = run_network(configuration, "float64", arrays, dropout=rate, seed=1)
        assert_same_bits(found, expected)


@every_dtype
@every_mode_and_direction
def test_dropping_everything(rnn_mode, direction, dtype):
    """Upper layers see zeros, not 0 / 0, and no gradient flows back from them."""
    configuration = model(rnn_mode, direction, num_layers=3, num_units=5)
    arrays = some_arrays(configuration, dtype)
    zeros = [None] + [np.zeros((STEPS, BATCH, configuration.width(1)))] * 2
    expected = run_reference(configuration, arrays, zeros)
    found = run_network(configuration, dtype, arrays, dropout=1.0, seed=1)
    assert_close(found, expected, TOLERANCES[dtype], (rnn_mode, direction, dtype))


@fixed_pattern
def test_all_dtypes_drop_the_same_elements():
    """The pattern does not depend on the dtype."""
    configuration = model("rnn_relu", num_units=16)
    shown = []
    for dtype in ("float64", "float32", "float16"):
        arrays = showing_arrays(configuration, BATCH, STEPS, dtype=dtype)
        found = run_network(configuration, dtype, arrays, dropout=0.5, seed=9)
        shown.append(found["output"] != 0.0)
    assert 0.0 < shown[0].mean() < 1.0
    np.testing.assert_array_equal(shown[0], shown[1])
    np.testing.assert_array_equal(shown[0], shown[2])
