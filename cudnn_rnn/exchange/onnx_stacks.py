"""Finds which RNN nodes of an ONNX graph are layers of one stack.

The output of a layer, `[time, directions, batch, units]`, must become the next layer's input,
`[time, batch, directions * units]`, in this order of axes: other models compute something else.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

# Operators that only rearrange; between two layers there are few.
_REARRANGING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity")
_MOST_BETWEEN = 16

_Axes = List[Tuple[str, ...]]  # for each axis, what it consists of; () has length 1


class Source(NamedTuple):
    """The layer below a node.

    Attributes:
      output: the name of its output.
      is_stacked: whether all axes arrive in the order of a stack.
    """

    output: str
    is_stacked: bool


def source(node: Any, producers: Dict[str, Any], sizes: Any, constants: Any) -> Optional[Source]:
    """Returns the layer whose sequences, rearranged, are a node's input; None if there is none.

    Args:
      node: a node LSTM, GRU or RNN.
      producers: nodes by the names of their outputs.
      sizes: a function from a node LSTM, GRU or RNN to its (directions, units).
      constants: `onnx_arrays.Constants`.
    """
    between: List[Any] = []
    name = node.input[0] if node.input else ""
    while name in producers and producers[name].op_type in _REARRANGING:
        between.append(producers[name])
        if len(between) > _MOST_BETWEEN or not between[-1].input:
            return None
        name = between[-1].input[0]
    producer = producers.get(name)
    if producer is None or producer.op_type != node.op_type or producer.output[0] != name:
        return None
    directions, units = sizes(producer)
    axes: Optional[_Axes] = [("time",), ("directions",), ("batch",), ("units",)]
    lengths = {"directions": directions, "units": units}
    for step in reversed(between):
        axes = None if axes is None else _after(step, axes, lengths, constants)
    expected: _Axes = [("time",), ("batch",), ("directions", "units")]
    return Source(
        name, axes is not None and _plain(axes, directions) == _plain(expected, directions)
    )


def _plain(axes, directions):
    """Returns the axes without those of length 1."""
    if directions == 1:
        axes = [tuple(part for part in axis if part != "directions") for axis in axes]
    return [axis for axis in axes if axis]


def _after(node, axes, lengths, constants):
    """Returns the axes after a node; None if they are not certain."""
    step = {"Transpose": _transposed, "Reshape": _reshaped, "Squeeze": _squeezed}
    step["Unsqueeze"] = _unsqueezed
    return step[node.op_type](node, axes, lengths, constants) if node.op_type in step else axes


def _transposed(node, axes, lengths, constants):
    order = _integers(node, "perm", constants, default=list(range(len(axes)))[::-1])
    if order is None or sorted(order) != list(range(len(axes))):
        return None
    return [axes[place] for place in order]


def _squeezed(node, axes, lengths, constants):
    removed = _integers(node, "axes", constants)
    if removed is None or not all(-len(axes) <= place < len(axes) for place in removed):
        return None
    removed = {place % len(axes) for place in removed}
    is_one = [all(lengths.get(part) == 1 for part in axis) for axis in axes]
    if not all(is_one[place] for place in removed):
        return None
    return [axis for place, axis in enumerate(axes) if place not in removed]


def _unsqueezed(node, axes, lengths, constants):
    added = _integers(node, "axes", constants)
    rank = len(axes) + len(added or [])
    if added is None or not all(-rank <= place < rank for place in added):
        return None
    added = {place % rank for place in added}
    rest = iter(axes)
    if len(added) != rank - len(axes):
        return None
    return [() if place in added else next(rest) for place in range(rank)]


def _reshaped(node, axes, lengths, constants):
    shape = _integers(node, "shape", constants)
    has_zeros = any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute)
    if shape is None or has_zeros or shape.count(-1) > 1:
        return None
    end = shape.index(-1) if -1 in shape else len(shape)
    first = _taken(axes, shape[:end], lengths)
    if first is None:
        return None
    found, rest = first
    if -1 not in shape:
        # Only axes of length 1 may remain.
        return found if not _plain(rest, lengths["directions"]) else None
    backwards = _taken([axis[::-1] for axis in rest[::-1]], shape[:end:-1], lengths, False)
    if backwards is None:
        return None
    last, rest = [[axis[::-1] for axis in part[::-1]] for part in backwards]
    return found + [tuple(part for axis in rest for part in axis)] + last


def _taken(axes, shape, lengths, has_copies=True):
    """Returns (axes of these lengths, those that are left); None if they are not certain."""
    found: _Axes = []
    rest = list(axes)
    for place, length in enumerate(shape):
        # 0 copies the length of the input's axis in the same place.
        is_copy = has_copies and length == 0 and len(axes) - len(rest) == place
        taken = rest[:1] if is_copy and rest else _of_length(rest, length, lengths)
        if not taken:
            return None
        del rest[: len(taken)]
        found.append(tuple(part for axis in taken for part in axis))
    return found, rest


def _of_length(axes, length, lengths):
    """Returns the first axes whose lengths have this product; None if that is not certain."""
    product, taken = 1, []
    for axis in axes:
        for part in axis:
            if part not in lengths:
                return None
            product *= lengths[part]
        taken.append(axis)
        if product == length:
            return taken
    return None


def _integers(node, name, constants, default=None):
    """Returns an attribute, or the constant that is the second input, as a list of int."""
    for attribute in node.attribute:
        if attribute.name == name:
            return [int(value) for value in attribute.ints]
    if len(node.input) > 1:
        if node.input[1] not in constants:
            return None
        array = constants.array(node.input[1])
        return [int(value) for value in array.reshape(-1)] if array.dtype.kind == "i" else None
    return default
