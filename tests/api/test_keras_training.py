"""Training with `cudnn_rnn.keras`, compared with Keras: weights, masks, states and dropout."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn
import cudnn_rnn.keras as ours
from helpers.keras_layers import (
    KERAS_ZEROES_MASKED_OUTPUTS,
    KINDS,
    STEPS,
    UNITS,
    WIDTH,
    keras,
    make,
    make_inputs,
    needs_keras_3,
    pair,
)
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.usefixtures("eager")


def train(rnn, *before):
    """Trains a model of the layers `before`, the RNN and a Dense layer; returns arrays.

    They are the losses, then the predictions, then the weights.
    """
    model = keras.Sequential(
        [keras.Input((STEPS, WIDTH)), *before, rnn, keras.layers.Dense(1, "tanh", False, "ones")]
    )
    model.compile("sgd", "mse")
    inputs = make_inputs(shape=(8, STEPS, WIDTH))
    inputs[np.random.RandomState(5).uniform(size=(8, STEPS)) < 0.4] = 0  # what Masking masks
    inputs[3] = 0
    targets = make_inputs(1, (8,) + tuple(model.output_shape[1:]))
    fitted = model.fit(inputs, targets, epochs=4, batch_size=4, shuffle=False, verbose=0)
    return [fitted.history["loss"], model.predict(inputs, verbose=0)] + model.get_weights()


def assert_trains_like_keras(layers, *before):
    expected, found = [train(layer, *before) for layer in layers]
    assert len(found) == len(expected)
    for left, right in zip(found, expected):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)


class Halves:
    """An initializer without randomness, which is not Keras's default."""

    def __call__(self, shape, dtype=None, **unused):
        return tf.reshape(tf.sin(tf.range(np.prod(tuple(shape)), dtype=tf.float32)) / 2, shape)


@needs_tensorflow_2
@pytest.mark.parametrize("kind", KINDS)
def test_initializers_regularizers_and_constraints(kind):
    """Each changes the training; all of them act on Keras's weights, not on the op's buffer."""
    plain = {name + "_initializer": Halves() for name in ("kernel", "recurrent", "bias")}
    named = dict(
        plain,
        kernel_regularizer="l2",
        recurrent_regularizer=keras.regularizers.l1(0.01),
        bias_regularizer="l2",
        activity_regularizer=keras.regularizers.l2(0.1),
        kernel_constraint=keras.constraints.MaxNorm(0.9),
        recurrent_constraint=keras.constraints.NonNeg(),
        bias_constraint=keras.constraints.UnitNorm(),
    )
    layers = [make(module, kind, UNITS, **named) for module in (keras.layers, ours)]
    assert_trains_like_keras(layers)
    kernel, recurrent_kernel, bias = layers[1].get_weights()
    assert np.linalg.norm(kernel, axis=0).max() <= 0.9 + 1e-6
    assert recurrent_kernel.min() == 0
    np.testing.assert_allclose(np.linalg.norm(bias, axis=0), 1, atol=1e-6)
    # The SimpleRNN of Keras 3 ignores activity_regularizer.
    assert len(layers[1].losses) == len(layers[0].losses) >= 3


@needs_tensorflow_2
@pytest.mark.sampled(2)
@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_masking(kind, return_sequences):
    """Masked steps in the middle and at both ends, and a sequence that is masked entirely."""
    layers = pair(kind, return_sequences=return_sequences)
    if return_sequences and (KERAS_ZEROES_MASKED_OUTPUTS or kind == "SimpleRNN"):
        layers = [keras.layers.Bidirectional(layer) for layer in layers]
        for layer in layers:
            layer.build((None, STEPS, WIDTH))
        layers[1].set_weights(layers[0].get_weights())
    assert_trains_like_keras(layers, keras.layers.Masking())


@needs_tensorflow_2
@pytest.mark.parametrize("kind", KINDS)
def test_stateful(kind):
    layers = pair(kind, stateful=True, return_sequences=True)

    def outputs(seed, **named):
        results = [layer(tf.constant(make_inputs(seed)), **named).numpy() for layer in layers]
        np.testing.assert_allclose(*results, atol=1e-6)
        return results[1]

    first, *_ = outputs(0), outputs(1), outputs(2)
    assert np.abs(outputs(0) - first).max() > 1e-3  # continues from the state
    for layer in layers:
        layer.reset_states()
    np.testing.assert_array_equal(outputs(0), first)


def test_dropout_has_one_pattern_for_all_steps():
    """The layer copies its inputs, so the outputs show what it drops."""
    layer = make(ours, "SimpleRNN", WIDTH, dropout=0.5, return_sequences=True, activation="relu")
    layer.build(tf.TensorShape((32, STEPS, WIDTH)))
    layer.set_weights([np.eye(WIDTH), np.zeros((WIDTH, WIDTH)), np.zeros(WIDTH)])
    outputs = layer(tf.ones((32, STEPS, WIDTH)), training=True).numpy()
    assert set(outputs.ravel()) == {0, 2}
    np.testing.assert_array_equal(outputs, outputs[:, :1].repeat(STEPS, axis=1))
    assert len({pattern.tobytes() for pattern in outputs[:, 0]}) > 4  # one for each sequence


@needs_tensorflow_2  # Keras in TensorFlow 1 draws a pattern for each gate
@pytest.mark.parametrize("named", [{}, {"use_bias": False}], ids=["", "without bias"])
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_has_one_pattern_where_kerass_layer_has_one(kind, named):
    """Keras 2's LSTM and GRU draw one for each step, unless they compute with their cell."""
    inputs, are_equal = tf.constant(make_inputs(shape=(32, STEPS, WIDTH))), []
    for layer in pair(kind, dropout=0.5, return_sequences=True, **named):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = tf.reduce_sum(layer(inputs, training=True))
        # The loss does not depend on what is dropped.
        dropped = tape.gradient(total, inputs).numpy() == 0
        are_equal.append((dropped == dropped[:, :1]).all())
    assert 0 < dropped.sum() < dropped.size  # by this package's layer, which is the second
    assert are_equal[0] == are_equal[1]


@needs_keras_3
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_drops_what_keras_drops(kind):
    """With the same seed, in each of several calls."""
    layers = pair(kind, dropout=0.5, seed=7)
    results = []
    for _ in range(3):
        expected, found = [layer(tf.constant(make_inputs()), training=True) for layer in layers]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        results.append(np.array(found))
    assert np.abs(results[0] - results[1]).max() > 1e-3


@needs_keras_3
@pytest.mark.parametrize("make_layer", [lambda: ours.LSTM(4), lambda: ours.RNNStack("gru", 2, 4)])
def test_layers_made_in_plain_ops_are_compiled(make_layer):
    """Keras accepts jit_compile=True without a warning, and training has the same losses."""
    inputs = make_inputs()

    def losses_of(jit_compile):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([make_layer(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=jit_compile)
        history = model.fit(inputs, inputs[:, 0, :1], epochs=2, verbose=0, shuffle=False)
        return model, history.history["loss"]

    with cudnn_rnn.plain_ops(), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*jit_compile")
        compiled, losses = losses_of(jit_compile=True)
    assert compiled.jit_compile
    np.testing.assert_allclose(losses, losses_of(jit_compile=False)[1], rtol=1e-5)
