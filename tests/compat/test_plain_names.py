"""Plain graphs in which names of RNNs contain each other: each node keeps its own model."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.model import layout
from helpers.op_harness import relative_error
from helpers.random_graphs import random_graph, random_inputs

LIMIT = 1e-5
STEPS, BATCH, WIDTH = 4, 2, 3


def random_array(seed, *shape):
    return np.random.RandomState(seed).uniform(-0.6, 0.6, shape).astype(np.float32)


def run_model(model, inputs, seed=1):
    """Returns the output of a model of one layer with constant parameters."""
    params = tf.constant(random_array(seed, layout.params_size(model.config)))
    state = tf.zeros([1, BATCH, model.config.num_units])
    return model(inputs, state, params, is_training=True)[0]


def assert_same(graph, fetches, feeds=None):
    with tf.Session(graph=graph) as session:
        expected = session.run(fetches, feeds)
    plain = cudnn_rnn.plain_graph_def(graph.as_graph_def(), training=True)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(plain, name="")
        for name, value, found in zip(fetches, expected, session.run(fetches, feeds)):
            assert relative_error(found, value) < LIMIT, name


# Pairs of models with parameters of the same size.
PAIRS = {
    "kind": [cudnn_rnn.CudnnRNNRelu(1, WIDTH, WIDTH), cudnn_rnn.CudnnRNNTanh(1, WIDTH, WIDTH)],
    "input_mode": [
        cudnn_rnn.CudnnGRU(1, WIDTH, WIDTH, input_mode="skip_input"),
        cudnn_rnn.CudnnGRU(1, WIDTH, WIDTH),
    ],
    "size": [cudnn_rnn.CudnnGRU(1, 7, WIDTH), cudnn_rnn.CudnnGRU(1, 2, WIDTH)],
}


@pytest.mark.parametrize("pair", sorted(PAIRS))
def test_a_scope_in_front(pair):
    inner, outer = PAIRS[pair]
    with tf.Graph().as_default() as graph:
        inputs = tf.constant(random_array(0, STEPS, BATCH, WIDTH))
        with tf.name_scope("a"), tf.name_scope("b"):
            one = run_model(inner, inputs)
        two = run_model(outer, inputs)
        tf.identity(one, "one")
        tf.identity(two, "two")
        for name, output in [("d_one", one), ("d_two", two), ("d_both", one[0, 0, 0] * two)]:
            tf.identity(tf.gradients(tf.square(output), inputs)[0], name)
    assert sum("CudnnRNNBackprop" in node.op for node in graph.as_graph_def().node) == 4
    assert_same(graph, ["one:0", "two:0", "d_one:0", "d_two:0", "d_both:0"])


def test_a_loop_that_was_imported_beside_another_model(control_flow_of_tensorflow_1):
    """The gradient's inputs come from stacks, without shapes."""
    model, other = cudnn_rnn.CudnnGRU(1, WIDTH, WIDTH), cudnn_rnn.CudnnGRU(1, 7, WIDTH)
    with tf.Graph().as_default() as graph:
        inputs = tf.constant(random_array(0, STEPS, BATCH, WIDTH))

        def step(count, values):
            output = run_model(model, values)
            output.set_shape(values.shape)
            return count + 1, output

        _, outputs = tf.while_loop(lambda count, _: count < 3, step, (0, inputs))
        tf.identity(outputs, "outputs")
        tf.identity(tf.gradients(tf.square(outputs), inputs)[0], "gradient")
    loop = graph.as_graph_def()
    assert {"while/CudnnRNN", "gradients/while/CudnnRNN_grad/CudnnRNNBackprop"} < {
        node.name for node in loop.node
    }
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(loop, name="loop")
        with tf.name_scope("while"):
            output = run_model(other, tf.constant(random_array(0, STEPS, BATCH, WIDTH)))
        assert output.op.name == "while/CudnnRNN"
    assert_same(graph, ["loop/outputs:0", "loop/gradient:0", output.name])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(24))
def test_random_graphs(seed):
    graph, names = random_graph(seed, is_training=bool(seed % 2))
    assert_same(graph, [name + ":0" for name in names], {"inputs:0": random_inputs(seed)})
