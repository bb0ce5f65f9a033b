"""The ONNX nodes of one `CudnnRNN*` node: LSTM, GRU or RNN for each layer, with both directions.

ONNX's recurrent nodes have these tensors, time-major:

    X          [time, batch, width]
    W, R, B    [directions, gates * units, ...], `exchange.onnx_format.arrays_of_layer`
    initial_h  [directions, batch, units], and initial_c
    Y          [time, directions, batch, units]
    Y_h        [directions, batch, units], and Y_c

`graph` is tf2onnx's `Graph`, whose nodes have the attributes of TensorFlow's.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

import numpy as np

from cudnn_rnn._compat import tf
from cudnn_rnn.exchange import onnx_format
from cudnn_rnn.graph import model_sizes
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import CUDNN_LSTM, RnnConfig
from cudnn_rnn.model.weights import DTYPES, from_buffer
from cudnn_rnn.plain._graphs import ADVICE_ON_SHAPES

OLDEST_OPSET = 13  # where Split and Squeeze take their sizes and axes as inputs
_BATCH_MAJOR = [1, 0, 2]
_HOST_RESERVED = 4  # the number of this output, which is of int8


def inexpressible(config: RnnConfig, is_training: bool) -> Optional[str]:
    """Returns why ONNX's recurrent nodes cannot express a model, None if they can.

    The number of layers may be unknown.
    """
    if config.num_proj:
        return "ONNX's LSTM has no projection (num_proj is %d)" % config.num_proj
    if is_training and config.dropout and config.num_layers != 1:
        return "ONNX's nodes have no dropout (is_training is True, dropout %g)" % config.dropout
    if config.dtype not in DTYPES:
        return "ONNX's LSTM, GRU and RNN do not take %s" % config.dtype
    return None


def convert(graph: Any, node: Any) -> None:
    """Replaces a `CudnnRNN*` node of a graph of tf2onnx.

    Raises:
      ValueError: ONNX's nodes cannot say what it computes, or a size is unknown.
    """
    where = "The node %r (%s)" % (node.name, node.type)
    if graph.opset < OLDEST_OPSET:
        raise ValueError(
            "%s needs opset %d or newer, but the opset is %d. Pass opset=%d to tf2onnx."
            % (where, OLDEST_OPSET, graph.opset, OLDEST_OPSET)
        )
    try:
        config, time_major = model_sizes.model_of_operation(_Operation(graph, node))
        config = model_sizes.checked(config)
    except ValueError as error:
        text = "%s cannot be converted: %s%s" % (where, error, ADVICE_ON_SHAPES)
        raise ValueError(text) from error
    reason = inexpressible(config, bool(node.get_attr_value("is_training", True)))
    if reason is not None:
        raise ValueError(
            "%s has no counterpart: %s. cudnn_rnn.export_onnx makes a loop of it." % (where, reason)
        )
    _replace(graph, node, config, time_major)


class _Operation:
    """What `model_sizes` asks of an operation of TensorFlow."""

    def __init__(self, graph, node):
        self.type, self._node = node.type, node
        self.inputs = [_spec(graph, name) for name in node.input]

    def get_attr(self, name):
        return self._node.get_attr_value(name)


def _spec(graph, name):
    shape = graph.get_shape(name)
    if shape is not None:
        shape = [None if size < 0 else size for size in shape]
    return tf.TensorSpec(shape, _dtype(graph, name))


def _dtype(graph, name):
    import onnx

    return tf.as_dtype(onnx.helper.tensor_dtype_to_np_dtype(graph.get_dtype(name)))


class _Inputs(NamedTuple):
    """Names of tensors: `states` has h, for an LSTM also c, `[layers * directions, batch, units]`.

    `lengths` is empty if all steps of all sequences count.
    """

    sequences: str
    states: List[str]
    params: str
    lengths: str


def _replace(graph, node, config, time_major):
    """Puts the nodes in the place of `node`."""
    builder = _Builder(graph, node.name)
    sequences, *states, params = node.input[:4]
    states = states[: 2 if config.rnn_mode == CUDNN_LSTM else 1]
    lengths = node.input[4] if node.type.endswith("V3") else ""
    outputs, shapes, dtypes = list(node.output), node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    if not time_major:
        sequences, *states = [
            builder.node("Transpose", [one], perm=_BATCH_MAJOR) for one in (sequences, *states)
        ]
    results = _layers(builder, config, _Inputs(sequences, states, params, lengths))
    for place, result in enumerate(results):
        operator, attributes = "Identity", {}
        if not time_major:
            operator, attributes = "Transpose", {"perm": _BATCH_MAJOR}
        # graph.make_node takes the name of an output only together with those of all.
        graph.make_node(
            operator,
            [result],
            attr=attributes,
            outputs=[outputs[place]],
            shapes=[shapes[place]],
            dtypes=[dtypes[place]],
        )
    for place in range(len(results), len(outputs)):
        # tf.cond returns all outputs from its branches; no node computes with these.
        empty = builder.constant(np.zeros(0, np.int8 if place == _HOST_RESERVED else config.dtype))
        graph.make_node(
            "Identity", [empty], outputs=[outputs[place]], shapes=[[0]], dtypes=[dtypes[place]]
        )


class _Builder:
    """Adds nodes with names in the scope of the node that they replace."""

    def __init__(self, graph, scope):
        self.graph, self._scope = graph, scope
        self._count = 0

    def _name(self, kind):
        self._count += 1
        return "%s/%s_%d" % (self._scope, kind, self._count)

    def nodes(self, operator, inputs, output_count, **attributes):
        """Adds a node; returns the names of its outputs."""
        name = self._name(operator.lower())
        node = self.graph.make_node(
            operator, inputs, attr=attributes, output_count=output_count, name=name
        )
        return list(node.output)

    def node(self, operator, inputs, **attributes):
        """Adds a node with one output; returns its name."""
        return self.nodes(operator, inputs, 1, **attributes)[0]

    def constant(self, array):
        """Adds an array; returns its name."""
        return self.graph.make_const(self._name("constant"), np.asarray(array)).output[0]

    def integers(self, *values):
        return self.constant(np.array(values, np.int64))

    def value(self, name):
        """Returns a constant's array; None if the tensor is no constant."""
        node = self.graph.get_node_by_output(name)
        return node.get_tensor_value(as_list=False) if node and node.is_const() else None


