"""Parameters of other shapes, or longer than needed: the kernels use the front of the buffer.

cuDNN requires only that the buffer is large enough. Graphs that run one layer on inputs of several
widths rely on this, and TensorFlow's kernels never look at the rank of the buffer.
tests/api/test_params_shapes.py has the rules of the Python interface.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from cudnn_rnn import layers
from helpers import reference
from helpers.networks import every_mode, model, run_network, seeded_arrays
from helpers.op_harness import Network, assert_same_bits
from helpers.sequence_cases import LSTM, PROJECTED
from helpers.versions import needs_tensorflow_1

pytestmark = pytest.mark.once

BATCH, STEPS, SPARE = 3, 4, 7


def arrays_of(configuration, version, dtype="float64", batch=BATCH, steps=STEPS):
    arrays = seeded_arrays(configuration, batch, steps, dtype)
    if version == 3:
        arrays["sequence_lengths"] = np.arange(1, batch + 1, dtype=np.int32)
    return arrays


def with_spare(arrays):
    """Returns `arrays` with NaNs appended to the params, which would be visible in any result."""
    spare = np.full(SPARE, np.nan, arrays["params"].dtype)
    return dict(arrays, params=np.concatenate([arrays["params"], spare]))


def assert_ignores_the_spare(found, expected):
    """Asserts equal results and a zero gradient for the unused elements."""
    gradient = found["d_params"]
    size = expected["d_params"].size
    assert gradient.shape == (size + SPARE,)
    assert not gradient[size:].any()
    assert_same_bits(dict(found, d_params=gradient[:size]), expected)


@pytest.mark.parametrize("version", [1, 2, 3])
@every_mode
def test_surplus_params_are_not_read(rnn_mode, version):
    configuration = LSTM._replace(rnn_mode=rnn_mode)
    arrays = arrays_of(configuration, version)
    with Network(configuration, "float64", version=version) as network:
        expected = network.run(arrays)
        for _ in range(3):  # The gradient's memory has the values of earlier calls.
            assert_ignores_the_spare(network.run(with_spare(arrays)), expected)


@pytest.mark.parametrize(
    "configuration, version, dtype, batch, steps",
    [
        (LSTM, 3, "float32", BATCH, STEPS),
        (LSTM, 3, "float16", BATCH, STEPS),
        (PROJECTED, 3, "float32", BATCH, STEPS),
        (PROJECTED, 3, "float16", BATCH, STEPS),
        (LSTM, 1, "float64", 0, STEPS),
        (LSTM, 1, "float64", BATCH, 0),
    ],
)
def test_dtypes_projection_and_nothing_to_compute(configuration, version, dtype, batch, steps):
    arrays = arrays_of(configuration, version, dtype, batch, steps)
    with Network(configuration, dtype, version=version) as network:
        assert_ignores_the_spare(network.run(with_spare(arrays)), network.run(arrays))


@pytest.mark.parametrize("version", [1, 2, 3])
@every_mode
def test_a_matrix_is_read_in_row_major_order(rnn_mode, version):
    configuration = LSTM._replace(rnn_mode=rnn_mode)
    arrays = arrays_of(configuration, version)
    with Network(configuration, "float64", version=version) as network:
        expected = network.run(arrays)
        for shape in ((-1, 4), (1, -1), (-1, 1), (2, 1, -1)):
            found = network.run(dict(arrays, params=arrays["params"].reshape(shape)))
            gradient = found["d_params"]
            assert gradient.shape == arrays["params"].reshape(shape).shape
            assert_same_bits(dict(found, d_params=gradient.reshape(-1)), expected)


@every_mode
def test_a_longer_matrix(rnn_mode):
    configuration = LSTM._replace(rnn_mode=rnn_mode)
    arrays = arrays_of(configuration, 1)
    spare = with_spare(arrays)
    longer = dict(spare, params=spare["params"][: spare["params"].size // 4 * 4].reshape(-1, 4))
    assert arrays["params"].size < longer["params"].size
    with Network(configuration, "float64") as network:
        found, expected = network.run(longer), network.run(arrays)
    gradient, size = found["d_params"], arrays["params"].size
    assert gradient.shape == longer["params"].shape
    assert not gradient.reshape(-1)[size:].any()
    assert_same_bits(dict(found, d_params=gradient.reshape(-1)[:size]), expected)


@pytest.mark.parametrize("shape", [[-1], [-1, 4], [1, -1]])
def test_params_to_canonical_and_its_gradient(session, shape):
    configuration = reference.Configuration("gru", "linear_input", "unidirectional", 2, 5, 4)
    size = reference.params_size(configuration)
    params = np.concatenate([np.arange(size, dtype=np.float64), [np.nan] * 8])[: size // 4 * 4 + 8]
    weights, biases = reference.params_to_canonical(configuration, params[:size])
    placeholder = tf.placeholder(tf.float64)
    found = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical(
        num_layers=2, num_units=5, input_size=4, params=placeholder, num_params=12, rnn_mode="gru"
    )
    found = found.weights + found.biases
    loss = tf.add_n([tf.reduce_sum(index * part) for index, part in enumerate(found, 1)])
    (gradient,) = tf.gradients(loss, placeholder)
    fed = params.reshape(shape)
    found, gradient = session.run([found, gradient], {placeholder: fed})
    for left, right in zip(found, weights + biases):
        np.testing.assert_array_equal(left, right)
    assert gradient.shape == fed.shape
    expected = np.zeros(params.size)
    weights, biases = reference.params_to_canonical(configuration, expected[:size])
    for index, part in enumerate(weights + biases, 1):
        part[...] = index
    np.testing.assert_array_equal(gradient.reshape(-1), expected)


@needs_tensorflow_1
def test_a_graph_with_a_matrix_of_a_static_shape(session):
    """In TensorFlow 2, the ops' shape inference refuses such a node (docs/opaque_parameters.md)."""
    inputs = [tf.ones([STEPS, BATCH, 4]), tf.zeros([1, BATCH, 5]), tf.zeros([])]
    matrix = tf.constant(np.linspace(-0.5, 0.5, 55, dtype=np.float32).reshape(11, 5))
    results = []
    for params in (matrix, tf.reshape(matrix, [-1])):
        outputs = gen_cudnn_rnn_ops.cudnn_rnn(*inputs, params, rnn_mode="rnn_tanh").output
        (gradient,) = tf.gradients(tf.square(outputs), params)
        results += [outputs, tf.reshape(gradient, [-1])]
    assert tf.gradients(outputs, matrix)[0].shape.as_list() == [11, 5]
    found = session.run(results)
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])


