"""Copies of layers, and what a layer keeps alive."""

import copy
import gc
import weakref

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

from helpers.checkpoints import assert_round_trip
from helpers.layer_models import BATCH, LAYERS, UNITS, WIDTH, built_layer, cell, make_inputs
from helpers.versions import needs_tensorflow_2


@pytest.mark.parametrize("is_called", [False, True])
def test_copy_of_a_built_layer_in_a_graph(session, tmp_path, rnn_mode, is_called):
    """The copy has its own settings and shares the variable and the saveable."""
    layer = built_layer(rnn_mode, 2)
    if is_called:
        layer(make_inputs())
    num_nodes = len(tf.get_default_graph().get_operations())
    copied = copy.deepcopy(layer)
    assert len(tf.get_default_graph().get_operations()) == num_nodes
    assert copied is not layer and copied.kernel is layer.kernel
    assert copied.saveable is layer.saveable
    assert [variable is layer.kernel for variable in copied.trainable_variables] == [True]
    results = [each(make_inputs(), training=False)[0] for each in (layer, copied)]
    session.run(tf.global_variables_initializer())
    np.testing.assert_array_equal(*session.run(results))
    assert_round_trip(session, tf.train.Saver(), [layer.kernel], tmp_path)


def test_copy_of_a_layer_that_is_not_built(session, rnn_mode):
    layer = LAYERS[rnn_mode](2, UNITS, direction="bidirectional")
    copied = copy.deepcopy(layer)
    for each in layer, copied:
        each.build([None, None, WIDTH])
    assert copied.kernel is not layer.kernel and copied.saveable is not layer.saveable


@needs_tensorflow_2
def test_copy_of_a_built_layer_that_is_eager(eager, tmp_path, rnn_mode):
    layer = LAYERS[rnn_mode](2, UNITS)
    expected, _ = layer(make_inputs())
    copied = copy.deepcopy(layer)
    assert copied.kernel is layer.kernel and copied.saveable is layer.saveable
    np.testing.assert_array_equal(copied(make_inputs())[0].numpy(), expected.numpy())
    path = tf.train.Checkpoint(rnn=copied).save(str(tmp_path / "model"))
    values = layer.kernel.numpy()
    layer.kernel.assign(tf.zeros_like(layer.kernel))
    tf.train.Checkpoint(rnn=layer).restore(path).assert_consumed()
    np.testing.assert_array_equal(layer.kernel.numpy(), values)


def make_layer_call(is_built):
    layer = built_layer("gru", 2) if is_built else LAYERS["lstm"](2, UNITS)
    return layer, lambda inputs: layer(inputs)[0]


def make_cell_call(is_built):
    own = cell("gru", UNITS)
    if is_built:
        own.build(tf.TensorShape([BATCH, WIDTH]))
    return own, lambda inputs: own(inputs[0], tf.zeros([BATCH, UNITS]))[0]


@pytest.mark.sampled(4)
@needs_tensorflow_2
@pytest.mark.parametrize("make_call", [make_layer_call, make_cell_call])
@pytest.mark.parametrize("is_built", [False, True])
def test_graph_of_a_function_is_collected(eager, make_call, is_built):
    """A function's graph is collected although a layer that was called in it is still alive."""
    layer, call = make_call(is_built)
    graphs = []

    @tensorflow.function
    def function(inputs):
        graphs.append(weakref.ref(tf.get_default_graph()))
        return call(inputs)

    inputs = tf.constant(make_inputs())
    function(inputs)
    assert graphs and function.get_concrete_function(inputs).graph is graphs[-1]()
    del function
    gc.collect()
    assert [graph() for graph in graphs] == [None] * len(graphs)
    assert call(inputs).shape[-1] == UNITS


@needs_tensorflow_2
def test_graph_attribute_of_a_layer(session, rnn_mode):
    layer = LAYERS[rnn_mode](1, UNITS)
    layer(tf.constant(make_inputs()))
    assert layer.graph is session.graph
