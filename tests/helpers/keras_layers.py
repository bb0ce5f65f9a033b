"""Keras's recurrent layers and those of `cudnn_rnn.keras`, built with the same weights."""

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from helpers.versions import IS_TENSORFLOW_1

keras = tf.keras
IS_KERAS_3 = hasattr(keras.layers.RNN, "inner_loop")
needs_keras_2 = pytest.mark.skipif(IS_KERAS_3, reason="requires Keras 2")
needs_keras_3 = pytest.mark.skipif(not IS_KERAS_3, reason="requires Keras 3")
KINDS = ("LSTM", "GRU", "SimpleRNN")
BATCH, STEPS, WIDTH, UNITS = 3, 6, 4, 5
# TensorFlow 1's own GRU and LSTM have other defaults than the op can compute.
ARGUMENTS = {"GRU": {"reset_after": True}} if IS_TENSORFLOW_1 else {}
if IS_TENSORFLOW_1:
    for _kind in ("GRU", "LSTM"):
        ARGUMENTS.setdefault(_kind, {})["recurrent_activation"] = "sigmoid"


def make(module, kind, *arguments, **named):
    return getattr(module, kind)(*arguments, **dict(ARGUMENTS.get(kind, {}), **named))


def make_inputs(seed=0, shape=(BATCH, STEPS, WIDTH)):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def policy(name="mixed_float16"):
    """Returns a policy of mixed precision, which old Keras does not take by its name."""
    module = keras.mixed_precision
    return (getattr(module, "Policy", None) or module.experimental.Policy)(name)


def random_mask(random, kind, batch, steps):
    if kind == "right-padded":
        return np.arange(steps) < random.randint(0, steps + 1, (batch, 1))
    return random.uniform(size=(batch, steps)) < 0.6


def build(layer, shape=(BATCH, STEPS, WIDTH)):
    """Builds a layer and gives it random weights, the same in every call; returns it."""
    layer.build(tf.TensorShape(shape) if IS_TENSORFLOW_1 else shape)
    random = np.random.RandomState(1)
    layer.set_weights([random.uniform(-0.6, 0.6, each.shape) for each in layer.get_weights()])
    return layer


# The LSTM and the GRU of TensorFlow 2.0 and 2.1 ignore zero_output_for_mask.
KERAS_ZEROES_MASKED_OUTPUTS = not tf.__version__.startswith(("2.0.", "2.1."))


def pair(kind, shape=(BATCH, STEPS, WIDTH), **named):
    """Returns Keras's layer and ours, built, with the same random weights."""
    return [build(make(module, kind, UNITS, **named), shape) for module in (keras.layers, ours)]


def trainable_variables(layer):
    """Returns TensorFlow's variables; Keras 3's are objects around them."""
    weights = layer.trainable_weights
    return [weight.value for weight in weights] if IS_KERAS_3 else list(weights)


def outputs_and_gradients(layer, inputs, **named):
    """Returns tensors: the outputs, and the gradients of a weighted sum of them."""
    inputs = tf.convert_to_tensor(inputs)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, **named)
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        random = np.random.RandomState(2)
        weights = [random.standard_normal(output.shape).astype(np.float32) for output in outputs]
        loss = sum(tf.reduce_sum(tf.cast(o, "float32") * w) for o, w in zip(outputs, weights))
    return outputs + tape.gradient(loss, [inputs, *trainable_variables(layer)])


def assert_like_keras(layers, *arguments, **named):
    """Compares outputs and gradients of Keras's layer and ours; `outputs_and_gradients`."""
    expected, found = [outputs_and_gradients(layer, *arguments, **named) for layer in layers]
    for left, right in zip(expected, found):
        left, right = left.numpy(), right.numpy()
        assert left.shape == right.shape
        assert np.abs(left - right).max() <= 1e-5 * max(1.0, np.abs(left).max())
