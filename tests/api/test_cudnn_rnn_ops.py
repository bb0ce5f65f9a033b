"""The functional API, and features of the op-level classes since TensorFlow 1.14."""

import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops
from helpers import reference
from helpers.networks import every_mode, forward_arrays
from helpers.op_harness import (
    FORWARD,
    TOLERANCES,
    assert_close,
    assert_same_bits,
    run_reference,
    swap_major,
)
from helpers.rnn_models import CLASSES, FUNCTIONS, NUM_GATES, initialize, make_params, params_size

BATCH, STEPS, INPUT_SIZE, NUM_UNITS, NUM_LAYERS = 3, 4, 5, 6, 2
LENGTHS = [4, 0, 2]
# Every mode, and an LSTM with a projection.
every_case = pytest.mark.parametrize(
    "rnn_mode, num_proj", [(mode, 0) for mode in FUNCTIONS] + [("lstm", 4)]
)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def run(fetches, feeds=None):
    with tf.Session() as session:
        initialize(session)
        return session.run(fetches, feeds)


def of_projection(num_proj):
    """Returns the named arguments of a function with this projection; 0 is none."""
    return {"num_proj": num_proj} if num_proj else {}


def arrays_for(rnn_mode, num_proj=0, direction="unidirectional"):
    """Returns the reference's configuration and the op's input arrays by argument name."""
    configuration = reference.Configuration(
        rnn_mode, "linear_input", direction, NUM_LAYERS, NUM_UNITS, INPUT_SIZE, num_proj
    )
    return configuration, forward_arrays(configuration, BATCH, STEPS)


def positional(arrays):
    return [tf.constant(array) for array in arrays.values()]


def inputs_for(rnn_mode):
    return positional(arrays_for(rnn_mode)[1])


def infer_gru(**named):
    return cudnn_rnn_ops.cudnn_gru(*inputs_for("gru"), is_training=False, **named)


def results(values):
    return dict(zip(FORWARD, values))


def assert_equal(found, expected):
    """Checks that two lists of tensors have the same values."""
    assert len(found) == len(expected)
    assert_same_bits(*map(results, run([list(found), list(expected)])))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["all steps", "lengths"])
@every_case
def test_functions_against_the_reference(rnn_mode, num_proj, lengths):
    """Values and static shapes, time-major and batch-major."""
    configuration, arrays = arrays_for(rnn_mode, num_proj, "bidirectional")
    named = dict(is_training=False, sequence_lengths=lengths, direction="bidirectional")
    named.update(of_projection(num_proj))
    tensors = FUNCTIONS[rnn_mode](*positional(arrays), **named)
    batch_major = FUNCTIONS[rnn_mode](*positional(swap_major(arrays)), time_major=False, **named)
    assert all(tensor.shape.is_fully_defined() for tensor in batch_major)
    found, other = map(results, run([tensors, batch_major]))
    expected = run_reference(configuration, arrays, lengths=lengths)
    assert_close(found, expected, TOLERANCES["float64"], rnn_mode)
    assert_same_bits(swap_major(other), found)
    width = num_proj or NUM_UNITS
    shapes = [[STEPS, BATCH, 2 * width], [4, BATCH, width], [4, BATCH, NUM_UNITS]][: len(tensors)]
    assert [tensor.shape.as_list() for tensor in tensors] == shapes
    assert [list(value.shape) for value in found.values()] == shapes


@every_case
def test_the_classes_are_the_functions(rnn_mode, num_proj):
    _, arrays = arrays_for(rnn_mode, num_proj)
    of_lstm = of_projection(num_proj)
    model = CLASSES[rnn_mode](NUM_LAYERS, NUM_UNITS, INPUT_SIZE, **of_lstm)
    inputs = positional(arrays)
    for lengths in (None, LENGTHS):
        named = dict(sequence_lengths=lengths, is_training=False)
        assert_equal(model(*inputs, **named), FUNCTIONS[rnn_mode](*inputs, **of_lstm, **named))


@every_mode
def test_cudnn_rnn_of_any_mode(rnn_mode):
    inputs = inputs_for(rnn_mode)
    given = inputs if rnn_mode == "lstm" else inputs[:2] + [tf.constant([])] + inputs[2:]
    found = cudnn_rnn_ops._cudnn_rnn(*given, is_training=False, rnn_mode=rnn_mode)
    assert len(found) == 3
    expected = FUNCTIONS[rnn_mode](*inputs, is_training=False)
    assert_equal(found[: len(expected)], expected)
    if rnn_mode != "lstm":
        without = cudnn_rnn_ops._cudnn_rnn_no_input_c(*inputs, is_training=False, rnn_mode=rnn_mode)
        assert_equal(without, expected)