def _layers(builder, config, inputs):
    """Adds all layers; returns the names of the output and of the final states."""
    weights = _weights(builder, config, inputs.params)
    directions = config.num_directions
    initial = [_split(builder, state, [directions] * config.num_layers) for state in inputs.states]
    operator, attributes = onnx_format.operator_and_attributes(
        config.rnn_mode, config.num_units, directions
    )
    sequences = inputs.sequences
    final: List[List[str]] = [[] for _ in inputs.states]
    for layer in range(config.num_layers):
        of_layer = [parts[layer] for parts in initial]
        arguments = [sequences, *weights[layer], inputs.lengths, *of_layer]
        sequences, *last = builder.nodes(operator, arguments, 1 + len(final), **attributes)
        sequences = _joined_directions(builder, sequences, directions)
        for states, state in zip(final, last):
            states.append(state)
    results = [parts[0] if len(parts) == 1 else _concat(builder, parts) for parts in final]
    if inputs.lengths:
        results = _with_empty_sequences(builder, inputs, results)
    return [sequences, *results]


def _split(builder, name, sizes):
    """Returns the parts of a tensor along its first axis."""
    if len(sizes) == 1:
        return [name]
    return builder.nodes("Split", [name, builder.integers(*sizes)], len(sizes), axis=0)


def _concat(builder, names):
    return builder.node("Concat", names, axis=0)


def _joined_directions(builder, name, directions):
    """Returns `[time, directions, batch, units]` as `[time, batch, directions * units]`."""
    if directions == 1:
        return builder.node("Squeeze", [name, builder.integers(1)])
    moved = builder.node("Transpose", [name], perm=[0, 2, 1, 3])
    return builder.node("Reshape", [moved, builder.integers(0, 0, -1)])


def _with_empty_sequences(builder, inputs, results):
    """Returns the final states, of sequences of length 0 the initial ones, as cuDNN has them.

    ONNX Runtime's are 0.
    """
    is_empty = builder.node("Equal", [inputs.lengths, builder.constant(np.array([0], np.int32))])
    is_empty = builder.node("Unsqueeze", [is_empty, builder.integers(0, 2)])  # [1, batch, 1]
    return [
        builder.node("Where", [is_empty, initial, last])
        for initial, last in zip(inputs.states, results)
    ]


def _weights(builder, config, params):
    """Returns for each layer the names of W, R and B.

    There may be more parameters than the model has; it takes the first ones.
    """
    size = layout.params_size(config)
    vector = builder.value(params)
    if vector is not None:
        rnn = from_buffer(vector[:size], config)
        return [
            [builder.constant(array) for array in onnx_format.arrays_of_layer(rnn, layer)]
            for layer in range(config.num_layers)
        ]
    if builder.graph.get_shape(params) != [size]:
        params = builder.node("Slice", [params, builder.integers(0), builder.integers(size)])
    return _computed_weights(builder, config, params, size)


def _computed_weights(builder, config, params, size):
    """Returns the names of parts of a computed vector of this size, in ONNX's order.

    The places of the numbers in the vector are arranged as the numbers would be; blocks of
    neighbors are cut out and joined.
    """
    places = from_buffer(np.arange(size, dtype=np.float64), config)
    arrays = [onnx_format.arrays_of_layer(places, layer) for layer in range(config.num_layers)]
    has_identity = config.skips_input_projection
    blocks = [
        [
            None if has_identity and (layer, kind) == (0, 0) else _blocks(array)
            for kind, array in enumerate(of_layer)
        ]
        for layer, of_layer in enumerate(arrays)
    ]
    starts = sorted({start for of_layer in blocks for found in of_layer for start in found or ()})
    parts = dict(zip(starts, _split(builder, params, np.diff([*starts, size]).tolist())))

    def name(array, found):
        if found is None:
            return builder.constant(array.astype(config.dtype))
        joined = _concat(builder, [parts[start] for start in found])
        return builder.node("Reshape", [joined, builder.integers(*array.shape)])

    return [list(map(name, *of_layer)) for of_layer in zip(arrays, blocks)]


def _blocks(places):
    """Returns the starts of the blocks of neighbors that an array of places consists of."""
    flat = places.reshape(-1).astype(np.int64)
    is_start = np.concatenate([[True], np.diff(flat) != 1])
    return flat[is_start].tolist()
