"""Parameters of any shape, and more of them than the RNN needs, in the Python interface.

tests/ops/test_longer_params.py has the rules of the kernels.
"""

import warnings

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops, layers
from cudnn_rnn.checkpoints import cell_saveables
from cudnn_rnn.graph.kept_weights import ATTRIBUTE
from cudnn_rnn.model import layout
from helpers.arrays import assert_equal
from helpers.rnn_models import CLASSES, FUNCTIONS, initialize

STEPS, BATCH, WIDTH, UNITS, COLUMNS = 6, 3, 4, 5, 5
SPARE = 15


def make_model(rnn_mode, **named):
    return CLASSES[rnn_mode](2, UNITS, WIDTH, **named)


def arguments_of(model):
    """Returns the arguments of a call but for params, as constants."""
    random = np.random.RandomState(1)
    states = 2 if model.rnn_mode == "lstm" else 1
    shapes = [[STEPS, BATCH, model.input_size]] + [[model.num_layers, BATCH, UNITS]] * states
    return [tf.constant(random.uniform(-1, 1, shape).astype(np.float32)) for shape in shapes]


def values_of(model, spare=0):
    """Returns params as an array; NaN where the model has none."""
    random = np.random.RandomState(2)
    values = random.uniform(-0.5, 0.5, layout.params_size(model.config)).astype(np.float32)
    return np.concatenate([values, np.full(spare, np.nan, np.float32)])


def outputs_and_gradient(call, params):
    outputs = call(params)
    (gradient,) = tf.gradients([tf.reduce_sum(tf.square(part)) for part in outputs], params)
    return list(outputs), gradient


# By name: functions of a model that return a function of params.
CALLS = {
    "class": lambda model: lambda params: model(*arguments_of(model), params),
    "class with lengths": lambda model: (
        lambda params: model(*arguments_of(model), params, sequence_lengths=[6, 2, 1])
    ),
    "function": lambda model: (
        lambda params: FUNCTIONS[model.rnn_mode](*arguments_of(model), params, is_training=True)
    ),
    "params_to_canonical": lambda model: lambda params: sum(model.params_to_canonical(params), []),
    "cudnn_rnn_opaque_params_to_canonical": lambda model: (
        lambda params: sum(
            cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(
                model.rnn_mode, model.num_layers, UNITS, WIDTH, params
            ),
            [],
        )
    ),
}


def assert_like_a_vector(session, model, call, params, shape):
    """Checks results and gradients with parameters of this shape against those with a vector."""
    outputs, gradient = outputs_and_gradient(call, params)
    results = [outputs_and_gradient(call, tf.constant(values_of(model))), (outputs, gradient)]
    initialize(session)
    expected, found = session.run(results)
    assert expected[1].any() and found[1].shape == np.zeros(expected[1].size).reshape(shape).shape
    assert_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1].reshape(-1), expected[1], rtol=1e-5, atol=1e-6)
    return gradient


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("use_resource, shape", [(False, [-1, COLUMNS]), (True, [COLUMNS, 1, -1])])
def test_a_matrix(session, rnn_mode, name, use_resource, shape):
    model = make_model(rnn_mode)
    params = tf.Variable(values_of(model).reshape(shape), use_resource=use_resource)
    gradient = assert_like_a_vector(session, model, CALLS[name](model), params, shape)
    assert gradient.shape.as_list() == params.shape.as_list()


@pytest.mark.parametrize("name", sorted(CALLS))
@pytest.mark.parametrize("static_shape", [None, [None, COLUMNS], [None, None]])
def test_a_matrix_whose_shape_a_run_decides(session, name, static_shape):
    model = make_model("gru")
    values = values_of(model).reshape([-1, COLUMNS])
    params = tf.placeholder_with_default(values, static_shape)
    assert_like_a_vector(session, model, CALLS[name](model), params, values.shape)


@pytest.mark.filterwarnings("ignore:params has")
def test_plain_ops(session):
    model = make_model("rnn_tanh")
    values = values_of(model)
    arguments = arguments_of(model)
    expected = model(*arguments, tf.constant(values))[0]
    with cudnn_rnn.plain_ops():
        found = [
            model(*arguments, params)[0]
            for params in (
                tf.constant(values.reshape([-1, COLUMNS])),
                tf.placeholder_with_default(values.reshape([-1, COLUMNS]), None),
                tf.constant(values_of(model, SPARE).reshape([-1, COLUMNS])),
            )
        ]
    for one in session.run(found):
        np.testing.assert_allclose(one, session.run(expected), rtol=1e-5, atol=1e-6)


