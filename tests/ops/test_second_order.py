"""Second-order gradients (tensorflow#37091) equal differences of first-order ones, in float64."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops
from helpers.cases import COLUMNS
from helpers.op_harness import numeric_gradient

LAYERS, UNITS, WIDTH, BATCH, STEPS = 2, 2, 3, 2, 3
LARGEST_ERROR = 5e-6
FUNCTIONS = {
    "lstm": cudnn_rnn_ops.cudnn_lstm,
    "gru": cudnn_rnn_ops.cudnn_gru,
    "rnn_relu": cudnn_rnn_ops.cudnn_rnn_relu,
    "rnn_tanh": cudnn_rnn_ops.cudnn_rnn_tanh,
}


class Penalty:
    """A weighted sum of all first-order gradients of a model, as a function of all its inputs."""

    def __init__(self, rnn_mode, dtype=tf.float64, **named):
        """Accepts the arguments of the mode's function, and input_size and steps."""
        self._rnn_mode, self._dtype = rnn_mode, dtype
        input_size, steps = named.pop("input_size", WIDTH), named.pop("steps", STEPS)
        self._named = named
        num_proj = named.get("num_proj") or 0
        directions = 2 if named.get("direction") == "bidirectional" else 1
        state = [LAYERS * directions, BATCH, num_proj or UNITS]
        shapes = {"input": [steps, BATCH, input_size], "input_h": state}
        results = {"output": [steps, BATCH, directions * state[2]], "output_h": state}
        if rnn_mode == "lstm":
            shapes["input_c"] = results["output_c"] = [state[0], BATCH, UNITS]
        if not named.get("time_major", True):
            for tensors in (shapes, results):
                tensors.update((k, [s[1], s[0], s[2]]) for k, s in list(tensors.items()))
        size = cudnn_rnn_ops.cudnn_rnn_opaque_params_size(
            rnn_mode,
            LAYERS,
            UNITS,
            input_size,
            named.get("input_mode", "linear_input"),
            named.get("direction", "unidirectional"),
            num_proj=num_proj,
        )
        shapes["params"] = [int(tf.get_static_value(size))]
        random = np.random.RandomState(7)
        values = list(shapes.items()) + [("d_" + name, shape) for name, shape in results.items()]
        self.arrays = {name: random.uniform(-1, 1, shape) for name, shape in values}
        self._inputs = list(shapes)
        self._weights = [tf.constant(random.uniform(-1, 1, s), dtype) for s in shapes.values()]

    def run_model(self, tensors):
        """Returns the list of outputs for a dict of the inputs by name."""
        arguments = [tensors[name] for name in self._inputs[:-1]]
        results = FUNCTIONS[self._rnn_mode](
            *arguments, params=tensors["params"], is_training=True, **self._named
        )
        return list(results)

    def in_a_graph(self):
        """Returns (placeholders by name, the sum, its gradients by name)."""
        fed = {
            name: tf.placeholder(self._dtype, array.shape) for name, array in self.arrays.items()
        }
        gradients_in = [fed[name] for name in fed if name.startswith("d_")]
        inputs = [fed[name] for name in self._inputs]
        first = tf.gradients(self.run_model(fed), inputs, gradients_in)
        total = self.weighed(first)
        gradients = tf.gradients(total, list(fed.values()))
        gradients = [
            tf.zeros_like(tensor) if gradient is None else gradient
            for gradient, tensor in zip(gradients, fed.values())
        ]
        return fed, total, dict(zip(fed, gradients))

    def weighed(self, first):
        parts = zip(first, self._weights)
        return tf.add_n([tf.reduce_sum(gradient * weight) for gradient, weight in parts])


