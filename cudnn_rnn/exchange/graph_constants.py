"""The constants of a graph: what a node computes of them, and the shapes that the graph tells.

Nothing is imported or run: NumPy computes the few ops that rearrange weights. Each output of a node
is computed once. Graphs from strangers may have cycles, edges from no node, and constants that
declare more than the file has, so what is computed may have a limited number of bytes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import RnnConfig

_MAIN = ""  # the body that is no function's
# The attributes that name a function, and the number of the input that is its first argument.
_CALLED = {
    "PartitionedCall": (["f"], 0),
    "StatefulPartitionedCall": (["f"], 0),
    "While": (["body"], 0),
    "StatelessWhile": (["body"], 0),
    "If": (["then_branch", "else_branch"], 1),
    "StatelessIf": (["then_branch", "else_branch"], 1),
}
_IMPLEMENTS = "api_implements"  # functions with the same value compute the same
_TO_CANONICAL = ("CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2")
FROM_CANONICAL = ("CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2")
_VARIABLES = ("VarHandleOp", "Variable", "VariableV2", "ReadVariableOp")
SWITCHES = ("Switch", "RefSwitch")  # both outputs have the value of the first input
_PASSING = (
    "Identity",
    "StopGradient",
    "PreventGradient",
    "Snapshot",
    "Enter",
    "RefEnter",
    *SWITCHES,
)
# NumPy's dtypes by the number of TensorFlow's, and the field of a `TensorProto`.
_DTYPES = {
    1: ("<f4", "float_val"),
    2: ("<f8", "double_val"),
    3: ("<i4", "int_val"),
    9: ("<i8", "int64_val"),
    19: ("<f2", "half_val"),
}
DTYPE_NAMES = {number: np.dtype(kind).name for number, (kind, _) in _DTYPES.items()}
_HALF = 19
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_MOST_DIMENSIONS = 32  # NumPy's limit


class Place(NamedTuple):
    """An output of a node.

    Attributes:
      body: str, the name of the function that has the node, "" if it is none's.
      node: str, the node's name, or that of an argument of the function.
      output: str, the name of the output, "" in a graph.
      number: int.
    """

    body: str
    node: str
    output: str = ""
    number: int = 0


class NotConstant(Exception):
    """What is wanted does not follow from constants; the message says why."""


class GraphConstants:
    """The constants of a `GraphDef`.

    Attributes:
      nodes: dict from the name of a function, "" for the graph itself, to its nodes by name.
    """

    def __init__(self, graph_def: Any, most_bytes: int) -> None:
        """Takes a graph, and the most bytes that all computed arrays may have together."""
        self.nodes: Dict[str, Dict[str, Any]] = {_MAIN: {n.name: n for n in graph_def.node}}
        self._arguments: Dict[str, Dict[str, int]] = {}
        implementing: Dict[bytes, List[str]] = {}
        for function in graph_def.library.function:
            name = function.signature.name
            self.nodes[name] = {node.name: node for node in function.node_def}
            arguments = function.signature.input_arg
            self._arguments[name] = {arg.name: number for number, arg in enumerate(arguments)}
            if _IMPLEMENTS in function.attr:
                implementing.setdefault(function.attr[_IMPLEMENTS].s, []).append(name)
        self._alternatives = {name: names for names in implementing.values() for name in names}
        self._callers: Optional[Dict[str, List[Tuple[str, Any, int]]]] = None
        self._inputs: Dict[Tuple[str, str], List[Place]] = {}
        self._values: Dict[Place, Any] = {}  # an array, or the NotConstant
        self._regions: Dict[Any, List[layout.Region]] = {}
        self._left = most_bytes

    def node(self, place: Place) -> Any:
        """Returns the node at a place, None for an argument or if there is none."""
        return self.nodes[place.body].get(place.node)

    def inputs(self, body: str, node: Any) -> List[Place]:
        """Returns the places of a node's inputs, without control edges."""
        key = body, node.name
        if key not in self._inputs:
            edges = [edge for edge in node.input if not edge.startswith("^")]
            self._inputs[key] = [self._place(body, edge) for edge in edges]
        return self._inputs[key]

    def _place(self, body, edge):
        parts = edge.split(":")
        # "node:1" in a graph, "node:output:1" in a function.
        number = parts[-1] if len(parts) > 1 and parts[-1].isdigit() else "0"
        if len(number) > 9:
            raise NotConstant("the edge %.100r has no valid number of an output" % edge)
        return Place(body, parts[0], parts[1] if len(parts) == 3 else "", int(number))

    def argument(self, place: Place) -> Optional[Place]:
        """Returns what a function's argument is where it is called; None if it is no argument.

        Raises:
          NotConstant: nothing calls the function, or several nodes do.
        """
        number = self._arguments.get(place.body, {}).get(place.node)
        if number is None:
            return None
        if self._callers is None:
            self._callers = self._found_callers()
        places = set()
        for name in self._alternatives.get(place.body, [place.body]):
            for body, node, first in self._callers.get(name, ()):
                places.update(self.inputs(body, node)[first + number : first + number + 1])
        if len(places) != 1:
            raise NotConstant(
                "they come from the argument %r of the function %r, which gets %s"
                % (place.node, place.body, "different values" if places else "no value")
            )
        return places.pop()

    def _found_callers(self):
        callers: Dict[str, List[Tuple[str, Any, int]]] = {}
        for body, nodes in self.nodes.items():
            for node in nodes.values():
                attributes, first = _CALLED.get(node.op, ((), 0))
                for name in {node.op, *(node.attr[name].func.name for name in attributes)}:
                    if name in self._arguments:
                        callers.setdefault(name, []).append((body, node, first))
        return callers

    def used(self) -> Set[Tuple[str, str]]:
        """Returns (body, name) of all nodes that were computed."""
        return {
            (place.body, place.node)
            for place, value in self._values.items()
            if not isinstance(value, NotConstant)
        }

    # Values

    def value(self, place: Place) -> np.ndarray:
        """Returns the array of an output.

        Raises:
          NotConstant: it does not follow from constants.
          ExchangeError: all arrays together are larger than is allowed.
        """
        waiting, begun = [place], set()  # type: ignore[var-annotated]
        while waiting:
            current = waiting[-1]
            known = self._values.get(current)
            try:
                if isinstance(known, NotConstant):
                    raise known
                if known is not None:
                    waiting.pop()
                    continue
                needed, compute = self._rule(current)
                missing = [one for one in needed if one not in self._values]
                missing += [one for one in needed if self._has_failed(one)]
                if not missing:
                    arrays = [self._values[one] for one in needed]
                    self._values[current] = _computed(current, compute, arrays)
                    continue
                if current in begun:
                    raise NotConstant("the node %r is part of a cycle" % current.node)
            except NotConstant as error:
                failed = begun.intersection(waiting) | {current}
                self._values.update(dict.fromkeys(failed, error))
                raise
            begun.add(current)
            waiting += missing
        return self._values[place]

    def _has_failed(self, place):
        return isinstance(self._values.get(place), NotConstant)

    def _rule(self, place):
        """Returns the places that an output needs, and what computes it of their arrays."""
        node = self.node(place)
        if node is None:
            caller = self.argument(place)
            if caller is None:
                raise NotConstant("there is no node %.100r" % place.node)
            return [caller], _first
        inputs = self.inputs(place.body, node)
        if node.op == "Const":
            return [], lambda _: self._constant(node)
        if node.op in _PASSING:
            return inputs[:1], _first
        if node.op in _TO_CANONICAL:
            return inputs[:4], lambda arrays: self._canonical(node, place, arrays)
        if node.op in FROM_CANONICAL:
            if node.attr["_kernel"].s:
                raise NotConstant(
                    "the node %r, of training, takes Keras's weights: export the model for "
                    "inference" % node.name
                )
            return inputs[3:], lambda arrays: self._joined([array.ravel() for array in arrays], 0)
        if node.op in _VARIABLES:
            raise NotConstant(
                "%r is a variable, so the graph is not frozen: give the checkpoint or SavedModel "
                "that has its value" % node.name
            )
        compute = _COMPUTED.get(node.op)
        if compute is None:
            raise NotConstant("they are computed by the node %r, op %s" % (node.name, node.op))
        return inputs, lambda arrays: compute(self, node, place.number, arrays)

    def take(self, num_bytes: int) -> None:
        """Counts the bytes of a new array; raises `ExchangeError` if all are too many."""
        self._left -= num_bytes
        if self._left < 0:
            raise ExchangeError(
                "The constants of the graph are larger than is possible for a file of this size. "
                "It is damaged: get it from its source again."
            )

    def _constant(self, node):
        tensor = node.attr["value"].tensor
        if tensor.dtype not in _DTYPES:
            raise NotConstant("the constant %r has a dtype that no weights have" % node.name)
        kind, field = _DTYPES[tensor.dtype]
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        size = 1
        for length in shape:
            size *= length
        is_shape = not tensor.tensor_shape.unknown_rank and min(shape, default=0) >= 0
        if not is_shape or len(shape) > _MOST_DIMENSIONS:
            raise NotConstant("the constant %r has no valid shape" % node.name)
        self.take(size * np.dtype(kind).itemsize)
        if tensor.tensor_content:
            found = tensor.tensor_content
            if len(found) != size * np.dtype(kind).itemsize:
                raise NotConstant(
                    "the constant %r has %d bytes; expected shape %s, dtype %s"
                    % (node.name, len(found), shape, np.dtype(kind))
                )
            return np.frombuffer(found, kind).reshape(shape)
        values = np.array(getattr(tensor, field), "<i4" if tensor.dtype == _HALF else kind)
        if tensor.dtype == _HALF:  # the bits of the numbers
            values = values.astype("<u2").view(kind)
        if len(values) > size:
            raise NotConstant(
                "the constant %r has %d values; expected shape %s" % (node.name, len(values), shape)
            )
        # The last value stands for all that follow; zeros may have none.
        full = np.full(size, values[-1] if len(values) else 0, kind)
        full[: len(values)] = values
        return full.reshape(shape)

    def _joined(self, arrays, axis):
        self.take(sum(array.nbytes for array in arrays))
        return np.concatenate(arrays, axis)

    def _canonical(self, node, place, arrays):
        """Returns one of the canonical tensors of a buffer."""
        config = config_of(node, *[int(array) for array in arrays[:3]])
        buffer = arrays[3]
        if buffer.shape != (layout.params_size(config),):
            raise NotConstant(
                "the node %r takes parameters of shape %s; expected [%d]"
                % (node.name, list(buffer.shape), layout.params_size(config))
            )
        key = (place.body, node.name)
        if key not in self._regions:
            self._regions[key] = list(layout.regions(config))
        regions = self._regions[key]
        biases = sum(region.kind in layout.BIASES for region in regions)
        number = place.number + (len(regions) - biases if place.output == "biases" else 0)
        if number >= len(regions):
            raise NotConstant("the node %r has no output %d" % (node.name, number))
        region = regions[number]
        return buffer[region.offset : region.offset + region.size].reshape(region.shape)


