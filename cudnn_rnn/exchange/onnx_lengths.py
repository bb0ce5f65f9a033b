"""Sizes that are computed in an ONNX graph, such as the targets of `Reshape`.

PyTorch multiplies and joins sizes that it takes from `Shape`. Such values are evaluated, with a
symbol for each size that the file lacks.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from cudnn_rnn.exchange.onnx_arrays import is_of_onnx

# Limits of what is evaluated between two layers; exporters need less than half of each.
_MOST_TENSORS = 64
MOST_VALUES = 16  # elements of a tensor, inputs of a node, or axes
_MOST_SYMBOLS = 8  # symbols in a product
_INTEGERS = (6, 7)  # TensorProto.INT32, INT64

Length = Tuple[int, Tuple[str, ...]]  # a product of an integer and symbols
Lengths = List[Optional[Length]]  # None: unknown

ONE: Length = (1, ())


def product(lengths: Sequence[Optional[Length]]) -> Optional[Length]:
    """Returns the product; None if it is unknown or too large."""
    factor = 1
    symbols: List[str] = []
    for length in lengths:
        if length is None:
            return None
        factor *= length[0]
        symbols += length[1]
        if abs(factor) >= 2**63 or len(symbols) > _MOST_SYMBOLS:
            return None
    return factor, tuple(sorted(symbols))


class Tensors:
    """What a graph tells of its tensors.

    Attributes:
      producers, constants: the arguments of `onnx_stacks.Stacks`.
    """

    def __init__(self, graph, producers, constants):
        self.producers = producers
        self.constants = constants
        self._infos = {
            value.name: value for value in (*graph.value_info, *graph.output, *graph.input)
        }

    def shape(self, name: str) -> Optional[Lengths]:
        """Returns the declared shape of a tensor; None if there is none."""
        info = self._infos.get(name)
        if info is None or not info.type.tensor_type.HasField("shape"):
            return None
        axes = info.type.tensor_type.shape.dim
        return [_declared(axis) for axis in axes] if len(axes) <= MOST_VALUES else None


def _declared(axis):
    """Returns the length of a declared axis; equal names are equal lengths."""
    if axis.dim_value > 0:
        return (axis.dim_value, ())
    return (1, (":%s" % axis.dim_param,)) if axis.dim_param else None


class Values:
    """Evaluates the integers that nodes between two layers take, such as targets of Reshape.

    Attributes:
      lengths: the lengths of the parts of axes.
      shapes: shapes of tensors, by name.
    """

    def __init__(self, tensors: Tensors, lengths: Dict[str, Length]) -> None:
        self.lengths = lengths
        self.shapes: Dict[str, Lengths] = {}
        self._tensors = tensors
        self._found: Dict[str, Optional[Lengths]] = {}

    def integers(self, name: str) -> Optional[List[int]]:
        """Returns the elements of a tensor; None if they are not all known."""
        found = self.of(name)
        if found is None or any(length is None or length[1] for length in found):
            return None
        return [length[0] for length in found if length is not None]

    def of(self, name: str) -> Optional[Lengths]:
        """Returns the elements of a list, or a number as a list of one; None if it is unknown."""
        if name not in self._found:
            self._found[name] = None  # ends loops, which only damaged models have
            found = self._evaluated(name) if len(self._found) <= _MOST_TENSORS else None
            if found is None or len(found) > MOST_VALUES:
                found = self._unknown(name)
            self._found[name] = found
        return self._found[name]

    def _unknown(self, name):
        """Returns unknown elements; None if their number is unknown, too."""
        shape = self._tensors.shape(name)
        if shape is None or len(shape) > 1:
            return None
        count = shape[0] if shape else ONE
        if count is None or count[1] or count[0] > MOST_VALUES:
            return None
        return [None] * count[0]

    def _evaluated(self, name):
        if name in self._tensors.constants:
            numbers = self._tensors.constants.integers(name, MOST_VALUES)
            return None if numbers is None else [(number, ()) for number in numbers]
        node = self._tensors.producers.get(name)
        if node is None or not is_of_onnx(node) or node.op_type not in _EVALUATED:
            return None
        if len(node.input) > MOST_VALUES or (not node.input and node.op_type != "Constant"):
            return None
        return _EVALUATED[node.op_type](self, node)

    def _constant(self, node):
        """Returns the short forms of constants; `Constants` has the long one."""
        for attribute in node.attribute:
            if attribute.name == "value_int":
                return [(attribute.i, ())]
            if attribute.name == "value_ints" and len(attribute.ints) <= MOST_VALUES:
                return [(number, ()) for number in attribute.ints]
        return None

    def _same(self, node):
        return self.of(node.input[0])

    def _cast(self, node):
        return self.of(node.input[0]) if _number(node, "to", None) in _INTEGERS else None

    def _shape(self, node):
        name = node.input[0]
        shape = self.shapes[name] if name in self.shapes else self._tensors.shape(name)
        if shape is None:
            return None
        return shape[_number(node, "start", 0) : _number(node, "end", len(shape))]

    def _slice(self, node):
        """Returns a part of a list; bounds mean what they mean in Python."""
        whole = self.of(node.input[0])
        if whole is None or not 3 <= len(node.input) <= 5:
            return None
        # Without axes and steps, both have their defaults.
        found = [self.integers(name) for name in node.input[1:]]
        options = [one[0] for one in found if one is not None and len(one) == 1]
        if len(options) != len(found):
            return None
        start, end, axis, step = options + [0, 1][len(options) - 2 :]
        return whole[start:end] if axis in (0, -1) and step == 1 else None

    def _gather(self, node):
        whole = self.of(node.input[0])
        places = self.integers(node.input[1]) if len(node.input) == 2 else None
        if whole is None or places is None or _number(node, "axis", 0) not in (0, -1):
            return None
        if not all(-len(whole) <= place < len(whole) for place in places):
            return None
        return [whole[place] for place in places]

    def _concat(self, node):
        joined: List[Any] = []
        for name in node.input:
            part = self.of(name)
            if part is None:
                return None
            joined += part
        return joined

    def _mul(self, node):
        factors = [one for one in map(self.of, node.input) if one is not None]
        if len(node.input) != 2 or len(factors) != 2:
            return None
        short, long = sorted(factors, key=len)
        if len(short) == 1:
            short = short * len(long)
        if len(short) != len(long):
            return None
        return [product(pair) for pair in zip(short, long)]


_EVALUATED = {
    "Cast": Values._cast,
    "Concat": Values._concat,
    "Constant": Values._constant,
    "Gather": Values._gather,
    "Identity": Values._same,
    "Mul": Values._mul,
    "Reshape": Values._same,
    "Shape": Values._shape,
    "Slice": Values._slice,
    "Squeeze": Values._same,
    "Unsqueeze": Values._same,
}


def _number(node, name, default):
    """Returns an attribute that is an integer."""
    return next((one.i for one in node.attribute if one.name == name), default)
