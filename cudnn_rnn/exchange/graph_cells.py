"""What a graph tells of the plain LSTM cells of TensorFlow 1, beyond their variables.

A cell adds its forget bias in every step, may clip, and may have another activation than tanh.
`BasicLSTMCell` and `LSTMCell` are recognized by the nodes around the `Split` of their gates;
`LSTMBlockCell` and `LSTMBlockFusedCell` are one node.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, NamedTuple, Optional, Set, Tuple

import numpy as np

from cudnn_rnn.exchange.graph_nodes import SUMS, Nodes, name_of_variable

# The number of the input of these ops that is the bias.
_BLOCKS = {"LSTMBlockCell": 7, "BlockLSTM": 8}
# The defaults of their attributes, which a graph may leave out.
_BLOCK_FORGET_BIAS, _BLOCK_CLIP = 1.0, 3.0
_SUMS = ("Add", "AddV2")
_CLIPPING = ("ClipByValue", "Minimum")
_FORMATS = {1: "<f4", 2: "<f8", 19: "<f2"}  # NumPy's dtypes by the number of TensorFlow's


class ToldCell(NamedTuple):
    """What a graph tells of a cell, or of its projection.

    Attributes:
      forget_bias: float, or None if the graph does not tell.
      flaw: str, what it does that cuDNN's LSTM does not; "" for nothing.
    """

    forget_bias: Optional[float]
    flaw: str = ""


def told_cells(graph: Nodes) -> Dict[str, Set[ToldCell]]:
    """Returns what a graph tells of cells, by the names and keys of their biases.

    A clipped projection has the names and keys of its kernel.
    """
    of_variables: Dict[str, Set[ToldCell]] = {}
    for node in list(graph.by_name.values()):
        for variable, told in _told_by(graph, node):
            if variable is not None:
                of_variables.setdefault(variable.name, set()).add(told)
    by_key = {name_of_variable(graph.by_name[name]): told for name, told in of_variables.items()}
    for key, node in graph.saved() if of_variables else ():
        variable = graph.variable(node)
        if variable is not None and variable.name in of_variables:
            by_key[key] = of_variables[variable.name]
    return by_key


def _told_by(graph: Nodes, node: Any) -> Iterator[Tuple[Any, ToldCell]]:
    """Yields (variable, what is told of the cell with this bias or projection)."""
    if node.op in _BLOCKS:
        yield graph.variable(graph.input(node, _BLOCKS[node.op])), _told_by_block(node)
    elif node.op in SUMS:
        for split in graph.users(node, 0, ("Split",)):
            if split.attr["num_split"].i == 4 and graph.input(split, 1) is node:
                yield graph.variable(graph.input(node, 1)), _told_by_split(graph, split)
    elif node.op == "MatMul" and _is_clipped(graph, node):
        flaw = "clips its projection (proj_clip)"
        yield graph.variable(graph.input(node, 1)), ToldCell(None, flaw)


def _told_by_block(node):
    forget_bias, clip = (
        node.attr[name].f if name in node.attr else default
        for name, default in (("forget_bias", _BLOCK_FORGET_BIAS), ("cell_clip", _BLOCK_CLIP))
    )
    flaw = "clips its cell state to %g (cell_clip)" % clip if clip > 0 else ""
    return ToldCell(_finite(forget_bias), flaw)


def _told_by_split(graph, split):
    """Returns what is told of a cell whose gates, in the order i, g, f, o, this node splits."""
    candidates = graph.users(split, 1, ("Tanh",))
    if not candidates:
        return ToldCell(None, "has an activation other than tanh")
    if not graph.users(split, 0, ("Sigmoid",)) or not graph.users(split, 3, ("Sigmoid",)):
        return ToldCell(None, "computes its input or output gate in another way")
    new_memory = [mul for tanh in candidates for mul in graph.users(tanh, 0, ("Mul",))]
    states = [state for mul in new_memory for state in graph.users(mul, 0, _SUMS)]
    is_clipped = any(_is_clipped(graph, state) for state in states)
    flaw = "clips its cell state (cell_clip)" if is_clipped else ""
    return ToldCell(_forget_bias(graph, split), flaw)


def _forget_bias(graph, split):
    """Returns the constant that is added to the forget gate, None if nothing tells."""
    sums = graph.users(split, 2, _SUMS)
    if not sums:
        return 0.0 if graph.users(split, 2, ("Sigmoid",)) else None
    terms = [graph.input(node, number) for node in sums for number in (0, 1)]
    found = {_scalar(term) for term in terms if term is not None and term is not split}
    return found.pop() if len(found) == 1 else None


def _is_clipped(graph, node):
    """Returns whether the value of a node is limited by a constant."""
    return any(
        _scalar(graph.input(user, number)) is not None
        for user in graph.users(node, 0, _CLIPPING)
        for number in (0, 1)
    )


def _scalar(node):
    """Returns the value of a constant, None if the node is no finite number."""
    if node is None or node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    kind = _FORMATS.get(tensor.dtype)
    if kind is None or tensor.tensor_shape.dim or tensor.tensor_shape.unknown_rank:
        return None
    size = np.dtype(kind).itemsize
    if tensor.tensor_content:
        content = tensor.tensor_content
        return _finite(np.frombuffer(content, kind)[0]) if len(content) == size else None
    values = {1: tensor.float_val, 2: tensor.double_val, 19: tensor.half_val}[tensor.dtype]
    if len(values) != 1:
        return None
    if tensor.dtype == 19:  # the bits of the number
        return _finite(np.array(values[0] & 0xFFFF, "<u2").view(kind))
    return _finite(values[0])


def _finite(value):
    return float(value) if math.isfinite(value) else None
