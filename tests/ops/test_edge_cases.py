"""Edge cases: empty batches, no time steps, states that a mode does not have, size 1."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import reference
from helpers.cases import COLUMNS, output_shapes, random_arrays
from helpers.op_harness import (
    Network,
    assert_close,
    assert_same_bits,
    model_attributes,
    run_reference,
)

MODES = COLUMNS["rnn_mode"]
DIRECTIONS = COLUMNS["direction"]
DTYPES = COLUMNS["dtype"]


def model(rnn_mode, direction="unidirectional", num_layers=2, num_units=5, input_size=4):
    return reference.Configuration(
        rnn_mode, "linear_input", direction, num_layers, num_units, input_size
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_no_time_steps(rnn_mode, direction, dropout, dtype):
    """States and their gradients pass through unchanged; the gradient of params is zero."""
    configuration = model(rnn_mode, direction)
    arrays = random_arrays(configuration, 3, 0, dtype, np.random.RandomState(0))
    directions = configuration.directions
    expected = {
        "output": np.zeros((0, 3, directions * 5), dtype),
        "output_h": arrays["input_h"],
        "d_input": np.zeros((0, 3, 4), dtype),
        "d_input_h": arrays["output_h_backprop"],
        "d_params": np.zeros_like(arrays["params"]),
    }
    if rnn_mode == "lstm":
        expected["output_c"] = arrays["input_c"]
        expected["d_input_c"] = arrays["output_c_backprop"]
    with Network(configuration, dtype, dropout=dropout) as network:
        assert_same_bits(network.run(arrays), expected)
    with Network(configuration, dtype, dropout=dropout, is_training=False) as network:
        forward = {name: value for name, value in expected.items() if name.startswith("output")}
        assert_same_bits(network.run(arrays), forward)


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_empty_batch(rnn_mode, direction, dropout, dtype, steps):
    """Results are empty and have the right shapes; the gradient of params is zero."""
    configuration = model(rnn_mode, direction)
    arrays = random_arrays(configuration, 0, steps, dtype, np.random.RandomState(0))
    shapes = output_shapes(configuration, 0, steps)
    with Network(configuration, dtype, dropout=dropout) as network:
        found = network.run(arrays)
    assert found["output"].shape == shapes["output"]
    assert found["output_h"].shape == shapes["output_h"] == found["d_input_h"].shape
    assert found["d_input"].shape == (steps, 0, 4)
    if rnn_mode == "lstm":
        assert found["output_c"].shape == shapes["output_c"] == found["d_input_c"].shape
    assert_same_bits({"d_params": found["d_params"]}, {"d_params": np.zeros_like(arrays["params"])})


def run_forward(configuration, arrays, input_c, is_training=True):
    """Returns all four outputs of CudnnRNN for any input_c."""
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        names = ("input", "input_h", "params")
        feeds = {name: tf.placeholder(tf.float32) for name in names + ("input_c",)}
        node = gen_cudnn_rnn_ops.cudnn_rnn(
            is_training=is_training, **dict(feeds, **model_attributes(configuration))
        )
        values = dict(arrays, input_c=input_c)
        return session.run(list(node), {feeds[name]: values[name] for name in feeds})


@pytest.mark.parametrize("rnn_mode", [mode for mode in MODES if mode != "lstm"])
def test_input_c_is_ignored_by_modes_without_a_cell_state(rnn_mode):
    configuration = model(rnn_mode)
    arrays = random_arrays(configuration, 3, 4, "float32", np.random.RandomState(0))
    expected = run_reference(configuration, arrays)
    for shape in ((0,), (), (4, 2), arrays["input_h"].shape):
        input_c = np.full(shape, np.nan, np.float32)
        output, output_h, output_c, _ = run_forward(configuration, arrays, input_c)
        assert output_c.shape == ()
        assert_close(
            {"output": output, "output_h": output_h},
            {name: expected[name] for name in ("output", "output_h")},
            1e-5,
            rnn_mode,
        )


@pytest.mark.parametrize("rnn_mode", MODES)
def test_inference_reserves_nothing(rnn_mode):
    configuration = model(rnn_mode)
    arrays = random_arrays(configuration, 3, 4, "float32", np.random.RandomState(0))
    input_c = arrays.get("input_c", np.zeros([0], np.float32))
    assert run_forward(configuration, arrays, input_c, is_training=False)[3].size == 0
    assert run_forward(configuration, arrays, input_c, is_training=True)[3].size > 0


@pytest.mark.parametrize("rnn_mode", MODES)
def test_a_gradient_of_inference_is_refused_with_advice(rnn_mode):
    configuration = model(rnn_mode)
    with tf.Graph().as_default():
        inputs = [tf.placeholder(tf.float32) for _ in range(4)]
        node = gen_cudnn_rnn_ops.cudnn_rnn(
            *inputs, is_training=False, **model_attributes(configuration)
        )
        with pytest.raises(ValueError, match="is_training must be set to True"):
            tf.gradients(node[0], inputs)


@pytest.mark.parametrize("rnn_mode", MODES)
def test_all_sizes_one_match_the_formulas(rnn_mode):
    """One layer, unit, input element, row and step match formulas written out by hand."""
    configuration = model(rnn_mode, num_layers=1, num_units=1, input_size=1)
    x, h, c = 0.5, -0.25, 0.75
    gates = configuration.gates
    w, r = 0.3 + 0.1 * np.arange(gates), -0.2 + 0.2 * np.arange(gates)
    b_w, b_r = 0.05 * np.arange(gates), 0.1 - 0.03 * np.arange(gates)
    arrays = {
        "input": np.full((1, 1, 1), x),
        "input_h": np.full((1, 1, 1), h),
        "input_c": np.full((1, 1, 1), c),
        "params": np.concatenate([w, r, b_w, b_r]),
    }
    before = w * x + b_w + r * h + b_r
    sigmoid = 1.0 / (1.0 + np.exp(-before))
    if rnn_mode == "lstm":
        expected_c = sigmoid[1] * c + sigmoid[0] * np.tanh(before[2])
        expected = sigmoid[3] * np.tanh(expected_c)
    elif rnn_mode == "gru":
        new = np.tanh(w[2] * x + b_w[2] + sigmoid[0] * (r[2] * h + b_r[2]))
        expected = (1.0 - sigmoid[1]) * new + sigmoid[1] * h
    else:
        expected = {"rnn_relu": max(before[0], 0.0), "rnn_tanh": np.tanh(before[0])}[rnn_mode]
    with Network(configuration, "float64") as network:
        found = network.forward(arrays)
    assert found["output"].ravel() == pytest.approx([expected], rel=1e-14)
    assert found["output_h"].ravel() == pytest.approx([expected], rel=1e-14)
    if rnn_mode == "lstm":
        assert found["output_c"].ravel() == pytest.approx([expected_c], rel=1e-14)
