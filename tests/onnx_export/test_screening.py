"""Which variables outputs depend on, through the functions that a graph calls."""

import pytest
import tensorflow
import tensorflow.compat.v1 as tf

from cudnn_rnn.onnx import _screening
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, needs_tensorflow_2]

COUNT = 3  # of steps in loops


def check(function):
    """Checks the graph of `function(x, state)` in a wrapper, as a SavedModel has it."""
    state = tensorflow.Variable(1.0, name="state")
    inner = tensorflow.function(lambda x: function(x, state), autograph=False)
    outer = tensorflow.function(inner, autograph=False)
    wrapper = outer.get_concrete_function(tensorflow.TensorSpec([], name="x"))
    graph_def = wrapper.graph.as_graph_def()
    assert "StatefulPartitionedCall" in {node.op for node in graph_def.node}
    outputs = [tensor.name for tensor in wrapper.outputs]
    _screening.check_states("model", graph_def, outputs, [node.name for node in graph_def.node])


def call(function, *arguments):
    """Calls a function as a node of its own."""
    return tensorflow.function(function, autograph=False)(*arguments)


def branch(index, *functions):
    if len(functions) == 2:
        return tf.cond(index > 0.0, *functions)
    return tf.switch_case(tf.cast(index, tf.int32), functions)


def loop(step, x, is_wanted=lambda x: x < 9.0):
    """Returns the last x; `step` may have effects."""
    is_next = lambda i, x: tf.logical_and(i < COUNT, is_wanted(x))  # noqa: E731
    return tf.while_loop(is_next, lambda i, x: (i + 1, step(x)), (0, x))[1]


def change(state):
    """Assigns to the state; returns nothing of it."""
    state.assign_add(1.0)


def changed_besides(result):
    """Returns a function that computes a result, and changes the state in a function."""

    def function(x, state):
        found = result(x, state)
        call(lambda: change(state))
        return found

    return function


def change_and_double(x, state):
    change(state)
    return 2.0 * x


INDEPENDENT = {
    "call": lambda x, state: call(change_and_double, x, state),
    "nested calls": lambda x, state: call(lambda x: call(change_and_double, x, state), x),
    "branches": lambda x, state: branch(x, lambda: change_and_double(x, state), lambda: x),
    "case": lambda x, state: branch(x, lambda: change_and_double(x, state), lambda: x, lambda: -x),
    "loop": lambda x, state: loop(lambda x: change_and_double(x, state), x),
    "other result": lambda x, state: call(lambda x: (state.read_value(), x + 1.0), x)[1],
    "other variable of a loop": lambda x, state: tf.while_loop(
        lambda i, *_: i < COUNT,
        lambda i, a, b: (i + 1, a + state, b * 2.0),
        (0, x, x),
    )[2],
}
DEPENDENT = {
    "call": lambda x, state: call(lambda x: x * state, x),
    "nested calls": lambda x, state: call(lambda x: call(lambda x: x * state, x), x),
    "condition": lambda x, state: branch(state.read_value(), lambda: x, lambda: -x),
    "one branch": lambda x, state: branch(x, lambda: x, lambda: x * state),
    "case": lambda x, state: branch(x, lambda: x, lambda: -x, lambda: x * state),
    "loop": lambda x, state: loop(lambda x: x + state, x),
    "condition of a loop": lambda x, state: loop(lambda x: x + 1.0, x, lambda x: x < state),
    "start of a loop": lambda x, state: loop(lambda x: x + 1.0, x * state),
    "one variable of a loop after another": lambda x, state: tf.while_loop(
        lambda i, *_: i < COUNT,
        lambda i, a, b, c: (i + 1, x, a, b),
        (0, state.read_value(), x, x),
    )[3],
    "one result": lambda x, state: call(lambda x: (x, x + state), x)[1],
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_a_state_that_no_output_depends_on(name):
    check(changed_besides(INDEPENDENT[name]))


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_state_that_an_output_depends_on(name):
    """Read in one function and assigned to in another one, or assigned to where it is read."""
    check(DEPENDENT[name])  # nothing changes the state
    with pytest.raises(ValueError, match="from one call to the next, as layers with stateful"):
        check(changed_besides(DEPENDENT[name]))


@pytest.mark.parametrize("change_in", ["call", "branches", "loop"])
def test_a_state_that_is_read_and_changed(change_in):
    def function(x, state):
        return INDEPENDENT[change_in](x * state, state)

    with pytest.raises(ValueError, match="it keeps the variable"):
        check(function)


def test_functions_that_call_each_other_and_unknown_ones():
    """All results depend on all arguments."""
    for called in ("itself", "missing"):
        graph_def = tf.GraphDef()
        for name in ("state", "x"):
            graph_def.node.add(name=name, op="VarHandleOp")
        graph_def.node.add(name="assign", op="AssignVariableOp", input=["state", "x"])
        node = graph_def.node.add(name="y", op="PartitionedCall", input=["state", "x"])
        node.attr["f"].func.name = "itself"
        function = graph_def.library.function.add()
        function.signature.name = "itself"
        for name in "ab":
            function.signature.input_arg.add(name=name, type=tf.float32.as_datatype_enum)
        function.signature.output_arg.add(name="c", type=tf.float32.as_datatype_enum)
        function.ret["c"] = "call:output:0"
        node = function.node_def.add(name="call", op="PartitionedCall", input=["b", "a"])
        node.attr["f"].func.name = called
        with pytest.raises(ValueError, match="it keeps the variable 'state'"):
            _screening.check_states("model", graph_def, ["y:0"], ["assign"])