def config_of(node: Any, num_layers: int, num_units: int, input_size: int) -> RnnConfig:
    """Returns the `RnnConfig` of the attributes of a CudnnRNN* node and these sizes.

    Raises:
      ValueError, TypeError: there is no such RNN.
    """
    texts = [node.attr[name].s.decode("ascii", "replace") for name in ATTRIBUTES]
    rnn_mode, input_mode, direction = [
        text or default for text, default in zip(texts, ATTRIBUTES.values())
    ]
    num_proj = node.attr["num_proj"].i if "num_proj" in node.attr else 0
    return RnnConfig.checked(
        rnn_mode, num_layers, num_units, input_size, input_mode, direction, num_proj=num_proj
    )


# The attributes of CudnnRNN* nodes, and their defaults, which a graph may leave out.
ATTRIBUTES = {"rnn_mode": "lstm", "input_mode": "linear_input", "direction": "unidirectional"}


def _computed(place, compute, arrays):
    """Returns `compute(arrays)`; raises `NotConstant` if the node at the place is damaged."""
    try:
        return compute(arrays)
    except ExchangeError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise NotConstant("the node %.100r is damaged (%s)" % (place.node, error)) from error


def _first(arrays):
    return arrays[0]


# What NumPy computes: functions of the `GraphConstants`, a node, the number of the output, and the
# arrays of the inputs.


