"""What ONNX graphs must have before RNNs are read from them; notes of nodes that are left out."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Collection, Dict, Iterator, List

from cudnn_rnn.exchange.contents import ExchangeError, library
from cudnn_rnn.exchange.onnx_arrays import Constants, is_of_onnx

_DEEPEST = 16  # subgraphs in subgraphs that are looked into


def require_text(graph: Any) -> None:
    """Raises if a name is no text; protobuf then returns bytes, which other names do not equal."""
    names = [value.name for value in (*graph.initializer, *graph.input, *graph.output)]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
    for name in names:
        if not isinstance(name, str):
            raise ExchangeError(
                "The model has the name %r, which is no UTF-8. It is damaged." % name
            )


def require_inputs(graph: Any, producers: Dict[str, Any], constants: Constants) -> None:
    """Raises if a node has an input that nothing makes; chains of layers would break there."""
    known = {value.name for value in graph.input}
    known.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        for name in filter(None, node.input):
            if not (name in known or name in producers or name in constants):
                raise ExchangeError(
                    "The %s node %r has the input %r, which is neither an input of the model, a "
                    "constant nor an output. The model is damaged."
                    % (node.op_type, node.name, name)
                )


def notes(model: Any, rnns: Collection[str]) -> List[str]:
    """Returns a note for each kind of nodes that are left out.

    Args:
      model: an `onnx.ModelProto`.
      rnns: the operators of RNNs. Those of other domains contain one of these names.
    """
    told = []
    in_bodies = list(_nodes_in_bodies(model))
    operators = {node.op_type for node in model.graph.node if is_of_onnx(node)}
    unknown = operators - _operators_of_onnx()
    if unknown:
        told.append(
            "The model has nodes with the operators %s, which ONNX does not have: the file is "
            "damaged, or of a newer ONNX. They are left out." % ", ".join(sorted(unknown)[:8])
        )
    inside = [
        "%s node %r" % (node.op_type, node.name)
        for node in in_bodies
        if node.op_type in rnns and is_of_onnx(node)
    ]
    if inside:
        told.append(
            "Only RNNs of the graph itself are read. Left out, as they are in the body of an If, "
            "Loop, Scan or function: %s." % ", ".join(inside[:8])
        )
    foreign = [
        "%s (%s) node %r" % (node.op_type, node.domain, node.name)
        for node in (*model.graph.node, *in_bodies)
        if not is_of_onnx(node) and any(name in str(node.op_type) for name in rnns)
    ]
    if foreign:
        told.append(
            "Only RNNs of ONNX's own operators are read. Left out, as their operators are of other "
            "domains: %s. Quantized weights are not those that the program trained: convert the "
            "model as it was before it was quantized." % ", ".join(foreign[:8])
        )
    return told


def _nodes_in_bodies(model: Any) -> Iterator[Any]:
    """Yields the nodes of functions, and of graphs that are attributes of nodes."""
    levels = [[model.graph, *model.functions]]
    while levels[-1] and len(levels) < _DEEPEST:
        bodies = [body for graph in levels[-1] for node in graph.node for body in _bodies(node)]
        levels.append(bodies)
    for body in (*model.functions, *itertools.chain(*levels[1:])):
        yield from body.node


def _bodies(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


@functools.lru_cache(maxsize=1)
def _operators_of_onnx():
    return {schema.name for schema in library("onnx", "onnx").defs.get_all_schemas_with_history()}
