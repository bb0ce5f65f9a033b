"""Refuses graphs that do more than compute, before anything of them runs."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, Set

from tensorflow.core.framework import types_pb2

from cudnn_rnn._compat import op_definition
from cudnn_rnn.model.spec import FORWARD_OPS
from cudnn_rnn.plain._unused import functions_in

VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_CALLS = (
    "PartitionedCall",
    "StatefulPartitionedCall",
    "If",
    "StatelessIf",
    "While",
    "StatelessWhile",
    "Case",
    "StatelessCase",
)
_TABLES = (
    "HashTable",
    "HashTableV2",
    "LookupTableFind",
    "LookupTableFindV2",
    "LookupTableSize",
    "LookupTableSizeV2",
)
# Only of variables that no output depends on: `check_states`.
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_RANDOM = (
    "RandomUniform",
    "RandomUniformInt",
    "RandomStandardNormal",
    "TruncatedNormal",
    "RandomShuffle",
    "Multinomial",
)
# Ops with effects or states that a computation may have.
COMPUTING = frozenset(
    (*VARIABLES, *_CALLS, *_TABLES, *_RANDOM, "ReadVariableOp", "ResourceGather", "VariableShape")
    + ("Placeholder", "PlaceholderWithDefault", "Assert", "IsVariableInitialized")
    + (*FORWARD_OPS, "VarIsInitializedOp", *_ASSIGNMENTS)
)
# What restores variables and fills tables; it reads the files of the model.
RESTORING = COMPUTING | {
    "RestoreV2",
    "Restore",
    "RestoreSlice",
    "Assign",
    "InitializeTable",
    "InitializeTableV2",
    "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2",
    "LookupTableImport",
    "LookupTableImportV2",
    "MutableHashTable",
    "MutableHashTableV2",
}


def check(path: str, graph_def: Any, starts: Iterable[str], allowed: Iterable[str]) -> None:
    """Raises `ValueError` if the computation of some nodes has an op with other effects.

    Args:
      path: the model, for the error.
      graph_def: a `GraphDef`.
      starts: names of nodes, tensors and functions; unknown ones are ignored.
      allowed: names of stateful ops.
    """
    allowed = set(allowed)
    for node in reached(graph_def, starts):
        definition = op_definition(node.op)
        if definition is not None and definition.is_stateful and node.op not in allowed:
            raise ValueError(
                "%s cannot be exported to ONNX: its node %r (%s) has a state or effects outside "
                "the graph, as training and layers with stateful=True have. Export a model or "
                "signature that only computes." % (path, node.name, node.op)
            )


def check_states(
    path: str, graph_def: Any, outputs: Iterable[str], others: Iterable[str] = ()
) -> None:
    """Raises `ValueError` if outputs depend on a variable that the computation assigns to.

    An ONNX model would start each run with the first value. Other assignments are left out: those
    of random seeds, for example. `others` are names of nodes that run besides.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    nodes = {node.name: node for node in reached(graph_def, [*outputs, *others])}
    bodies = [([node for node in graph_def.node if node.name in nodes], list(outputs))]
    for name in {name for node in nodes.values() for name in (node.op, *functions_in(node.attr))}:
        if name in functions:
            bodies.append((functions[name].node_def, _results(functions[name])))
    assigned = _Assignments(functions)
    for body, results in bodies:
        changed = assigned.in_nodes(body) & _ancestors(body, results)
        if changed:
            raise ValueError(
                "%s cannot be exported to ONNX: it keeps the variable %r from one call to the "
                "next, as layers with stateful=True do. Build the model with stateful=False, or "
                "with states as inputs and outputs." % (path, min(changed))
            )


class _Assignments:
    """Finds the handles of variables that nodes assign to, directly or in functions."""

    def __init__(self, functions):
        self._functions = functions
        self._known = {}

    def in_nodes(self, nodes: Iterable[Any]) -> Set[str]:
        """Returns names of nodes and arguments."""
        found: Set[str] = set()
        for node in nodes:
            inputs = [node_of(name) for name in node.input if not name.startswith("^")]
            if node.op in _ASSIGNMENTS:
                found.add(inputs[0])
            if node.op in ("If", "StatelessIf", "Case", "StatelessCase"):
                inputs = inputs[1:]
            for name in {node.op, *functions_in(node.attr)} & self._functions.keys():
                arguments = self._functions[name].signature.input_arg
                changed = self._in_function(name)
                given = zip(arguments, inputs)
                found |= {name for argument, name in given if argument.name in changed}
        return found

    def _in_function(self, name):
        if name not in self._known:
            self._known[name] = self.in_nodes(self._functions[name].node_def)
        return self._known[name]


def _results(function):
    """Returns the names of what a function returns, without handles that it hands on."""
    returned = function.signature.output_arg
    return [function.ret[one.name] for one in returned if one.type != types_pb2.DT_RESOURCE]


def _ancestors(nodes: Iterable[Any], names: Iterable[str]) -> Set[str]:
    """Returns the names of the nodes and arguments that some depend on, by tensors."""
    inputs = {
        node.name: [node_of(name) for name in node.input if not name.startswith("^")]
        for node in nodes
    }
    found = {node_of(name) for name in names}
    waiting = list(found)
    while waiting:
        new = set(inputs.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def reached(graph_def: Any, starts: Iterable[str]) -> Iterator[Any]:
    """Yields the nodes that others need, and all nodes of the functions that they call."""
    nodes = {node.name: node for node in graph_def.node}
    functions = {function.signature.name: function for function in graph_def.library.function}
    names = {node_of(name) for name in starts}
    seen: Set[str] = names & nodes.keys()
    called: Set[str] = names & functions.keys()
    waiting: List[Any] = [nodes[name] for name in seen]
    waiting += [node for name in called for node in functions[name].node_def]
    while waiting:
        node = waiting.pop()
        yield node
        for name in {node.op, *functions_in(node.attr)} & functions.keys() - called:
            called.add(name)
            waiting += functions[name].node_def
        if node.name in nodes and nodes[node.name] is node:
            for name in {node_of(name) for name in node.input} & nodes.keys() - seen:
                seen.add(name)
                waiting.append(nodes[name])


def node_of(name: str) -> str:
    """Returns the name of the node in the name of a tensor or of a control input."""
    return name.lstrip("^").split(":")[0]
