"""Refuses graphs that do more than compute, before anything of them runs."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

from tensorflow.core.framework import types_pb2

from cudnn_rnn._compat import op_definition
from cudnn_rnn.model.spec import FORWARD_OPS
from cudnn_rnn.plain._unused import functions_in

VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_BRANCHING = ("If", "StatelessIf", "Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")
# The attributes with the functions whose results are those of the node.
CALLED = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "While": ("body",),
    "StatelessWhile": ("body",),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
_UNKNOWN = sys.maxsize  # the number of no input
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
    (*VARIABLES, *CALLED, *_TABLES, *_RANDOM, "ReadVariableOp", "ResourceGather", "VariableShape")
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
    of random seeds, for example. Dependencies are followed through the functions that nodes call.
    `others` are names of nodes that run besides.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    nodes = {node.name: node for node in reached(graph_def, [*outputs, *others])}
    bodies = [([node for node in graph_def.node if node.name in nodes], list(outputs))]
    for name in {name for node in nodes.values() for name in (node.op, *functions_in(node.attr))}:
        if name in functions:
            bodies.append((functions[name].node_def, _results(functions[name])))
    assigned, dependencies = _Assignments(functions), _Dependencies(functions)
    for body, results in bodies:
        changed = assigned.in_nodes(body) & dependencies.ancestors(body, results)
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
            inputs = [node_of(name) for name in tensors_of(node)]
            if node.op in _ASSIGNMENTS:
                found.add(inputs[0])
            if node.op in _BRANCHING:
                inputs = inputs[1:]
            for name in {node.op, *functions_in(node.attr)} & self._functions.keys():
                arguments = self._functions[name].signature.input_arg
                changed = self._in_function(name)
                given = zip(arguments, inputs)
                found |= {name for argument, name in given if argument.name in changed}
        return found

    def _in_function(self, name):
        if name not in self._known:
            function = self._functions[name]
            # A function that calls itself sees all arguments here.
            self._known[name] = {argument.name for argument in function.signature.input_arg}
            self._known[name] = self.in_nodes(function.node_def)
        return self._known[name]


def _results(function):
    """Returns the names of what a function returns, without handles that it hands on."""
    returned = function.signature.output_arg
    return [function.ret[one.name] for one in returned if one.type != types_pb2.DT_RESOURCE]


class _Dependencies:
    """Follows tensors from results to what these depend on, also through called functions."""

    def __init__(self, functions: Dict[str, Any]) -> None:
        self._functions = functions
        self._known: Dict[Tuple[str, int], Set[int]] = {}

    def ancestors(self, nodes: Iterable[Any], names: Iterable[str]) -> Set[str]:
        """Returns the names of the nodes and arguments that some tensors depend on."""
        by_name = {node.name: node for node in nodes}
        found = set(names)
        waiting = list(found)
        while waiting:
            tensor = waiting.pop()
            node = by_name.get(node_of(tensor))
            new = set() if node is None else set(self._inputs(node, number_of(tensor))) - found
            found |= new
            waiting += new
        return {node_of(tensor) for tensor in found}

    def _inputs(self, node, number):
        """Returns the inputs that an output depends on; all inputs if this is not certain."""
        inputs = tensors_of(node)
        called = [name for key in CALLED.get(node.op, ()) for name in _named(node, key)]
        if not called:
            return inputs
        if node.op in _LOOPS:
            numbers = self._of_loop(node, number, len(inputs))
        else:
            numbers = set().union(*(self._of_result(name, number) for name in called))
        conditions = 1 if node.op in _BRANCHING else 0
        if max(numbers, default=0) + conditions >= len(inputs):
            return inputs
        return inputs[:conditions] + [inputs[conditions + index] for index in numbers]

    def _of_loop(self, node, number, count):
        """Returns the numbers of the inputs that an output depends on after any number of steps."""
        conditions = _named(node, "cond")
        if not conditions:
            return set(range(count))
        found = {number}.union(*(self._of_result(name, 0) for name in conditions))
        waiting = list(found)
        while waiting:
            step = waiting.pop()
            new = set().union(*(self._of_result(name, step) for name in _named(node, "body")))
            waiting += new - found
            found |= new
        return found

    def _of_result(self, name, number):
        """Returns the numbers of the arguments that a function's result depends on."""
        if (name, number) not in self._known:
            function = self._functions.get(name)
            if function is None or number >= len(function.signature.output_arg):
                return {_UNKNOWN}
            arguments = [argument.name for argument in function.signature.input_arg]
            # A function that calls itself sees all arguments here.
            self._known[name, number] = set(range(len(arguments)))
            result = function.ret[function.signature.output_arg[number].name]
            ancestors = self.ancestors(function.node_def, [result])
            self._known[name, number] = {
                index for index, argument in enumerate(arguments) if argument in ancestors
            }
        return self._known[name, number]


def tensors_of(node: Any) -> List[str]:
    """Returns the inputs of a node without control inputs."""
    return [name for name in node.input if not name.startswith("^")]


def _named(node, attribute):
    """Returns the names of the functions in an attribute of a node."""
    if attribute not in node.attr:
        return []
    value = node.attr[attribute]
    found = [value.func] if value.HasField("func") else value.list.func
    return [function.name for function in found]


def number_of(tensor: str) -> int:
    """Returns the number of an output in the name of a tensor, of a graph or of a function."""
    number = tensor.rpartition(":")[2]
    return int(number) if ":" in tensor and number.isdecimal() else 0


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
