"""Finds which RNN nodes of an ONNX graph are layers of one stack.

The output of a layer, `[time, directions, batch, units]`, must become the next layer's input,
`[time, batch, directions * units]`, in this order of axes: other models compute something else.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from cudnn_rnn.exchange.onnx_arrays import is_of_onnx
from cudnn_rnn.exchange.onnx_lengths import MOST_VALUES, ONE, Length, Tensors, Values, product

# Operators that only rearrange; between two layers there are few.
_REARRANGING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity")
_MOST_BETWEEN = 16

_Axes = List[Tuple[str, ...]]  # for each axis, what it consists of; () has length 1
_REST: Length = (-1, ())  # in the target of a Reshape: whatever the other sizes leave


class Source(NamedTuple):
    """The layer below a node.

    Attributes:
      output: the name of its output.
      is_stacked: whether all axes arrive in the order of a stack; None if that is not certain.
    """

    output: str
    is_stacked: Optional[bool]


class Stacks:
    """Finds the layers below the RNN nodes of one graph."""

    def __init__(self, graph: Any, producers: Dict[str, Any], sizes: Any, constants: Any) -> None:
        """Takes the graph.

        Args:
          graph: an `onnx.GraphProto`.
          producers: nodes by the names of their outputs.
          sizes: a function from a node LSTM, GRU or RNN to its (directions, units).
          constants: `onnx_arrays.Constants`.
        """
        self._tensors = Tensors(graph, producers, constants)
        self._sizes = sizes
        self._layers: Dict[str, Dict[str, Length]] = {}  # lengths of time and batch, by output

    def source(self, node: Any) -> Optional[Source]:
        """Returns the layer whose sequences, rearranged, are a node's input; None if there is none.

        Call it for lower layers first: upper layers have their sizes of time and batch.
        """
        found = self._source(node)
        below = self._layers.get(found.output) if found and found.is_stacked else None
        if node.output:
            self._layers[node.output[0]] = self._time_and_batch(node, below or {})
        return found

    def _source(self, node):
        between: List[Any] = []
        producers = self._tensors.producers
        name = node.input[0] if node.input else ""
        while name in producers and _rearranges(producers[name]):
            between.append(producers[name])
            if len(between) > _MOST_BETWEEN or not between[-1].input:
                return None
            name = between[-1].input[0]
        producer = producers.get(name)
        if producer is None or producer.op_type != node.op_type or producer.output[0] != name:
            return None
        directions, units = self._sizes(producer)
        lengths = dict(self._layers.get(name) or self._time_and_batch(producer, {}))
        lengths.update(directions=(directions, ()), units=(units, ()))
        values = Values(self._tensors, lengths)
        if producer.input:
            values.shapes[producer.input[0]] = [lengths["time"], lengths["batch"], None]
        axes: _Axes = [("time",), ("directions",), ("batch",), ("units",)]
        for step in reversed(between):
            values.shapes[step.input[0]] = [_of_axis(axis, lengths) for axis in axes]
            after = _after(step, axes, values)
            if after is None:
                return Source(name, None)
            axes = after
        expected: _Axes = [("time",), ("batch",), ("directions", "units")]
        return Source(name, _without_ones(axes, lengths) == _without_ones(expected, lengths))

    def _time_and_batch(self, node, below):
        """Returns the lengths of these axes of a node; `below` has those of the layer below."""
        output = self._tensors.shape(node.output[0]) if node.output else None
        sequences = self._tensors.shape(node.input[0]) if node.input else None
        found = {}
        for part, of_output, of_input in (("time", 0, 0), ("batch", 2, 1)):
            known = [
                output[of_output] if output and len(output) == 4 else None,
                sequences[of_input] if sequences and len(sequences) == 3 else None,
                below.get(part),
                (1, (part,)),
            ]
            # An integer, if there is one: it has no symbols.
            found[part] = min(filter(None, known), key=lambda length: len(length[1]))
        return found


def _rearranges(node):
    return node.op_type in _REARRANGING and is_of_onnx(node)


def _of_axis(axis, lengths):
    return product([lengths[part] for part in axis])


def _without_ones(axes, lengths):
    """Returns the axes without their parts of length 1."""
    return [tuple(part for part in axis if lengths[part] != ONE) for axis in axes]


def _after(node, axes, values):
    """Returns the axes after a node; None if they are not certain."""
    step = {"Transpose": _transposed, "Reshape": _reshaped, "Squeeze": _squeezed}
    step["Unsqueeze"] = _unsqueezed
    return step[node.op_type](node, axes, values) if node.op_type in step else axes


def _transposed(node, axes, values):
    order = _integers(node, "perm", values, default=list(range(len(axes)))[::-1])
    if order is None or sorted(order) != list(range(len(axes))):
        return None
    return [axes[place] for place in order]


def _squeezed(node, axes, values):
    removed = _integers(node, "axes", values)
    if removed is None or not all(-len(axes) <= place < len(axes) for place in removed):
        return None
    removed = {place % len(axes) for place in removed}
    if not all(_of_axis(axes[place], values.lengths) == ONE for place in removed):
        return None
    return [axis for place, axis in enumerate(axes) if place not in removed]


def _unsqueezed(node, axes, values):
    added = _integers(node, "axes", values)
    rank = len(axes) + len(added or [])
    if added is None or rank > MOST_VALUES or not all(-rank <= one < rank for one in added):
        return None
    added = {place % rank for place in added}
    rest = iter(axes)
    if len(added) != rank - len(axes):
        return None
    return [() if place in added else next(rest) for place in range(rank)]


def _reshaped(node, axes, values):
    lengths = values.lengths
    shape = _target(node, values)
    has_zeros = any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute)
    if shape is None or (has_zeros and (0, ()) in shape) or shape.count(_REST) > 1:
        return None
    end = shape.index(_REST) if _REST in shape else len(shape)
    first = _taken(axes, shape[:end], lengths)
    if first is None:
        return None
    found, rest = first
    if _REST not in shape:
        # Only axes of length 1 may remain.
        return None if any(_without_ones(rest, lengths)) else found
    backwards = _taken([axis[::-1] for axis in rest[::-1]], shape[:end:-1], lengths, False)
    if backwards is None:
        return None
    last, rest = [[axis[::-1] for axis in part[::-1]] for part in backwards]
    return found + [tuple(part for axis in rest for part in axis)] + last


def _target(node, values):
    """Returns the target of a Reshape as lengths; None if it is unknown.

    The other sizes tell an unknown one, as they do for -1.
    """
    shape = _attribute_integers(node, "shape")
    if shape is not None:
        return [(size, ()) for size in shape] if len(shape) <= MOST_VALUES else None
    found = values.of(node.input[1]) if len(node.input) > 1 else None
    return None if found is None else [_REST if length is None else length for length in found]


def _taken(axes, shape, lengths, has_copies=True):
    """Returns (axes of these lengths, those that are left); None if they are not certain."""
    found: _Axes = []
    rest = list(axes)
    for place, length in enumerate(shape):
        # 0 copies the length of the input's axis in the same place.
        is_copy = has_copies and length == (0, ()) and len(axes) - len(rest) == place
        taken = rest[:1] if is_copy and rest else _of_length(rest, length, lengths)
        if not taken:
            return None
        del rest[: len(taken)]
        found.append(tuple(part for axis in taken for part in axis))
    return found, rest


def _of_length(axes, length, lengths):
    """Returns the first axes whose lengths have this product; None if that is not certain."""
    for count in range(1, len(axes) + 1):
        if product([_of_axis(axis, lengths) for axis in axes[:count]]) == length:
            return axes[:count]
    return None


def _attribute_integers(node, name):
    for attribute in node.attribute:
        if attribute.name == name:
            return [int(value) for value in attribute.ints]
    return None


def _integers(node, name, values, default=None):
    """Returns an attribute, or the constant that is the second input, as a list of int."""
    found = _attribute_integers(node, name)
    if found is None:
        found = values.integers(node.input[1]) if node.input[1:] else default
    return found
