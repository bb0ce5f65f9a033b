"""NumPy formulas, names and shapes for the tests of the platform-independent cells."""

import numpy as np
import tensorflow.compat.v1 as tf

from cudnn_rnn.cells.compatible import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
from helpers.reference import sigmoid

CELLS = [CudnnCompatibleLSTMCell, CudnnCompatibleGRUCell]
BATCH, STEPS, INPUT_SIZE, NUM_UNITS = 3, 5, 4, 6
# Allowed rounding error of a short recurrence.
TOLERANCE = {"float32": 2e-6, "float64": 1e-14}


# The cells' formulas. `weights` maps a variable's name within the cell's scope to its array.


def numpy_lstm(weights, x, state):
    c, h = state
    gates = np.concatenate([x, h], 1).dot(weights["kernel"]) + weights["bias"]
    i, g, f, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, (c, h)


def numpy_gru(weights, x, h):
    gates = np.concatenate([x, h], 1).dot(weights["gates/kernel"]) + weights["gates/bias"]
    r, u = np.split(sigmoid(gates), 2, axis=1)
    from_x, from_h = "candidate/input_projection/", "candidate/hidden_projection/"
    of_x = x.dot(weights[from_x + "kernel"]) + weights[from_x + "bias"]
    of_h = h.dot(weights[from_h + "kernel"]) + weights[from_h + "bias"]
    h = (1 - u) * np.tanh(of_x + r * of_h) + u * h
    return h, h


NUMPY = {CudnnCompatibleLSTMCell: numpy_lstm, CudnnCompatibleGRUCell: numpy_gru}
SCOPE = {
    CudnnCompatibleLSTMCell: "cudnn_compatible_lstm_cell",
    CudnnCompatibleGRUCell: "cudnn_compatible_gru_cell",
}


def variable_shapes(cell_class, input_size=INPUT_SIZE, num_units=NUM_UNITS):
    """Returns variable names within the cell's scope and shapes, in tf.contrib's order."""
    if cell_class is CudnnCompatibleLSTMCell:
        return [("kernel", [input_size + num_units, 4 * num_units]), ("bias", [4 * num_units])]
    return [
        ("gates/kernel", [input_size + num_units, 2 * num_units]),
        ("gates/bias", [2 * num_units]),
        ("candidate/input_projection/kernel", [input_size, num_units]),
        ("candidate/hidden_projection/kernel", [num_units, num_units]),
        ("candidate/input_projection/bias", [num_units]),
        ("candidate/hidden_projection/bias", [num_units]),
    ]


def names_and_shapes(variables):
    return [(variable.op.name, variable.shape.as_list()) for variable in variables]


def random_weights(session, variables, seed=1):
    """Gives every variable random values; returns op name -> array."""
    random = np.random.RandomState(seed)
    values = {}
    for variable in variables:
        dtype = variable.dtype.base_dtype.as_numpy_dtype
        values[variable.op.name] = random.uniform(-1, 1, variable.shape.as_list()).astype(dtype)
        variable.load(values[variable.op.name], session)
    return values


def within(values, scope):
    return {name[len(scope) + 1 :]: v for name, v in values.items() if name.startswith(scope + "/")}


def numpy_run(cell_class, weights, inputs, sequence_lengths=None):
    """Runs a layer over `inputs` [batch, time, depth] from zeros; returns outputs and last h."""
    batch, steps, _ = inputs.shape
    zeros = np.zeros([batch, NUM_UNITS], inputs.dtype)
    state = (zeros, zeros) if cell_class is CudnnCompatibleLSTMCell else zeros
    last = zeros.copy()
    outputs = np.zeros([batch, steps, NUM_UNITS], inputs.dtype)
    for step in range(steps):
        h, state = NUMPY[cell_class](weights, inputs[:, step], state)
        for b in range(batch):
            if sequence_lengths is None or step < sequence_lengths[b]:
                outputs[b, step] = last[b] = h[b]
    return outputs, last


def random_inputs(dtype="float32", batch=BATCH, seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, [batch, STEPS, INPUT_SIZE]).astype(dtype)


def call_cell(cell, batch=BATCH, **named):
    """Calls a cell on zeros; returns the inputs and what the call returns."""
    inputs = tf.zeros([batch, INPUT_SIZE])
    return inputs, cell(inputs, cell.zero_state(batch, tf.float32), **named)
