"""The op-level classes: arguments, properties, sizes, conversions."""

import functools
import inspect

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from cudnn_rnn import layers
from cudnn_rnn.graph import config
from cudnn_rnn.model import layout
from helpers.cases import PUBLISHED_SIZES
from helpers.cell_formulas import CELLS
from helpers.rnn_models import CLASSES, call_arguments, initialize, opaque_values, params_size
from helpers.versions import needs_projection

pytestmark = pytest.mark.usefixtures("session")


def test_properties(rnn_mode):
    positional = (2, 5, 3, "auto_select", "bidirectional")
    model = CLASSES[rnn_mode](*positional, dtype=tf.float64, dropout=0.5)
    assert (model.num_layers, model.num_units, model.input_size) == (2, 5, 3)
    assert (model.input_mode, model.direction) == ("auto_select", "bidirectional")
    assert model.rnn_mode == model._rnn_mode == rnn_mode
    for name in "num_layers num_units input_size input_mode direction dropout dtype".split():
        assert getattr(model, "_" + name) == getattr(model, name)  # the original's private names
    assert (model.dtype, model.dropout) == (tf.float64, 0.5)
    assert type(model)._NUM_PARAMS_PER_LAYER == {"lstm": 8, "gru": 6}.get(rnn_mode, 2)


def test_defaults_and_that_properties_cannot_be_set():
    model = cudnn_rnn.CudnnLSTM(np.int32(1), np.int64(2), tf.zeros([4, 3]).shape[-1])
    assert (model.num_layers, model.num_units, model.input_size) == (1, 2, 3)
    assert (model.input_mode, model.direction) == ("linear_input", "unidirectional")
    assert (model.dtype, model.dropout) == (tf.float32, 0.0)
    with pytest.raises(AttributeError):
        model.num_units = 4


def test_classes_can_be_told_apart_and_listed():
    classes = dict(inspect.getmembers(cudnn_rnn, inspect.isclass))
    for cls in CLASSES.values():
        assert classes[cls.__name__] is cls
        assert cls.__name__ in str(cls)
    assert len(set(CLASSES.values())) == 4


# (positional arguments from the sixth on, keywords, dtype, dropout, seed)
SIXTH_ARGUMENT = [
    ((), {}, tf.float32, 0.0, 0),
    ((0.25,), {}, tf.float32, 0.25, 0),
    ((0.25, 7), {}, tf.float32, 0.25, 7),
    ((0, 7), {}, tf.float32, 0.0, 7),
    ((1,), {}, tf.float32, 1.0, 0),
    ((np.float32(0.25), np.int64(7)), {}, tf.float32, 0.25, 7),
    ((0.25,), {"seed": 7}, tf.float32, 0.25, 7),
    ((0.25,), {"dtype": tf.float64}, tf.float64, 0.25, 0),
    ((0.25, 7), {"dtype": tf.float64}, tf.float64, 0.25, 7),
    ((tf.float64,), {}, tf.float64, 0.0, 0),
    (("float64",), {}, tf.float64, 0.0, 0),
    ((np.float64,), {}, tf.float64, 0.0, 0),
    ((np.dtype("float16"),), {}, tf.float16, 0.0, 0),
    ((tf.float64, 0.25), {}, tf.float64, 0.25, 0),
    ((tf.float64, 0.25, 7), {}, tf.float64, 0.25, 7),
    ((tf.float64,), {"dropout": 0.25, "seed": 7}, tf.float64, 0.25, 7),
    ((None, 0.25), {}, tf.float32, 0.25, 0),
    ((), {"dropout": 1.0}, tf.float32, 1.0, 0),
    ((), {"dtype": tf.float16, "dropout": 0.25, "seed": 7}, tf.float16, 0.25, 7),
    ((), {"seed": None}, tf.float32, 0.0, None),
]


@pytest.mark.parametrize("trailing, named, dtype, dropout, seed", SIXTH_ARGUMENT)
def test_sixth_argument(rnn_mode, trailing, named, dtype, dropout, seed):
    tf.set_random_seed(11)
    model = CLASSES[rnn_mode](2, 5, 3, "linear_input", "unidirectional", *trailing, **named)
    assert (model.dtype, model.dropout) == (dtype, dropout)
    node = model(**call_arguments(model, dtype=dtype))[0].op
    assert node.get_attr("T") == dtype
    assert node.get_attr("dropout") == dropout
    assert node.get_attr("seed") == 11
    if seed is not None:
        assert node.get_attr("seed2") == seed


@pytest.mark.parametrize("num_proj", [4])
def test_projection(num_proj):
    assert cudnn_rnn.CudnnLSTM(2, 5, 3, num_proj=num_proj).num_proj == num_proj


