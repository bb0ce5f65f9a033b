"""The layers, their saveables and the equivalent cells, for the tests."""

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers
from cudnn_rnn.checkpoints import cell_saveables, converters
from helpers import reference
from helpers.op_harness import TOLERANCES, assert_close
from helpers.rnn_models import CLASSES

# The layers have the names of the op-level classes.
LAYERS = {mode: getattr(layers, model.__name__) for mode, model in CLASSES.items()}
SAVEABLES = {
    mode: getattr(cell_saveables, model.__name__ + "Saveable") for mode, model in CLASSES.items()
}

LAYER_COUNT, UNITS, WIDTH, BATCH, STEPS = 2, 4, 3, 3, 5


def built_layer(rnn_mode, num_layers=1, num_units=UNITS, width=WIDTH, **named):
    """Returns a layer that has its variable."""
    layer = LAYERS[rnn_mode](num_layers, num_units, **named)
    layer.build([None, None, width])
    return layer


def make_inputs(dtype=np.float32, batch_major=False, steps=STEPS, batch=BATCH, width=WIDTH, seed=1):
    """Returns inputs [steps, batch, width] or, by batch, [batch, steps, width]."""
    inputs = np.random.RandomState(seed).uniform(-1, 1, [steps, batch, width]).astype(dtype)
    return inputs.swapaxes(0, 1) if batch_major else inputs


def make_states(layer, batch_major=False):
    """Returns random initial states of a layer for BATCH sequences, a tuple of arrays."""
    random = np.random.RandomState(2)
    shapes = layer.state_shape(BATCH)
    states = tuple(random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    return tuple(state.swapaxes(0, 1) for state in states) if batch_major else states


def cell(rnn_mode, num_units):
    if rnn_mode == "lstm":
        return cudnn_rnn.CudnnCompatibleLSTMCell(num_units)
    if rnn_mode == "gru":
        return cudnn_rnn.CudnnCompatibleGRUCell(num_units)
    return cudnn_rnn.BasicRNNCell(
        num_units, {"rnn_relu": tf.nn.relu, "rnn_tanh": tf.tanh}[rnn_mode]
    )


def run_cells(rnn_mode, num_layers, num_units, bidirectional, inputs, initial_state=None):
    """Builds the cells on time-major inputs, in the variable scopes of the checkpoints.

    `initial_state`, only for one direction: a tuple of the layers' states, zeros by default.

    Returns:
      `(outputs, states)`: the states are a list of tensors `[layers * directions, batch,
      num_units]` in the order of the layer's states.
    """
    if not bidirectional:
        stack = cudnn_rnn.MultiRNNCell([cell(rnn_mode, num_units) for _ in range(num_layers)])
        named = dict(initial_state=initial_state, dtype=inputs.dtype, time_major=True)
        outputs, states = tf.nn.dynamic_rnn(stack, inputs, **named)
    else:
        stacks = [[cell(rnn_mode, num_units) for _ in range(num_layers)] for _ in range(2)]
        outputs, forward, backward = cudnn_rnn.stack_bidirectional_dynamic_rnn(
            stacks[0], stacks[1], inputs, dtype=inputs.dtype, time_major=True
        )
        states = [state for pair in zip(forward, backward) for state in pair]
    if rnn_mode == "lstm":
        return outputs, [tf.stack([s.h for s in states]), tf.stack([s.c for s in states])]
    return outputs, [tf.stack(list(states))]


def set_params(session, layer):
    """Gives a built layer random parameters, biases included; returns them."""
    value = np.random.RandomState(3).uniform(-1, 1, layer.kernel.shape.as_list())
    value = value.astype(layer.kernel.dtype.as_numpy_dtype)
    layer.kernel.load(value, session)
    return value


def expected_results(layer, params, inputs, states=None, lengths=None, input_mode="linear_input"):
    """Returns output and states of the NumPy reference for time-major arrays."""
    configuration = reference.Configuration(
        layer.rnn_mode,
        input_mode,
        layer.direction,
        layer.num_layers,
        layer.num_units,
        inputs.shape[2],
    )
    if states is None:
        states = [np.zeros(shape, inputs.dtype) for shape in layer.state_shape(inputs.shape[1])]
    arrays = dict(zip(("input_h", "input_c"), states), input=inputs, params=params)
    return list(reference.run_reference(configuration, arrays, lengths=lengths).values())


def assert_like_reference(found, layer, params, inputs, dtype="float32", **named):
    """Compares output and states with `expected_results`, which takes the other arguments."""
    expected = expected_results(layer, params.astype("float64"), inputs.astype("float64"), **named)
    found, expected = dict(enumerate(found)), dict(enumerate(expected))
    assert_close(found, expected, TOLERANCES[dtype], named)


class ForgetBiasOneHooks:
    """Overrides the order of gates and the conversion of biases."""

    def _cudnn_to_tf_gate_params(self, *cu_gate_order):
        i_g, f_g, c_g, o_g = cu_gate_order
        return [c_g, i_g, f_g, o_g]

    def _tf_to_cudnn_gate_params(self, *tf_gate_order):
        c_g, i_g, f_g, o_g = tf_gate_order
        return [i_g, f_g, c_g, o_g]

    def _cudnn_to_tf_biases(self, *biases):
        (bias,) = super()._cudnn_to_tf_biases(*biases)
        c, i, f, o = tf.split(bias, 4)
        return (tf.concat([c, i, f - 1.0, o], axis=0),)

    def _tf_to_cudnn_biases(self, *tf_biases):
        (bias,) = tf_biases
        c, i, f, o = tf.split(bias, 4)
        return super()._tf_to_cudnn_biases(tf.concat([c, i, f + 1.0, o], axis=0))


class ForgetBiasOne(ForgetBiasOneHooks, converters.CudnnParamsFormatConverterLSTM):
    """A converter with these hooks."""
