"""`tf.profiler` counts the floating-point operations of the RNN ops."""

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers
from cudnn_rnn._compat import framework_ops, register_flops
from helpers.layer_models import LAYERS
from helpers.versions import needs_projection, needs_tensorflow_1

STEPS, BATCH, WIDTH, UNITS = 5, 4, 3, 8
# Counted by hand for one step of one sequence: two layers of 8 units, 3 inputs, both directions.
# Products of a direction's first layer: gates * 8 * (3 + 8) multiplications, and as many additions;
# of its second: gates * 8 * (16 + 8). Additions of the summands: gates * 8 * 3 for every layer and
# direction. The rest of the formulas for every unit: LSTM 9, GRU 8, ReLU and tanh 1.
ONE_STEP = {
    "lstm": 2 * 2 * (4 * 8 * 11 + 4 * 8 * 24) + 4 * (4 * 8 * 3) + 4 * 8 * 9,
    "gru": 2 * 2 * (3 * 8 * 11 + 3 * 8 * 24) + 4 * (3 * 8 * 3) + 4 * 8 * 8,
    "rnn_relu": 2 * 2 * (8 * 11 + 8 * 24) + 4 * (8 * 3) + 4 * 8,
    "rnn_tanh": 2 * 2 * (8 * 11 + 8 * 24) + 4 * (8 * 3) + 4 * 8,
}


def counted(op_types):
    """Returns the operations that the profiler counts for these types in the default graph."""
    builder = tf.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    profile = tf.profiler.profile(tf.get_default_graph(), cmd="op", options=options)
    found = dict.fromkeys(op_types, 0)
    while profile.children:
        (profile,) = profile.children
        if profile.name in found:
            below = sum(child.total_float_ops for child in profile.children)
            found[profile.name] = profile.total_float_ops - below
    return found


@pytest.mark.parametrize("version", ["", "V2", "V3"])
@pytest.mark.parametrize("rnn_mode", sorted(ONE_STEP))
def test_forward_and_gradient(session, monkeypatch, rnn_mode, version):
    monkeypatch.setenv("TF_CUDNN_RNN_USE_V2", "1" if version == "V2" else "0")
    layer = LAYERS[rnn_mode](2, UNITS, direction="bidirectional")
    inputs, lengths = tf.zeros([STEPS, BATCH, WIDTH]), None
    if version == "V3":
        inputs, lengths = tf.zeros([BATCH, STEPS, WIDTH]), [1] * BATCH
    outputs, _ = layer(inputs, sequence_lengths=lengths, time_major=version != "V3")
    tf.gradients(outputs, layer.kernel)
    forward, gradient = "CudnnRNN" + version, "CudnnRNNBackprop" + version
    assert ONE_STEP["lstm"] == 5152
    expected = STEPS * BATCH * ONE_STEP[rnn_mode]
    assert counted([forward, gradient]) == {forward: expected, gradient: 2 * expected}


@needs_tensorflow_1  # TensorFlow 2 has the op Einsum for some products, and does not count it.
def test_products_are_those_that_tensorflow_counts(session):
    """In one step, the plain model has one product with each matrix."""
    layer = layers.CudnnLSTM(2, UNITS)
    layer.build([None, None, WIDTH])
    with cudnn_rnn.plain_ops():
        layer(tf.zeros([1, BATCH, WIDTH]), training=False)
    products = counted(["MatMul"])["MatMul"]
    assert products == 2 * BATCH * 4 * UNITS * ((WIDTH + UNITS) + (UNITS + UNITS))
    with tf.Graph().as_default():
        layers.CudnnLSTM(2, UNITS)(tf.zeros([1, BATCH, WIDTH]))
        of_units = 2 * UNITS * (4 * 3 + 9)
        assert counted(["CudnnRNN"]) == {"CudnnRNN": products + BATCH * of_units}


@pytest.mark.parametrize("input_mode", ["skip_input", "auto_select"])
def test_without_the_product_of_the_first_layer(session, input_mode):
    layers.CudnnGRU(1, UNITS, input_mode=input_mode)(tf.zeros([STEPS, BATCH, UNITS]))
    one_step = 2 * 3 * UNITS * UNITS + UNITS * (3 * 3 + 8)
    assert counted(["CudnnRNN"]) == {"CudnnRNN": STEPS * BATCH * one_step}


@needs_projection
def test_projection(session):
    model = cudnn_rnn.CudnnLSTM(1, UNITS, WIDTH, num_proj=2)
    states = tf.zeros([1, BATCH, 2]), tf.zeros([1, BATCH, UNITS])
    model(tf.zeros([STEPS, BATCH, WIDTH]), *states, params=tf.zeros([model.params_size()]))
    one_step = 2 * (4 * UNITS * (WIDTH + 2) + 2 * UNITS) + UNITS * (4 * 3 + 9)
    assert counted(["CudnnRNNV3"]) == {"CudnnRNNV3": STEPS * BATCH * one_step}


def test_unknown_sizes_count_nothing(session):
    layer = layers.CudnnGRU(1, UNITS)
    layer(tf.placeholder(tf.float32, [None, BATCH, WIDTH]))
    assert counted(["CudnnRNN"]) == {"CudnnRNN": 0}
    layer(tf.placeholder(tf.float32, [STEPS, BATCH, WIDTH]))
    assert counted(["CudnnRNN"])["CudnnRNN"] > 0


def test_a_registration_of_another_package_stays(session):
    """That of an op of TensorFlow, here, whose module registers it when it is imported."""
    node = tf.matmul(tf.zeros([2, 3]), tf.zeros([3, 4])).op.node_def

    @register_flops("MatMul")
    def other(graph, node):
        raise AssertionError("replaces TensorFlow's own")

    found = framework_ops.get_stats_for_node_def(tf.get_default_graph(), node, "flops")
    assert found.value == 2 * 2 * 3 * 4
    assert callable(other)