def test_projection_in_tensorflow_1_14(monkeypatch):
    monkeypatch.setattr(config, "has_projection", lambda: False)
    expected = "num_proj is 4, but the ops of TensorFlow .* use num_proj=None, or TensorFlow 1.15"
    with pytest.raises(ValueError, match=expected):
        cudnn_rnn.CudnnLSTM(2, 5, 3, num_proj=4)
    assert cudnn_rnn.CudnnLSTM(2, 5, 3, num_proj=0).num_proj is None


@needs_projection
def test_a_projection_may_be_a_static_tensor():
    with tf.Graph().as_default():
        width = tf.shape(tf.zeros([3, 4]))[1]
        assert cudnn_rnn.CudnnLSTM(2, 5, 3, num_proj=width).num_proj == 4


@pytest.mark.parametrize("num_proj, error", [(5, ValueError), (-1, ValueError), (2.0, TypeError)])
def test_wrong_projection(num_proj, error):
    with pytest.raises(error, match="num_proj must be"):
        cudnn_rnn.CudnnLSTM(2, 5, 3, num_proj=num_proj)


def test_two_seeds_of_tensorflow_1_0_and_no_seed():
    first = (2, 5, 3, "linear_input", "unidirectional")
    model = cudnn_rnn.CudnnLSTM(*first, tf.float32, 0.5, 7, None)  # the ninth is num_proj
    assert (model.dropout, model.num_proj) == (0.5, None)
    model = cudnn_rnn.CudnnLSTM(1, 2, 3, seed=None)
    node = model(**call_arguments(model))[0].op
    assert (node.get_attr("seed"), node.get_attr("seed2")) == (0, 0)
    tf.set_random_seed(11)
    for model in (
        cudnn_rnn.CudnnLSTM(2, 5, 3, "auto_select", "unidirectional", 0.5, 7, 9),
        cudnn_rnn.CudnnGRU(2, 5, 3, dropout=0.5, seed=7, seed2=9),
    ):
        assert (model.config.seed, model.config.seed2) == (7, 9)


SIZES = dict(num_layers=1, num_units=2, input_size=3)
# (a class with all but one of its arguments, the name of this argument)
SIZED = [(functools.partial(cudnn_rnn.CudnnLSTM, **SIZES), name) for name in SIZES]
SIZED += [
    (functools.partial(layers.CudnnLSTM, num_layers=1, num_units=2), name)
    for name in ("num_layers", "num_units")
]
SIZED += [(cell_class, "num_units") for cell_class in CELLS]


@pytest.mark.parametrize("make, name", SIZED)
@pytest.mark.parametrize(
    "value, error, message",
    [
        (0, ValueError, "must be between 1 and 2147483647, but is 0"),
        (-3, ValueError, "must be between 1 and 2147483647, but is -3"),
        (2**31, ValueError, "must be between 1 and 2147483647, but is 2147483648"),
        (2.0, TypeError, "must be a positive integer, but is 2.0 of type float"),
        ("2", TypeError, "must be a positive integer, but is '2' of type str"),
        (True, TypeError, "must be a positive integer, but is the bool True"),
        (None, TypeError, "must be a positive integer, but is None"),
    ],
)
def test_bad_sizes(make, name, value, error, message):
    with pytest.raises(error, match="%s %s" % (name, message)):
        make(**{name: value})


@pytest.mark.parametrize("name", ["num_layers", "num_units", "input_size"])
def test_sizes_as_tensors(name):
    model = cudnn_rnn.CudnnLSTM(**dict(SIZES, **{name: tf.constant(SIZES[name])}))
    assert layout.params_size(model.config) == 56
    for value, error, message in [
        (tf.constant([4]), ValueError, ".*Shape must be rank 0 but is rank 1"),
        (tf.placeholder(tf.int32, []), TypeError, "a positive integer that is known"),
        (tf.constant(4.0), TypeError, "a positive integer that is known"),
        (tf.constant(0), ValueError, "between 1 and"),
    ]:
        with pytest.raises(error, match="%s must be %s" % (name, message)):
            cudnn_rnn.CudnnLSTM(**dict(SIZES, **{name: value}))


