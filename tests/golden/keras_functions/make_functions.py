"""Writes models that call TensorFlow's functions, and models with `time_major=True`, with Keras 2.

    python make_functions.py FOLDER

in TensorFlow 2.4.4 and 2.15.1, for `functions_tf2.4.4.zip` and `functions_tf2.15.1.zip`: `NAME.h5`,
`NAME.npz` with the inputs `arr_0` and the outputs `y`, and in 2.15.1 `NAME.keras` of some.
"""

import os
import sys

import numpy as np
import tensorflow as tf

keras, layers, backend = tf.keras, tf.keras.layers, tf.keras.backend
STEPS, WIDTH, UNITS = 6, 5, 4
ARCHIVED = ("behind_a_mask", "shapes", "time_major")


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


def main(folder):
    """Writes all models, with random weights."""
    import cudnn_rnn  # noqa: F401  # registers kernels for CuDNNLSTM on a CPU

    random = np.random.RandomState(0)
    models = {make.__name__: make for make in (behind_a_mask, time_major)}
    for make in (arithmetic, activations, reductions, shapes, slices):
        models[make.__name__] = lambda make=make: of_functions(make)
    for name, make in models.items():
        keras.backend.clear_session()
        model = make()
        model.set_weights([random.uniform(-0.6, 0.6, one.shape) for one in model.get_weights()])
        batch = STEPS if name == "time_major" else 3
        inputs = random.uniform(-1, 1, (batch, 3 if name == "time_major" else STEPS, WIDTH))
        inputs = inputs.astype(np.float32)
        if name == "behind_a_mask":
            inputs[:, 2:4] = 0
        path = os.path.join(folder, name)
        np.savez(path + ".npz", arr_0=inputs, y=model(inputs).numpy())
        model.save(path + ".h5")
        if name in ARCHIVED and hasattr(getattr(keras, "saving", None), "load_model"):
            model.save(path + ".keras")


if __name__ == "__main__":
    main(sys.argv[1])