def _split_evenly(constants, node, number, arrays):
    del constants
    axis, array, parts = int(arrays[0]), arrays[1], node.attr["num_split"].i
    length, rest = divmod(array.shape[axis], parts) if parts > 0 else (0, 1)
    if rest or not 0 <= number < parts:
        raise ValueError("the axis cannot be divided by %d" % parts)
    start = (slice(None),) * (axis % array.ndim)
    return array[(*start, slice(number * length, (number + 1) * length))]


def _split_by_sizes(constants, node, number, arrays):
    del constants, node
    array, sizes, axis = arrays[0], arrays[1].ravel(), int(arrays[2])
    if sizes.min() < 0 or sizes.sum() != array.shape[axis] or number >= len(sizes):
        raise ValueError("the parts do not fit")
    start = int(sizes[:number].sum())
    whole = (slice(None),) * (axis % array.ndim)
    return array[(*whole, slice(start, start + int(sizes[number])))]


def _strided_slice(constants, node, number, arrays):
    del constants, number
    return arrays[0][index_of(node, *arrays[1:])]


def index_of(node: Any, begins: np.ndarray, ends: np.ndarray, strides: np.ndarray) -> Any:
    """Returns the index of a `StridedSlice`, for arrays of NumPy."""
    masks = {name: node.attr[name].i for name in _MASKS}
    if begins.ndim != 1 or len(begins) > _MOST_DIMENSIONS:
        raise ValueError("it has no valid index")
    index: List[Any] = []
    for axis, (begin, end, stride) in enumerate(zip(begins, ends, strides)):
        has = {name: masks[name] >> axis & 1 for name in _MASKS}
        if has["ellipsis_mask"]:
            index.append(Ellipsis)
        elif has["new_axis_mask"]:
            index.append(None)
        elif has["shrink_axis_mask"]:
            index.append(int(begin))
        else:
            first = None if has["begin_mask"] else int(begin)
            index.append(slice(first, None if has["end_mask"] else int(end), int(stride)))
    return tuple(index)


