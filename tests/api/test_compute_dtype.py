"""Layers with float32 variables that compute in a 16-bit dtype (`compute_dtype=`)."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers
from cudnn_rnn.graph.config import DTYPES
from helpers.arrays import assert_equal
from helpers.checkpoints import assert_round_trip
from helpers.layer_models import (
    BATCH,
    LAYER_COUNT,
    LAYERS,
    UNITS,
    WIDTH,
    expected_results,
    make_inputs,
    make_states,
    set_params,
)
from helpers.versions import needs_tensorflow_2

SIXTEEN_BITS = [dtype.name for dtype in DTYPES if dtype.size == 2]
# A few roundings: float16 keeps 11 bits, bfloat16 8.
TOLERANCES = {"float16": 1e-2, "bfloat16": 8e-2}


@pytest.fixture(params=SIXTEEN_BITS)
def dtype(request):
    return request.param


def make_layer(rnn_mode="lstm", **named):
    return LAYERS[rnn_mode](LAYER_COUNT, UNITS, **named)


def close(found, expected, dtype):
    for one, other in zip(found, expected):
        error = np.abs(np.asarray(one, np.float32) - other).max()
        assert error < TOLERANCES[dtype] * max(1.0, np.abs(other).max())


def test_outputs_and_states(session, rnn_mode, dtype):
    layer = make_layer(rnn_mode, compute_dtype=tf.as_dtype(dtype))
    inputs = make_inputs()
    outputs, states = layer(tf.cast(inputs, dtype))
    assert layer.kernel.dtype.base_dtype == tf.float32 and layer.dtype == "float32"
    assert layer.compute_dtype == dtype
    assert all(tensor.dtype == dtype for tensor in [outputs] + list(states))
    expected = expected_results(layer, set_params(session, layer), inputs)
    close(session.run([outputs, *states]), expected, dtype)


@pytest.mark.parametrize("batch_major", [False, True])
def test_tensors_of_either_dtype_are_taken(session, dtype, batch_major):
    """float32 inputs and states are cast, as in Keras layers under a mixed-precision policy."""
    layer = make_layer(compute_dtype=dtype)
    inputs = make_inputs(batch_major=batch_major)
    states = make_states(layer, batch_major)
    calls = [layer(inputs, states, time_major=not batch_major)]
    for dtypes in (dtype, dtype, dtype), ("float32",) * 3, (dtype, "float32", dtype):
        x, h, c = (tf.cast(value, each) for value, each in zip((inputs, *states), dtypes))
        calls.append(layer(x, (h, c), time_major=not batch_major))
    set_params(session, layer)
    first, *others = session.run(calls)
    for other in others:
        assert_equal(other, first)


def test_forward_on_any_buffer_and_fed_values(session, dtype):
    layer = make_layer("gru", compute_dtype=dtype)
    outputs, _ = layer(make_inputs())
    h = tf.zeros(layer.state_shape(BATCH)[0])
    alike = [
        layer._forward(tf.constant(make_inputs()), h, [], params)[0]
        for params in (layer.kernel, tf.cast(layer.kernel, dtype))
    ]
    values = set_params(session, layer)
    found = session.run([outputs] + alike)
    assert found[0].dtype == dtype
    assert_equal(found[1:], [found[0]] * 2)
    fed = session.run(outputs, {layer.kernel: np.zeros_like(values)})
    assert np.abs(fed.astype(np.float32)).max() == 0


def test_gradient_arrives_in_float32(session, rnn_mode, dtype):
    narrow, wide = make_layer(rnn_mode, compute_dtype=dtype), make_layer(rnn_mode)
    inputs = make_inputs()
    gradients = []
    for layer in (narrow, wide):
        outputs, _ = layer(inputs)
        loss = tf.reduce_sum(tf.square(tf.cast(outputs, tf.float32)))
        gradients += tf.gradients(loss, layer.kernel)
        assert gradients[-1].dtype == tf.float32
    for layer in (narrow, wide):
        set_params(session, layer)
    found, expected = session.run(gradients)
    assert np.abs(expected).max() > 0.1
    close([found], [expected], dtype)


def adam_losses(session, steps, **named):
    """Trains a layer to output the running mean of its inputs; returns the loss of each step."""
    inputs = np.random.RandomState(7).uniform(-1, 1, [6, 16, WIDTH]).astype(np.float32)
    targets = np.cumsum(inputs, axis=0)[..., :1] / np.arange(1, 7).reshape(-1, 1, 1)
    layer = layers.CudnnLSTM(1, 8, seed=5, **named)
    outputs, _ = layer(tf.cast(inputs, layer.compute_dtype))
    outputs = tf.reduce_mean(tf.cast(outputs, tf.float32), axis=2, keepdims=True)
    loss = tf.reduce_mean(tf.square(outputs - targets))
    train = tf.train.AdamOptimizer(0.02).minimize(loss)
    session.run(tf.global_variables_initializer())
    return [session.run([loss, train])[0] for _ in range(steps)]


def test_adam_converges(session, dtype):
    losses = adam_losses(session, 60, compute_dtype=dtype)
    assert losses[-1] < 0.2 * losses[0]


def test_adam_diverges_on_a_float16_variable(session):
    """Adam's epsilon and squared gradients are too small for float16."""
    losses = adam_losses(session, 60, dtype=tf.float16)
    assert not losses[-1] < losses[0]


