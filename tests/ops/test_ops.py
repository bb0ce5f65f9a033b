"""The parameter ops through the Python API: they only permute elements, and so do gradients."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn._compat import gen_cudnn_rnn_ops, register_gradient
from cudnn_rnn.graph import nodes
from helpers.networks import every_dtype, every_mode_and_direction
from helpers.processes import output_of
from helpers.rnn_models import CLASSES, opaque_values


def make_model(rnn_mode, direction="unidirectional", input_mode="linear_input", dtype=tf.float32):
    return CLASSES[rnn_mode](2, 5, 5, input_mode, direction, dtype=dtype)


def make_params(session, model):
    size = session.run(model.params_size())
    return tf.constant(opaque_values(size, model.dtype.as_numpy_dtype))


def distinct_like(tensors):
    """Returns constants shaped like `tensors`, in which all elements are distinct."""
    ends = np.cumsum([tensor.shape.num_elements() for tensor in tensors])
    values = np.split(np.arange(1, ends[-1] + 1) / 1024.0, ends[:-1])
    return [
        tf.constant(value.reshape(tensor.shape.as_list()), tensor.dtype)
        for value, tensor in zip(values, tensors)
    ]


@pytest.mark.sampled(3)
@every_dtype
@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input", "auto_select"])
@every_mode_and_direction
def test_round_trip_and_both_gradients(session, rnn_mode, direction, input_mode, dtype):
    """The conversions only permute, so each one is the gradient of the other."""
    model = make_model(rnn_mode, direction, input_mode, tf.as_dtype(dtype))
    params = make_params(session, model)
    weights, biases = model.params_to_canonical(params)
    canonical = weights + biases
    # Upstream gradients for the canonical tensors; packed, they are the buffer's.
    upstream = distinct_like(canonical)
    to_params = tf.gradients(canonical, params, upstream)[0]
    packed_upstream = model.canonical_to_params(upstream[: len(weights)], upstream[len(weights) :])
    fresh = [tf.identity(tensor) for tensor in canonical]
    packed = model.canonical_to_params(fresh[: len(weights)], fresh[len(weights) :])
    to_canonical = tf.gradients(packed, fresh, packed_upstream)
    assert to_params.shape.as_list() == params.shape.as_list()
    pairs = [(params, packed), (to_params, packed_upstream), (to_canonical, upstream)]
    for left, right in session.run(pairs):
        np.testing.assert_equal(left, right)
    for tensor, gradient in zip(canonical, session.run(to_canonical)):
        assert gradient.dtype == dtype and list(gradient.shape) == tensor.shape.as_list()
    parts = [part.ravel() for part in session.run(canonical)]
    np.testing.assert_array_equal(np.concatenate(parts), session.run(params))


def test_gradient_keeps_the_shapes_of_reshaped_canonical_tensors(session):
    model = make_model("gru")
    weights, biases = model.params_to_canonical(tf.zeros([model.params_size()]))
    weights = [tf.zeros([25]), tf.zeros([25, 1])] + weights[2:]
    packed = model.canonical_to_params(weights, biases)
    upstream = make_params(session, model)
    gradients = session.run(tf.gradients(packed, weights[:3], upstream))
    assert [gradient.shape for gradient in gradients] == [(25,), (25, 1), (5, 5)]
    flat = np.concatenate([gradient.ravel() for gradient in gradients])
    np.testing.assert_array_equal(flat, opaque_values(75 + 1)[:75])


def test_gradients_missing_upstream_count_as_zero(session):
    model = make_model("rnn_tanh")
    params = tf.ones([model.params_size()])
    weights, biases = model.params_to_canonical(params)
    upstream = [None] * len(weights + biases)
    upstream[1] = tf.ones([5, 5])
    gradients = nodes._params_to_canonical_gradient(weights[0].op, *upstream)
    assert gradients[:3] == [None, None, None]
    expected = np.zeros(params.shape[0])
    expected[25:50] = 1
    np.testing.assert_array_equal(session.run(gradients[3]), expected)


def test_conversions_can_be_differentiated_twice(session):
    model = make_model("gru")
    params = make_params(session, model)
    weights, _ = model.params_to_canonical(params)
    first = tf.gradients(tf.reduce_sum(weights[0] ** 3), params)[0]
    second = tf.gradients(first, params)[0]
    expected = np.zeros(params.shape[0])
    expected[:25] = 6 * session.run(params)[:25]
    np.testing.assert_allclose(session.run(second), expected, rtol=1e-6)


def test_a_registered_gradient_is_kept():
    def other_gradient(op, *gradients):
        raise AssertionError("not this one")

    assert register_gradient("CudnnRNNParamsToCanonical")(other_gradient) is other_gradient
    with tf.Graph().as_default():
        model = make_model("gru")
        params = tf.ones([model.params_size()])
        assert tf.gradients(model.params_to_canonical(params)[0][0], params)[0] is not None


def test_raw_ops_run_on_a_cpu(session):
    """Graphs that call TensorFlow's raw ops run as well as those built by the classes."""
    size = gen_cudnn_rnn_ops.cudnn_rnn_params_size(
        num_layers=1, num_units=4, input_size=3, T=tf.float32, S=tf.int64, rnn_mode="gru"
    )
    value = session.run(size)
    assert value.dtype == np.int64 and value.tolist() == [108]


V1_PROGRAM = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
import cudnn_rnn
model = cudnn_rnn.CudnnLSTM(2, 4, 3, dropout=0.5)
params = tf.Variable(tf.random_uniform([model.params_size()], -0.5, 0.5))
assert "Resource" not in type(params).__name__, type(params)
assert params.shape.as_list() == [304], params.shape
is_training = tf.placeholder(tf.bool, [])
state = tf.zeros([2, 5, 4])
output, _, _ = model(tf.ones([6, 5, 3]), state, state, params, is_training)
train = tf.train.AdamOptimizer().minimize(tf.reduce_sum(output ** 2))
saveable = cudnn_rnn.RNNParamsSaveable(
    model, model.params_to_canonical, model.canonical_to_params, [params], "rnn")
tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
saver = tf.train.Saver()
import sys
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(train, {is_training: True})
    session.run(train, {is_training: False})
    path = saver.save(session, sys.argv[1])
    before = session.run(params)
    session.run(tf.assign(params, tf.zeros([304])))
    saver.restore(session, path)
    assert (session.run(params) == before).all()
print("done")
"""


@pytest.mark.sampled(4)
@pytest.mark.ci
def test_whole_program_without_v2_behavior(tmp_path):
    assert output_of("-c", V1_PROGRAM, tmp_path / "model").endswith("done\n")