BAD_ARGUMENTS = [
    ({"input_mode": "linear"}, ValueError, "input_mode must be one of 'linear_input', 'skip_i"),
    ({"input_mode": 3}, ValueError, "input_mode must be one of .*, but is 3"),
    ({"direction": "unidirection"}, ValueError, "direction must be .* but is 'unidirection'"),
    ({"dtype": tf.int32}, ValueError, "dtype must be float16, float32.* but is tf.int32"),
    ({"dropout": 1.5}, ValueError, "dropout must be between 0 and 1, .* but is 1.5"),
    ({"dropout": -0.1}, ValueError, "dropout must be between 0 and 1, .* but is -0.1"),
    ({"dropout": float("nan")}, ValueError, "dropout must be between 0 and 1, .* but is nan"),
    ({"dropout": True}, TypeError, "dropout must be a number .* but is True of type bool"),
    ({"dropout": "0.5"}, TypeError, "dropout must be a number .* but is '0.5' of type str"),
    ({"dropout": tf.float32}, TypeError, "dropout must be a number"),
    ({"seed": 0.5}, TypeError, "seed must be an integer or None, but is 0.5 of type float"),
    ({"seed": True}, TypeError, "seed must be an integer or None, but is True of type bool"),
    ({"keep_prob": 0.5}, TypeError, "unexpected keyword argument 'keep_prob'"),
    ({"num_proj": 4}, TypeError, "unexpected keyword argument 'num_proj'"),
]


@pytest.mark.parametrize("classes, sizes", [(cudnn_rnn, (2, 5, 3)), (layers, (2, 5))])
@pytest.mark.parametrize("named, error, message", BAD_ARGUMENTS)
def test_bad_arguments(classes, sizes, named, error, message):
    with pytest.raises(error, match=message):
        classes.CudnnGRU(*sizes, **named)


BAD_ARGUMENTS_OF_MODELS = [
    ({"dtype": "no dtype"}, "dtype must be float16, .* but is 'no dtype'"),
    ({"dtype": 0.5}, "dtype must be float16, .* but is 0.5"),
    ({"input_mode": "skip_input"}, "input_size is 3 and num_units is 5"),
]


@pytest.mark.parametrize("named, message", BAD_ARGUMENTS_OF_MODELS)
def test_bad_arguments_of_models(named, message):
    with pytest.raises(ValueError, match=message):
        cudnn_rnn.CudnnGRU(2, 5, 3, **named)


BAD_TRAILING_ARGUMENTS = [
    ((0.5,), {"dropout": 0.25}, "dropout twice: by keyword .0.25. and by .* .0.5.*sixth place"),
    ((0.5, 7), {"seed": 8}, "seed twice"),
    ((tf.float32,), {"dtype": tf.float32}, "dtype twice"),
    ((True,), {}, "sixth argument must be a dtype .* but is True"),
    ((0.5, 7, 8, 9), {}, "Got 9 positional arguments, but with a number in the sixth .* most 8"),
    ((tf.float32, 0.5, 7, 8), {}, "Got 9 positional arguments, but with a dtype .* at most 8"),
    ((tf.float32, True), {}, "dropout must be a number"),
]


@pytest.mark.parametrize("trailing, named, message", BAD_TRAILING_ARGUMENTS)
def test_bad_trailing_arguments(trailing, named, message):
    with pytest.raises(TypeError, match=message):
        cudnn_rnn.CudnnGRU(2, 5, 3, "linear_input", "unidirectional", *trailing, **named)


@pytest.mark.parametrize("configuration, expected", PUBLISHED_SIZES)
def test_published_sizes_without_a_gpu(session, configuration, expected):
    """tensorflow#20571: params_size() was an op that only a GPU could run."""
    rnn_mode, input_mode, direction, *sizes = configuration
    model = CLASSES[rnn_mode](*sizes, input_mode, direction)
    assert session.run(model.params_size()) == expected


@pytest.mark.parametrize("input_mode", ["linear_input", "skip_input", "auto_select"])
def test_size_is_the_number_of_parameters(session, rnn_mode, input_mode, direction):
    model = CLASSES[rnn_mode](3, 5, 5, input_mode, direction)
    sizes = (3, 5, 5, model.config.num_directions)
    expected = params_size(rnn_mode, *sizes, skip_input=input_mode != "linear_input")
    node = gen_cudnn_rnn_ops.cudnn_rnn_params_size(
        3, 5, 5, tf.float32, tf.int32, rnn_mode=rnn_mode, input_mode=input_mode, direction=direction
    )
    assert tf.get_static_value(model.params_size()) == expected
    size, size_of_op = session.run([model.params_size(), node])
    assert size == expected and size.dtype == np.int32 and size.shape == ()
    assert size_of_op.tolist() == [expected]


def test_a_variable_without_shape_validation_works_unchanged(session):
    model = cudnn_rnn.CudnnGRU(2, 5, 3)
    params = tf.Variable(
        tf.random_uniform([model.params_size()]), validate_shape=False, use_resource=False
    )
    assert params.shape.rank is None
    output, output_h = model(**dict(call_arguments(model), params=params))
    gradient = tf.gradients(output, params)[0]
    initialize(session)
    assert session.run(gradient).shape == session.run(model.params_size())
    session.run(tf.assign(params, tf.zeros([model.params_size()]), validate_shape=False))
    assert session.run(output_h).shape == (2, 2, 5)