def check_by_differences(penalty):
    fed, total, gradients = penalty.in_a_graph()
    with tf.Session() as session:

        def feeds():
            return {fed[name]: array for name, array in penalty.arrays.items()}

        found = session.run(gradients, feeds())
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
@pytest.mark.parametrize("direction", COLUMNS["direction"])
@pytest.mark.parametrize("rnn_mode", sorted(FUNCTIONS))
def test_every_mode_and_direction(rnn_mode, direction):
    found = check_by_differences(Penalty(rnn_mode, direction=direction))
    assert np.abs(found["params"]).max() > 0.1


@pytest.mark.parametrize("rnn_mode", sorted(FUNCTIONS))
def test_skip_input(rnn_mode):
    check_by_differences(Penalty(rnn_mode, input_mode="skip_input", input_size=UNITS))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rnn_mode, num_proj", [("lstm", 1), ("gru", None)])
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
    fed, _, gradients = penalty.in_a_graph()
    with tf.Session() as session:
        feeds = {fed[name]: array for name, array in penalty.arrays.items()}
        found = session.run(gradients, feeds)
    assert not found["params"].any() and not found["input_h"].any()
    np.testing.assert_array_equal(found["d_output_h"], session_value(penalty, "input_h"))


def session_value(penalty, name):
    """Returns the weight of the named input's gradient in the sum."""
    with tf.Session() as session:
        return session.run(penalty._weights[penalty._inputs.index(name)])


def test_values_of_the_padding_do_not_matter():
    penalty = Penalty("gru", sequence_lengths=[3, 1])
    fed, _, gradients = penalty.in_a_graph()
    with tf.Session() as session:
        results = []
        for padding in (0.0, np.nan):
            penalty.arrays["input"][1:, 1] = padding
            feeds = {fed[name]: array for name, array in penalty.arrays.items()}
            results.append(session.run(gradients, feeds))
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])


@pytest.mark.parametrize("dtype, tolerance", [(tf.float32, 1e-4), (tf.float16, 2e-2)])
def test_other_dtypes(dtype, tolerance):
    results = []
    for either in (tf.float64, dtype):
        penalty = Penalty("lstm", either)
        fed, _, gradients = penalty.in_a_graph()
        with tf.Session() as session:
            feeds = {fed[name]: array for name, array in penalty.arrays.items()}
            results.append(session.run(gradients, feeds))
    for name, expected in results[0].items():
        found = results[1][name]
        assert found.dtype == dtype.as_numpy_dtype
        assert np.abs(found - expected).max() < tolerance * np.abs(expected).max(), name


