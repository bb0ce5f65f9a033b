"""The platform-independent cells: what they compute, alone, in loops, and from checkpoints."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import CudnnCompatibleLSTMCell, LSTMStateTuple, MultiRNNCell
from helpers import cell_formulas as formulas
from helpers import reference
from helpers.cell_formulas import BATCH, INPUT_SIZE, NUM_UNITS, SCOPE, STEPS, random_inputs
from helpers.golden import GoldenCheckpoint
from helpers.layer_models import run_cells
from helpers.op_harness import numeric_gradient
from helpers.rnn_models import CLASSES

GOLDEN_CASES = [
    os.path.join("tf1.3.0", "%s_%s_un" % (mode, sizes))
    for mode in ("lstm", "gru")
    for sizes in ("L1_H4_I3", "L2_H5_I3", "L3_H16_I8")
]


def assert_close(found, expected, dtype="float32"):
    np.testing.assert_allclose(found, expected, rtol=0, atol=formulas.TOLERANCE[dtype])


def shapes_within(scope, cell_class, input_size=INPUT_SIZE):
    return [
        (scope + "/" + name, shape)
        for name, shape in formulas.variable_shapes(cell_class, input_size)
    ]


def set_weights(session, scope):
    """Gives all variables random values; returns those of the cell in `scope`."""
    return formulas.within(formulas.random_weights(session, tf.global_variables()), scope)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_step_is_the_formula(session, cell_class, dtype):
    random = np.random.RandomState(3)
    x = random.uniform(-1, 1, [BATCH, INPUT_SIZE]).astype(dtype)
    parts = [random.uniform(-1, 1, [BATCH, NUM_UNITS]).astype(dtype) for _ in range(2)]
    is_lstm = cell_class is CudnnCompatibleLSTMCell
    state = LSTMStateTuple(*map(tf.constant, parts)) if is_lstm else tf.constant(parts[0])
    output, new_state = cell_class(NUM_UNITS)(tf.constant(x), state)
    weights = set_weights(session, SCOPE[cell_class])
    found = session.run([output, new_state])
    expected = formulas.NUMPY[cell_class](weights, x, tuple(parts) if is_lstm else parts[0])
    assert_close(found[0], expected[0], dtype)
    assert_close(found[1], expected[1], dtype)
    assert found[0].dtype == dtype
    assert isinstance(new_state, LSTMStateTuple) == is_lstm


@pytest.mark.parametrize("loop, dtype", [("static", "float64"), ("dynamic", "float16")])
def test_other_loops_and_dtypes(session, cell_class, loop, dtype):
    cell, inputs = cell_class(NUM_UNITS), random_inputs(dtype)
    if loop == "static":
        outputs, _ = tf.nn.static_rnn(cell, tf.unstack(inputs, axis=1), dtype=dtype)
        outputs = tf.stack(outputs, axis=1)
    else:
        outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=dtype)
    weights = set_weights(session, "rnn/" + SCOPE[cell_class])
    expected, _ = formulas.numpy_run(cell_class, weights, inputs)
    tolerance = 1e-2 if dtype == "float16" else formulas.TOLERANCE[dtype]
    np.testing.assert_allclose(session.run(outputs), expected, rtol=0, atol=tolerance)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("lengths", [None, [1, STEPS, 3]])
def test_dynamic_rnn(session, cell_class, lengths, time_major, control_flow):
    inputs = random_inputs()
    cell, scope = cell_class(NUM_UNITS), "rnn/" + SCOPE[cell_class]
    fed = tf.constant(inputs.swapaxes(0, 1) if time_major else inputs)
    outputs, state = tf.nn.dynamic_rnn(
        cell, fed, sequence_length=lengths, dtype=tf.float32, time_major=time_major
    )
    for variables in (tf.global_variables(), cell.trainable_variables):
        assert formulas.names_and_shapes(variables) == shapes_within(scope, cell_class)
    weights = set_weights(session, scope)
    found, last = session.run([outputs, state])
    expected, expected_last = formulas.numpy_run(cell_class, weights, inputs, lengths)
    assert_close(found.swapaxes(0, 1) if time_major else found, expected)
    assert_close(last.h if cell_class is CudnnCompatibleLSTMCell else last, expected_last)


@pytest.mark.sampled(2)
def test_multi_rnn_cell(session, cell_class, control_flow):
    inputs = random_inputs("float64")
    cell = MultiRNNCell([cell_class(NUM_UNITS) for _ in range(2)])
    with tf.variable_scope("outer"):
        outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=tf.float64)
    scopes = ["outer/rnn/multi_rnn_cell/cell_%d/%s" % (i, SCOPE[cell_class]) for i in (0, 1)]
    expected_names = shapes_within(scopes[0], cell_class)
    expected_names += shapes_within(scopes[1], cell_class, NUM_UNITS)
    for variables in (tf.global_variables(), cell.trainable_variables, cell.weights):
        assert formulas.names_and_shapes(variables) == expected_names
    assert cell.output_size == NUM_UNITS and len(cell.state_size) == len(state) == 2
    weights = formulas.random_weights(session, tf.global_variables())
    expected = inputs
    for scope in scopes:
        expected, _ = formulas.numpy_run(cell_class, formulas.within(weights, scope), expected)
    assert_close(session.run(outputs), expected, "float64")


def test_bidirectional_dynamic_rnn(session, cell_class, control_flow):
    inputs, lengths = random_inputs("float64"), [2, STEPS, 4]
    cells = [cell_class(NUM_UNITS) for _ in range(2)]
    both, _ = tf.nn.bidirectional_dynamic_rnn(
        *cells, tf.constant(inputs), sequence_length=lengths, dtype=tf.float64
    )
    weights = formulas.random_weights(session, tf.global_variables())
    forward, backward = session.run(both)
    scopes = ["bidirectional_rnn/fw", "bidirectional_rnn/bw"]
    assert {name.rsplit("/cudnn", 1)[0] for name in weights} == set(scopes)
    of_forward, of_backward = (
        formulas.within(weights, scope + "/" + SCOPE[cell_class]) for scope in scopes
    )
    assert_close(forward, formulas.numpy_run(cell_class, of_forward, inputs, lengths)[0], "float64")
    for b, length in enumerate(lengths):
        one = inputs[b : b + 1, :length][:, ::-1]
        expected, _ = formulas.numpy_run(cell_class, of_backward, one)
        assert_close(backward[b, :length], expected[0, ::-1], "float64")
        assert not backward[b, length:].any()


@pytest.mark.sampled(2)
def test_gradients_are_numeric_gradients(session, cell_class, control_flow):
    inputs = random_inputs("float64")
    cell = cell_class(NUM_UNITS)
    fed = tf.constant(inputs)
    outputs, state = tf.nn.dynamic_rnn(cell, fed, dtype=tf.float64)
    last = state.h if cell_class is CudnnCompatibleLSTMCell else state
    loss = tf.reduce_sum(outputs * outputs) + tf.reduce_sum(last)
    gradients = tf.gradients(loss, [fed] + list(cell.trainable_variables))
    weights = set_weights(session, "rnn/" + SCOPE[cell_class])
    found = session.run(gradients)

    def loss_by_formula():
        outputs, last = formulas.numpy_run(cell_class, weights, inputs)
        return np.sum(outputs * outputs) + np.sum(last)

    names = [name for name, _ in formulas.variable_shapes(cell_class)]
    for array, gradient in zip([inputs] + [weights[name] for name in names], found):
        expected = numeric_gradient(loss_by_formula, array)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6)


@pytest.mark.sampled(2)
def test_training_lowers_the_loss_under_every_kind_of_loop(session, cell_class, control_flow):
    tf.set_random_seed(1)
    cell = MultiRNNCell([cell_class(NUM_UNITS) for _ in range(2)])
    outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(random_inputs()), dtype=tf.float32)
    loss = tf.reduce_mean(tf.square(outputs - 0.5))
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    session.run(tf.global_variables_initializer())
    before = session.run(loss)
    for _ in range(30):
        session.run(train)
    assert session.run(loss) < 0.5 * before


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("case_name", GOLDEN_CASES)
def test_golden_checkpoints_of_1_3_in_cells_and_in_cudnn_classes(session, case_name, with_states):
    golden = GoldenCheckpoint(case_name)
    case, (layers, units, width) = golden.case, golden.sizes
    rnn_mode, is_lstm = case["rnn_mode"], case["rnn_mode"] == "lstm"
    random = np.random.RandomState(6)
    inputs = random.uniform(-1, 1, [STEPS, BATCH, width]).astype("float32")
    h, c = with_states * random.uniform(-1, 1, [2, layers, BATCH, units]).astype("float32")
    configuration = reference.Configuration(
        rnn_mode, case["input_mode"], case["direction"], layers, units, width
    )
    expected = reference.forward(configuration, inputs, h, c, golden.opaque)
    model = CLASSES[rnn_mode](layers, units, width, input_mode=case["input_mode"])
    opaque = tf.constant(golden.opaque.astype("float32"))
    fused = model(inputs, *([h, c] if is_lstm else [h]), opaque, is_training=False)

    state = tuple(LSTMStateTuple(*pair) if is_lstm else pair[1] for pair in zip(c, h))
    assert case["scope"].endswith("/rnn")  # added by dynamic_rnn
    with tf.variable_scope(case["scope"][: -len("/rnn")]):
        stack = (rnn_mode, layers, units, False, tf.constant(inputs))
        outputs, last = run_cells(*stack, initial_state=state if with_states else None)
    # Every key except the raw buffer and cuDNN's separate biases has a variable.
    keys = {k: s for k, s in case["keys"].items() if "/cudnn_compatible_" in k}
    keys = {k: s for k, s in keys.items() if "/bias_cudnn" not in k}
    assert dict(formulas.names_and_shapes(tf.global_variables())) == keys
    tf.train.Saver().restore(session, golden.path)
    found, of_cells = session.run([fused, [outputs] + last])
    for fused_result, cell_result, wanted in zip(found, of_cells, expected):
        np.testing.assert_allclose(cell_result, wanted, rtol=0, atol=1e-5)
        np.testing.assert_allclose(fused_result, cell_result, rtol=0, atol=1e-5)