@pytest.mark.parametrize("sizes", [(1, 2**15, 2**15), (2**31 - 1, 2**31 - 1, 2**31 - 1)])
def test_sizes_that_overflow(sizes):
    model = cudnn_rnn.CudnnLSTM(*sizes)
    with pytest.raises(
        ValueError, match="num_layers %d, num_units %d, .* at most 2147483647" % sizes[:2]
    ):
        model.params_size()
    with pytest.raises(ValueError, match="at most 2147483647"):
        model.params_to_canonical(tf.zeros([5]))


def test_canonical_tensors_are_complete_and_in_order(session, rnn_mode, direction):
    """tensorflow#9370: the tensors of one direction were missing, so half of a model was lost."""
    model = CLASSES[rnn_mode](2, 5, 3, direction=direction)
    num_directions = model.config.num_directions
    size = params_size(rnn_mode, 2, 5, 3, num_directions)
    weights, biases = model.params_to_canonical(opaque_values(size))
    per_layer = type(model)._NUM_PARAMS_PER_LAYER
    widths = []
    for width in (3, 5 * num_directions):
        widths += ([width] * (per_layer // 2) + [5] * (per_layer // 2)) * num_directions
    assert [weight.shape.as_list() for weight in weights] == [[5, width] for width in widths]
    assert [bias.shape.as_list() for bias in biases] == [[5]] * (2 * num_directions * per_layer)
    params = model.canonical_to_params(weights, biases)
    assert params.shape.as_list() == [size]
    values, params = session.run([weights + biases, params])
    np.testing.assert_array_equal(
        np.concatenate([value.ravel() for value in values]), opaque_values(size)
    )
    np.testing.assert_array_equal(params, opaque_values(size))


def test_canonical_tensors_initialize_a_variable(session):
    model = cudnn_rnn.CudnnGRU(1, 4, 3)
    weights, biases = model.params_to_canonical(tf.zeros([model.params_size()]))
    ones = [tf.ones(weight.shape) for weight in weights]
    params = tf.Variable(model.canonical_to_params(ones, [np.full([4], 2.0)] * len(biases)))
    initialize(session)
    np.testing.assert_array_equal(session.run(params), [1.0] * 84 + [2.0] * 24)


def test_bad_canonical_tensors():
    model = cudnn_rnn.CudnnGRU(1, 4, 3, direction="bidirectional", dtype=tf.float32)
    weights, biases = model.params_to_canonical(tf.zeros([params_size("gru", 1, 4, 3, 2)]))

    def refused(error, message, weights=weights, biases=biases):
        with pytest.raises(error, match=message):
            model.canonical_to_params(weights, biases)

    refused(ValueError, r"weights must be a list of 12 tensors .*, but has 11", weights[:11])
    refused(ValueError, r"biases must be a list of 12 .*, but has 13", biases=biases + biases[:1])
    message = "biases must be a list of 12 tensors, but is a (Tensor|Symbolic)"
    refused(TypeError, message, biases=tf.zeros([12, 4]))
    message = r"weights\[9\] \(layer 0, backward, reset gate, recurrent weights\) must have 16 "
    message += r"elements \(shape \[4, 4\]\), but has 12 \(shape \[4, 3\]\)"
    refused(ValueError, message, weights[:9] + [tf.zeros([4, 3])] + weights[10:])
    message = r"biases\[1\] \(layer 0, forward, update gate, input bias\)"
    refused(ValueError, message, biases=biases[:1] + [tf.zeros([5])] + biases[2:])
    message = r"weights\[0\].* is float32 and biases\[0\].* is float64"
    refused(TypeError, message, biases=[tf.zeros([4], tf.float64)] + biases[1:])


def test_bad_params_for_params_to_canonical():
    model = cudnn_rnn.CudnnGRU(1, 4, 3)
    for shape in ([107], [2, 53]):
        message = "params must have at least 108 elements .* %d .shape %s"
        message %= (np.prod(shape), shape)
        with pytest.raises(ValueError, match=message.replace("[", r"\[")):
            model.params_to_canonical(tf.zeros(shape))
    with pytest.raises(TypeError, match="params must be of dtype float16, .* but is int32"):
        model.params_to_canonical(tf.zeros([108], tf.int32))
    params = tf.placeholder(tf.float32)
    weights, _ = model.params_to_canonical(params)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="params"):
        session.run(weights, {params: np.zeros([107])})