def test_checkpoints_are_float32(session, tmp_path, dtype):
    layer = make_layer(compute_dtype=dtype, name="rnn")
    layer(make_inputs())
    values = set_params(session, layer)
    path = assert_round_trip(session, tf.train.Saver(), [layer.kernel], tmp_path)
    reader = tf.train.load_checkpoint(path)
    assert set(reader.get_variable_to_dtype_map().values()) == {tf.float32}
    with tf.Graph().as_default(), tf.Session() as other:  # by a layer that computes in float32
        wide = make_layer(name="rnn")
        wide(make_inputs())
        tf.train.Saver().restore(other, path)
        np.testing.assert_array_equal(other.run(wide.kernel), values)


def test_refused_dtypes(session):
    """Messages name compute_dtype, because dtype=tf.float16 would make the variables float16."""
    with pytest.raises(ValueError, match="^compute_dtype must be float16, .* but is tf.int32"):
        layers.CudnnGRU(1, 4, compute_dtype=tf.int32)
    narrow = make_layer(compute_dtype=tf.float16)
    with pytest.raises(TypeError, match="inputs must be of dtype float32 or float16.*float64"):
        narrow(tf.cast(make_inputs(), tf.float64))
    with pytest.raises(TypeError, match="inputs must be of dtype .* but is int32"):
        narrow(tf.cast(make_inputs(), tf.int32))
    layer = make_layer()
    half = tf.cast(make_inputs(), tf.float16)
    expected = "inputs must be of dtype float32.*but is float16.*compute_dtype=tf.float16"
    with pytest.raises(TypeError, match=expected):
        layer(half)
    with pytest.raises(TypeError, match="input_h must be .*compute_dtype=tf.float16"):
        layer(make_inputs(), tuple(tf.zeros([2, BATCH, UNITS], tf.float16) for _ in range(2)))
    with pytest.raises(TypeError, match="inputs must be.*but is float64.*dtype=tf.float64"):
        layer(tf.cast(make_inputs(), tf.float64))
    model = cudnn_rnn.CudnnGRU(1, UNITS, WIDTH, dtype=tf.float32)
    with pytest.raises(TypeError, match=r"dtype=tf.float16.*tf.cast\(params, tf.float16\)"):
        model(half, tf.zeros([1, BATCH, UNITS], tf.float16), tf.zeros([10], tf.float16))


@needs_tensorflow_2
def test_in_a_function_with_a_tape(eager, dtype):
    layer = make_layer(compute_dtype=dtype)

    @tensorflow.function
    def gradient(inputs):
        with tensorflow.GradientTape() as tape:
            outputs, _ = layer(inputs)
            loss = tf.reduce_sum(tf.cast(outputs, tf.float32))
        return outputs, tape.gradient(loss, layer.trainable_variables)

    outputs, (found,) = gradient(tf.constant(make_inputs()))
    assert outputs.dtype == dtype and found.dtype == layer.kernel.dtype == tf.float32
    assert np.abs(found.numpy()).max() > 0
