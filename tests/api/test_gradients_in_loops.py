"""Gradients of calls in the body of a loop, after a `tf.cond`.

In the gradient of a loop, a tensor of the body is a copy of what the loop accumulated. A tape that
the gradient of an op has must not watch the original, to which it finds no connection.
"""

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn
import cudnn_rnn.keras as ours
from helpers.keras_layers import KINDS, assert_like_keras, build, make_inputs, pair, random_mask
from helpers.versions import needs_tensorflow_2

pytestmark = [needs_tensorflow_2, pytest.mark.usefixtures("eager")]
SHAPE = (3, 6, 5)  # [batch, time, width], also that of the outputs
MASK = random_mask(np.random.RandomState(3), "random", *SHAPE[:2])
STEP = 1e-5


class Repeated:
    """A layer, called in a loop on its own outputs, which have the width of its inputs."""

    def __init__(self, layer, times, **named):
        self.trainable_weights = layer.trainable_weights
        self._layer, self._times, self._named = layer, times, named

    @tf.function
    def __call__(self, inputs):
        outputs = inputs
        for _ in tf.range(self._times):
            outputs = self._layer(outputs, **self._named)
        return outputs


@pytest.mark.sampled(4)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_masked_layers_of_keras(kind, times, training):
    named = dict(mask=tf.constant(MASK), training=training)
    layers = pair(kind, SHAPE, return_sequences=True)
    assert_like_keras([Repeated(layer, times, **named) for layer in layers], make_inputs(0, SHAPE))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("training", [False, True])
def test_a_masked_stack(training):
    """The gradient is that of the same calls without a loop."""
    stack = build(ours.RNNStack("gru", 1, SHAPE[2], return_sequences=True), SHAPE)
    inputs = tf.constant(make_inputs(0, SHAPE))
    repeated = Repeated(stack, 2, mask=tf.constant(MASK), training=training)

    def twice(inputs):
        named = dict(mask=tf.constant(MASK), training=training)
        return stack(stack(inputs, **named), **named)

    gradients = []
    for function in (repeated, twice):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(function(inputs) ** 2)
        gradients.append(tape.gradient(loss, inputs).numpy())
    assert np.abs(gradients[1]).max() > 0.1
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["CudnnLSTM", "CudnnGRU", "CudnnRNNTanh"])
def test_second_order(name):
    """Descends along the gradient in a loop; the gradient of that equals a difference."""
    random = np.random.RandomState(0)
    model = getattr(cudnn_rnn, name)(1, 3, 3, dtype=tf.float64)
    params = tf.constant(random.uniform(-0.5, 0.5, int(model.params_size())))
    states = [tf.zeros([1, 2, 3], tf.float64)] * (2 if name == "CudnnLSTM" else 1)

    def descend(inputs):
        def body(step, inputs):
            inputs = tf.cond(step < 9, lambda: tf.identity(inputs), lambda: 2 * inputs)
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                loss = tf.reduce_sum(model(inputs, *states, params)[0] ** 2)
            return step + 1, inputs - 0.5 * tape.gradient(loss, inputs)

        return tf.reduce_sum(tf.while_loop(lambda step, _: step < 2, body, (0, inputs))[1] ** 2)

    @tf.function(autograph=False)
    def gradient_of(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = descend(inputs)
        return tape.gradient(loss, inputs)

    inputs, direction = (tf.constant(random.standard_normal((4, 2, 3))) for _ in range(2))
    value = tf.function(descend, autograph=False)
    difference = value(inputs + STEP * direction) - value(inputs - STEP * direction)
    found = tf.reduce_sum(gradient_of(inputs) * direction)
    np.testing.assert_allclose(found, difference / (2 * STEP), rtol=1e-7)
