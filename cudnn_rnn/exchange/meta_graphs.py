"""What the graph beside a checkpoint tells: the modes of RNNs by the keys of their tensors.

The MetaGraph `<prefix>.meta` or the SavedModel around the checkpoint is parsed, and the edges of
its nodes are followed. Nothing is imported or run. Time and memory are linear in the file's size.

Modes come from the attribute `rnn_mode` of CudnnRNN* nodes, and from the activations of
`BasicRNNCell`s. They belong to the variables that such nodes read, and to what is computed from
these for a saveable. The nodes that save tensors have the keys. `graph_cells` finds what the graph
tells of plain LSTM cells.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Set

from cudnn_rnn.exchange.graph_cells import ToldCell, told_cells
from cudnn_rnn.exchange.graph_nodes import SUMS, Nodes, name_of_variable
from cudnn_rnn.model.spec import CUDNN_RNN_RELU, CUDNN_RNN_TANH, GATES

_TO_CANONICAL = ("CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2")
_USERS_OF_PARAMS = _TO_CANONICAL + tuple(
    name + version for name in ("CudnnRNN", "CudnnRNNBackprop") for version in ("", "V2", "V3")
)
# The files of a SavedModel that have its graphs.
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_PARAMS = 3  # the number of the input of these ops that is the opaque vector
_ACTIVATIONS = {"Relu": CUDNN_RNN_RELU, "Tanh": CUDNN_RNN_TANH}


class ToldByGraph(NamedTuple):
    """The modes of the RNNs in a graph, and its plain LSTM cells.

    Attributes:
      path: str, the file.
      by_key: the modes by the key in the checkpoint, and by the name of a variable.
      all_modes: those of all CudnnRNN* nodes, nodes of functions included.
      cells: what is told of plain LSTM cells, as `graph_cells.told_cells` has it.
    """

    path: str
    by_key: Dict[str, Set[str]]
    all_modes: Set[str]
    cells: Dict[str, Set[ToldCell]]


def read(prefix: str) -> Optional[ToldByGraph]:
    """Returns what the graph beside a checkpoint tells, None if there is none.

    Raises:
      ValueError: the file cannot be read.
    """
    path = path_of_graph(prefix)
    if path is None:
        return None
    by_key: Dict[str, Set[str]] = {}
    all_modes: Set[str] = set()
    cells: Dict[str, Set[ToldCell]] = {}
    for graph in graphs_of(path):
        nodes_by_name = Nodes(graph.node)
        for key, modes in _modes_by_key(nodes_by_name).items():
            by_key.setdefault(key, set()).update(modes)
        for key, told in told_cells(nodes_by_name).items():
            cells.setdefault(key, set()).update(told)
        for nodes in [graph.node] + [function.node_def for function in graph.library.function]:
            all_modes.update(filter(None, map(_mode, nodes)))
    return ToldByGraph(path, by_key, all_modes, cells)


def path_of_graph(prefix: str) -> Optional[str]:
    """Returns the file with the graph of a checkpoint, None if there is none."""
    folder = os.path.dirname(os.path.abspath(prefix))
    saved_model = os.path.join(os.path.dirname(folder), "saved_model.pb")
    is_saved_model = os.path.basename(folder) == os.path.basename(prefix) == "variables"
    # Opening a named pipe would block.
    for path in [prefix + ".meta"] + [saved_model] * is_saved_model:
        if os.path.isfile(path):
            return path
    return None


def graphs_of(path: str) -> List[Any]:
    """Returns the `GraphDef`s in a MetaGraph, a SavedModel or, by any other name, a frozen graph.

    The name of a file with text ends with `.pbtxt`.

    Raises:
      ValueError: the file cannot be read.
    """
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

    kind: Any = graph_pb2.GraphDef
    if path.endswith(".meta"):
        kind = meta_graph_pb2.MetaGraphDef
    elif os.path.basename(path) in SAVED_MODEL:
        kind = saved_model_pb2.SavedModel
    try:
        with open(path, "rb") as file, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            content = file.read()
            if path.endswith(".pbtxt"):
                parsed = text_format.Parse(content.decode("utf-8"), kind())
            else:
                parsed = kind.FromString(content)
        if caught:  # old parsers only warn of a part that they do not understand
            raise ValueError(str(caught[0].message))
    # Parsers in Python raise other errors than those in C++.
    except (DecodeError, OSError, RecursionError, ValueError, text_format.ParseError) as error:
        raise ValueError("%s cannot be read as a graph: %s." % (path, error)) from error
    if kind is graph_pb2.GraphDef:
        return [parsed]
    meta_graphs = [parsed] if path.endswith(".meta") else parsed.meta_graphs
    return [meta_graph.graph_def for meta_graph in meta_graphs]


def _mode(node):
    """Returns the mode of a CudnnRNN* node, None for other nodes."""
    if not node.op.startswith("CudnnRNN") or "rnn_mode" not in node.attr:
        return None
    rnn_mode = node.attr["rnn_mode"].s.decode("ascii", "replace")
    return rnn_mode if rnn_mode in GATES else None


def _modes_by_key(graph: Nodes) -> Dict[str, Set[str]]:
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
            if total is not None and total.op in SUMS:
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
        by_key[name_of_variable(graph.by_name[name])] = modes
    # A Saver may give a tensor another key than its name.
    for key, node in graph.saved():
        variable = graph.variable(node)
        by_key[key] = of_nodes.get((variable or node).name, set())
    return by_key
