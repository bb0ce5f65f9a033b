"""Steps of optimizers restored from converted checkpoints, for the tests of optimizer state."""

import numpy as np
import tensorflow.compat.v1 as tf

from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights
from helpers.exchange_models import random_inputs, random_rnn
from helpers.layer_models import LAYERS, run_cells

RATE, EPSILON = 0.03, 1e-10
ADAM = {("", "Adam"), ("", "Adam_1")}


def inputs_of_training():
    return random_inputs(random_rnn("gru"))["input"]


def targets(shape):
    return np.full(shape, 0.3, np.float32)


def step_of_layer(path, rnn, optimizer=None):
    """Restores a layer and its optimizer from a checkpoint, makes a step, returns the weights."""
    with tf.Graph().as_default(), tf.Session() as session:
        direction = rnn.config.direction
        named = dict(direction=direction, name="encoder")
        layer = LAYERS[rnn.rnn_mode](rnn.num_layers, rnn.num_units, **named)
        output, _ = layer(tf.constant(inputs_of_training()), training=True)
        make_step(session, output, path, optimizer)
        sizes = (rnn.rnn_mode, rnn.num_layers, rnn.num_units, rnn.input_size, rnn.bidirectional)
        return RnnWeights.from_opaque(session.run(layer.kernel), *sizes)


def step_of_cells(path, rnn, new_path):
    """Restores cells and their optimizer, makes a step, returns the weights that they save."""
    with tf.Graph().as_default(), tf.Session() as session:
        sequences = tf.constant(inputs_of_training())
        sizes = (rnn.num_layers, rnn.num_units, rnn.bidirectional)
        output, _ = run_cells(rnn.rnn_mode, *sizes, sequences)
        make_step(session, output, path)
        tf.train.Saver().save(session, new_path)
    return exchange.read(new_path, rnn_mode=rnn.rnn_mode).rnns[0]


def make_step(session, output, path, optimizer=None):
    loss = tf.reduce_mean(tf.square(output - 0.3))
    optimizer = optimizer or tf.train.AdamOptimizer(RATE, epsilon=EPSILON)
    step = optimizer.minimize(loss)
    tf.train.Saver().restore(session, path)
    session.run(step)


def assert_close(found, expected, biases="both"):
    """Compares weights, and of biases "both", their "sum", or "none"."""
    for (_, _, one), (_, _, other) in zip(found.places(), expected.places()):
        pairs = list(zip(one, other))[: 4 if biases == "both" else 2]
        if biases == "sum":
            pairs.append([part.input_bias + part.recurrent_bias for part in (one, other)])
        for left, right in pairs:
            np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)


def left_out_of(path):
    """Returns the contents of a file without slots, and what a conversion says is left out."""
    contents = exchange.read(path)
    assert contents.slots == {} and contents.optimizer == {}
    (note,) = exchange.convert(path, str(path) + ".npz", "npz").notes
    return note
