"""What the graph beside a checkpoint tells: the modes of RNNs by the keys of their tensors.

The MetaGraph `<prefix>.meta` or the SavedModel around the checkpoint is parsed, and the edges of
its nodes are followed. Nothing is imported or run. Time and memory are linear in the file's size.

Modes come from the attribute `rnn_mode` of CudnnRNN* nodes, and from the activations of
`BasicRNNCell`s. They belong to the variables that such nodes read, and to what is computed from
these for a saveable. The nodes that save tensors have the keys.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set

from cudnn_rnn.model.spec import CUDNN_RNN_RELU, CUDNN_RNN_TANH, GATES

_TO_CANONICAL = ("CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2")
_USERS_OF_PARAMS = _TO_CANONICAL + tuple(
    name + version for name in ("CudnnRNN", "CudnnRNNBackprop") for version in ("", "V2", "V3")
)
_PARAMS = 3  # the number of the input of these ops that is the opaque vector
_ACTIVATIONS = {"Relu": CUDNN_RNN_RELU, "Tanh": CUDNN_RNN_TANH}
_SUMS = ("BiasAdd", "Add", "AddV2")  # their second operand is the bias
_VARIABLES = ("VarHandleOp", "Variable", "VariableV2")
# From a variable to its user.
_PASSING = (
    "Cast",
    "Enter",
    "Identity",
    "ReadVariableOp",
    "RefEnter",
    "RefSwitch",
    "Reshape",
    "Squeeze",
    "Switch",
)
# From canonical tensors to the tensors of a saveable.
_REARRANGING = _SUMS + (
    "Cast",
    "Concat",
    "ConcatV2",
    "ExpandDims",
    "Identity",
    "Mul",
    "Pack",
    "Reshape",
    "Slice",
    "Split",
    "SplitV",
    "Squeeze",
    "StridedSlice",
    "Sub",
    "Transpose",
    "Unpack",
)
# The ops that save tensors, and the number of the first input that is one. Input 1 has the keys.
_SAVERS = {"SaveV2": 3, "SaveSlices": 3, "Save": 2}


class GraphModes(NamedTuple):
    """The modes of the RNNs in a graph.

    Attributes:
      path: str, the file.
      by_key: the modes by the key in the checkpoint, and by the name of a variable.
      all_modes: those of all CudnnRNN* nodes, nodes of functions included.
    """

    path: str
    by_key: Dict[str, Set[str]]
    all_modes: Set[str]


def read(prefix: str) -> Optional[GraphModes]:
    """Returns what the graph beside a checkpoint tells, None if there is none.

    Raises:
      ValueError: the file cannot be read.
    """
    path = _path_of_graph(prefix)
    if path is None:
        return None
    by_key: Dict[str, Set[str]] = {}
    all_modes: Set[str] = set()
    for meta_graph in _parsed(path):
        graph = meta_graph.graph_def
        for key, modes in _modes_by_key(graph.node).items():
            by_key.setdefault(key, set()).update(modes)
        for nodes in [graph.node] + [function.node_def for function in graph.library.function]:
            all_modes.update(filter(None, map(_mode, nodes)))
    return GraphModes(path, by_key, all_modes)


def _path_of_graph(prefix):
    folder = os.path.dirname(os.path.abspath(prefix))
    saved_model = os.path.join(os.path.dirname(folder), "saved_model.pb")
    is_saved_model = os.path.basename(folder) == os.path.basename(prefix) == "variables"
    # Opening a named pipe would block.
    for path in [prefix + ".meta"] + [saved_model] * is_saved_model:
        if os.path.isfile(path):
            return path
    return None


def _parsed(path):
    """Returns the MetaGraphs in a file."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

    is_meta_graph = path.endswith(".meta")
    kind = meta_graph_pb2.MetaGraphDef if is_meta_graph else saved_model_pb2.SavedModel
    try:
        with open(path, "rb") as file, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parsed = kind.FromString(file.read())
        if caught:  # old parsers only warn of a part that they do not understand
            raise ValueError(str(caught[0].message))
    # Parsers in Python raise other errors than those in C++.
    except (DecodeError, OSError, RecursionError, ValueError) as error:
        raise ValueError("%s cannot be read as a graph: %s." % (path, error)) from error
    return [parsed] if is_meta_graph else parsed.meta_graphs


