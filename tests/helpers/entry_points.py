"""Every public function of variables that has a gradient, in one table.

`ENTRY_POINTS` maps a name to a function. Called with `variable`, which makes a `tf.Variable` of a
list of sizes, the function returns the variables that its outputs depend on, and a function without
arguments that computes the outputs, a nested list. All tensors have dtype float64.
"""

import functools

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
import cudnn_rnn.keras
from cudnn_rnn import cudnn_rnn_ops
from cudnn_rnn.model import layout
from helpers import keras_layers
from helpers.layer_models import LAYERS
from helpers.rnn_models import CLASSES, FUNCTIONS

STEPS, BATCH, WIDTH, UNITS = 3, 2, 3, 2
SIZES = dict(num_layers=1, num_units=UNITS, input_size=WIDTH)
ENTRY_POINTS = {}


def _entry_point(name, *arguments):
    """Decorator: adds a function to the table, with `arguments` before `variable`."""

    def add(function):
        ENTRY_POINTS[name] = functools.partial(function, *arguments)
        return function

    return add


def _states(rnn_mode, variable):
    return [variable([1, BATCH, UNITS]) for _ in range(2 if rnn_mode == "lstm" else 1)]


def _op_level(rnn_mode, call_options, variable):
    model = CLASSES[rnn_mode](dtype=tf.float64, **SIZES)
    variables = [variable([STEPS, BATCH, WIDTH]), *_states(rnn_mode, variable)]
    variables.append(variable([layout.params_size(model.config)]))
    return variables, lambda: model(*variables, **call_options)


def _function(rnn_mode, variable):
    size = layout.params_size(CLASSES[rnn_mode](**SIZES).config)
    variables = [variable([STEPS, BATCH, WIDTH]), *_states(rnn_mode, variable), variable([size])]
    return variables, lambda: FUNCTIONS[rnn_mode](*variables, is_training=True)


def _raw_op(rnn_mode, variable):
    """TensorFlow's own op, which the classes and functions must equal."""
    variables, _ = _function(rnn_mode, variable)
    inputs = dict(zip(("input", "input_h", "input_c"), variables[:-1]), params=variables[-1])
    inputs = dict({"input_c": tf.zeros([], tf.float64)}, **inputs)
    num_outputs = len(variables) - 1
    return variables, lambda: gen_cudnn_rnn_ops.cudnn_rnn(rnn_mode=rnn_mode, **inputs)[:num_outputs]


def _layer(rnn_mode, variable):
    layer = LAYERS[rnn_mode](1, UNITS, dtype=tf.float64)
    variables = [variable([STEPS, BATCH, WIDTH]), *_states(rnn_mode, variable)]
    layer.build([None, None, WIDTH])
    return variables + [layer.kernel], lambda: layer(variables[0], tuple(variables[1:]))


for _rnn_mode in CLASSES:
    _entry_point("class, %s" % _rnn_mode, _rnn_mode, {})(_op_level)
    _entry_point("function, %s" % _rnn_mode, _rnn_mode)(_function)
    _entry_point("raw op, %s" % _rnn_mode, _rnn_mode)(_raw_op)
    _entry_point("layer, %s" % _rnn_mode, _rnn_mode)(_layer)
_entry_point("class with lengths", "lstm", {"sequence_lengths": [3, 1]})(_op_level)


@_entry_point("list of steps")
def _list_of_steps(variable):
    steps = [variable([BATCH, WIDTH]) for _ in range(STEPS)]
    state, params = variable([1, BATCH, UNITS]), variable([CLASSES["gru"](**SIZES)._num_params()])
    return [*steps, state, params], lambda: CLASSES["gru"](**SIZES)(steps, state, params)


def _canonical_variables(model, variable):
    lists = layout.canonical_weights(model.config), layout.canonical_biases(model.config)
    return [[variable(region.shape) for region in regions] for regions in lists]


@_entry_point("params_to_canonical")
def _params_to_canonical(variable):
    model = CLASSES["lstm"](**SIZES)
    params = variable([layout.params_size(model.config)])
    return [params], lambda: model.params_to_canonical(params)


@_entry_point("canonical_to_params")
def _canonical_to_params(variable):
    model = CLASSES["gru"](**SIZES)
    weights, biases = _canonical_variables(model, variable)
    return weights + biases, lambda: [model.canonical_to_params(weights, biases)]


@_entry_point("cudnn_rnn_opaque_params_to_canonical")
def _opaque_params_to_canonical(variable):
    params = variable([layout.params_size(CLASSES["gru"](**SIZES).config)])
    convert = cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical
    return [params], lambda: convert("gru", params=params, **SIZES)


@_entry_point("cudnn_rnn_canonical_to_opaque_params")
def _canonical_to_opaque_params(variable):
    weights, biases = _canonical_variables(CLASSES["rnn_tanh"](**SIZES), variable)
    convert = cudnn_rnn_ops.cudnn_rnn_canonical_to_opaque_params
    arguments = dict(SIZES, weights=weights, biases=biases)
    return weights + biases, lambda: [convert("rnn_tanh", **arguments)]


def _cell(make_cell, num_states, variable):
    cell = make_cell(UNITS)
    inputs, states = variable([BATCH, WIDTH]), [variable([BATCH, UNITS]) for _ in range(num_states)]
    state = tuple(states) if num_states > 1 else states[0]
    cell(tf.zeros([BATCH, WIDTH], tf.float64), cell.zero_state(BATCH, tf.float64))
    return [inputs, *states, *cell.trainable_variables], lambda: cell(inputs, state)


_entry_point("CudnnCompatibleLSTMCell", cudnn_rnn.CudnnCompatibleLSTMCell, 2)(_cell)
_entry_point("CudnnCompatibleGRUCell", cudnn_rnn.CudnnCompatibleGRUCell, 1)(_cell)
_entry_point("BasicRNNCell", cudnn_rnn.BasicRNNCell, 1)(_cell)


def _keras_layer(kind, variable):
    inputs = variable([BATCH, STEPS, WIDTH])
    backend = keras_layers.keras.backend
    before = backend.floatx()
    backend.set_floatx("float64")  # TensorFlow 1.14 ignores `dtype` for the weights
    try:
        options = dict(return_sequences=True, dtype="float64")
        layer = keras_layers.make(cudnn_rnn.keras, kind, UNITS, **options)
        layer(tf.zeros([BATCH, STEPS, WIDTH], tf.float64))
    finally:
        backend.set_floatx(before)
    # A variable of Keras 3 has TensorFlow's as its `value`, which of TensorFlow's is a method.
    weights = [one if callable(one.value) else one.value for one in layer.weights]
    return [inputs, *weights], lambda: layer(tf.identity(inputs), training=True)


for _kind in keras_layers.KINDS:
    _entry_point("keras, %s" % _kind, _kind)(_keras_layer)


def weighted_sum(outputs):
    """Returns a scalar to differentiate, which depends on every element in another way."""
    total = 0.0
    for index, output in enumerate(tf.nest.flatten(outputs)):
        size = int(np.prod(output.shape.as_list()))
        factors = np.cos(np.arange(size) + index).reshape(output.shape.as_list())
        total += tf.reduce_sum(output * factors)
    return total