@pytest.mark.parametrize("is_training", [True, False, np.bool_(True), 0])
@every_mode
def test_a_bool_for_sequence_lengths_means_is_training(rnn_mode, is_training):
    """Up to TensorFlow 1.13 is_training had this position; the original of 1.15 segfaults."""
    model = CLASSES[rnn_mode](NUM_LAYERS, NUM_UNITS, INPUT_SIZE)
    inputs = inputs_for(rnn_mode)
    node = model(*inputs, is_training)[0].op
    assert node.type == "CudnnRNN"
    assert node.get_attr("is_training") == bool(is_training)
    node = functools.partial(model, is_training=is_training)(*inputs)[0].op
    assert node.get_attr("is_training") == bool(is_training)


def test_a_bool_tensor_for_sequence_lengths_means_is_training():
    model = cudnn_rnn.CudnnGRU(NUM_LAYERS, NUM_UNITS, INPUT_SIZE, dropout=0.5)
    is_training = tf.placeholder(tf.bool, [])
    output = model(*inputs_for("gru"), is_training)[0]
    without, again = (run(output, {is_training: False}) for _ in range(2))
    np.testing.assert_array_equal(without, again)
    assert (run(output, {is_training: True}) != without).any()


def test_is_training_twice():
    model = cudnn_rnn.CudnnGRU(NUM_LAYERS, NUM_UNITS, INPUT_SIZE)
    with pytest.raises(TypeError, match="Got is_training twice: True .* is_training=False"):
        model(*inputs_for("gru"), True, is_training=False)


def test_training_decided_by_a_tensor_with_lengths():
    is_training = tf.placeholder_with_default(False, [])
    inputs = inputs_for("lstm")
    found = cudnn_rnn_ops.cudnn_lstm(
        *inputs, is_training=is_training, sequence_lengths=LENGTHS, dropout=0.5, seed=1
    )
    expected = cudnn_rnn_ops.cudnn_lstm(*inputs, is_training=False, sequence_lengths=LENGTHS)
    assert_equal(found, expected)
    assert all(gradient is not None for gradient in tf.gradients(found, inputs))
    assert (run(found[0], {is_training: True}) != run(expected[0])).any()


@pytest.mark.parametrize(
    "lengths, error, message",
    [
        ([1.0, 2.0, 3.0], TypeError, "must be integers of shape .*, but is of dtype float32"),
        ("linear_input", TypeError, "must be integers of shape .* length. .* is text: 'linear_"),
        ([4, None, 2], TypeError, r"must be integers of .* sequence_lengths\[1\] .* is None"),
        ([1, 2], ValueError, r"must have shape \[3\] \(\[batch\]\), but has shape \[2\]"),
        ([[1], [2], [3]], ValueError, r"must have shape \[3\]"),
    ],
)
def test_wrong_lengths(lengths, error, message):
    with pytest.raises(error, match="^sequence_lengths " + message):
        infer_gru(sequence_lengths=lengths)


@pytest.mark.parametrize("lengths", [[5, 1, 1], [-1, 1, 1]])
def test_lengths_out_of_range_when_run(lengths):
    found = infer_gru(sequence_lengths=lengths)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sequence_lengths"):
        run(found)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_lengths_of_other_integers(dtype):
    lengths = tf.placeholder(dtype, [None])
    outputs = [infer_gru(sequence_lengths=given)[0] for given in (lengths, LENGTHS)]
    one, two = run(outputs, {lengths: np.array(LENGTHS, dtype)})
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "named, error, message",
    [
        (dict(input_mode="skip"), ValueError, "input_mode must be one of .* 'skip'"),
        (dict(direction="backward"), ValueError, "direction must be one of .* 'backward'"),
        (dict(dropout=1.5), ValueError, "dropout must be between 0 and 1"),
        (dict(seed=1.5), TypeError, "seed must be an integer or None"),
        (dict(time_major="yes"), TypeError, "time_major must be a bool"),
        (dict(num_proj=-1), ValueError, "num_proj must be between"),
        (dict(is_training="yes"), TypeError, "is_training must be a bool"),
    ],
)
def test_wrong_settings(named, error, message):
    named.setdefault("is_training", True)
    with pytest.raises(error, match=message):
        cudnn_rnn_ops.cudnn_lstm(*inputs_for("lstm"), **named)


def test_time_major_that_only_a_run_tells():
    message = "^time_major must be a bool that is known .* but is .*Placeholder.*Pass True or False"
    with pytest.raises(TypeError, match=message):
        infer_gru(time_major=tf.placeholder(tf.bool, []))


