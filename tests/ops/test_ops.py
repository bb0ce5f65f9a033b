"""The parameter ops through the Python API: they only permute elements, and so do gradients."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn._compat import gen_cudnn_rnn_ops, register_gradient
from cudnn_rnn._core import nodes
from helpers.processes import SECONDS_FOR_A_PROCESS
from helpers.rnn_models import CLASSES, DIRECTIONS, initialize, opaque_values

CASES = [
    (rnn_mode, direction, input_mode, dtype)
    for rnn_mode in sorted(CLASSES)
    for direction in DIRECTIONS
    for input_mode in ("linear_input", "skip_input", "auto_select")
    for dtype in (tf.float16, tf.float32, tf.float64)
]


def make_model(rnn_mode, direction, input_mode, dtype=tf.float32):
    return CLASSES[rnn_mode](2, 5, 5, input_mode, direction, dtype=dtype)


def distinct_like(tensors):
    """Returns constants shaped like `tensors`, in which all elements are distinct."""
    start, values = 1, []
    for tensor in tensors:
        shape = tensor.shape.as_list()
        count = int(np.prod(shape))
        values.append((np.arange(start, start + count).reshape(shape) / 1024.0).astype(np.float64))
        start += count
    return [tf.constant(value, tensor.dtype) for value, tensor in zip(values, tensors)]


@pytest.mark.parametrize("rnn_mode, direction, input_mode, dtype", CASES)
def test_round_trip_and_both_gradients(session, rnn_mode, direction, input_mode, dtype):
    """The conversions only permute, so each one is the gradient of the other."""
    model = make_model(rnn_mode, direction, input_mode, dtype)
    size = session.run(model.params_size())
    params = tf.constant(opaque_values(size, dtype.as_numpy_dtype))
    weights, biases = model.params_to_canonical(params)
    canonical = weights + biases
    # Upstream gradients for the canonical tensors; packed, they are the buffer's.
    upstream = distinct_like(canonical)
    to_params = tf.gradients(canonical, params, upstream)[0]
    packed_upstream = model.canonical_to_params(upstream[: len(weights)], upstream[len(weights) :])
    fresh = [tf.identity(tensor) for tensor in canonical]
    packed = model.canonical_to_params(fresh[: len(weights)], fresh[len(weights) :])
    to_canonical = tf.gradients(packed, fresh, packed_upstream)
    assert to_params.shape.as_list() == [size]
    fetched = session.run(
        [params, packed, to_params, packed_upstream, to_canonical, upstream, canonical]
    )
    np.testing.assert_array_equal(fetched[0], fetched[1])
    np.testing.assert_array_equal(fetched[2], fetched[3])
    for left, right in zip(fetched[4], fetched[5]):
        assert left.dtype == dtype.as_numpy_dtype and left.shape == right.shape
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in fetched[6]]), fetched[0])


@pytest.mark.parametrize("rnn_mode", sorted(CLASSES))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_canonical_tensors_lie_at_their_places_in_the_buffer(session, rnn_mode, direction):
    """The gradient of the first recurrent matrix is 1 at its place in the buffer, else 0."""
    model = make_model(rnn_mode, direction, "linear_input")
    num_gates = type(model)._NUM_PARAMS_PER_LAYER // 2
    size = session.run(model.params_size())
    params = tf.constant(opaque_values(size))
    weights, _ = model.params_to_canonical(params)
    gradient = session.run(tf.gradients(weights[num_gates], params)[0])
    expected = np.zeros(size)
    expected[num_gates * 25 : num_gates * 25 + 25] = 1
    np.testing.assert_array_equal(gradient, expected)


def test_regularizing_matrices_only(session):
    """Canonical tensors are differentiable: weight decay can exclude the biases."""
    model = make_model("lstm", "bidirectional", "linear_input")
    params = tf.Variable(tf.ones([model.params_size()]))
    weights, biases = model.params_to_canonical(params)
    loss = tf.add_n([tf.nn.l2_loss(weight) for weight in weights])
    gradient = tf.gradients(loss, params)[0]
    initialize(session)
    num_biases = sum(bias.shape.num_elements() for bias in biases)
    gradient = session.run(gradient)
    np.testing.assert_array_equal(gradient[:-num_biases], 1)
    np.testing.assert_array_equal(gradient[-num_biases:], 0)


def test_gradient_keeps_the_shapes_of_reshaped_canonical_tensors(session):
    model = make_model("gru", "unidirectional", "linear_input")
    weights, biases = model.params_to_canonical(tf.zeros([model.params_size()]))
    weights = [tf.zeros([25]), tf.zeros([25, 1])] + weights[2:]
    packed = model.canonical_to_params(weights, biases)
    upstream = tf.constant(opaque_values(session.run(model.params_size())))
    gradients = session.run(tf.gradients(packed, weights[:3], upstream))
    assert [gradient.shape for gradient in gradients] == [(25,), (25, 1), (5, 5)]
    flat = np.concatenate([gradient.ravel() for gradient in gradients])
    np.testing.assert_array_equal(flat, opaque_values(75 + 1)[:75])


def test_gradients_missing_upstream_count_as_zero(session):
    model = make_model("rnn_tanh", "unidirectional", "linear_input")
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
    model = make_model("gru", "unidirectional", "linear_input")
    params = tf.constant(opaque_values(session.run(model.params_size())))
    weights, _ = model.params_to_canonical(params)
    first = tf.gradients(tf.reduce_sum(weights[0] ** 3), params)[0]
    second = tf.gradients(first, params)[0]
    expected = np.zeros(params.shape[0])
    expected[:25] = 6 * session.run(params)[:25]
    np.testing.assert_allclose(session.run(second), expected, rtol=1e-6)


@pytest.mark.parametrize("rnn_mode", sorted(CLASSES))
def test_gradient_of_one_result_alone(session, rnn_mode):
    """A result that the loss does not use counts as having a zero gradient."""
    model = CLASSES[rnn_mode](2, 3, 4, dtype=tf.float64)
    state = tf.ones([2, 2, 3], tf.float64)
    states = (state, state) if rnn_mode == "lstm" else (state,)
    params = tf.constant(opaque_values(session.run(model.params_size()), np.float64))
    results = model(tf.ones([5, 2, 4], tf.float64), *(states + (params,)))
    together = tf.gradients(results, params)[0]
    alone = [tf.gradients(result, params)[0] for result in results]
    together, alone = session.run([together, alone])
    np.testing.assert_allclose(sum(alone), together, rtol=1e-12)


def test_a_registered_gradient_is_kept():
    def other_gradient(op, *gradients):
        raise AssertionError("not this one")

    assert register_gradient("CudnnRNNParamsToCanonical")(other_gradient) is other_gradient
    with tf.Graph().as_default():
        model = make_model("gru", "unidirectional", "linear_input")
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


def test_whole_program_without_v2_behavior(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", V1_PROGRAM, str(tmp_path / "model")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert result.returncode == 0 and result.stdout.endswith("done\n"), result.stderr