def test_the_program_that_passes_a_matrix(session):
    model = cudnn_rnn.CudnnRNNTanh(1, 5, 4)
    params = tf.Variable(tf.ones([11, 5]))
    output, _ = model(-tf.ones([6, 3, 4]), tf.zeros([1, 3, 5]), params)
    assert tf.gradients(output, params)[0].shape.as_list() == [11, 5]
    train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(output))
    initialize(session)
    before = session.run(params)
    session.run(train)
    assert (session.run(params) != before).any()


def test_a_matrix_in_eager_mode(eager, rnn_mode):
    model = make_model(rnn_mode)
    params = tf.Variable(values_of(model).reshape([-1, COLUMNS]))
    with tf.GradientTape() as tape:
        outputs = model(*arguments_of(model), params)
        loss = tf.reduce_sum(outputs[0])
    assert tape.gradient(loss, params).shape == params.shape
    weights, biases = model.params_to_canonical(params)
    np.testing.assert_array_equal(
        model.canonical_to_params(weights, biases).numpy(), params.numpy().reshape(-1)
    )


def test_names_of_nodes_are_those_of_a_vector(session):
    model = make_model("gru")
    output, _ = model(*arguments_of(model), tf.constant(values_of(model)))
    assert output.op.name == "CudnnRNN"
    assert output.op.inputs[3].op.type == "Const"  # nothing is added
    output, _ = model(*arguments_of(model), tf.constant(values_of(model).reshape([-1, COLUMNS])))
    assert output.op.name == "CudnnRNN_1"
    matrix = tf.constant(values_of(model).reshape([-1, COLUMNS]))
    assert model.params_to_canonical(matrix)[0][0].name == "CudnnRNNParamsToCanonical:0"


def test_a_matrix_may_keep_packed_weights():
    with tf.Graph().as_default():
        model = make_model("gru")
        params = tf.Variable(values_of(model).reshape([-1, COLUMNS]), use_resource=True)
        output, _ = model(*arguments_of(model), params, is_training=False)
        assert output.op.get_attr(ATTRIBUTE)


