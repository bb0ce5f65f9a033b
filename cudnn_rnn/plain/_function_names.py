"""Gives the functions in a graph's library other names."""

from typing import Any, Dict

from cudnn_rnn.plain._unused import nodes_of


def rename_functions(graph_def: Any, names: Dict[str, str]) -> None:
    """Renames functions in the library of a `GraphDef` and all that refers to them, in place.

    `names` has the new names of all functions in the library, by their present ones. A
    `registered_op_type` is the name of a gradient in Python and stays.
    """
    library = graph_def.library
    for function in library.function:
        function.signature.name = names[function.signature.name]
        _rename_in(function.attr, names)
    for node in nodes_of(graph_def):
        node.op = names.get(node.op, node.op)
        _rename_in(node.attr, names)
    for pair in library.gradient:
        pair.function_name = names.get(pair.function_name, pair.function_name)
        pair.gradient_func = names.get(pair.gradient_func, pair.gradient_func)
    for pair in getattr(library, "registered_gradients", ()):  # not in TensorFlow 1
        pair.gradient_func = names.get(pair.gradient_func, pair.gradient_func)


def _rename_in(attributes, names):
    """Renames the functions that the attributes of a node or function refer to."""
    for value in attributes.values():
        for function in [value.func] if value.HasField("func") else value.list.func:
            function.name = names.get(function.name, function.name)
            _rename_in(function.attr, names)
