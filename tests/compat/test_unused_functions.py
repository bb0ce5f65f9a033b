"""Which functions an export leaves out: those with RNN nodes that nothing calls."""

import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn.plain import _unused
from helpers.versions import IS_TENSORFLOW_1

pytestmark = pytest.mark.ci


def graph_with(refer, from_function=False):
    """Returns a `GraphDef` with the function `rnn` and what `refer` makes of a node and the graph.

    The node is in the graph, or in a function that the graph calls.
    """
    graph_def = tf.GraphDef()
    library = graph_def.library
    for name in ("rnn", "below", "other"):
        library.function.add().signature.name = name
    library.function[0].node_def.add(name="node", op="CudnnRNN")
    library.function[0].node_def.add(name="call", op="below")
    node = graph_def.node.add(name="node", op="NoOp")
    if from_function:
        library.function.add().signature.name = "caller"
        library.function[-1].node_def.add(name="inner", op="NoOp")
        node.op, node = "caller", library.function[-1].node_def[0]
    refer(node, library)
    return graph_def


def remaining(graph_def, training=False, entry_points=()):
    before = len(graph_def.library.function)
    removed = _unused.leave_out(graph_def, entry_points, training)
    names = {function.signature.name for function in graph_def.library.function}
    assert len(names) == before - removed
    return names


def has_attribute(node, library):
    node.op = "PartitionedCall"
    node.attr["f"].func.name = "rnn"


def has_list(node, library):
    node.op = "Case"
    node.attr["branches"].list.func.add(name="other")
    node.attr["branches"].list.func.add(name="rnn")


def has_nested_attribute(node, library):
    node.attr["f"].func.attr["g"].func.name = "rnn"


def has_op(node, library):
    node.op = "rnn"


def runs_gradient(node, library):
    node.op = "SymbolicGradient"
    node.attr["f"].func.name = "other"
    library.gradient.add(function_name="other", gradient_func="rnn")


def registers_gradient(node, library):
    node.attr["_gradient_op_type"].s = b"CustomGradient-1"
    library.registered_gradients.add(registered_op_type="CustomGradient-1", gradient_func="rnn")


def calls_what_has_attribute(node, library):
    node.op = "other"
    library.function[2].attr["f"].func.name = "rnn"


CALLS = [
    calls_what_has_attribute,
    has_attribute,
    has_list,
    has_nested_attribute,
    has_op,
    runs_gradient,
]
CALLS += [] if IS_TENSORFLOW_1 else [registers_gradient]


@pytest.mark.parametrize("from_function", [False, True])
@pytest.mark.parametrize("refer", CALLS)
def test_what_is_called_stays(refer, from_function):
    graph_def = graph_with(refer, from_function)
    assert remaining(graph_def) >= {"rnn", "below", "other"}


def refers_to_nothing(node, library):
    pass


def has_gradient(node, library):
    node.op = "other"
    library.gradient.add(function_name="other", gradient_func="rnn")


def is_paired(node, library):
    node.op = "other"
    library.function[2].attr["backward_function_name"].s = b"rnn"
    library.function[0].attr["forward_function_name"].s = b"other"


def implements_the_same(node, library):
    node.op = "other"
    for function, device in ((library.function[2], b"CPU"), (library.function[0], b"GPU")):
        function.attr["api_implements"].s = b"gru"
        function.attr["api_preferred_device"].s = device


def is_called_by_what_nothing_calls(node, library):
    library.function.add().signature.name = "above"
    library.function[-1].node_def.add(name="if", op="If").attr["then_branch"].func.name = "rnn"


def is_registered_by_what_nothing_calls(node, library):
    library.function.add().signature.name = "above"
    registers_gradient(library.function[-1].node_def.add(name="x", op="CudnnRNN"), library)


LEFT_OUT = [refers_to_nothing, has_gradient, is_paired, implements_the_same]
LEFT_OUT += [is_called_by_what_nothing_calls]
LEFT_OUT += [] if IS_TENSORFLOW_1 else [is_registered_by_what_nothing_calls]


@pytest.mark.parametrize("refer", LEFT_OUT)
def test_what_nothing_calls_is_left_out(refer):
    """With what only it calls; other functions stay."""
    graph_def = graph_with(refer)
    assert remaining(graph_def) == {"other"}
    assert not graph_def.library.gradient
    assert not getattr(graph_def.library, "registered_gradients", ())


def test_what_is_called_elsewhere_too_stays():
    def refer(node, library):
        node.op = "below"

    assert remaining(graph_with(refer)) == {"below", "other"}


def test_functions_without_nodes_stay_with_what_they_call():
    def refer(node, library):
        library.function[2].node_def.add(name="call", op="below")

    assert remaining(graph_with(refer)) == {"below", "other"}


def test_functions_that_are_called_from_outside_stay():
    assert remaining(graph_with(refers_to_nothing), entry_points=["rnn"]) >= {"rnn", "below"}


def test_training_keeps_gradients_of_called_functions():
    assert remaining(graph_with(has_gradient), training=True) >= {"rnn", "below"}
