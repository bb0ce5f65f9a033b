"""Keeps the shapes that tell the sizes of RNNs when a graph is optimized."""

from __future__ import annotations

from typing import Any

from cudnn_rnn._compat import function_def_to_graph, tf
from cudnn_rnn.model.spec import FORWARD_OPS
from cudnn_rnn.plain._graphs import imported

_STATES_AND_DATA = range(3)  # the places of input, input_h and input_c


def keep_shapes(graph_def: Any) -> None:
    """Adds an EnsureShape before `input`, `input_h` and `input_c` of each RNN, in place.

    Loops lose the shapes of their variables when a graph is written and read again.
    """
    _keep_shapes_of(graph_def.node, imported(graph_def), "")
    for function in graph_def.library.function:
        if any(node.op in FORWARD_OPS for node in function.node_def):
            _keep_shapes_of(function.node_def, function_def_to_graph(function), ":output:0")


def _keep_shapes_of(nodes, graph, output):
    """`output` follows a node's name in references to its output."""
    added = []
    for node in nodes:
        if node.op not in FORWARD_OPS:
            continue
        for place in _STATES_AND_DATA:
            tensor = graph.get_operation_by_name(node.name).inputs[place]
            if tensor.shape.rank != 3:
                continue
            name = "%s/with_shape_%d" % (node.name, place)
            ensured = tf.NodeDef(name=name, op="EnsureShape", input=[node.input[place]])
            ensured.attr["T"].type = tensor.dtype.base_dtype.as_datatype_enum
            ensured.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
            node.input[place] = name + output
            added.append(ensured)
    nodes.extend(added)