@pytest.fixture
def caught():
    """Yields the list of warnings, of which Python shows only the first of each line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield caught


def about_params(caught):
    return [one for one in caught if str(one.message).startswith("params has")]


def assert_warned_here(caught, found, needed):
    (warning,) = about_params(caught)
    text = "params has %d elements (shape [%d]), but the RNN needs only %d (params_size)"
    assert (text % (found, found, needed)) in str(warning.message)
    assert "the last %d are ignored" % (found - needed) in str(warning.message)
    assert warning.category is UserWarning and warning.filename == __file__
    caught.clear()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_longer_params(session, caught, rnn_mode, name):
    model = make_model(rnn_mode)
    call = CALLS[name](model)
    expected = outputs_and_gradient(call, tf.constant(values_of(model)))
    assert not about_params(caught)
    longer = tf.constant(values_of(model, SPARE))
    found = outputs_and_gradient(call, longer)
    size = layout.params_size(model.config)
    assert_warned_here(caught, size + SPARE, size)
    (outputs, gradient), expected = session.run([found, expected])
    assert_equal(outputs, expected[0])
    np.testing.assert_allclose(gradient[:size], expected[1], rtol=1e-5, atol=1e-6)
    assert gradient.shape == (size + SPARE,) and not gradient[size:].any()


def test_skip_input_with_the_buffer_of_linear_input(session, caught):
    sizes = dict(num_layers=1, num_units=UNITS, input_size=UNITS)
    linear, skip = (
        cudnn_rnn.CudnnRNNTanh(input_mode=mode, **sizes) for mode in ("linear_input", "skip_input")
    )
    params = tf.Variable(tf.random_uniform([linear.params_size()], seed=1), use_resource=True)
    results = [skip(*arguments_of(skip), part) for part in (params[:35], params)]
    assert_warned_here(caught, 60, 35)
    initialize(session)
    assert_equal(*session.run(results))


def test_each_line_warns_once(caught):
    with tf.Graph().as_default():
        model = make_model("gru")
        longer = tf.constant(values_of(model, SPARE))
        for _ in range(3):
            model.params_to_canonical(longer)
        assert len(about_params(caught)) == 1
        model.params_to_canonical(longer)
        assert len(about_params(caught)) == 2
        # In an RNN whose sizes a run decides, nobody knows.
        arguments = arguments_of(model)
        arguments[0] = tf.placeholder_with_default(arguments[0], [None, None, None])
        FUNCTIONS["gru"](*arguments, longer, is_training=True)
        model.params_to_canonical(tf.placeholder(tf.float32, [None]))
        assert len(about_params(caught)) == 2


def test_longer_params_in_eager_mode_and_in_a_function(eager, caught):
    model = make_model("lstm")
    params, size = tf.Variable(values_of(model, SPARE)), layout.params_size(model.config)

    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(*arguments_of(model), params)[0])
        return tape.gradient(loss, params)

    for function in (gradient, tf.function(gradient, autograph=False)):
        found = function().numpy()
        assert found[:size].all() and not found[size:].any()
    assert_warned_here(caught, size + SPARE, size)


def test_a_layer_on_another_buffer(session, caught, rnn_mode):
    layer = getattr(layers, CLASSES[rnn_mode].__name__)(2, UNITS)
    model = make_model(rnn_mode)
    inputs, *states = arguments_of(model)
    states += [[]] * (2 - len(states))
    results = [
        layer._forward(inputs, *states, params)[0]
        for params in (
            tf.constant(values_of(model)),
            tf.constant(values_of(model).reshape([-1, COLUMNS])),
            tf.constant(values_of(model, SPARE)),
        )
    ]
    size = layout.params_size(model.config)
    assert_warned_here(caught, size + SPARE, size)
    expected, *found = session.run(results)
    for one in found:
        np.testing.assert_array_equal(one, expected)
    with pytest.raises(ValueError, match="params must have at least %d elements" % size):
        layer._forward(inputs, *states, tf.zeros([size - 1]))


def test_a_call_of_a_layer_class_warns_at_the_line_of_the_program(session, caught):
    class OnLongerParams(layers.CudnnGRU):
        def build(self, input_shape):
            super().build(input_shape)
            self.kernel = tf.concat([self.kernel, tf.zeros([SPARE])], 0)

    layer, model = OnLongerParams(2, UNITS), make_model("gru")
    outputs, _ = layer(arguments_of(model)[0])
    size = layout.params_size(model.config)
    assert_warned_here(caught, size + SPARE, size)


@pytest.mark.parametrize("shape", [[-1, 4], [-1]])
@pytest.mark.parametrize("generation", ["1.0", "1.3", "1.4"])
@pytest.mark.filterwarnings("ignore:params has")
def test_saveables(session, tmp_path, generation, shape):
    """What the model does not need is not saved, and is 0 after restoring."""
    model = cudnn_rnn.CudnnLSTM(2, UNITS, WIDTH)
    size = layout.params_size(model.config)
    values = np.random.RandomState(2).uniform(-1, 1, size).astype(np.float32)
    biases = values[-16 * UNITS :].reshape(2, 2, -1)
    biases[:] = biases[:, :1]  # 1.4 stores the sum of both
    variable = tf.Variable(np.append(values, np.ones(SPARE + 1, np.float32)).reshape(shape))
    functions = (model.params_to_canonical, model.canonical_to_params)
    if generation == "1.4":
        sizes = (2, UNITS, WIDTH)
        saveable = cell_saveables.CudnnLSTMSaveable(variable, *sizes)
    else:
        arguments = functions if generation == "1.0" else (model, *functions)
        saveable = cudnn_rnn.RNNParamsSaveable(*arguments, [variable])
    saver = tf.train.Saver([saveable])
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    variable.load(np.full(variable.shape.as_list(), 5, np.float32), session)
    saver.restore(session, path)
    expected = np.append(values, np.zeros(SPARE + 1, np.float32)).reshape(shape)
    np.testing.assert_array_equal(session.run(variable), expected)
