"""Names of the operations in a graph: those of TensorFlow 1.15, which programs look up."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers
from helpers.versions import needs_tensorflow_2

INPUTS = np.ones([5, 2, 3], np.float32)


def call_layer(class_name, **named):
    outputs, _ = getattr(layers, class_name)(1, 4, **named)(tf.constant(INPUTS))
    return outputs.name


def call_cell(class_name):
    cell = getattr(cudnn_rnn, class_name)(4)
    outputs, _ = cell(tf.constant(INPUTS[0]), cell.zero_state(2, tf.float32))
    return outputs.op.name.rpartition("/")[0]


def test_layers(session):
    with tf.variable_scope("m_0"):
        assert call_layer("CudnnGRU") == "m_0/cudnn_gru/CudnnRNN:0"
        assert call_layer("CudnnGRU") == "m_0/cudnn_gru_1/CudnnRNN:0"
        assert call_layer("CudnnLSTM") == "m_0/cudnn_lstm/CudnnRNN:0"
    assert call_layer("CudnnRNNTanh", name="cudnn_rnn_tanh") == "cudnn_rnn_tanh/CudnnRNN:0"
    assert call_layer("CudnnRNNRelu", name="relu/1") == "relu/1/CudnnRNN:0"


def test_layers_that_are_built_or_called_twice(session):
    first, second = layers.CudnnGRU(1, 4), layers.CudnnGRU(1, 4)
    second.build(INPUTS.shape)
    names = [layer(INPUTS)[0].name for layer in (first, second, first)]
    assert names == ["cudnn_gru_2/CudnnRNN:0", "cudnn_gru/CudnnRNN:0", "cudnn_gru_2/CudnnRNN_1:0"]
    assert first.kernel.op.name == "cudnn_gru_1/opaque_kernel"
    assert second.kernel.op.name == "cudnn_gru/opaque_kernel"


@pytest.mark.parametrize(
    "class_name, scope",
    [
        ("CudnnCompatibleGRUCell", "m_0/cudnn_compatible_gru_cell"),
        ("BasicRNNCell", "m_0/basic_rnn_cell"),
    ],
)
def test_cells(session, class_name, scope):
    with tf.variable_scope("m_0"):
        assert call_cell(class_name) == scope
        assert call_cell(class_name) == scope + "_1"


@needs_tensorflow_2
def test_name_scope_of_the_module(session):
    with tf.name_scope("outer"):
        layer = layers.CudnnGRU(1, 4)
        assert layer.name_scope.name == "outer/cudnn_gru/"
        call_layer("CudnnGRU")
        assert layers.CudnnGRU(1, 4).name_scope.name == "outer/cudnn_gru_1/"
    with layer.name_scope:
        assert tf.constant(1, name="inside").op.name == "outer/cudnn_gru/inside"


@needs_tensorflow_2
def test_name_scope_of_the_module_in_eager_execution(eager):
    with tf.name_scope("outer"):
        layer = layers.CudnnGRU(1, 4)
    with layer.name_scope as scope:
        assert scope == "outer/cudnn_gru/"


@needs_tensorflow_2
def test_constructors_leave_the_graph_unchanged(session):
    layers.CudnnGRU(1, 4)
    assert session.graph.unique_name("cudnn_gru", mark_as_used=False) == "cudnn_gru"
    assert session.graph.get_operations() == []


@pytest.mark.parametrize(
    "class_name, expected",
    [
        ("My2LSTM", "my2lstm"),
        ("My2Lstm", "my2_lstm"),
        ("AB2DeFG", "a_b2de_fg"),
        ("_My", "private__my"),
        ("my_Rnn", "my__rnn"),
        ("LSTM", "lstm"),
    ],
)
def test_names_of_subclasses(class_name, expected):
    """In TensorFlow 1 its base class names the layer. Keys of checkpoints have these names."""
    with tf.Graph().as_default():
        layer = type(class_name, (layers.CudnnGRU,), {})(1, 4)
        layer.build([None, None, 2])
        assert [variable.op.name for variable in layer.variables] == [expected + "/opaque_kernel"]