def test_inference():
    arrays = arrays_of(LSTM, 1)
    with Network(LSTM, "float64", is_training=False) as network:
        assert_same_bits(network.run(with_spare(arrays)), network.run(arrays))


def test_a_layer_in_a_loop_over_inputs_of_several_widths(session):
    """A layer built for the widest input also runs on narrower ones whose widths are dynamic."""
    widths = [6, 4, 6, 3]
    random = np.random.RandomState(0)
    inputs = random.uniform(-1, 1, (STEPS, BATCH, 6)).astype(np.float32)
    layer = layers.CudnnGRU(1, 5)
    layer.build([None, None, 6])
    x = tf.constant(inputs)

    def step(index, total):
        narrow = x[:, :, : tf.gather(widths, index)]
        narrow.set_shape([None, None, None])
        outputs, _ = layer(narrow)
        return index + 1, total + tf.reduce_sum(outputs)

    _, total = tf.while_loop(lambda index, _: index < len(widths), step, [0, 0.0])
    gradients = tf.gradients(total, [x, layer.kernel])
    session.run(tf.global_variables_initializer())
    total, (d_inputs, d_kernel), kernel = session.run([total, gradients, layer.kernel])

    expected, expected_d_inputs, expected_d_kernel = 0, 0, np.zeros_like(kernel, np.float64)
    for width in widths:
        configuration = model("gru", num_layers=1, input_size=width)
        size = reference.params_size(configuration)
        arrays = dict(
            input=inputs[:, :, :width],
            input_h=np.zeros((1, BATCH, 5), np.float32),
            params=kernel[:size],
            output_backprop=np.ones((STEPS, BATCH, 5), np.float32),
            output_h_backprop=np.zeros((1, BATCH, 5), np.float32),
        )
        found = run_network(configuration, "float32", arrays)
        expected += found["output"].sum()
        expected_d_inputs += np.pad(found["d_input"], ((0, 0), (0, 0), (0, 6 - width)), "constant")
        expected_d_kernel[:size] += found["d_params"]
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(d_inputs, expected_d_inputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d_kernel, expected_d_kernel, rtol=1e-5, atol=1e-5)
