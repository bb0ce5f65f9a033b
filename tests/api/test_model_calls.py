"""Calls of the op-level classes: arguments, static shapes, is_training, errors."""

import functools
import inspect
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.arrays import assert_equal
from helpers.rnn_models import CLASSES, FUNCTIONS, call_arguments, initialize, params_size
from helpers.versions import needs_projection

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_call(session, rnn_mode, direction, dtype):
    model = CLASSES[rnn_mode](2, 5, 3, direction=direction, dtype=dtype)
    num_directions = model.config.num_directions
    arguments = call_arguments(model, dtype=dtype)
    by_position = model(*arguments.values())
    by_keyword = model(is_training=False, **arguments)
    assert isinstance(by_position, tuple)
    assert len(by_position) == (3 if rnn_mode == "lstm" else 2)
    assert by_position[0].shape.as_list() == [4, 2, 5 * num_directions]
    assert all(state.shape.as_list() == [2 * num_directions, 2, 5] for state in by_position[1:])
    found, expected = session.run([by_position, by_keyword])
    assert {array.dtype for array in found} == {np.dtype(dtype.as_numpy_dtype)}
    assert_equal(found, expected)


def test_call_in_two_steps(session):
    model = cudnn_rnn.CudnnLSTM(1, 4, 3)
    arguments = call_arguments(model)
    params = arguments.pop("params")
    partial = functools.partial(model, params=params, is_training=False)(**arguments)
    assert_equal(*session.run([partial, model(*arguments.values(), params, False)]))


def test_input_as_a_list_of_steps(session):
    model = cudnn_rnn.CudnnGRU(1, 4, 3)
    arguments = call_arguments(model)
    expected = model(**arguments)[0]
    steps = tf.unstack(arguments["input_data"])
    mixed = [np.ones([2, 3], np.float64)] + steps[1:]
    for input_data in (steps, tuple(steps), mixed, np.ones([4, 2, 3]).tolist()):
        output = model(**dict(arguments, input_data=input_data))[0]
        assert output.shape.as_list() == [4, 2, 4]
        np.testing.assert_array_equal(*session.run([expected, output]))


def test_params_may_be_any_tensor_and_gradients_flow_through(session):
    model = cudnn_rnn.CudnnRNNTanh(1, 2, 2)
    matrices = [tf.Variable(np.eye(2, dtype=np.float32) + i) for i in range(2)]
    params = tf.concat([tf.reshape(tf.transpose(m), [-1]) for m in matrices] + [tf.zeros([4])], 0)
    output, _ = model(**dict(call_arguments(model), params=params))
    initialize(session)
    for gradient in session.run(tf.gradients(output, matrices)):
        assert gradient.shape == (2, 2) and np.abs(gradient).max() > 0


@pytest.mark.parametrize("use_resource", [False, True])
def test_the_model_reads_the_fed_value_of_a_variable(session, use_resource):
    model = cudnn_rnn.CudnnGRU(1, 4, 3)
    arguments = call_arguments(model)
    params = tf.Variable(tf.zeros([model.params_size()]), use_resource=use_resource)
    outputs = model(**dict(arguments, params=params))[0]
    expected = model(**arguments)[0]
    initialize(session)
    fed = session.run(arguments["params"])
    found = session.run(outputs, {params: fed})
    assert np.abs(found).max() > 0 and np.array_equal(found, session.run(expected))


def test_variables_are_read_after_control_dependencies(session):
    model = cudnn_rnn.CudnnGRU(1, 4, 3)
    arguments = call_arguments(model)
    params = tf.Variable(tf.zeros([model.params_size()]), use_resource=True)
    with tf.control_dependencies([params.assign(arguments["params"])]):
        after = model(**dict(arguments, params=params))[0]
    expected = model(**arguments)[0]
    initialize(session)
    for _ in range(20):
        session.run(params.initializer)
        assert np.array_equal(session.run(after), session.run(expected))