def _reshaped(constants, node, number, arrays):
    del node, number
    array, shape = arrays
    if not array.flags.c_contiguous:  # which copies
        constants.take(array.nbytes)
    return array.reshape(shape.ravel().tolist())


def _cast(constants, node, number, arrays):
    del number
    kind = _DTYPES.get(node.attr["DstT"].type)
    if kind is None:
        raise ValueError("to a dtype that no weights have")
    constants.take(arrays[0].size * np.dtype(kind[0]).itemsize)
    with np.errstate(invalid="ignore", over="ignore"):
        return arrays[0].astype(kind[0])


def _zeros_like(constants, node, number, arrays):
    del node, number
    constants.take(arrays[0].nbytes)
    return np.zeros_like(arrays[0])


def _squeezed(constants, node, number, arrays):
    del constants, number
    axes = tuple(node.attr["squeeze_dims"].list.i) or tuple(node.attr["axis"].list.i)
    return np.squeeze(arrays[0], axes or None)


def _packed(constants, node, number, arrays):
    del number
    constants.take(sum(array.nbytes for array in arrays))
    return np.stack(arrays, node.attr["axis"].i)


_COMPUTED: Dict[str, Callable[[GraphConstants, Any, int, List[np.ndarray]], np.ndarray]] = {
    "Cast": _cast,
    "Concat": lambda constants, _, __, arrays: constants._joined(arrays[1:], int(arrays[0])),
    "ConcatV2": lambda constants, _, __, arrays: constants._joined(arrays[:-1], int(arrays[-1])),
    "ExpandDims": lambda _, __, ___, arrays: np.expand_dims(arrays[0], int(arrays[1])),
    "Pack": _packed,
    "Reshape": _reshaped,
    "Split": _split_evenly,
    "SplitV": _split_by_sizes,
    "Squeeze": _squeezed,
    "StridedSlice": _strided_slice,
    "Transpose": lambda _, __, ___, arrays: np.transpose(arrays[0], arrays[1].tolist()),
    "ZerosLike": _zeros_like,
}
