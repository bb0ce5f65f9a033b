"""Derivatives and loops that TensorFlow vectorizes: row by row and numerically the same."""

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from helpers.keras_layers import KINDS, build, make, make_inputs, trainable_variables
from helpers.versions import needs_tensorflow_2

# Before 2.3, TensorFlow vectorizes only ops that have a converter for that.
needs_loops_over_ops = pytest.mark.skipif(
    tf.__version__.startswith(("2.0.", "2.1.", "2.2.")), reason="requires TensorFlow 2.3 or newer"
)
pytestmark = [
    pytest.mark.usefixtures("eager"),
    pytest.mark.sampled(3),  # The loops are alike for all kinds of RNN.
    needs_tensorflow_2,
    needs_loops_over_ops,
]

BATCH, STEPS, WIDTH, UNITS = 2, 3, 2, 3
SHAPE = (BATCH, STEPS, WIDTH)


@pytest.fixture(params=KINDS)
def layer(request):
    return build(make(ours, request.param, UNITS, return_sequences=True, dtype="float64"), SHAPE)


def inputs_of(seed, shape=SHAPE):
    return make_inputs(seed, shape).astype(np.float64)


def assert_close(found, expected, atol):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def gradients(layer, inputs, of=tf.reduce_sum):
    sources = [tf.convert_to_tensor(inputs), *trainable_variables(layer)]
    with tf.GradientTape() as tape:
        tape.watch(sources[0])
        value = of(layer(sources[0]))
    return tape.gradient(value, sources)


def test_a_jacobian_has_the_gradient_of_each_output(layer):
    sources = [tf.convert_to_tensor(inputs_of(0)), *trainable_variables(layer)]
    with tf.GradientTape() as tape:
        tape.watch(sources[0])
        outputs = layer(sources[0])
    jacobians = tape.jacobian(outputs, sources)
    for index in np.ndindex(*outputs.shape):
        expected = gradients(layer, inputs_of(0), of=lambda value, at=index: value[at])
        for jacobian, row in zip(jacobians, expected):
            assert_close(jacobian[index], row, 1e-12)


def test_a_jacobian_of_each_sequence(layer):
    inputs = tf.convert_to_tensor(inputs_of(1))
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs)
    found = tape.batch_jacobian(outputs, inputs)  # [BATCH, STEPS, UNITS, STEPS, WIDTH]
    for step, unit in np.ndindex(STEPS, UNITS):
        row = gradients(layer, inputs, of=lambda value, s=step, u=unit: value[:, s, u])[0]
        assert_close(found[:, step, unit], row, 1e-12)


def test_a_vectorized_map_is_a_call_for_each(layer):
    arrays = inputs_of(2, (4, *SHAPE))
    found = tf.vectorized_map(layer, tf.constant(arrays))
    for output, inputs in zip(found, arrays):
        assert_close(output, layer(inputs), 1e-12)


def test_gradients_of_each_sequence(layer):
    def of_one(sequence):
        return gradients(layer, sequence[tf.newaxis])[1:]

    arrays = inputs_of(3, (4, STEPS, WIDTH))
    found = tf.vectorized_map(of_one, tf.constant(arrays))
    for index, sequence in enumerate(arrays):
        for gradient, expected in zip(found, gradients(layer, sequence[np.newaxis])[1:]):
            assert_close(gradient[index], expected, 1e-12)


def test_a_hessian_is_the_numeric_one(layer):
    def cubes(value):
        return tf.reduce_sum(value**3)

    @tf.function(autograph=False)
    def hessian(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            gradient = gradients(layer, inputs, cubes)[0]
        return tape.jacobian(gradient, inputs)

    inputs, delta = inputs_of(4), 1e-6
    found = hessian(tf.constant(inputs)).numpy()
    for index in np.ndindex(*SHAPE):
        step = np.zeros_like(inputs)
        step[index] = delta
        ends = [gradients(layer, inputs + sign * step, cubes)[0] for sign in (1, -1)]
        assert_close(found[index], (ends[0] - ends[1]) / (2 * delta), 1e-8)
