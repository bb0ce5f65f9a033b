"""Refuses graphs whose import would end the process inside TensorFlow."""

from typing import Any, Dict, Iterator, List, Set

from cudnn_rnn._compat import op_definition, tf

_ADVICE = " The SavedModel or graph is damaged: get it from its source again."


def check(graph_def: Any) -> None:
    """Raises `ValueError` for calls in a circle, constants that are none, and impossible numbers.

    Args:
      graph_def: a `GraphDef`.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    _check_calls(functions)
    places = [("the graph", graph_def.node)]
    places += [("function %r" % name, function.node_def) for name, function in functions.items()]
    size = graph_def.ByteSize()
    for place, nodes in places:
        _check_constants(place, nodes)
        _check_numbers(place, nodes, size)


def _check_calls(functions):
    """Raises if functions call each other in a circle, directly or not."""
    done: Set[str] = set()
    for start in functions:
        path: List[str] = [start]
        waiting = [_calls(functions[start], functions)] if start not in done else []
        active = {start}
        while waiting:
            name = next(waiting[-1], None)
            if name is None:
                waiting.pop()
                active.discard(path[-1])
                done.add(path.pop())
            elif name in active:
                circle = path[path.index(name) :] + [name]
                raise ValueError(
                    "The function %r calls itself: %s.%s"
                    % (name, " calls ".join(map(repr, circle[:8])), _ADVICE)
                )
            elif name not in done:
                path.append(name)
                active.add(name)
                waiting.append(_calls(functions[name], functions))


def _calls(function: Any, functions: Dict[str, Any]) -> Iterator[str]:
    """Yields the names of the functions that a function calls."""
    for node in function.node_def:
        if node.op in functions:
            yield node.op
        for value in node.attr.values():
            for called in [value.func] if value.HasField("func") else value.list.func:
                if called.name in functions:
                    yield called.name


def _check_constants(place, nodes):
    for node in nodes:
        if node.op != "Const":
            continue
        tensor, dtype = node.attr["value"].tensor, node.attr["dtype"].type
        problem = _problem_of(tensor, dtype)
        if problem:
            raise ValueError("The constant %r in %s %s.%s" % (node.name, place, problem, _ADVICE))


def _check_numbers(place, nodes, size):
    """Raises if a node says that it has more inputs or outputs than a graph has bytes.

    TensorFlow allocates memory for them before it looks at the inputs.
    """
    for node in nodes:
        definition = op_definition(node.op)
        if definition is None:
            continue
        arguments = [*definition.input_arg, *definition.output_arg]
        for name in {argument.number_attr for argument in arguments if argument.number_attr}:
            if name in node.attr and not 0 <= node.attr[name].i <= size:
                raise ValueError(
                    "The node %r in %s has %s=%d inputs or outputs, but the whole graph has %d "
                    "bytes.%s" % (node.name, place, name, node.attr[name].i, size, _ADVICE)
                )


def _problem_of(tensor, dtype):
    """Returns what is wrong with a `TensorProto`, "" if nothing is known to be."""
    if tensor.dtype != dtype:
        return "has the dtype %d, but a value of the dtype %d" % (dtype, tensor.dtype)
    try:
        known = tf.as_dtype(dtype)
    except (TypeError, KeyError):
        return "has the unknown dtype %d" % dtype
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    if tensor.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        return "has no shape"
    size = 1
    for length in shape:
        size *= length
    if tensor.tensor_content and known.size and len(tensor.tensor_content) != size * known.size:
        return "has shape %s, but %d bytes" % (shape, len(tensor.tensor_content))
    return ""