@pytest.mark.parametrize(
    "argument, shape, message",
    [
        (0, [STEPS, BATCH], r"inputs must have shape \[\?, \?, \?\] \(\[time, batch, input_size\]"),
        (1, [2, BATCH + 1, NUM_UNITS], r"input_h must have shape \[\?, 3, \?\]"),
        (2, [2, BATCH, NUM_UNITS + 1], r"input_c must have shape \[2, 3, 6\]"),
        (2, [3, BATCH, NUM_UNITS], r"input_c must have shape \[2, 3, 6\]"),
        (3, [2, 3], r"params must have at least \d+ elements .* but has 6 \(shape \[2, 3\]\)"),
    ],
)
def test_wrong_shapes(argument, shape, message):
    inputs = inputs_for("lstm")
    inputs[argument] = tf.zeros(shape, tf.float64)
    with pytest.raises(ValueError, match=message):
        cudnn_rnn_ops.cudnn_lstm(*inputs, is_training=False)


def test_the_environment_chooses_v2(monkeypatch):
    assert infer_gru()[0].op.type == "CudnnRNN"
    monkeypatch.setenv("TF_CUDNN_RNN_USE_V2", "1")
    found = infer_gru()[0]
    assert found.op.type == "CudnnRNNV2"
    run(found)


# --- Conversions ---


def description(rnn_mode, num_proj=0, direction="bidirectional"):
    described = dict(
        rnn_mode=rnn_mode,
        num_layers=NUM_LAYERS,
        num_units=NUM_UNITS,
        input_size=INPUT_SIZE,
        direction=direction,
    )
    return dict(described, **of_projection(num_proj))


def conversions(described, params):
    """Returns weights and biases of `params`, and the params made of them."""
    weights, biases = cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(params=params, **described)
    back = cudnn_rnn_ops.cudnn_rnn_canonical_to_opaque_params(
        weights=weights, biases=biases, **described
    )
    return weights, biases, back


@every_case
def test_conversions_undo_each_other(rnn_mode, num_proj):
    """The conversions only permute, in the forward and in the backward direction."""
    described = description(rnn_mode, num_proj)
    size = tf.get_static_value(cudnn_rnn_ops.cudnn_rnn_opaque_params_size(**described))
    values = np.arange(size, dtype=np.float32)
    params = tf.constant(values)
    weights, biases, back = conversions(described, params)
    num_biases = NUM_LAYERS * 2 * 2 * NUM_GATES[rnn_mode]
    assert len(biases) == num_biases
    assert len(biases) == cudnn_rnn_ops._get_num_params(rnn_mode, NUM_LAYERS, "bidirectional")
    assert len(weights) == num_biases + (NUM_LAYERS * 2 if num_proj else 0)
    # The loss is half the sum of squares of the matrices, so the gradient equals the matrices, and
    # is 0 for the biases.
    gradient = tf.gradients(tf.add_n([tf.nn.l2_loss(matrix) for matrix in weights]), params)[0]
    through = tf.gradients(tf.nn.l2_loss(back), weights + biases)
    found, parts, gradient, through = run([back, weights + biases, gradient, through])
    np.testing.assert_array_equal(found, values)
    for arrays in (parts, through):
        np.testing.assert_array_equal(np.concatenate([part.ravel() for part in arrays]), values)
    shapes = [list(part.shape) for part in parts]
    assert shapes == [tensor.shape.as_list() for tensor in weights + biases]
    num_in_matrices = sum(matrix.shape.num_elements() for matrix in weights)
    np.testing.assert_array_equal(gradient[:num_in_matrices], values[:num_in_matrices])
    np.testing.assert_array_equal(gradient[num_in_matrices:], 0)
    if num_proj:
        gates = [[[6, width]] * 4 + [[6, 4]] * 4 + [[4, 6]] for width in (5, 8)]
        assert shapes == gates[0] * 2 + gates[1] * 2 + [[6]] * 32


@every_mode
@pytest.mark.parametrize("direction, num_directions", [("unidirectional", 1), ("bidirectional", 2)])
def test_size(rnn_mode, direction, num_directions):
    size = cudnn_rnn_ops.cudnn_rnn_opaque_params_size(
        **description(rnn_mode, direction=direction), dtype=tf.float64
    )
    assert size.dtype == tf.int32 and size.shape == []
    expected = params_size(rnn_mode, NUM_LAYERS, NUM_UNITS, INPUT_SIZE, num_directions)
    assert run(size) == expected


