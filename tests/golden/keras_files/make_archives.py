"""Writes `NAME.keras` and `NAME.npz` for the archives with `plain`, `s2s` and `nested`.

    python make_archives.py FOLDER

in TensorFlow 2.21 for keras3.15.1.zip, in 2.15.1 and 2.14.1 for archives_tf2.15.1.zip and
archives_tf2.14.1.zip. `arr_0`, ... are the inputs, `y`, `y1` the outputs.
"""

import os
import sys

import numpy as np
import tensorflow as tf

import cudnn_rnn.keras as ours

keras, layers = tf.keras, tf.keras.layers


def plain():
    """A mask, a bidirectional layer of Keras, a regularizer."""
    return keras.Sequential(
        [
            layers.Input((None, 5)),
            layers.Masking(),
            ours.LSTM(4, return_sequences=True),
            layers.Bidirectional(layers.GRU(3)),
            layers.Dense(2, activation="relu", kernel_regularizer="l2"),
        ]
    )


def s2s():
    """The final states of one layer, passed by name as the initial states of another."""
    source, target = layers.Input((None, 5)), layers.Input((None, 5))
    _, h, c = layers.LSTM(4, return_state=True, name="enc")(source)
    decoder = ours.LSTM(4, return_sequences=True, name="dec")
    return keras.Model([source, target], layers.Dense(2)(decoder(target, initial_state=[h, c])))


def nested():
    """A model that is called twice, and a Sequential, inside a model with two outputs."""
    inputs, inner_inputs = layers.Input((6, 5)), layers.Input((6, 4))
    first = keras.Sequential(
        [
            layers.Input((6, 5)),
            ours.GRU(4, return_sequences=True),
            layers.BatchNormalization(),
        ]
    )
    inner = keras.Model(inner_inputs, layers.Add()([layers.Dense(4)(inner_inputs), inner_inputs]))
    joined = layers.Concatenate()([inner(inner(first(inputs))), first(inputs)])
    return keras.Model(
        inputs, [layers.TimeDistributed(layers.Dense(2))(joined), ours.SimpleRNN(3)(joined)]
    )


def main(folder):
    """Writes all models with random weights; those of `nested` are positive where they divide."""
    random = np.random.RandomState(0)
    for make in (plain, s2s, nested):
        keras.backend.clear_session()
        model, weights = make(), []
        for weight in model.get_weights():
            value = random.uniform(-0.6, 0.6, weight.shape)
            weights.append(np.abs(value) + 0.05 if make is nested and value.ndim == 1 else value)
        model.set_weights(weights)
        model.compile("adam", "mse")
        inputs = [random.randn(3, 6, 5).astype(np.float32) for _ in model.inputs]
        outputs = model.predict(inputs if len(inputs) > 1 else inputs[0], verbose=0)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        model.save(os.path.join(folder, make.__name__ + ".keras"))
        arrays = {"arr_%d" % number: value for number, value in enumerate(inputs)}
        arrays.update(("y%d" % n if n else "y", value) for n, value in enumerate(outputs))
        np.savez(os.path.join(folder, make.__name__ + ".npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
