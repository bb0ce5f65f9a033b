"""Which nodes keep packed weights, and that none does whose parameters are replaced by others.

The deprecated op InplaceAdd writes into a buffer that kernels hold, which no other op does. So the
results of a kernel that keeps weights do not change by it.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn

UNITS, WIDTH, STEPS, BATCH = 20, 7, 3, 12
MATRICES_SIZE = 4 * UNITS * (WIDTH + UNITS)
PARAMS_SIZE = MATRICES_SIZE + 8 * UNITS
CALLS = 6  # enough to pack the weights and to use them


def random(*shape, seed=0):
    return np.float32(np.random.RandomState(seed).uniform(-0.5, 0.5, shape))


def infer(params):
    state = tf.zeros([1, BATCH, UNITS])
    model = cudnn_rnn.CudnnLSTM(1, UNITS, WIDTH)
    x = tf.constant(random(STEPS, BATCH, WIDTH))
    return model(x, state, state, params, is_training=False)[0]


def resource_variable(name="v"):
    return tf.get_variable(name, initializer=random(PARAMS_SIZE, seed=1), use_resource=True)


def write_in_place(variable):
    """Changes the matrices; kernels read the biases from the parameters."""
    delta = tf.constant(random(MATRICES_SIZE, seed=2))
    return tf.raw_ops.InplaceAdd(x=variable.read_value(), i=list(range(MATRICES_SIZE)), v=delta)


def in_a_loop(variable):
    def body(time, _):
        return time + 1, infer(variable)

    return tf.while_loop(lambda time, _: time < 2, body, [0, tf.zeros([STEPS, BATCH, UNITS])])[1]


WAYS = {
    "variable": infer,
    "value": lambda variable: infer(variable.read_value()),
    "identity": lambda variable: infer(tf.identity(variable)),
    "matrix": lambda variable: infer(tf.reshape(variable, [-1, 4])),
    "loop": in_a_loop,
    "computed": lambda variable: infer(tf.concat([variable[:3], variable[3:]], 0)),
}
KEEPING = sorted(WAYS.keys() - {"computed"})


def keeps(run, write):
    """Returns whether the results of `run` stay the same after `write` has changed the weights."""
    before = [run() for _ in range(CALLS)][-1]
    write()
    return np.array_equal(before, run())


@pytest.mark.parametrize("way", sorted(WAYS))
def test_what_keeps_weights(way):
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable()
        output, write = WAYS[way](variable), write_in_place(variable)
        session.run(tf.global_variables_initializer())
        found = keeps(lambda: session.run(output), lambda: session.run(write))
        assert found == (way in KEEPING)


@pytest.mark.parametrize("way", KEEPING)
def test_imported_graphs_keep_weights(way):
    """Names of nodes get a prefix; the variable is the same, because its own name stays."""
    with tf.Graph().as_default() as graph:
        output = WAYS[way](resource_variable()).name
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable()
        write = write_in_place(variable)
        imported = tf.import_graph_def(graph.as_graph_def(), return_elements=[output], name="a/b")
        session.run(variable.initializer)
        assert keeps(lambda: session.run(imported), lambda: session.run(write))


def test_functions_keep_weights():
    with context.eager_mode():
        variable = tf.Variable(random(PARAMS_SIZE, seed=1), use_resource=True)
        run = tf.function(lambda: infer(variable), autograph=False)
        write = tf.function(lambda: write_in_place(variable), autograph=False)
        assert keeps(lambda: run().numpy(), write)


def assert_right_after_updates(session, output, params):
    """Updates a reference variable in place, and compares with a node that keeps nothing."""
    expected = WAYS["computed"](params)
    update = tf.assign_add(params, random(PARAMS_SIZE, seed=3))
    session.run(params.initializer)
    for _ in range(3):
        for _ in range(CALLS):
            found = session.run([output, expected])
            np.testing.assert_array_equal(found[0], found[1])
        session.run(update.op)


def reference_variable():
    return tf.get_variable("w", initializer=random(PARAMS_SIZE, seed=4), use_resource=False)


def graph_def_of(way):
    """Returns a graph and the names of the value of its variable and of its output."""
    with tf.Graph().as_default() as graph:
        output = WAYS[way](resource_variable())
    reads = [node for node in graph.get_operations() if node.type == "ReadVariableOp"]
    return graph.as_graph_def(), [node.outputs[0].name for node in reads], output.name


@pytest.mark.parametrize("way", sorted(set(KEEPING) - {"loop"}))  # that of a loop is within it
def test_a_value_replaced_by_a_reference_variable(way):
    graph_def, values, output = graph_def_of(way)
    with tf.Graph().as_default(), tf.Session() as session:
        params = reference_variable()
        imported = tf.import_graph_def(
            graph_def, dict.fromkeys(values, tf.identity(params)), return_elements=[output], name=""
        )
        assert_right_after_updates(session, imported[0], params)


# Without optimization, a loop of TensorFlow 2 is wrong: the node is in the body, another function.
FROZEN = [(way, True) for way in KEEPING] + [(way, False) for way in KEEPING if way != "loop"]


@pytest.mark.parametrize("way, is_optimized", FROZEN)
def test_a_constant_of_a_frozen_graph_replaced_by_a_reference_variable(way, is_optimized):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        variable = resource_variable()
        output = WAYS[way](variable)
        session.run(variable.initializer)
        frozen = tf.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), [output.op.name]
        )
    config = tf.ConfigProto()  # TensorFlow may remove the nodes between, whose names are known
    config.graph_options.rewrite_options.disable_meta_optimizer = not is_optimized
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        params = reference_variable()
        imported = tf.import_graph_def(
            frozen, {"v:0": tf.identity(params)}, return_elements=[output.name], name=""
        )
        assert_right_after_updates(session, imported[0], params)


def test_an_input_replaced_in_the_graph():
    """As TensorFlow 1's graph_editor does."""
    with tf.Graph().as_default(), tf.Session() as session:
        output = infer(resource_variable())
        params = reference_variable()
        output.op._update_input(3, tf.identity(params))
        assert_right_after_updates(session, output, params)
