"""Whether a simple RNN of a checkpoint computes tanh or ReLU: its keys and shapes do not tell.

What tells, the most certain first: the nodes of the MetaGraph that a Saver writes beside the
checkpoint, and the default names of the layers.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

from cudnn_rnn._core.config import CUDNN_RNN_RELU, CUDNN_RNN_TANH

_SIMPLE = (CUDNN_RNN_RELU, CUDNN_RNN_TANH)
# The names that the layers CudnnRNNRelu and CudnnRNNTanh give themselves.
_DEFAULT_NAME = re.compile(r"cudnn_(rnn_relu|rnn_tanh)(_\d+)?")

_CALLS = ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")
_CONVERSIONS = ("CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2")
_PARAMS = 3  # the place of params among the inputs of both
# Ops that pass a variable on, and the ops between a cell's kernel and its activation.
_SAME_VALUES = ("Identity", "ReadVariableOp", "Enter", "RefEnter", "Cast", "Reshape", "Snapshot")
_OF_CELLS = (*_SAME_VALUES, "MatMul", "BiasAdd", "Add", "AddV2")
_ACTIVATIONS = {"Relu": CUDNN_RNN_RELU, "Tanh": CUDNN_RNN_TANH}
# The largest number of nodes that a search looks at; the ways above are much shorter.
_LONGEST_SEARCH = 1000


class Known(NamedTuple):
    """What tells the mode of an RNN.

    Attributes:
      rnn_mode: "rnn_relu" or "rnn_tanh".
      place: where it stands, for messages.
      is_certain: whether it is more than a name.
    """

    rnn_mode: str
    place: str
    is_certain: bool


def of_name(scope: str) -> Optional[Known]:
    """Returns what the last part of a scope tells, None for a name that a layer does not give."""
    match = _DEFAULT_NAME.fullmatch(re.split(r"[/.]", scope)[-1])
    return Known(match.group(1), "the name %s" % match.group(), False) if match else None


class Activations:
    """Finds the modes of the simple RNNs of a checkpoint."""

    def __init__(self, prefix: str, notes: List[str]):
        """Reads the MetaGraph `<prefix>.meta`, if there is one; notes if it cannot be read."""
        self._path = prefix + ".meta"
        self._graph = _Graph(_read_nodes(self._path, notes))

    def find(self, keys: Sequence[str], scope: str) -> Optional[Known]:
        """Returns what tells the mode of the RNN with this scope and these keys, or None."""
        for key in keys:
            modes = self._graph.modes_of_key(key)
            if len(modes) == 1:
                return Known(min(modes), "the MetaGraph %s" % self._path, True)
        of_variables = [key.partition("/opaque_kernel")[0] for key in keys]
        for name in [scope, *of_variables]:
            known = of_name(name)
            if known is not None:
                return known
        return None


def _read_nodes(path, notes):
    """Returns the nodes of a MetaGraph; an empty list without one."""
    if not os.path.isfile(path):
        return []
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import meta_graph_pb2

    try:
        with open(path, "rb") as file:
            return meta_graph_pb2.MetaGraphDef.FromString(file.read()).graph_def.node
    except (DecodeError, OSError) as error:
        notes.append("%s cannot be read as a MetaGraph (%s)." % (path, error))
        return []


class _Graph:
    """The edges of a graph, and which mode its nodes tell for a key of a Saver."""

    def __init__(self, nodes):
        self._nodes = {node.name: node for node in nodes}
        self._consumers: Dict[str, List[Any]] = {}
        for node in nodes:
            for name in _inputs(node):
                self._consumers.setdefault(name, []).append(node)
        self._tensors = self._tensors_by_key()

    def _tensors_by_key(self):
        """Returns the names of the nodes whose outputs Savers save, by key."""
        found: Dict[str, str] = {}
        for node in self._nodes.values():
            if node.op != "SaveV2" or len(node.input) < 3:
                continue
            names = self._nodes.get(_name(node.input[1]))
            keys = names.attr["value"].tensor.string_val if names is not None else []
            for key, tensor in zip(keys, node.input[3:]):
                found[key.decode("utf-8", "replace")] = _name(tensor)
        return found

    def modes_of_key(self, key: str) -> Set[str]:
        """Returns the modes of the RNNs whose weights are saved under a key."""
        # The keys of 1.0 to 1.3 are names of the outputs of the conversion.
        node = self._nodes.get(self._tensors.get(key) or _name(key))
        if node is None:
            return set()
        conversions = self._search([node], self._before, _CONVERSIONS)
        modes = {_mode(conversion) for conversion in conversions}
        if not modes:
            readers = self._search([node, self._variable_of(node)], self._after, _CALLS)
            modes = {_mode(call) for call in readers}
        if not modes:
            ends = self._search(
                [node, self._variable_of(node)], self._after_in_cells, tuple(_ACTIVATIONS)
            )
            modes = {_ACTIVATIONS[end.op] for end in ends}
        return modes & set(_SIMPLE)

    def _search(self, starts, neighbours, op_types):
        """Returns the nodes of these types that `neighbours` leads to, not going beyond them."""
        found: List[Any] = []
        seen: Set[str] = set()
        waiting = list(starts)
        while waiting and len(seen) < _LONGEST_SEARCH:
            node = waiting.pop(0)
            if node.name in seen:
                continue
            seen.add(node.name)
            if node.op in op_types:
                found.append(node)
            else:
                waiting += neighbours(node)
        return found

    def _before(self, node):
        return [self._nodes[name] for name in _inputs(node) if name in self._nodes]

    def _variable_of(self, node):
        """Returns the node of the variable that a node reads."""
        while node.op in _SAME_VALUES and node.input and _name(node.input[0]) in self._nodes:
            node = self._nodes[_name(node.input[0])]
        return node

    def _after(self, node):
        """Returns the nodes that take a variable or the same values; calls only as their params."""
        return [
            consumer
            for consumer in self._consumers.get(node.name, [])
            if consumer.op in _SAME_VALUES
            or (consumer.op in _CALLS and _name(consumer.input[_PARAMS]) == node.name)
        ]

    def _after_in_cells(self, node):
        consumers = self._consumers.get(node.name, [])
        return [one for one in consumers if one.op in (*_OF_CELLS, *_ACTIVATIONS)]


def _inputs(node):
    return [_name(tensor) for tensor in node.input if not tensor.startswith("^")]


def _name(tensor):
    """Returns the name of the node that has an output."""
    return re.sub(r":\d+$", "", tensor)


def _mode(node):
    return node.attr["rnn_mode"].s.decode("utf-8", "replace")
