"""The op-level classes, for the tests of models, ops and saveables."""

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops
from cudnn_rnn.model import layout
from helpers import reference
from helpers.reference import GATES as NUM_GATES  # noqa: F401

CLASSES = {
    "lstm": cudnn_rnn.CudnnLSTM,
    "gru": cudnn_rnn.CudnnGRU,
    "rnn_relu": cudnn_rnn.CudnnRNNRelu,
    "rnn_tanh": cudnn_rnn.CudnnRNNTanh,
}
FUNCTIONS = {
    "lstm": cudnn_rnn_ops.cudnn_lstm,
    "gru": cudnn_rnn_ops.cudnn_gru,
    "rnn_relu": cudnn_rnn_ops.cudnn_rnn_relu,
    "rnn_tanh": cudnn_rnn_ops.cudnn_rnn_tanh,
}
DIRECTIONS = ("unidirectional", "bidirectional")


def params_size(rnn_mode, num_layers, num_units, input_size, num_directions=1, skip_input=False):
    input_mode = "skip_input" if skip_input else "linear_input"
    direction = DIRECTIONS[num_directions - 1]
    return reference.params_size(
        reference.Configuration(rnn_mode, input_mode, direction, num_layers, num_units, input_size)
    )


def opaque_values(size, dtype=np.float32):
    """Returns values that are distinct in every dtype, so that swapped values are noticed."""
    return (np.arange(size) / 1024.0 - 0.5).astype(dtype)


def initialize(session):
    session.run(tf.global_variables_initializer())


def make_params(model, value=None, name="params", use_resource=None):
    if value is None:
        size = layout.params_size(model.config)
        value = opaque_values(size, model.dtype.as_numpy_dtype)
    return tf.Variable(value, name=name, dtype=model.dtype, use_resource=use_resource)


def saveable_a(model, params, **named):
    return cudnn_rnn.RNNParamsSaveable(
        model.params_to_canonical, model.canonical_to_params, [params], **named
    )


def saveable_b(model, params, scope=None, **named):
    return cudnn_rnn.RNNParamsSaveable(
        model, model.params_to_canonical, model.canonical_to_params, [params], scope, **named
    )


GENERATIONS = {"a": saveable_a, "b": saveable_b}


def save(objects, tmp_path, name="model"):
    with tf.Session() as session:
        initialize(session)
        return tf.train.Saver(objects).save(session, str(tmp_path / name))


def restore(session, objects, path):
    initialize(session)
    tf.train.Saver(objects).restore(session, path)


def keys(saveable):
    return [spec.name for spec in saveable.specs]


def call_arguments(model, batch=2, steps=4, dtype=tf.float32):
    """Returns the arguments of a call of `model` as a dict of tensors, in argument order."""
    num_directions = 2 if model.direction == "bidirectional" else 1
    state_shape = [model.num_layers * num_directions, batch, model.num_units]
    arguments = {
        "input_data": tf.ones([steps, batch, model.input_size], dtype),
        "input_h": tf.ones(state_shape, dtype),
    }
    if model.rnn_mode == "lstm":
        arguments["input_c"] = tf.ones(state_shape, dtype)
    arguments["params"] = 0.1 * tf.ones([model.params_size()], dtype)
    return arguments
