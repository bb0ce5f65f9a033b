"""Tensors of unknown static shape whose sizes are not those of the model.

The kernels take their sizes from the tensors, and parameters may be more than they need. So states
of smaller sizes would give results of another model. Inputs may be narrower: test_longer_params.py.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers
from helpers.rnn_models import CLASSES, initialize, params_size

LAYERS, UNITS, WIDTH, STEPS, BATCH = 2, 4, 3, 5, 2
RIGHT = {"inputs": (STEPS, BATCH, WIDTH), "state": (LAYERS, BATCH, UNITS)}
WRONG = [
    {"inputs": (STEPS, BATCH, WIDTH + 1)},
    {"state": (LAYERS, BATCH, UNITS - 1)},
    {"state": (LAYERS - 1, BATCH, UNITS)},
    {"state": (LAYERS, BATCH + 1, UNITS)},
]
wrong_shapes = pytest.mark.parametrize("wrong", WRONG, ids=str)


def check(session, results, placeholders, wrong, time_major=True):
    """Runs a call with the right shapes, then with one that is wrong."""

    def arrays(shapes):
        arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        if not time_major:
            arrays = {name: array.swapaxes(0, 1) for name, array in arrays.items()}
        return {placeholders[name]: array for name, array in arrays.items()}

    initialize(session)
    shape = (STEPS, BATCH, UNITS) if time_major else (BATCH, STEPS, UNITS)
    assert session.run(results, arrays(RIGHT))[0].shape == shape
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.run(results, arrays(dict(RIGHT, **wrong)))


def make_placeholders():
    return {name: tf.placeholder(tf.float32, [None] * 3, name) for name in RIGHT}


@wrong_shapes
@pytest.mark.parametrize("time_major", [True, False])
def test_op_level_classes(session, rnn_mode, time_major, wrong):
    model = CLASSES[rnn_mode](LAYERS, UNITS, WIDTH)
    placeholders = make_placeholders()
    states = [placeholders["state"]] * (2 if rnn_mode == "lstm" else 1)
    params = tf.ones([params_size(rnn_mode, LAYERS, UNITS, WIDTH)]) / 8
    results = model(placeholders["inputs"], *states, params, time_major=time_major)
    check(session, results, placeholders, wrong, time_major)


@wrong_shapes
@pytest.mark.parametrize("name", ["CudnnLSTM", "CudnnGRU", "CudnnRNNTanh"])
def test_layers(session, name, wrong):
    layer = getattr(layers, name)(LAYERS, UNITS)
    layer.build([None, None, WIDTH])
    placeholders = make_placeholders()
    states = (placeholders["state"],) * (2 if name == "CudnnLSTM" else 1)
    outputs, _ = layer(placeholders["inputs"], states)
    check(session, [outputs], placeholders, wrong)


def test_known_sizes_need_no_node(session):
    model = cudnn_rnn.CudnnGRU(LAYERS, UNITS, WIDTH)
    inputs = tf.placeholder(tf.float32, [None, None, WIDTH])
    state = tf.placeholder(tf.float32, [LAYERS, None, UNITS])
    model(inputs, state, tf.ones([params_size("gru", LAYERS, UNITS, WIDTH)]))
    types = {node.type for node in session.graph.get_operations()}
    assert "EnsureShape" not in types and "CudnnRNN" in types
