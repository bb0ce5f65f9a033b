"""Writes models with masks: with calls of recurrent layers with states, and with merged inputs.

    python make_masks.py ARCHIVE.zip

in TensorFlow 2.9.3, 2.16.2 with tf_keras, and 2.21: `NAME.h5`, `NAME.npz` with the inputs `arr_0`,
`arr_1` and the outputs `y`, and `NAME.keras` if this Keras writes such files.
"""

import os
import sys
import tempfile
import zipfile

import numpy as np
import tensorflow as tf

keras, layers = tf.keras, tf.keras.layers
STEPS, WIDTH, UNITS, BATCH = 6, 3, 4, 3


def inputs():
    return keras.Input((STEPS, WIDTH)), keras.Input((STEPS, WIDTH))


def encoded(sequences):
    """Returns the states of an LSTM."""
    return layers.LSTM(UNITS, return_state=True)(sequences)[1:]


def masked_decoder():
    """Two decoders of sequences with a mask, which the second gets from the first."""
    source, target = inputs()
    states = encoded(layers.Masking()(source))
    first = layers.LSTM(UNITS, return_sequences=True)
    second = layers.LSTM(UNITS, return_sequences=True)
    outputs = second(first(layers.Masking()(target), initial_state=states), initial_state=states)
    return keras.Model([source, target], layers.LSTM(UNITS)(outputs))


def masked_gru():
    source, target = inputs()
    state = layers.GRU(UNITS)(source)
    hidden = layers.Dropout(0.5)(layers.Masking()(target))
    return keras.Model([source, target], layers.GRU(UNITS)(hidden, initial_state=state))


def masked_bidirectional():
    source, target = inputs()
    state = layers.GRU(UNITS)(source)
    layer = layers.Bidirectional(layers.GRU(UNITS))
    return keras.Model(
        [source, target], layer(layers.Masking()(target), initial_state=[state, state])
    )


def inside_a_model():
    """The mask comes from outside of the model that has the decoder."""
    source, target = inputs()
    inner_inputs = [keras.Input((STEPS, WIDTH)), keras.Input((UNITS,))]
    sequences, initial_state = inner_inputs
    outputs = layers.GRU(UNITS)(sequences, initial_state=initial_state)
    inner = keras.Model(inner_inputs, outputs)
    state = layers.GRU(UNITS)(source)
    return keras.Model([source, target], inner([layers.Masking()(target), state]))


def masked_encoder():
    """Only the encoder has a mask."""
    source, target = inputs()
    states = encoded(layers.Masking()(source))
    first = layers.LSTM(UNITS, return_sequences=True)(target, initial_state=states)
    return keras.Model([source, target], layers.LSTM(UNITS)(first, initial_state=states))


def merged():
    """Layers of inputs with different masks, and of one with a mask and one without."""
    source, target = inputs()
    masked = [layers.Masking()(one) for one in (source, target)]
    different = layers.Multiply()([layers.Add()(masked), masked[0]])
    partly = layers.Average()([layers.Maximum()([masked[0], target]), source])
    outputs = [layers.LSTM(UNITS)(one) for one in (different, partly)]
    return keras.Model([source, target], layers.Subtract()(outputs))


def concatenated():
    """Along the last axis, with and without a mask, and along time."""
    source, target = inputs()
    masked = [layers.Masking()(one) for one in (source, target)]
    pairs = masked, [masked[0], target]
    outputs = [layers.LSTM(UNITS)(layers.Concatenate()(pair)) for pair in pairs]
    outputs.append(layers.GRU(UNITS)(layers.Concatenate(axis=1)(masked)))
    return keras.Model([source, target], layers.Add()(outputs))


def residual():
    """Merges tensors that all have the same mask."""
    source, target = inputs()
    masked = layers.Masking()(target)
    hidden = layers.LSTM(WIDTH, return_sequences=True)(masked)
    hidden = layers.Dense(WIDTH)(layers.Add()([hidden, masked]))
    outputs = [layers.LSTM(UNITS)(layers.Multiply()([hidden, masked])), layers.GRU(UNITS)(source)]
    return keras.Model([source, target], layers.Add()(outputs))


def each_step():
    """A mask for each of several sequences."""
    source, target = inputs()
    both = [layers.Reshape((1, STEPS, WIDTH))(one) for one in (source, target)]
    masked = layers.TimeDistributed(layers.Masking())(layers.Concatenate(axis=1)(both))
    hidden = layers.TimeDistributed(layers.LSTM(UNITS))(masked)
    return keras.Model([source, target], layers.GRU(UNITS)(hidden))


def explicit_mask():
    source, target = inputs()
    masked = layers.Masking()(target)
    mask = layers.Masking().compute_mask(target)
    state = layers.GRU(UNITS)(source)
    return keras.Model([source, target], layers.GRU(UNITS)(masked, initial_state=state, mask=mask))


def write(function, folder):
    keras.backend.clear_session()
    random = np.random.RandomState(5)
    model = function()
    model.set_weights([random.uniform(-1, 1, w.shape) for w in model.get_weights()])
    arrays = random.uniform(-1, 1, [2, BATCH, STEPS, WIDTH]).astype(np.float32)
    arrays[:, 0, 4:] = 0  # padded to the right
    arrays[:, 1, 2] = 0  # a gap
    expected = model.predict(list(arrays), verbose=0)
    path = os.path.join(folder, function.__name__)
    np.savez(path + ".npz", *arrays, y=expected)
    model.save(path + ".h5")
    if not tf.__version__.startswith("2.9."):
        model.save(path + ".keras")


def main(archive):
    functions = [masked_decoder, masked_gru, masked_bidirectional, inside_a_model, masked_encoder]
    functions += [merged, concatenated, residual, each_step]
    if hasattr(keras, "ops"):  # Keras 3
        functions.append(explicit_mask)
    with tempfile.TemporaryDirectory() as folder:
        for function in functions:
            write(function, folder)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
            for name in sorted(os.listdir(folder)):
                content.write(os.path.join(folder, name), name)


if __name__ == "__main__":
    main(sys.argv[1])