def test_numpy_values_take_the_dtype_of_the_model_or_of_the_tensors():
    model = cudnn_rnn.CudnnGRU(1, 4, 3, dtype=tf.float64)
    state, params = np.ones([1, 2, 4], np.float32), np.ones(params_size("gru", 1, 4, 3))
    assert model(np.ones([4, 2, 3]), state, params)[0].dtype == tf.float64
    model = cudnn_rnn.CudnnGRU(1, 4, 3)
    assert model(np.ones([4, 2, 3]), state, params)[0].dtype == tf.float32
    # The model's dtype is not given explicitly, so the tensors decide, as in TensorFlow 1.0 to 1.3.
    assert model(tf.ones([4, 2, 3], tf.float64), state, params)[0].dtype == tf.float64


def test_partly_unknown_shapes(session):
    model = cudnn_rnn.CudnnLSTM(1, 4, 3)
    placeholders = {
        "input_data": tf.placeholder(tf.float32, [None, None, 3]),
        "input_h": tf.placeholder(tf.float32),
        "input_c": tf.placeholder(tf.float32, [None, 2, None]),
        "params": tf.placeholder(tf.float32),
    }
    output, output_h, output_c = model(**placeholders)
    assert output.shape.as_list() == [None, 2, 4]
    assert output_h.shape.as_list() == output_c.shape.as_list() == [1, 2, 4]
    values = session.run(call_arguments(model))
    feed = {placeholders[name]: value for name, value in values.items()}
    assert session.run(output, feed).shape == (4, 2, 4)
    feed[placeholders["input_h"]] = np.ones([1, 3, 4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_h"):
        session.run(output, feed)


@pytest.mark.parametrize("num_proj, width", [(0, 4), (2, 2)])
def test_the_width_is_known_from_input_c_alone(num_proj, width):
    """The width of a projection is not that of c."""
    shapes = [None, None, 3], [None, None, None], [None, 2, 4], [None]
    tensors = [tf.placeholder(tf.float32, shape) for shape in shapes]
    output, output_h, output_c = FUNCTIONS["lstm"](*tensors, is_training=True, num_proj=num_proj)
    assert output.shape.as_list() == output_h.shape.as_list() == [None, 2, width]
    assert output_c.shape.as_list() == [None, 2, 4]


BAD_SHAPES = [
    ("input_data", [4, 3], r"input_data must have shape \[\?, \?, 3\] \(\[time, batch, input_size"),
    ("input_data", [4, 2, 7], r"input_data must .* but has shape \[4, 2, 7\]"),
    ("input_h", [1, 2, 4], r"input_h must have shape \[2, 2, 4\] .* but has shape \[1, 2, 4\]"),
    ("input_h", [2, 3, 4], r"input_h must have shape \[2, 2, 4\] .* but has shape \[2, 3, 4\]"),
    ("input_h", [2, 2, 5], r"input_h must have shape \[2, 2, 4\] .* but has shape \[2, 2, 5\]"),
    ("input_h", [4, 4], r"input_h must have shape \[2, 2, 4\]"),
    ("input_c", [2, 1, 4], r"input_c must have shape \[2, 2, 4\] .* but has shape \[2, 1, 4\]"),
    ("input_c", [], r"input_c must have shape \[2, 2, 4\] .* but has shape \[\]"),
    ("params", [303], r"params must have at least 304 elements .* has 303 \(shape \[303\]\)"),
    ("params", [101, 3], r"params must have at least 304 elements .* 303 \(shape \[101, 3\]\)"),
    ("params", [], r"params must have at least 304 elements \(params_size\), but has 1 "),
]


@pytest.mark.parametrize("name, shape, message", BAD_SHAPES)
def test_bad_shapes(name, shape, message):
    model = cudnn_rnn.CudnnLSTM(2, 4, 3)
    with pytest.raises(ValueError, match=message):
        model(**dict(call_arguments(model), **{name: tf.zeros(shape)}))


def test_states_of_different_batch_sizes_are_refused():
    model = cudnn_rnn.CudnnLSTM(2, 4, 3)
    arguments = dict(call_arguments(model), input_data=tf.placeholder(tf.float32, [None, None, 3]))
    with pytest.raises(ValueError, match=r"input_c must have shape \[2, 2, 4\] .*\[2, 3, 4\]"):
        model(**dict(arguments, input_c=tf.zeros([2, 3, 4])))


def test_bad_dtypes():
    model = cudnn_rnn.CudnnLSTM(1, 4, 3)
    arguments = call_arguments(model)
    with pytest.raises(TypeError, match="input_data is float32 and params is float64.*tf.cast"):
        model(**dict(arguments, params=tf.zeros([144], tf.float64)))
    with pytest.raises(TypeError, match="input_data must be of dtype float16, .* but is int32"):
        model(**dict(arguments, input_data=tf.zeros([4, 2, 3], tf.int32)))
    with pytest.raises(
        TypeError, match="input_h must be a tensor of numbers, but is text: 'zeros'"
    ):
        model(**dict(arguments, input_h="zeros"))
    with pytest.raises(ValueError, match="input_data must have parts of one shape"):
        model(**dict(arguments, input_data=[tf.zeros([2, 3]), tf.zeros([3, 3])]))
    with pytest.raises(TypeError, match="input_data must be of dtype float64, the dtype= of"):
        cudnn_rnn.CudnnLSTM(1, 4, 3, dtype=tf.float64)(**arguments)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNNRelu", "RNNTanh"])
def test_the_class_without_the_input_size_of_the_layer(kind):
    """Programs for TensorFlow 1.5 to 1.15 write this for `tf.contrib.cudnn_rnn.CudnnLSTM`."""
    made = getattr(cudnn_rnn, "Cudnn" + kind)
    message = "input_size is missing: .* op-level class .* cudnn_rnn.layers.Cudnn%s" % kind
    for arguments, named in (
        ((2, 8), {}),
        ((2,), {"num_units": 8}),
        ((), dict(zip(SIZES, (2, 8)))),
    ):
        with pytest.raises(TypeError, match=message):
            made(*arguments, **named)
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        made(2)
    assert list(inspect.signature(made).parameters)[:3] == SIZES


SIZES = ["num_layers", "num_units", "input_size"]


def test_missing_states_and_params():
    """A missing argument and None are the same; the error shows what to pass."""
    model = cudnn_rnn.CudnnLSTM(2, 8, 3, direction="bidirectional")
    inputs, state = tf.zeros([5, 6, 3]), tf.zeros([4, 6, 8])
    of_state = (
        r"input_%s must be a state of shape \[4, 6, 8\], but is None. Pass tf.zeros\(\[4, 6, 8\]\)"
    )
    params = tf.zeros([model.params_size()])
    for call in (lambda: model(inputs, params=params), lambda: model(inputs, None, None, params)):
        with pytest.raises(TypeError, match=of_state % "h" + ".*" + of_state % "c"):
            call()
    with pytest.raises(TypeError, match="^" + of_state % "c"):
        model(inputs, state, None, params)
    size = tf.get_static_value(model.params_size())
    with pytest.raises(
        TypeError, match=r"params must be a tensor of shape \[%d\], but is None" % size
    ):
        model(inputs, state, state)
    with pytest.raises(TypeError, match=r"state of shape \[6, 4, 8\]"):
        model(tf.zeros([6, 5, 3]), None, None, params, time_major=False)
    with pytest.raises(TypeError, match="missing 4 required positional arguments: 'input_data'"):
        model()


def test_missing_states_of_unknown_shape():
    inputs = tf.placeholder(tf.float32, [None, None, 3])
    for call, shape in (
        (lambda: cudnn_rnn.CudnnGRU(2, 8, 3)(inputs), "[2, batch, 8]"),
        (
            lambda: cudnn_rnn.cudnn_rnn_ops.cudnn_gru(inputs, None, tf.zeros([9]), True),
            "[num_layers * directions, batch, num_units]",
        ),
    ):
        with pytest.raises(TypeError, match=re.escape("Pass tf.zeros(%s)" % shape)):
            call()


@needs_projection
def test_missing_states_with_a_projection():
    model = cudnn_rnn.CudnnLSTM(1, 8, 3, num_proj=4)
    with pytest.raises(TypeError, match=r"input_h .* \[1, 6, 4\].* input_c .* \[1, 6, 8\]"):
        model(tf.zeros([5, 6, 3]))


def test_exchanged_time_and_batch(session):
    model = cudnn_rnn.CudnnLSTM(2, 4, 3)
    arguments = call_arguments(model)  # 4 steps of 2 sequences
    inputs = tf.transpose(arguments["input_data"], [1, 0, 2])
    advice = "It fits if time and batch of input_data are exchanged: pass tf.transpose(input_data, "
    message = r"input_h must have shape \[2, 4, 4\] .*, but has shape \[2, 2, 4\]\. "
    with pytest.raises(ValueError, match=message + re.escape(advice + "[1, 0, 2])")):
        model(**dict(arguments, input_data=inputs))
    advised = model(**dict(arguments, input_data=tf.transpose(inputs, [1, 0, 2])))
    assert_equal(*session.run([advised, model(**arguments)]))
    states = {name: tf.zeros([2, 2, 4]) for name in ("input_h", "input_c")}
    with pytest.raises(ValueError, match=re.escape(advice)):
        model(**dict(arguments, **states), time_major=False)
    with pytest.raises(ValueError, match=r"^input_h must have shape .* \[2, 2, 4\]\.$"):
        model(**dict(arguments, input_data=tf.zeros([4, 7, 3])))


@pytest.mark.parametrize("convert", [bool, int, np.bool_, tf.constant])
@pytest.mark.parametrize("is_training", [False, True])
def test_is_training_that_is_known(convert, is_training):
    model = cudnn_rnn.CudnnLSTM(2, 4, 3, dropout=1.0)
    arguments = call_arguments(model)
    output = model(is_training=convert(is_training), **arguments)[0]
    assert output.op.type == "CudnnRNN" and output.op.get_attr("is_training") == is_training
    if not is_training:
        with pytest.raises(ValueError, match="is_training must be set to True"):
            tf.gradients(output, arguments["params"])


@pytest.mark.parametrize("dropout", [0.0, 1.0])
def test_is_training_as_a_placeholder(session, rnn_mode, dropout):
    """tensorflow#13860. A dropout of 1 drops everything: training and inference differ."""
    model = CLASSES[rnn_mode](2, 4, 3, dropout=dropout)
    arguments = call_arguments(model)
    is_training = tf.placeholder(tf.bool, [])
    results = model(is_training=is_training, **arguments)
    assert results[0].shape.as_list() == [4, 2, 4]
    expected = {value: model(is_training=value, **arguments) for value in (False, True)}
    without_dropout = CLASSES[rnn_mode](2, 4, 3)(**arguments)
    sources = list(arguments.values())
    gradients = tf.gradients(results[0], sources)
    expected_gradients = {
        True: tf.gradients(expected[True][0], sources),
        False: tf.gradients(without_dropout[0], sources),
    }
    for value in (True, False):
        wanted = [expected[value], expected_gradients[value]]
        assert_equal(*session.run([[results, gradients], wanted], {is_training: value}))


def test_is_training_as_a_variable_or_with_a_default(session):
    model = cudnn_rnn.CudnnGRU(2, 4, 3, dropout=1.0)
    arguments = call_arguments(model)
    switch = tf.Variable(True)
    with_default = tf.placeholder_with_default(False, [])
    outputs = [model(is_training=value, **arguments)[0] for value in (switch, with_default)]
    initialize(session)
    training, inference = session.run(outputs)
    assert not np.array_equal(training, inference)
    session.run(tf.assign(switch, False))
    np.testing.assert_array_equal(*session.run(outputs))


@pytest.mark.parametrize(
    "is_training, error, message",
    [
        (None, TypeError, "is_training must be a bool .* but is None of type NoneType"),
        ("True", TypeError, "is_training must be a bool .* but is 'True'"),
        (2, TypeError, "is_training must be a bool .* but is 2"),
        ([3, 4], TypeError, r"is_training must be a bool .* but is \[3, 4\]"),
        (tf.int32, TypeError, "is_training must be a bool or a bool tensor, .* dtype int32"),
        (tf.bool, ValueError, r"is_training must have shape \[\] \(a scalar\), but has .* \[2\]"),
    ],
)
def test_bad_is_training(is_training, error, message):
    if isinstance(is_training, tf.DType):
        is_training = tf.placeholder(is_training, [2])
    model = cudnn_rnn.CudnnGRU(1, 4, 3)
    with pytest.raises(error, match=message):
        model(is_training=is_training, **call_arguments(model))