@pytest.mark.parametrize("rnn_mode", sorted(FUNCTIONS))
def test_eager_tapes(rnn_mode):
    """Nested tapes give the same gradients as nested `tf.gradients`."""
    penalty = Penalty(rnn_mode, direction="bidirectional")
    fed, _, gradients = penalty.in_a_graph()
    with tf.Session() as session:
        feeds = {fed[name]: array for name, array in penalty.arrays.items()}
        expected = session.run(gradients, feeds)
    with context.eager_mode():
        penalty = Penalty(rnn_mode, direction="bidirectional")
        tensors = {name: tf.constant(array) for name, array in penalty.arrays.items()}
        with tf.GradientTape() as outer:
            outer.watch(list(tensors.values()))
            with tf.GradientTape() as inner:
                inputs = [tensors[name] for name in penalty._inputs]
                inner.watch(inputs)
                results = penalty.run_model(tensors)
            weights = [tensors[name] for name in tensors if name.startswith("d_")]
            first = inner.gradient(results, inputs, output_gradients=weights)
            total = penalty.weighed(first)
        found = outer.gradient(total, tensors, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("version", ["cudnn_rnn", "cudnn_rnnv2", "cudnn_rnnv3"])
def test_every_version_of_the_op(version):
    penalty = Penalty("gru")
    tensors = {name: tf.constant(array) for name, array in penalty.arrays.items()}
    named = {"sequence_lengths": [STEPS] * BATCH} if version == "cudnn_rnnv3" else {}
    output = getattr(gen_cudnn_rnn_ops, version)(
        input=tensors["input"],
        input_h=tensors["input_h"],
        input_c=tf.constant([], tf.float64),
        params=tensors["params"],
        rnn_mode="gru",
        **named,
    )[0]
    first = tf.gradients(output, tensors["input"])[0]
    found = tf.gradients(tf.reduce_sum(tf.square(first)), tensors["params"])[0]
    expected_output = penalty.run_model(tensors)[0]
    first = tf.gradients(expected_output, tensors["input"])[0]
    expected = tf.gradients(tf.reduce_sum(tf.square(first)), tensors["params"])[0]
    with tf.Session() as session:
        np.testing.assert_allclose(*session.run([found, expected]), rtol=1e-12, atol=1e-14)


def test_third_order():
    """Second-order gradients consist of TensorFlow's own ops, so higher orders work too."""
    model = cudnn_rnn.CudnnRNNTanh(1, 1, 1, dtype=tf.float64)
    x = tf.placeholder(tf.float64, [1, 1, 1])
    # One unit with weights W = 1 and R = 0 and without biases computes tanh.
    output, _ = model(x, np.zeros([1, 1, 1]), tf.constant([1.0, 0.0, 0.0, 0.0], tf.float64))
    derivatives = [output]
    for _ in range(3):
        derivatives.append(tf.gradients(derivatives[-1], x)[0])
    with tf.Session() as session:
        found = np.ravel(session.run(derivatives, {x: [[[0.3]]]}))
    t = np.tanh(0.3)
    first = 1 - t**2
    expected = [t, first, -2 * t * first, -2 * first**2 + 4 * t**2 * first]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_training_with_a_gradient_penalty():
    """Trains a critic whose gradient in its input should have the norm 1."""
    with tf.Session() as session:
        inputs = tf.constant(np.random.RandomState(1).randn(STEPS, BATCH, WIDTH), tf.float32)
        layer = cudnn_rnn.layers.CudnnLSTM(LAYERS, UNITS, direction="bidirectional")
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


def gradient_of_gradient(model, inputs, states):
    params = 0.1 * tf.ones([model.params_size()])
    output = model(inputs, *(states + [params]))[0]
    first = tf.gradients(output, inputs)[0]
    return tf.gradients(first, inputs)


def test_dropout_is_refused():
    """The gradient op does not tell which elements were dropped."""
    model = cudnn_rnn.CudnnGRU(LAYERS, UNITS, WIDTH, dropout=0.25)
    inputs = tf.ones([STEPS, BATCH, WIDTH])
    states = [tf.ones([LAYERS, BATCH, UNITS])]
    message = "dropout is 0.25; expected 0, .*without dropout.*stop_gradient"
    with pytest.raises(LookupError, match=message):
        gradient_of_gradient(model, inputs, states)


@pytest.mark.parametrize(
    "shape, what",
    [([None, BATCH, WIDTH], "the number of time steps"), (None, "the number of time steps")],
)
def test_unknown_sizes_are_refused(shape, what):
    model = cudnn_rnn.CudnnGRU(LAYERS, UNITS, WIDTH)
    inputs = tf.placeholder(tf.float32, shape)
    states = [tf.ones([LAYERS, BATCH, UNITS])]
    with pytest.raises(LookupError, match="%s must be known when the graph is built" % what):
        gradient_of_gradient(model, inputs, states)


def test_an_unknown_batch_size_is_accepted():
    model = cudnn_rnn.CudnnGRU(LAYERS, UNITS, WIDTH)
    inputs = tf.placeholder(tf.float32, [STEPS, None, WIDTH])
    states = [tf.zeros([LAYERS, BATCH, UNITS])]
    (second,) = gradient_of_gradient(model, inputs, states)
    with tf.Session() as session:
        assert session.run(second, {inputs: np.ones([STEPS, BATCH, WIDTH])}).any()
