"""Gradients with respect to variables, of tapes and of `tf.gradients`, in graphs and eagerly."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from cudnn_rnn import layers
from cudnn_rnn.model import layout
from helpers.entry_points import ENTRY_POINTS, weighted_sum
from helpers.keras_layers import IS_KERAS_3
from helpers.rnn_models import initialize
from helpers.versions import needs_tensorflow_2

DTYPE = tf.float64


def with_tape(variables, loss):
    def compute():
        with tf.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, variables)

    return compute


def with_tf_gradients(variables, loss):
    def compute():
        value = loss()
        return value, tf.gradients(value, variables)

    return compute


def in_function(variables, loss):
    return tf.function(with_tape(variables, loss), autograph=False)


def of_function(variables, loss):
    return with_tape(variables, tf.function(loss, autograph=False))


# By name: whether in a graph, whether with resource variables, and what returns a function that
# computes the loss and its gradients.
FORMS = {
    "tape in a graph": (True, True, with_tape),
    "tf.gradients, resource variables": (True, True, with_tf_gradients),
    "tf.gradients, reference variables": (True, False, with_tf_gradients),
    "tape in a graph, of a function": (True, True, of_function),
    "tape in eager mode": (False, True, with_tape),
    "tape in a function": (False, True, in_function),
    "tape in eager mode, of a function": (False, True, of_function),
}


class Values:
    """Creates variables; reads and changes their values, in a graph or eagerly."""

    def __init__(self, session, use_resource=True):
        self._session, self._use_resource = session, use_resource
        self._random = np.random.RandomState(4)

    def variable(self, shape):
        return tf.Variable(tf.zeros(shape, DTYPE), use_resource=self._use_resource)

    def initialize(self, variables):
        """Gives the variables random values; returns them."""
        arrays = [self._random.uniform(-1, 1, one.shape.as_list()) for one in variables]
        self.assign(variables, arrays)
        return arrays

    def assign(self, variables, arrays):
        for variable, array in zip(variables, arrays):
            if self._session is None:
                variable.assign(array)
            else:
                variable.load(array, self._session)

    def read(self, tensors):
        if self._session is not None:
            return self._session.run(tensors)
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), tensors)


@pytest.fixture(params=sorted(FORMS))
def form(request):
    """Yields `Values`, and what returns a function that computes gradients."""
    in_graph, use_resource, differentiate = FORMS[request.param]
    if not in_graph:
        with context.eager_mode():
            yield Values(None), differentiate
        return
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("model", use_resource=use_resource):
            yield Values(session, use_resource), differentiate


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(ENTRY_POINTS))
def test_gradients_are_the_numeric_ones(form, name):
    values, differentiate = form
    if name.startswith("keras") and IS_KERAS_3 and not tf.executing_eagerly():
        pytest.skip("requires Keras 2")
    variables, outputs = ENTRY_POINTS[name](values.variable)
    compute = differentiate(variables, lambda: weighted_sum(outputs()))
    results = None if tf.executing_eagerly() else compute()

    def loss_and_gradients():
        return values.read(compute() if results is None else results)

    def loss_of(variable, array):
        values.assign([variable], [array])
        return loss_and_gradients()[0]

    arrays = values.initialize(variables)
    _, gradients = loss_and_gradients()
    for variable, array, gradient in zip(variables, arrays, gradients):
        assert gradient.shape == array.shape and gradient.any()
        change = 1e-6 * np.random.RandomState(5).uniform(-1, 1, array.shape)
        expected = loss_of(variable, array + change) - loss_of(variable, array - change)
        np.testing.assert_allclose(2 * (gradient * change).sum(), expected, rtol=1e-6, atol=1e-13)
        values.assign([variable], [array])


def small_model(session, use_resource=True, **options):
    """Returns a model's parameters, and functions of them: of the model and of TensorFlow's op."""
    model = cudnn_rnn.CudnnRNNTanh(1, 5, 4)
    random = np.random.RandomState(6)
    inputs = tf.constant(random.standard_normal([6, 3, 4]).astype(np.float32))
    initial = random.uniform(-0.3, 0.3, layout.params_size(model.config)).astype(np.float32)
    params = tf.Variable(initial, use_resource=use_resource, **options)
    initialize(session)

    def loss(params, inputs=inputs):
        return tf.reduce_sum(tf.square(model(inputs, tf.zeros([1, 3, 5]), params)[0]))

    def loss_of_raw_op(params):
        arguments = dict(input=inputs, input_h=tf.zeros([1, 3, 5]), input_c=tf.zeros([]))
        outputs = gen_cudnn_rnn_ops.cudnn_rnn(rnn_mode="rnn_tanh", params=params, **arguments)
        return tf.reduce_sum(tf.square(outputs.output))

    return params, loss, loss_of_raw_op


def assert_same_gradient(session, found, params, loss_of_raw_op, times=1):
    assert found is not None
    with tf.GradientTape() as tape:
        loss = loss_of_raw_op(params)
    found, expected = session.run([found, times * tape.gradient(loss, params)])
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@needs_tensorflow_2
def test_recompute_grad(session):
    params, loss, loss_of_raw_op = small_model(session)
    # Computes the loss without a tape, and again, with one, where the gradient is built.
    recomputed = tensorflow.recompute_grad(lambda inputs: loss(params, inputs))(tf.ones([6, 3, 4]))
    (gradient,) = tf.gradients(recomputed, params)
    (expected,) = tf.gradients(loss(params, tf.ones([6, 3, 4])), params)
    gradient, expected = session.run([gradient, expected])
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["GradientDescentOptimizer", "AdamOptimizer", "keras"])
@pytest.mark.parametrize("names_variables", [False, True])
def test_minimize_a_function(session, name, names_variables):
    params, loss, _ = small_model(session)
    if name == "keras":
        optimizers = tensorflow.keras.optimizers
        if IS_KERAS_3:
            pytest.skip("requires Keras 2")  # Keras 3 has no minimize, and no graphs
        optimizer = getattr(optimizers, "legacy", optimizers).SGD(0.01)
        train = optimizer.minimize(lambda: loss(params), var_list=[params])
    else:
        var_list = [params] if names_variables else None
        train = getattr(tf.train, name)(0.01).minimize(lambda: loss(params), var_list=var_list)
    initialize(session)
    losses = []
    for _ in range(3):
        losses.append(session.run(loss(params)))
        session.run(train)
    assert losses[0] > losses[1] > losses[2]


def test_a_variable_that_one_tape_reads_twice(session):
    params, loss, loss_of_raw_op = small_model(session)
    with tf.GradientTape(persistent=True) as tape:
        first = loss(params)
        total = first + loss(params)
    for value, times in ((first, 1), (total, 2)):
        assert_same_gradient(session, tape.gradient(value, params), params, loss_of_raw_op, times)


def test_tapes_within_tapes(session):
    params, loss, loss_of_raw_op = small_model(session)
    with tf.GradientTape() as outer:
        before = loss(params)
        with tf.GradientTape() as inner:
            within = loss(params)
        with outer.stop_recording():
            loss(params)
        total = before + within
    for tape, value in ((outer, total), (inner, within)):
        times = 2 if tape is outer else 1
        assert_same_gradient(session, tape.gradient(value, params), params, loss_of_raw_op, times)


@pytest.mark.parametrize("options", [{"trainable": False}, {}])
def test_a_tape_that_watches_explicitly(session, options):
    params, loss, loss_of_raw_op = small_model(session, **options)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        unwatched = loss(params)
    assert tape.gradient(unwatched, params) is None
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(params)
        watched = loss(params)
    found = tape.gradient(watched, params)
    with tf.GradientTape() as tape:
        tape.watch(params)
        expected = loss_of_raw_op(params)
    np.testing.assert_allclose(*session.run([found, tape.gradient(expected, params)]), rtol=1e-5)


def test_a_tape_lists_the_variables_that_were_read(session):
    params, loss, _ = small_model(session)
    fixed, loss_of_fixed, _ = small_model(session, trainable=False)
    with tf.GradientTape() as tape:
        loss(params), loss_of_fixed(fixed)
    assert len(tape.watched_variables()) == 1 and tape.watched_variables()[0] is params


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_fed_variable_is_read_under_a_tape(session, use_resource):
    params, loss, _ = small_model(session, use_resource)
    fed = 0.5 * session.run(params)
    with tf.GradientTape() as tape:
        value = loss(params)
    tensors = [value, tape.gradient(value, params) if use_resource else value]
    found = session.run(tensors, {params: fed})
    params.load(fed, session)
    expected = session.run(tensors)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)
    assert found[0] != session.run(value, {params: 2 * fed})


def test_a_variable_with_a_caching_device(session):
    """A model reads the copy; TensorFlow's own op has no gradient then."""
    params, loss, _ = small_model(session)
    with tf.variable_scope("cached", use_resource=True, caching_device="/cpu:0"):
        cached = tf.get_variable("params", initializer=session.run(params))
    initialize(session)
    with tf.GradientTape() as tape:
        value = loss(cached)
    found, expected = session.run([tape.gradient(value, cached), tf.gradients(value, cached)[0]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    zeros = np.zeros(params.shape.as_list(), np.float32)
    assert session.run(value, {cached: zeros}) == 0 < session.run(value)


def test_inputs_that_a_layer_casts(session):
    """Inputs and states in the variable's dtype, where the layer computes in another."""
    layer = layers.CudnnGRU(1, 4, compute_dtype=tf.float64)
    inputs = tf.Variable(tf.random_uniform([5, 2, 3], seed=1), use_resource=True)
    state = tf.Variable(tf.random_uniform([1, 2, 4], seed=2), use_resource=True)
    gradients = []
    for convert in (lambda variable: variable, tf.convert_to_tensor):
        with tf.GradientTape() as tape:
            outputs, _ = layer(convert(inputs), (convert(state),))
            loss = tf.reduce_sum(tf.square(outputs))
        gradients.append(tape.gradient(loss, [inputs, state]))
    initialize(session)
    found, expected = session.run(gradients)
    for left, right in zip(found, expected):
        assert left.dtype == np.float32 and np.abs(left).max() > 1e-3
        np.testing.assert_allclose(left, right, rtol=1e-6)
