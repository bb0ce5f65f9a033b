"""Second-order gradients (tensorflow#37091) equal differences of first-order ones, in float64."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from helpers import reference
from helpers.networks import every_direction, every_mode, seeded_arrays
from helpers.op_harness import assert_same_bits, numeric_gradient, swap_major
from helpers.rnn_models import FUNCTIONS

LAYERS, UNITS, WIDTH, BATCH, STEPS = 2, 2, 3, 2, 3
LARGEST_ERROR = 5e-6


def open_session():
    """Returns a session that does not optimize its graph, which takes longer than running it."""
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.Session(config=config)


class Penalty:
    """A weighted sum of all first-order gradients of a model, as a function of all its inputs."""

    def __init__(self, rnn_mode, dtype=tf.float64, steps=STEPS, input_size=WIDTH, **named):
        """Accepts the arguments of the mode's function in `named`."""
        self._rnn_mode, self._dtype, self._named = rnn_mode, dtype, named
        configuration = reference.Configuration(
            rnn_mode,
            named.get("input_mode", "linear_input"),
            named.get("direction", "unidirectional"),
            LAYERS,
            UNITS,
            input_size,
            named.get("num_proj", 0),
        )
        self.arrays = seeded_arrays(configuration, BATCH, steps)
        if not named.get("time_major", True):
            self.arrays = swap_major(self.arrays)
        random = np.random.RandomState(7)
        self.weights = {
            name: tf.constant(random.uniform(-1, 1, self.arrays[name].shape), dtype)
            for name in reference.INPUTS
            if name in self.arrays
        }

    def run_model(self, tensors):
        """Returns the list of outputs for a dict of the inputs by name."""
        inputs, _ = self.split(tensors)
        return list(FUNCTIONS[self._rnn_mode](*inputs, is_training=True, **self._named))

    def in_a_graph(self):
        """Returns (placeholders by name, the sum, its gradients by name)."""
        fed = {
            name: tf.placeholder(self._dtype, array.shape) for name, array in self.arrays.items()
        }
        inputs, gradients_in = self.split(fed)
        total = self.weighed(tf.gradients(self.run_model(fed), inputs, gradients_in))
        gradients = tf.gradients(
            total, list(fed.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return fed, total, dict(zip(fed, gradients))

    def split(self, tensors):
        """Returns the lists of inputs and of gradients of the outputs."""
        inputs = [tensors[name] for name in self.weights]
        return inputs, [tensors[name] for name in tensors if name.endswith("_backprop")]

    def weighed(self, first):
        parts = zip(first, self.weights.values())
        return tf.add_n([tf.reduce_sum(gradient * weight) for gradient, weight in parts])

    def gradients(self, *changes):
        """Returns the gradients of the sum in a graph, for each dict of changed arrays."""
        fed, _, gradients = self.in_a_graph()
        with open_session() as session:
            for changed in changes or ({},):
                arrays = dict(self.arrays, **changed)
                yield session.run(gradients, {fed[name]: arrays[name] for name in fed})


def check_by_differences(penalty):
    fed, total, gradients = penalty.in_a_graph()
    with open_session() as session:
        found = session.run(gradients, {fed[name]: penalty.arrays[name] for name in fed})
        run = session.make_callable(total, list(fed.values()))
        for name, array in penalty.arrays.items():
            expected = numeric_gradient(lambda: run(*penalty.arrays.values()), array)
            assert np.abs(found[name] - expected).max() < LARGEST_ERROR, name
    return found


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


@pytest.mark.sampled(3)
@every_direction
@every_mode
def test_every_mode_and_direction(rnn_mode, direction):
    found = check_by_differences(Penalty(rnn_mode, direction=direction))
    assert np.abs(found["params"]).max() > 0.1


@pytest.mark.sampled(4)
@every_mode
def test_skip_input(rnn_mode):
    check_by_differences(Penalty(rnn_mode, input_mode="skip_input", input_size=UNITS))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rnn_mode, num_proj", [("lstm", 1), ("gru", 0)])
@pytest.mark.parametrize("lengths", [[3, 1], [0, 2]])
def test_lengths_batch_major_and_projections(rnn_mode, num_proj, lengths):
    named = dict(num_proj=num_proj) if num_proj else {}
    penalty = Penalty(
        rnn_mode, direction="bidirectional", sequence_lengths=lengths, time_major=False, **named
    )
    found = check_by_differences(penalty)
    for row, length in enumerate(lengths):
        assert not found["input"][row, length:].any()


@pytest.mark.parametrize("lengths", [None, [0, 0]])
def test_no_steps(lengths):
    penalty = Penalty("lstm", steps=0, sequence_lengths=lengths)
    (found,) = penalty.gradients()
    assert not found["params"].any() and not found["input_h"].any()
    with open_session() as session:
        weight = session.run(penalty.weights["input_h"])
    np.testing.assert_array_equal(found["output_h_backprop"], weight)


def test_values_of_the_padding_do_not_matter():
    penalty = Penalty("gru", sequence_lengths=[3, 1])
    with_zeros, with_nans = (dict(input=penalty.arrays["input"].copy()) for _ in range(2))
    with_zeros["input"][1:, 1], with_nans["input"][1:, 1] = 0, np.nan
    assert_same_bits(*penalty.gradients(with_zeros, with_nans))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype, tolerance", [(tf.float32, 1e-4), (tf.float16, 2e-2)])
def test_other_dtypes(dtype, tolerance):
    (wanted,), (found,) = (Penalty("lstm", either).gradients() for either in (tf.float64, dtype))
    for name, expected in wanted.items():
        assert found[name].dtype == dtype.as_numpy_dtype
        assert np.abs(found[name] - expected).max() < tolerance * np.abs(expected).max(), name


@pytest.mark.sampled(4)
@pytest.mark.once
def test_half_is_computed_in_float():
    """The error is that of rounded inputs and results, however many steps there are."""
    penalties = [Penalty("gru", dtype, steps=20) for dtype in (tf.float64, tf.float16)]
    for penalty in penalties:
        for name, array in penalty.arrays.items():
            penalty.arrays[name] = array.astype(np.float16).astype(np.float64)
    (wanted,), (found,) = (penalty.gradients() for penalty in penalties)
    for name, expected in wanted.items():
        difference = np.abs(found[name] - expected).max() / np.abs(expected).max()
        assert difference < 1e-3, name


@pytest.mark.sampled(4)
@every_mode
def test_eager_tapes(rnn_mode):
    """Nested tapes give the same gradients as nested `tf.gradients`."""
    (expected,) = Penalty(rnn_mode, direction="bidirectional").gradients()
    with context.eager_mode():
        penalty = Penalty(rnn_mode, direction="bidirectional")
        tensors = {name: tf.constant(array) for name, array in penalty.arrays.items()}
        inputs, gradients_in = penalty.split(tensors)
        with tf.GradientTape() as outer:
            outer.watch(list(tensors.values()))
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                results = penalty.run_model(tensors)
            first = inner.gradient(results, inputs, output_gradients=gradients_in)
            total = penalty.weighed(first)
        found = outer.gradient(total, tensors, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-10, atol=1e-12)


@pytest.mark.sampled(4)
def test_every_version_of_the_op():
    penalty = Penalty("gru")
    tensors = {name: tf.constant(array) for name, array in penalty.arrays.items()}
    arguments = dict({name: tensors[name] for name in penalty.weights}, rnn_mode="gru")
    arguments["input_c"] = tf.constant([], tf.float64)
    lengths = {"sequence_lengths": [STEPS] * BATCH}
    outputs = [
        gen_cudnn_rnn_ops.cudnn_rnn(**arguments)[0],
        gen_cudnn_rnn_ops.cudnn_rnnv2(**arguments)[0],
        gen_cudnn_rnn_ops.cudnn_rnnv3(**dict(arguments, **lengths))[0],
    ]
    second = []
    for output in outputs:
        first = tf.gradients(output, tensors["input"])[0]
        second.append(tf.gradients(tf.reduce_sum(tf.square(first)), tensors["params"])[0])
    with open_session() as session:
        expected, *found = session.run(second)
    for gradient in found:
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-14)


def test_third_order():
    """Second-order gradients consist of TensorFlow's own ops, so higher orders work too."""
    model = cudnn_rnn.CudnnRNNTanh(1, 1, 1, dtype=tf.float64)
    x = tf.placeholder(tf.float64, [1, 1, 1])
    # One unit with weights W = 1 and R = 0 and without biases computes tanh.
    output, _ = model(x, np.zeros([1, 1, 1]), tf.constant([1.0, 0.0, 0.0, 0.0], tf.float64))
    derivatives = [output]
    for _ in range(3):
        derivatives.append(tf.gradients(derivatives[-1], x)[0])
    with open_session() as session:
        found = np.ravel(session.run(derivatives, {x: [[[0.3]]]}))
    t = np.tanh(0.3)
    first = 1 - t**2
    expected = [t, first, -2 * t * first, -2 * first**2 + 4 * t**2 * first]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_training_with_a_gradient_penalty():
    """Trains a critic whose gradient in its input should have the norm 1."""
    with open_session() as session:
        inputs = tf.constant(np.random.RandomState(1).randn(STEPS, BATCH, WIDTH), tf.float32)
        layer = cudnn_rnn.layers.CudnnLSTM(LAYERS, UNITS)
        outputs, _ = layer(inputs)
        gradient = tf.gradients(outputs, inputs)[0]
        norms = tf.sqrt(tf.reduce_sum(tf.square(gradient), [0, 2]))
        penalty = tf.reduce_mean(tf.square(norms - 1.0))
        train = tf.train.AdamOptimizer(0.02).minimize(penalty)
        session.run(tf.global_variables_initializer())
        first = session.run(penalty)
        for _ in range(60):
            session.run(train)
        assert session.run(penalty) < 0.1 * first


# --- What is refused ---


def gradient_of_gradient(inputs, num_layers=LAYERS, **options):
    model = cudnn_rnn.CudnnGRU(num_layers, UNITS, WIDTH, **options)
    params = 0.1 * tf.ones([model.params_size()])
    output = model(inputs, tf.ones([num_layers, BATCH, UNITS]), params)[0]
    return tf.gradients(tf.gradients(output, inputs)[0], inputs)


def test_dropout_is_refused():
    """The gradient op does not tell which elements were dropped."""
    message = "dropout is 0.25; expected 0, .*without dropout.*stop_gradient"
    with pytest.raises(LookupError, match=message):
        gradient_of_gradient(tf.ones([STEPS, BATCH, WIDTH]), dropout=0.25)


def test_dropout_of_one_layer_is_accepted():
    """Dropout is between layers, so one layer drops nothing."""
    inputs = tf.ones([STEPS, BATCH, WIDTH])
    second = [gradient_of_gradient(inputs, 1, dropout=dropout)[0] for dropout in (0.5, 0.0)]
    with open_session() as session:
        found, expected = session.run(second)
    assert found.any()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [[None, BATCH, WIDTH], None])
def test_unknown_sizes_are_refused(shape):
    message = "the number of time steps must be known when the graph is built"
    with pytest.raises(LookupError, match=message):
        gradient_of_gradient(tf.placeholder(tf.float32, shape))


def test_an_unknown_batch_size_is_accepted():
    inputs = tf.placeholder(tf.float32, [STEPS, None, WIDTH])
    (second,) = gradient_of_gradient(inputs)
    with open_session() as session:
        assert session.run(second, {inputs: np.ones([STEPS, BATCH, WIDTH])}).any()
