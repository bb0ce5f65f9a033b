"""RNNs of the cells of `tf.contrib.rnn`, made with any module that has these cells.

Imports nothing of the package: `tests/golden/contrib_cells` is made with TensorFlow 1.15 alone.
"""

import numpy as np
import tensorflow.compat.v1 as tf

STEPS, BATCH, WIDTH, UNITS = 4, 3, 2, 3
LENGTHS = [4, 0, 2]


def _steps(make_cell):
    """Returns a case that runs a cell one step at a time."""

    def case(rnn, inputs):
        return tf.nn.dynamic_rnn(make_cell(rnn), inputs, dtype=inputs.dtype, time_major=True)

    return case


def _whole(make_cell, lengths=None):
    """Returns a case of a cell that computes the whole sequence."""

    def case(rnn, inputs):
        return make_cell(rnn)(inputs, dtype=inputs.dtype, sequence_length=lengths)

    return case


def _given_state(rnn, inputs):
    state = (tf.fill([BATCH, UNITS], 0.5), tf.fill([BATCH, UNITS], -0.25))
    cell = rnn.LSTMBlockFusedCell(UNITS)
    return cell(inputs, initial_state=state, sequence_length=LENGTHS)


def _both_ways(rnn, inputs):
    forward = rnn.LSTMBlockFusedCell(UNITS)
    backward = rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(UNITS, forget_bias=0.0))
    there = forward(inputs, dtype=inputs.dtype, sequence_length=LENGTHS, scope="fw")
    back = backward(inputs, dtype=inputs.dtype, sequence_length=LENGTHS, scope="bw")
    return there, back


def _shared_and_unique(rnn, inputs):
    """Cells of the same name in one scope: new variables, unless the cell reuses them."""
    results = []
    for cell in (
        rnn.LSTMBlockCell(UNITS),
        rnn.LSTMBlockCell(UNITS, name="other"),
        rnn.LSTMBlockCell(UNITS, reuse=True),
        rnn.GRUBlockCellV2(UNITS),
        rnn.GRUBlockCellV2(UNITS, reuse=True),
        rnn.GRUBlockCellV2(UNITS),
    ):
        results.append(cell(inputs[0], cell.zero_state(BATCH, inputs.dtype)))
    for named in ({}, {}, {"reuse": True}, {"name": "whole"}):
        results.append(rnn.LSTMBlockFusedCell(UNITS, **named)(inputs, dtype=inputs.dtype))
    return results


CASES = {
    "lstm": _steps(lambda rnn: rnn.LSTMBlockCell(UNITS)),
    "lstm_clip": _steps(lambda rnn: rnn.LSTMBlockCell(UNITS, forget_bias=0.25, cell_clip=0.125)),
    "lstm_peephole": _steps(lambda rnn: rnn.LSTMBlockCell(UNITS, use_peephole=True)),
    "gru": _steps(lambda rnn: rnn.GRUBlockCell(UNITS)),
    "gru_v2": _steps(lambda rnn: rnn.GRUBlockCellV2(UNITS)),
    "stack": _steps(
        lambda rnn: rnn.MultiRNNCell([rnn.LSTMBlockCell(UNITS), rnn.GRUBlockCellV2(5)])
    ),
    "fused": _whole(lambda rnn: rnn.LSTMBlockFusedCell(UNITS)),
    "fused_clip": _whole(lambda rnn: rnn.LSTMBlockFusedCell(UNITS, 0.0, 0.125), LENGTHS),
    "fused_peephole": _whole(lambda rnn: rnn.LSTMBlockFusedCell(UNITS, use_peephole=True), LENGTHS),
    "given_state": _given_state,
    "reversed": _whole(lambda rnn: rnn.TimeReversedFusedRNN(rnn.LSTMBlockFusedCell(UNITS))),
    "both_ways": _both_ways,
    "shared_and_unique": _shared_and_unique,
}


class Network:
    """The tensors of one case: the inputs, the results, and the gradients of all variables.

    The gradients are those of a weighted sum of the results.
    """

    def __init__(self, name, rnn):
        self.inputs = tf.placeholder(tf.float32, [STEPS, BATCH, WIDTH])
        known = set(tf.global_variables())
        with tf.variable_scope(name):
            self.results = tf.nest.flatten(CASES[name](rnn, self.inputs))
        self.variables = [found for found in tf.global_variables() if found not in known]
        loss = tf.add_n([tf.reduce_sum(part * _weights(part)) for part in self.results])
        self.gradients = tf.gradients(loss, [self.inputs, *self.variables])

    def names_and_shapes(self):
        return [(found.op.name, found.shape.as_list()) for found in self.variables]

    def run(self, session, inputs):
        """Returns a dict of arrays by name."""
        results, gradients = session.run([self.results, self.gradients], {self.inputs: inputs})
        arrays = {"result_%d" % number: value for number, value in enumerate(results)}
        arrays.update({"gradient_%d" % number: value for number, value in enumerate(gradients)})
        return arrays


def _weights(tensor):
    return np.linspace(-1, 1, num=tensor.shape.num_elements()).reshape(tensor.shape.as_list())


def random_inputs(seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, [STEPS, BATCH, WIDTH]).astype(np.float32)
