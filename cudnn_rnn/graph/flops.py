"""Counts the floating-point operations of the RNN ops, for `tf.profiler`.

As for TensorFlow's own ops, a multiplication and an addition are two operations, and so are a
division and an activation one each. Sequences of unknown length count in full. The gradient counts
twice as much as the forward op: it has a product with each matrix for the data, and one for the
parameters.
"""

import numpy as np

from cudnn_rnn._compat import register_flops
from cudnn_rnn.graph import model_sizes
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import (
    CUDNN_GRU,
    CUDNN_LSTM,
    CUDNN_RNN_RELU,
    CUDNN_RNN_TANH,
    FORWARD_OPS,
    GATES,
)

# What a unit computes in a step after the sums of its gates; the formulas are in `op_level.py`.
_ELEMENTWISE = {
    CUDNN_LSTM: 9,  # 5 activations; c: 2 multiplications, 1 addition; h: 1 multiplication
    CUDNN_GRU: 8,  # 3 activations; r times a sum; h: 2 multiplications, 1 - u, 1 addition
    CUDNN_RNN_RELU: 1,
    CUDNN_RNN_TANH: 1,
}
_SUMMANDS = 3  # W x + bW + R h' + bR has 3 additions


def _forward(config, steps, batch):
    """Returns the operations of a forward call."""
    of_weights = (np.prod(part.shape, dtype=np.int64) for part in layout.canonical_weights(config))
    units = config.num_layers * config.num_directions * config.num_units
    of_units = len(GATES[config.rnn_mode]) * _SUMMANDS + _ELEMENTWISE[config.rnn_mode]
    return int(steps) * int(batch) * (2 * int(sum(of_weights)) + units * of_units)


def _count(graph, node):
    """Returns the operations of a node's forward op; `ValueError` if a size is unknown."""
    operation = graph.get_operation_by_name(node.name)
    config, time_major = model_sizes.model_of_operation(operation)
    sizes = operation.inputs[0].shape.with_rank(3).as_list()
    steps, batch = sizes[:2] if time_major else sizes[1::-1]
    if None in (steps, batch, config.num_layers, config.num_units, config.input_size):
        # The profiler counts such nodes as incomplete.
        raise ValueError("%s has an input of unknown shape." % node.name)
    return _forward(config, steps, batch)


def _twice(graph, node):
    return 2 * _count(graph, node)


for _op in FORWARD_OPS:
    register_flops(_op)(_count)
    register_flops(_op.replace("CudnnRNN", "CudnnRNNBackprop"))(_twice)
