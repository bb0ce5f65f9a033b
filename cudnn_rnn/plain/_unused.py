"""Leaves out functions with `CudnnRNN*` nodes that nothing calls.

tf.keras 2 puts three functions beside the `standard_lstm` that a layer calls: the same for a GPU
with cuDNN, its forward pass for training, and its gradient. No node refers to them. TensorFlow may
run one in the place of the called function, by their attribute `api_implements`; without them it
runs what the node calls.
"""

import collections
from typing import Any, Collection, Dict, Iterable, Iterator, Set

RNN_OPS = "CudnnRNN"  # the beginning of the names of all ops


def leave_out(graph_def: Any, entry_points: Collection[str], training: bool) -> int:
    """Removes functions with RNN nodes that nothing calls, and what only these call, in place.

    Args:
      graph_def: a `GraphDef`.
      entry_points: names of functions that are called from outside, beside the graph's nodes.
      training: whether a function calls the gradient that the library has for it (`GradientDef`).

    Returns:
      The number of functions that were removed.
    """
    library = graph_def.library
    references = _References(library, training)
    functions = {function.signature.name: function for function in library.function}
    called_by = {name: set(references.of(function)) for name, function in functions.items()}
    called = _reached({*entry_points, *references.of_nodes(graph_def.node)}, called_by)
    with_nodes = {name for name, function in functions.items() if _has_rnn(function)}
    uncalled = _reached(with_nodes - called, _reversed(called_by))
    below = _reached(uncalled, called_by)
    removed = (below - _reached(functions.keys() - below | called, called_by)) & functions.keys()
    if removed:
        _remove(library, removed)
    return len(removed)


class _References:
    """Finds the functions that nodes and functions of a library refer to."""

    def __init__(self, library, training):
        self._training = training
        self._gradients = {pair.function_name: pair.gradient_func for pair in library.gradient}
        registered = getattr(library, "registered_gradients", ())  # not in TensorFlow 1
        self._registered = {pair.registered_op_type: pair.gradient_func for pair in registered}

    def of(self, function: Any) -> Iterator[str]:
        """Yields names of functions that a `FunctionDef` refers to, and of ops."""
        yield from self.of_nodes(function.node_def)
        yield from functions_in(function.attr)
        name = function.signature.name
        if self._training and name in self._gradients:
            yield self._gradients[name]

    def of_nodes(self, nodes: Iterable[Any]) -> Iterator[str]:
        """Yields names of functions that nodes refer to, and of ops."""
        for node in nodes:
            yield node.op
            named = list(functions_in(node.attr))
            yield from named
            if node.op == "SymbolicGradient":
                yield from (self._gradients[name] for name in named if name in self._gradients)
            if "_gradient_op_type" in node.attr:
                op_type = node.attr["_gradient_op_type"].s.decode("utf-8", "replace")
                if op_type in self._registered:
                    yield self._registered[op_type]


def nodes_of(graph_def: Any) -> Iterator[Any]:
    """Yields the nodes of a graph and of the functions in its library."""
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        yield from nodes


def references_in(attributes: Any) -> Iterator[Any]:
    """Yields the references to functions, `NameAttrList`, in a node's or function's attributes."""
    for value in attributes.values():
        for function in [value.func] if value.HasField("func") else value.list.func:
            yield function
            yield from references_in(function.attr)


def functions_in(attributes: Any) -> Iterator[str]:
    """Yields the names of the functions that the attributes of a node or function refer to."""
    return (reference.name for reference in references_in(attributes))


def _has_rnn(function):
    return any(node.op.startswith(RNN_OPS) for node in function.node_def)


def _reversed(references: Dict[str, Set[str]]) -> Dict[str, Set[str]]:
    found: Dict[str, Set[str]] = collections.defaultdict(set)
    for source, names in references.items():
        for name in names:
            found[name].add(source)
    return found


def _reached(starts: Iterable[str], references: Dict[str, Set[str]]) -> Set[str]:
    """Returns the names that can be reached from `starts`, with these."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        new = references.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _remove(library, names):
    _keep(library.function, lambda function: function.signature.name not in names)
    _keep(library.gradient, lambda pair: names.isdisjoint([pair.function_name, pair.gradient_func]))
    registered = getattr(library, "registered_gradients", [])
    _keep(registered, lambda pair: pair.gradient_func not in names)


def _keep(entries, is_kept):
    """Removes entries in place; a copy of the library would lose fields of newer TensorFlows."""
    for index in reversed(range(len(entries))):
        if not is_kept(entries[index]):
            del entries[index]