def test_dtype_of_arrays():
    _, arrays = arrays_for("gru")
    inputs = [arrays[name] for name in ("input", "input_h", "params")]
    output = cudnn_rnn_ops.cudnn_gru(*inputs, is_training=False)[0]
    assert output.dtype == tf.float64
    inputs[2] = tf.constant(inputs[2], tf.float32)  # a tensor decides the dtype
    assert cudnn_rnn_ops.cudnn_gru(*inputs, is_training=False)[0].dtype == tf.float32
    sizes = ("gru", NUM_LAYERS, NUM_UNITS, INPUT_SIZE)
    parts = cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(*sizes, arrays["params"])
    assert parts[0][0].dtype == tf.float64
    parts = [[part.tolist() for part in run(list(kind))] for kind in parts]
    together = cudnn_rnn_ops.cudnn_rnn_canonical_to_opaque_params(*sizes, *parts)
    assert together.dtype == tf.float32
    np.testing.assert_array_equal(run(together), arrays["params"].astype(np.float32))


def test_names_of_nodes():
    model = cudnn_rnn.CudnnGRU(1, 2, 3)
    params = make_params(model)
    output = cudnn_rnn_ops.cudnn_gru(
        tf.zeros([1, 1, 3]), tf.zeros([1, 1, 2]), params, True, name="mine"
    )[0]
    assert output.op.name == "mine"
    sizes = ("gru", 1, 2, 3)
    weights, biases = cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(
        *sizes, params, name="apart"
    )
    together = cudnn_rnn_ops.cudnn_rnn_canonical_to_opaque_params(
        *sizes, weights, biases, name="together"
    )
    size = cudnn_rnn_ops.cudnn_rnn_opaque_params_size(*sizes, name="size")
    names = [weights[0].op.name, together.op.name, size.op.name]
    assert names == ["apart", "together", "size"]


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(rnn_mode="elman"), ValueError, "rnn_mode must be one of .* 'elman'"),
        (dict(num_layers=0), ValueError, "num_layers must be between 1"),
        (dict(num_units=2.5), TypeError, "num_units must be a positive integer"),
        (dict(num_proj=3), ValueError, "num_proj must be None or 0 with rnn_mode 'gru'"),
        (dict(params=np.zeros(5, np.float32)), ValueError, "params must have at least"),
        (dict(params=tf.int32), TypeError, "params cannot be converted"),
    ],
)
def test_wrong_conversions(change, error, message):
    named = dict(description("gru"), params=np.zeros(1, np.float32))
    with pytest.raises(error, match=message):
        cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(**dict(named, **change))


def test_checks():
    assert cudnn_rnn_ops.check_direction("bidirectional") is None
    assert cudnn_rnn_ops.check_input_mode("auto_select") is None
    with pytest.raises(ValueError, match="direction must be one of"):
        cudnn_rnn_ops.check_direction("linear_input")
    with pytest.raises(ValueError, match="input_mode must be one of"):
        cudnn_rnn_ops.check_input_mode("bidirectional")


def test_seeds():
    """As in the original: without a graph seed, TensorFlow's default one; no seed is (0, 0)."""
    assert cudnn_rnn_ops._get_seed(7) == (87654321, 7)
    assert cudnn_rnn_ops._get_seed(None) == (0, 0)


# --- Eager execution ---


@every_case
def test_eager_execution(rnn_mode, num_proj):
    """Values and gradients of calls and conversions match those of a graph."""
    described = description(rnn_mode, num_proj, "unidirectional")
    _, arrays = arrays_for(rnn_mode, num_proj)
    named = dict(is_training=True, sequence_lengths=LENGTHS, **of_projection(num_proj))

    def loss(inputs, params):
        found = FUNCTIONS[rnn_mode](*inputs, params=params, **named)
        back = conversions(described, params)[2]
        return tf.reduce_sum(tf.sin(found[0])) + tf.reduce_sum(tf.cos(back))

    inputs = positional(arrays)
    expected_loss = loss(inputs[:-1], inputs[-1])
    expected = run([expected_loss] + tf.gradients(expected_loss, inputs))
    with context.eager_mode():
        inputs = positional(arrays)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found_loss = loss(inputs[:-1], inputs[-1])
        found = [found_loss] + tape.gradient(found_loss, inputs)
        for one, two in zip(found, expected):
            np.testing.assert_allclose(one.numpy(), two, rtol=1e-12, atol=1e-12)


def test_eager_models_of_different_sizes():
    """Models of different sizes work in one eager process (TensorFlow issue 15752)."""
    with context.eager_mode():
        for num_units in (2, 5, 3):
            model = cudnn_rnn.CudnnGRU(1, num_units, 4)
            size = int(model.params_size())
            assert size == params_size("gru", 1, num_units, 4)
            states = tf.zeros([1, 2, num_units])
            for is_training in (False, tf.constant(True)):
                outputs, _ = model(tf.ones([3, 2, 4]), states, tf.ones([size]), is_training)
                assert outputs.shape.as_list() == [3, 2, num_units]
