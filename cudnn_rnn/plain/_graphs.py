"""Rewrites the nodes of a graph and of the functions in its library."""

from typing import Any, Callable, Collection, NamedTuple

import tensorflow
from tensorflow.python.framework import ops

from cudnn_rnn._compat import (
    copy_handle_data,
    function_def_to_graph,
    function_from_graph_def,
    tf,
    variable_accessed,
)
from cudnn_rnn.plain._computations import GRADIENT_OPS, computation_of
from cudnn_rnn.plain._function_names import rename_functions
from cudnn_rnn.plain._inlining import Container, Library
from cudnn_rnn.plain._unused import RNN_OPS, leave_out
from cudnn_rnn.plain._validation import check

ADVICE_ON_SHAPES = (
    " Or make the GraphDef with graph.as_graph_def(add_shapes=True), which stores all shapes."
)


def plain_graph_def(graph_def: Any, training: bool = False) -> Any:
    """Returns a copy of a `GraphDef` in which standard ops replace all `CudnnRNN*` nodes.

    This includes the functions in its library, with the bodies of loops and branches. The copy has
    the same parameters and results, and the names of all tensors stay valid. Each `CudnnRNN*` node
    becomes an `IdentityN` of the same name; the plain computation is in the scope `NAME/plain`.
    Functions with `CudnnRNN*` nodes that nothing calls are left out: tf.keras 2 adds some for GPUs.

    Args:
      graph_def: a `GraphDef`, frozen or not. num_layers, num_units and input_size of each node must
        follow from static shapes; the batch size and the number of time steps need not.
      training: whether to rewrite the gradient nodes (`CudnnRNNBackprop*`) of a training graph.

    Raises:
      ValueError: there is no `CudnnRNN*` node; there are gradient nodes, but `training` is False;
        the sizes of a node are unknown; or the graph is damaged.
    """
    found = tf.GraphDef()
    found.CopyFrom(graph_def)
    if not any(rewrite(found, training)):
        raise ValueError("The graph has no CudnnRNN nodes: it runs without cudnn_rnn as it is.")
    return found


def plain_function(function: Any, training: bool = False) -> Any:
    """Returns a concrete function in which standard ops replace all `CudnnRNN*` nodes.

    It has the arguments and results of `function`, a concrete function of TensorFlow 2, and uses
    its variables. A gradient passes through it, also through its branches and loops, but not
    through an RNN in another function that it calls, which is an error of TensorFlow. See
    `plain_graph_def` for `training` and the errors.
    """
    graph_def = plain_graph_def(function.graph.as_graph_def(add_shapes=True), training)
    # TensorFlow already has functions of these names, which differ: those that `function` calls.
    functions = [one.signature.name for one in graph_def.library.function]
    rename_functions(graph_def, {name: "%s_%d" % (name, ops.uid()) for name in functions})
    names = [[tensor.name for tensor in tensors] for tensors in (function.inputs, function.outputs)]
    plain = function_from_graph_def(graph_def, *names)
    captured = list(function.captured_inputs)
    # Without the dtypes of the variables, branches and loops have no gradient for the variables.
    for tensor, placeholder in zip(captured, plain.inputs[-len(captured) :]):
        copy_handle_data(tensor, placeholder)
    arguments, named = function.structured_input_signature

    def call(*arguments, **named):
        for variable in function.graph.variables:
            variable_accessed(variable)  # so that a GradientTape watches it
        given = tensorflow.nest.flatten((arguments, named), expand_composites=True)
        tensors = [value for value in given if tf.is_tensor(value)]
        results = plain(*tensors, *captured)
        return tensorflow.nest.pack_sequence_as(
            function.structured_outputs, results, expand_composites=True
        )

    return tensorflow.function(call, autograph=False).get_concrete_function(*arguments, **named)


class Changes(NamedTuple):
    """What was done to a graph: the numbers of nodes and functions."""

    replaced_nodes: int
    removed_functions: int


def rewrite(graph_def: Any, training: bool, entry_points: Collection[str] = ()) -> Changes:
    """Rewrites the `GraphDef` in place.

    `entry_points` are names of functions that are called from outside.
    """
    removed = leave_out(graph_def, entry_points, training)
    return Changes(replace_nodes(graph_def, training), removed)


def replace_nodes(
    graph_def: Any, training: bool, is_chosen: Callable[[Any], bool] = lambda op: True
) -> int:
    """Replaces nodes in place, as `plain_graph_def` does; returns their number.

    `is_chosen` says of a `CudnnRNN*` operation whether it is replaced.
    """
    containers = [Container(graph_def.node)]
    functions = graph_def.library.function
    containers += [Container(function.node_def, function) for function in functions]
    concerned = [(container, _names(container)) for container in containers]
    concerned = [(container, names) for container, names in concerned if names]
    if not training:
        _refuse_gradients(concerned, _names_of_gradients(graph_def))
    if not concerned:
        return 0
    check(graph_def)
    library = Library(graph_def)
    replacements = []
    graph = imported(graph_def)
    with graph.as_default():
        for container, names in concerned:
            source = graph
            if container.function is not None:
                source = function_def_to_graph(container.function)
            operations = filter(is_chosen, map(source.get_operation_by_name, names))
            computations = {op.name: (op, _computation(container, op)) for op in operations}
            if computations:
                replacements.append((container, computations))
    for container, computations in replacements:
        container.replace(computations, library)
    return sum(len(computations) for _, computations in replacements)


def imported(graph_def: Any) -> Any:
    """Returns a new `tf.Graph` with the nodes of a GraphDef, which stays as it is."""
    # Importing adds attributes that this TensorFlow has, and older ones may not know.
    copy = tf.GraphDef()
    copy.CopyFrom(graph_def)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(copy, name="")
    return graph


def _names(container):
    return [node.name for node in container.nodes if node.op.startswith(RNN_OPS)]


def _computation(container, op):
    try:
        return computation_of(op)
    except ValueError as error:
        raise ValueError(
            "The node %r (%s) in %s cannot be rewritten: %s%s"
            % (op.name, op.type, container.name, error, ADVICE_ON_SHAPES)
        ) from error


def _names_of_gradients(graph_def):
    """Returns the names of functions that only compute gradients, if someone asks for them.

    SavedModels of the Keras layers have one for each call in inference.
    """
    registered = getattr(graph_def.library, "registered_gradients", ())  # not in TensorFlow 1
    return {gradient.gradient_func for gradient in registered}


def _refuse_gradients(containers, allowed_functions):
    for container, _ in containers:
        if container.function and container.function.signature.name in allowed_functions:
            continue
        for node in container.nodes:
            if node.op.startswith(GRADIENT_OPS):
                raise ValueError(
                    "The node %r (%s) in %s computes gradients, which an export for inference does "
                    "not need. Export a graph without training ops, or pass training=True "
                    "(--training) to rewrite gradients too." % (node.name, node.op, container.name)
                )