def _mode(node):
    """Returns the mode of a CudnnRNN* node, None for other nodes."""
    if not node.op.startswith("CudnnRNN") or "rnn_mode" not in node.attr:
        return None
    rnn_mode = node.attr["rnn_mode"].s.decode("ascii", "replace")
    return rnn_mode if rnn_mode in GATES else None


def _modes_by_key(nodes: Iterable[Any]) -> Dict[str, Set[str]]:
    graph = _Nodes(nodes)
    of_variables: Dict[str, Set[str]] = {}
    canonical: Dict[str, List[str]] = {}  # names of nodes by mode
    for node in graph.by_name.values():
        rnn_mode, bias_or_params = _mode(node), None
        if rnn_mode and node.op in _USERS_OF_PARAMS:
            bias_or_params = graph.input(node, _PARAMS)
        if rnn_mode and node.op in _TO_CANONICAL:
            canonical.setdefault(rnn_mode, []).append(node.name)
        if node.op in _ACTIVATIONS:
            rnn_mode, total = _ACTIVATIONS[node.op], graph.input(node, 0)
            if total is not None and total.op in _SUMS:
                bias_or_params = graph.input(total, 1)
        variable = graph.variable(bias_or_params)
        if variable is not None:
            of_variables.setdefault(variable.name, set()).add(rnn_mode)
    of_nodes = dict(of_variables)
    for rnn_mode, names in canonical.items():
        for name in graph.reached(names):
            of_nodes.setdefault(name, set()).add(rnn_mode)
    by_key = {}
    for name, modes in of_variables.items():
        shared_name = graph.by_name[name].attr["shared_name"].s.decode("utf-8", "replace")
        by_key[shared_name or name] = modes
    # A Saver may give a tensor another key than its name.
    for key, node in graph.saved():
        variable = graph.variable(node)
        by_key[key] = of_nodes.get((variable or node).name, set())
    return by_key


class _Nodes:
    """The nodes of a graph by name, and their edges."""

    def __init__(self, nodes):
        self.by_name = {node.name: node for node in nodes}
        self._variables: Dict[str, Any] = {}  # by the name of a node that reads it, or None

    def input(self, node, number):
        """Returns the node that computes an input, None if there is none."""
        return self.by_name.get(_name(node.input[number])) if number < len(node.input) else None

    def variable(self, node):
        """Returns the node of the variable that a node passes on, None if it does not."""
        passed = []
        while node is not None and node.name not in self._variables and node.op in _PASSING:
            self._variables[node.name] = None  # ends cycles
            passed.append(node.name)
            node = self.input(node, 0)
        if node is None:
            variable = None
        elif node.name in self._variables:
            variable = self._variables[node.name]
        else:
            variable = node if node.op in _VARIABLES else None
        self._variables.update(dict.fromkeys(passed, variable))
        return variable

    def reached(self, names):
        """Returns the names of the nodes that rearrange the outputs of nodes with these names."""
        users = self._users_that_rearrange()
        seen, waiting = set(names), list(names)
        while waiting:
            new = [name for name in users.get(waiting.pop(), ()) if name not in seen]
            seen.update(new)
            waiting += new
        return seen

    def _users_that_rearrange(self):
        users: Dict[str, List[str]] = {}
        for node in self.by_name.values():
            for edge in node.input if node.op in _REARRANGING else ():
                users.setdefault(_name(edge), []).append(node.name)
        return users

    def saved(self):
        """Yields (key, node) for all tensors that a node saves."""
        for node in self.by_name.values():
            if node.op not in _SAVERS:
                continue
            names = self.input(node, 1)
            keys = names.attr["value"].tensor.string_val if names is not None else ()
            for key, edge in zip(keys, node.input[_SAVERS[node.op] :]):
                if _name(edge) in self.by_name:
                    yield key.decode("utf-8", "replace"), self.by_name[_name(edge)]


def _name(edge):
    """Returns the name of the node that an edge starts at; that of a control edge is no name."""
    return edge.split(":")[0]
