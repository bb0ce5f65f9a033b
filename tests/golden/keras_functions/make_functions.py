"""Writes models that call TensorFlow's functions, have time-major layers, or make masks.

    python make_functions.py FOLDER

in TensorFlow 2.4.4, 2.15.1 and 2.21, for `functions_tf2.4.4.zip`, `functions_tf2.15.1.zip` and
`keras3.15.1.zip`: `NAME.h5`, `NAME.npz` with the inputs `arr_0` and the outputs `y`, and of some,
if this Keras writes them, `NAME.keras`.
"""

import os
import sys
import tempfile
import zipfile

import numpy as np
import tensorflow as tf

keras, layers, backend = tf.keras, tf.keras.layers, tf.keras.backend
STEPS, WIDTH, UNITS = 6, 5, 4
ARCHIVED = ("behind_a_mask", "embedding", "masking", "shapes", "time_major")


def number(condition):
    return tf.cast(condition, "float32")


def arithmetic(x):
    positive = tf.abs(x) + 0.5
    return [
        *(x + 1.0, 1.0 + x, x - positive, 2.0 * x, x / 2.0, 1.0 / positive, x // 0.3, x % 0.3),
        *(
            positive**2,
            2.0**x,
            -x,
            x @ tf.transpose(x, [0, 2, 1]),
            tf.matmul(x, x, transpose_a=True),
        ),
        *(number(x > 0), number(x >= 0.1), number(x < 0), number(x <= 0)),
        *(number(tf.equal(x, x)), number(tf.not_equal(x, positive))),
        *(number(tf.logical_and(x > 0, x < 1)), number(tf.logical_or(x > 0, x < -1))),
        *(number(tf.logical_not(x > 0)), tf.exp(x), tf.math.log(positive), tf.math.log1p(positive)),
        *(tf.sqrt(positive), tf.math.rsqrt(positive), tf.square(x), tf.round(3 * x), tf.floor(x)),
        *(
            tf.math.ceil(x),
            tf.sign(x),
            tf.sin(x),
            tf.cos(x),
            tf.maximum(x, 0.1),
            tf.minimum(x, 0.1),
        ),
        *(tf.math.squared_difference(x, positive), tf.math.divide_no_nan(x, positive)),
        *(tf.math.reciprocal(positive), tf.add_n([x, x])),
        *(tf.math.add(x, x), tf.scalar_mul(2.0, x), tf.clip_by_value(x, -0.2, 0.2)),
        *(x + np.arange(WIDTH, dtype=np.float32), x - tf.constant([1.0, 2, 3, 4, 5])),
    ]


def activations(x):
    return [
        *(tf.tanh(x), tf.sigmoid(x), tf.nn.relu(x), tf.nn.relu6(9 * x), tf.nn.softmax(x, axis=1)),
        *(tf.nn.log_softmax(x), tf.nn.elu(x), tf.nn.selu(x), tf.nn.leaky_relu(x, alpha=0.1)),
        *(tf.nn.softplus(x), tf.nn.softsign(x), tf.nn.gelu(x), tf.nn.swish(x)),
        *(tf.nn.l2_normalize(x, -1), backend.softmax(x), tf.norm(x, axis=-1)),
        *(tf.stop_gradient(x), tf.identity(x), tf.linalg.band_part(x, 0, -1)),
        *(number(tf.rank(x)) * x, number(tf.size(x)) * x),
    ]


def reductions(x):
    return [
        *(tf.reduce_sum(x, axis=1), tf.reduce_mean(x, 1), tf.reduce_max(x, axis=[1])),
        *(tf.reduce_min(x, -1, keepdims=True), tf.reduce_prod(x, -1), tf.reduce_logsumexp(x, -1)),
        *(tf.math.reduce_std(x, 1), tf.math.reduce_variance(x, 1), tf.cumsum(x, axis=1)),
        *(number(tf.reduce_any(x > 0.5, -1)), number(tf.reduce_all(x > -0.5, -1))),
        *(number(tf.argmax(x, -1)), number(tf.argmin(x, -1)), tf.nn.top_k(x, 2)[0]),
        *(backend.dot(x, tf.ones([WIDTH, 2])), tf.tensordot(x, tf.ones([WIDTH, 3]), 1)),
        *(backend.mean(x, axis=1), backend.var(x, axis=1)),
    ]


def shapes(x):
    batch = tf.shape(x)[0]
    first, second = tf.split(x, [2, 3], axis=2)
    return [
        *(tf.reshape(x, [-1, WIDTH, STEPS]), tf.reshape(x, (batch, STEPS * WIDTH))),
        *(tf.reshape(x, tf.stack([batch, -1])), tf.expand_dims(x, -1), tf.squeeze(x[:, :1], 1)),
        *(tf.transpose(x, perm=[0, 2, 1]), tf.concat([second, first], -1), tf.stack([x, 2 * x], 1)),
        *(tf.unstack(x, axis=1)[3], tf.tile(x, [1, 2, 1]), tf.gather(x, [0, 2], axis=1)),
        *(tf.pad(x, [[0, 0], [1, 0], [0, 2]]), tf.reverse(x, [1]), tf.repeat(x, 2, axis=1)),
        *(
            tf.where(x > 0, x, 0.1),
            tf.zeros_like(x) + 1.0,
            tf.ones_like(x),
            tf.fill([batch, 2], 3.0),
        ),
        *(tf.zeros([batch, 2]), tf.ones([batch, 2]), tf.broadcast_to(x[:, :1], tf.shape(x))),
        *(tf.one_hot(tf.argmax(x, -1), WIDTH), tf.slice(x, [0, 1, 0], [-1, 2, WIDTH])),
        *(tf.strided_slice(x, [0, 1], [batch, 3]), number(tf.range(tf.shape(x)[1])) + x[:, :, 0]),
        *(backend.zeros_like(x), backend.ones_like(x)),
    ]


def slices(x):
    return [
        *(x[:, -1], x[:, 1:3, ::2], x[..., tf.newaxis, 0], x[..., 1:], x[:, ::-1], x[:, :, 3]),
        x[:, : tf.shape(x)[1] - 2],
    ]


def of_functions(make):
    """A model with all results of `make`, as one output, of the outputs of an LSTM."""
    inputs = layers.Input((STEPS, WIDTH))
    found = make(layers.LSTM(WIDTH, return_sequences=True)(inputs))
    return keras.Model(inputs, tf.concat([layers.Flatten()(one) for one in found], -1))


def behind_a_mask():
    """A function between a mask and an LSTM: Keras 2 drops the mask."""
    inputs = layers.Input((STEPS, WIDTH))
    masked = layers.Masking()(inputs)
    results = [layers.LSTM(UNITS)(2.0 * masked), layers.LSTM(UNITS)(masked)]
    return keras.Model(inputs, layers.Concatenate()(results))


def time_major():
    """Layers with `time_major=True`: with states, bidirectional, and the last output alone."""
    inputs = layers.Input(batch_shape=(STEPS, None, WIDTH))
    named = {"time_major": True, "return_sequences": True}
    encoded, *states = layers.LSTM(UNITS, return_state=True, **named)(inputs)
    decoded = layers.LSTM(UNITS, **named)(encoded, initial_state=states)
    both = layers.Bidirectional(layers.GRU(UNITS, reset_after=True, **named))(decoded)
    last = layers.SimpleRNN(UNITS, time_major=True, go_backwards=True)(both)
    of_cudnn = tf.compat.v1.keras.layers.CuDNNLSTM(UNITS, time_major=True)
    return keras.Model(inputs, layers.Concatenate()([last, of_cudnn(both)]))


def masking():
    """A mask that a Masking makes, also for a wrapper, in a functional model; dropout."""
    inputs = layers.Input((STEPS, WIDTH))
    rows = layers.LSTM(UNITS, return_sequences=True, dropout=0.5)(layers.Masking(0.5)(inputs))
    return keras.Model(inputs, layers.Bidirectional(layers.GRU(3))(rows))


def embedding():
    """A mask that an Embedding makes, in a functional model."""
    inputs = layers.Input((STEPS,))
    rows = layers.Embedding(7, WIDTH, mask_zero=True)(inputs)
    return keras.Model(inputs, layers.GRU(3)(layers.LSTM(UNITS, return_sequences=True)(rows)))


def inputs_of(name, random):
    if name == "embedding":
        return random.randint(0, 7, (3, STEPS)).astype(np.float32)
    batch = (STEPS, 3) if name == "time_major" else (3, STEPS)
    inputs = random.uniform(-1, 1, (*batch, WIDTH)).astype(np.float32)
    if name in ("behind_a_mask", "masking"):
        inputs[:, 2:4] = 0.5 if name == "masking" else 0
    return inputs


def models_of_keras_3():
    """Yields names and models: with masks, and of files of Keras 2."""
    import cudnn_rnn.keras

    yield from ((make.__name__, make()) for make in (masking, embedding))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "functions_tf2.15.1.zip")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        for name in ("slices", "time_major"):
            yield name, cudnn_rnn.keras.load_model(archive.extract(name + ".h5", folder))


def models_of_keras_2():
    """Yields names and models."""
    import cudnn_rnn  # noqa: F401  # registers kernels for CuDNNLSTM on a CPU

    yield from ((make.__name__, make()) for make in (behind_a_mask, time_major))
    for make in (arithmetic, activations, reductions, shapes, slices):
        yield make.__name__, of_functions(make)


def main(folder):
    """Writes all models, with random weights."""
    random, is_keras_3 = np.random.RandomState(0), hasattr(layers.RNN, "inner_loop")
    for name, model in models_of_keras_3() if is_keras_3 else models_of_keras_2():
        model.set_weights([random.uniform(-0.6, 0.6, one.shape) for one in model.get_weights()])
        inputs, path = inputs_of(name, random), os.path.join(folder, name)
        np.savez(path + ".npz", arr_0=inputs, y=np.array(model(inputs)))
        model.save(path + ".h5")
        if name in ARCHIVED and (
            is_keras_3 or hasattr(getattr(keras, "saving", None), "load_model")
        ):
            model.save(path + ".keras")


if __name__ == "__main__":
    main(sys.argv[1])
