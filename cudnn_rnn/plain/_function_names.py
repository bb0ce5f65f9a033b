"""Gives the functions in a graph's library other names."""

from typing import Any, Dict

from cudnn_rnn.plain._unused import nodes_of, references_in


def rename_functions(graph_def: Any, names: Dict[str, str]) -> None:
    """Renames functions in the library of a `GraphDef` and all that refers to them, in place.

    `names` has the new names of all functions in the library, by their present ones. A
    `registered_op_type` is the name of a gradient in Python and stays.
    """
    library = graph_def.library
    for function in library.function:
        function.signature.name = names[function.signature.name]
    for node in nodes_of(graph_def):
        node.op = names.get(node.op, node.op)
    for one in (*library.function, *nodes_of(graph_def)):
        for reference in references_in(one.attr):
            reference.name = names.get(reference.name, reference.name)
    for pair in library.gradient:
        pair.function_name = names.get(pair.function_name, pair.function_name)
        pair.gradient_func = names.get(pair.gradient_func, pair.gradient_func)
    for pair in getattr(library, "registered_gradients", ()):  # not in TensorFlow 1
        pair.gradient_func = names.get(pair.gradient_func, pair.gradient_func)
