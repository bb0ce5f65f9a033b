"""Static shapes in a graph, as far as they tell the sizes of an RNN."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Set

from cudnn_rnn.exchange.graph_constants import (
    SWITCHES,
    GraphConstants,
    NotConstant,
    Place,
    index_of,
)
from cudnn_rnn.model.spec import FORWARD_OPS

Shape = Optional[List[Optional[int]]]  # None if the rank is unknown

_PLACEHOLDERS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
# The shape of the first output is that of the first input.
_KEEPING = (
    "Cast",
    "CheckNumerics",
    "Enter",
    "Identity",
    "Relu",
    "Sigmoid",
    "StopGradient",
    "Tanh",
    "ZerosLike",
    *SWITCHES,
)
_MOST_STEPS = 100  # between an RNN and what tells the shape of its inputs


def shape_of(constants: GraphConstants, place: Place) -> Shape:
    """Returns the shape of an output; None, or None in it, for what the graph does not tell."""
    changes: List[Callable[[List[Optional[int]]], List[Optional[int]]]] = []
    try:
        for _ in range(_MOST_STEPS):
            node = constants.node(place)
            shape = None if node is None else _told(constants, place, node)
            if shape is not None:
                for change in reversed(changes):
                    shape = change(shape)
                return shape
            before = _before(constants, place, node, changes)
            if before is None:
                return None
            place = before
    except (NotConstant, ValueError, IndexError, TypeError, OverflowError):  # of damaged graphs
        pass
    return None


def _before(constants, place, node, changes):
    """Returns what an output is a view of; appends what this changes in the shape."""
    if node is None:
        return constants.argument(place)
    inputs = constants.inputs(place.body, node)
    if node.op == "IdentityN":
        return inputs[place.number]
    if node.op == "Transpose":
        axes = constants.value(inputs[1]).ravel().tolist()
        changes.append(lambda shape: [shape[axis] for axis in axes])
    elif node.op == "ExpandDims":
        axis = int(constants.value(inputs[1]))
        changes.append(lambda shape: _with_new_axis(shape, axis))
    elif node.op == "StridedSlice":
        index = index_of(node, *[constants.value(one) for one in inputs[1:4]])
        changes.append(lambda shape: _sliced(shape, index))
    elif node.op not in _KEEPING:
        return None
    return inputs[0]


def _with_new_axis(shape, axis):
    place = axis if axis >= 0 else len(shape) + 1 + axis
    return [*shape[:place], None if place > len(shape) else 1, *shape[place:]]


def _sliced(shape, index):
    """Returns the shape of a slice."""
    rest = len(shape) - sum(one is not None and one is not Ellipsis for one in index)
    if rest < 0:
        raise ValueError("the index has more axes than the shape")
    found: List[Optional[int]] = []
    axis = 0
    for one in index if Ellipsis in index else (*index, Ellipsis):
        if one is None:
            found.append(1)
        elif one is Ellipsis:
            found += shape[axis : axis + rest]
            axis += rest
        else:
            if isinstance(one, slice):
                length = shape[axis]
                is_whole = (one.start, one.stop, one.step) == (None, None, 1)
                known = None if length is None else len(range(*one.indices(length)))
                found.append(length if is_whole else known)
            axis += 1
    return found


def _told(constants, place, node):
    """Returns the shape that a node itself tells, None if it does not."""
    shapes = node.attr["_output_shapes"].list.shape if "_output_shapes" in node.attr else ()
    if not place.output and place.number < len(shapes):
        shape = _of_proto(shapes[place.number])
        if shape is not None:
            return shape
    if node.op in _PLACEHOLDERS:
        return _of_proto(node.attr["shape"].shape)
    if node.op == "Const":
        return _of_proto(node.attr["value"].tensor.tensor_shape)
    inputs = constants.inputs(place.body, node)
    if node.op == "Fill":
        return _elements(constants, inputs[0])
    is_output = place.number == 0 and place.output in ("", "output")
    return _output_of_rnn(constants, node, inputs) if node.op in FORWARD_OPS and is_output else None


def _output_of_rnn(constants, node, inputs):
    """Returns the shape of the output of a forward node."""
    state = shape_of_state(constants, inputs[1])
    if state is None or state[2] is None:
        return None
    ways = 2 if node.attr["direction"].s == b"bidirectional" else 1
    return [None, None, ways * state[2]]


def shape_of_state(constants: GraphConstants, place: Place) -> Shape:
    """Returns the shape of a state, None unless its rank is 3; follows no other RNN."""
    node = constants.node(place)
    if node is not None and node.op in FORWARD_OPS:
        return None
    shape = shape_of(constants, place)
    return shape if shape is not None and len(shape) == 3 else None


def _of_proto(proto: Any) -> Shape:
    if proto.unknown_rank:
        return None
    return [dim.size if dim.size >= 0 else None for dim in proto.dim]


def _elements(constants, place):
    """Returns the elements of a vector of integers, as far as they are constants."""
    node = constants.node(place)
    seen: Set[Place] = set()
    while node is not None and node.op in ("Identity", "Cast") and place not in seen:
        seen.add(place)
        inputs = constants.inputs(place.body, node)
        if not inputs:
            return None
        place = inputs[0]
        node = constants.node(place)
    if node is not None and node.op == "Pack":
        return [_element(constants, one) for one in constants.inputs(place.body, node)[:3]]
    return constants.value(place).ravel()[:32].tolist()


def _element(constants, place):
    try:
        value = constants.value(place)
    except NotConstant:
        return None
    return int(value) if value.size == 1 and value.dtype.kind == "i" else None
