"""The platform-independent cells: what they compute, alone, in loops, and from checkpoints."""

import json
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.cells.compatible import (
    CudnnCompatibleGRUCell,
    CudnnCompatibleLSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
)
from helpers import paths, reference
from helpers.cell_formulas import (
    BATCH,
    CELLS,
    INPUT_SIZE,
    NUM_UNITS,
    NUMPY,
    SCOPE,
    STEPS,
    TOLERANCE,
    names_and_shapes,
    numpy_run,
    random_inputs,
    random_weights,
    variable_shapes,
    within,
)

tf.logging.set_verbosity(tf.logging.ERROR)


GOLDEN = os.path.join(paths.GOLDEN, "tf1.3.0")
GOLDEN_CASES = [
    name + "_un"
    for mode in ("lstm", "gru")
    for name in (mode + "_L1_H4_I3", mode + "_L2_H5_I3", mode + "_L3_H16_I8")
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell_class", CELLS)
def test_one_step_is_the_formula(cell_class, dtype):
    random = np.random.RandomState(3)
    x = random.uniform(-1, 1, [BATCH, INPUT_SIZE]).astype(dtype)
    parts = [random.uniform(-1, 1, [BATCH, NUM_UNITS]).astype(dtype) for _ in range(2)]
    with tf.Graph().as_default(), tf.Session() as session:
        cell = cell_class(NUM_UNITS)
        is_lstm = cell_class is CudnnCompatibleLSTMCell
        state = LSTMStateTuple(*map(tf.constant, parts)) if is_lstm else tf.constant(parts[0])
        output, new_state = cell(tf.constant(x), state)
        weights = within(random_weights(session, cell.variables), SCOPE[cell_class])
        found = session.run([output, new_state])
    expected = NUMPY[cell_class](weights, x, tuple(parts) if is_lstm else parts[0])
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=TOLERANCE[dtype])
    assert found[0].dtype == dtype
    assert isinstance(new_state, LSTMStateTuple) == is_lstm


@pytest.mark.parametrize("cell_class", CELLS)
def test_half_precision_runs(cell_class):
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.constant(random_inputs("float16"))
        cell = cell_class(NUM_UNITS)
        outputs, _ = tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float16)
        weights = random_weights(session, cell.variables)
        expected, _ = numpy_run(
            cell_class, within(weights, "rnn/" + SCOPE[cell_class]), random_inputs("float16")
        )
        np.testing.assert_allclose(session.run(outputs), expected, atol=1e-2)


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("lengths", [None, [1, STEPS, 3]])
@pytest.mark.parametrize("cell_class", CELLS)
def test_dynamic_rnn(cell_class, lengths, time_major, control_flow):
    inputs = random_inputs()
    with tf.Graph().as_default(), tf.Session() as session:
        cell = cell_class(NUM_UNITS)
        outputs, state = tf.nn.dynamic_rnn(
            cell,
            tf.constant(inputs.transpose(1, 0, 2) if time_major else inputs),
            sequence_length=lengths,
            dtype=tf.float32,
            time_major=time_major,
        )
        scope = "rnn/" + SCOPE[cell_class]
        expected_names = [
            (scope + "/" + name, shape)
            for name, shape in variable_shapes(cell_class, INPUT_SIZE, NUM_UNITS)
        ]
        assert names_and_shapes(tf.global_variables()) == expected_names
        assert names_and_shapes(cell.trainable_variables) == expected_names
        weights = within(random_weights(session, tf.global_variables()), scope)
        found, last = session.run([outputs, state])
    expected, expected_last = numpy_run(cell_class, weights, inputs, lengths)
    last = last.h if cell_class is CudnnCompatibleLSTMCell else last
    found = found.transpose(1, 0, 2) if time_major else found
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE["float32"])
    np.testing.assert_allclose(last, expected_last, rtol=0, atol=TOLERANCE["float32"])


@pytest.mark.parametrize("cell_class", CELLS)
def test_multi_rnn_cell(cell_class, control_flow):
    inputs = random_inputs("float64")
    with tf.Graph().as_default(), tf.Session() as session:
        cell = MultiRNNCell([cell_class(NUM_UNITS) for _ in range(2)])
        with tf.variable_scope("outer"):
            outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=tf.float64)
        scopes = ["outer/rnn/multi_rnn_cell/cell_%d/%s" % (i, SCOPE[cell_class]) for i in (0, 1)]
        expected_names = [
            (scope + "/" + name, shape)
            for scope, width in zip(scopes, (INPUT_SIZE, NUM_UNITS))
            for name, shape in variable_shapes(cell_class, width, NUM_UNITS)
        ]
        assert names_and_shapes(tf.global_variables()) == expected_names
        assert names_and_shapes(cell.trainable_variables) == expected_names
        assert names_and_shapes(cell.weights) == expected_names
        assert cell.output_size == NUM_UNITS and len(cell.state_size) == len(state) == 2
        weights = random_weights(session, tf.global_variables())
        found = session.run(outputs)
    between, _ = numpy_run(cell_class, within(weights, scopes[0]), inputs)
    expected, _ = numpy_run(cell_class, within(weights, scopes[1]), between)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE["float64"])


@pytest.mark.parametrize("cell_class", CELLS)
def test_bidirectional_dynamic_rnn(cell_class, control_flow):
    inputs, lengths = random_inputs("float64"), [2, STEPS, 4]
    with tf.Graph().as_default(), tf.Session() as session:
        (forward, backward), _ = tf.nn.bidirectional_dynamic_rnn(
            cell_class(NUM_UNITS),
            cell_class(NUM_UNITS),
            tf.constant(inputs),
            sequence_length=lengths,
            dtype=tf.float64,
        )
        weights = random_weights(session, tf.global_variables())
        forward, backward = session.run([forward, backward])
    scopes = ["bidirectional_rnn/%s/%s" % (way, SCOPE[cell_class]) for way in ("fw", "bw")]
    assert {name.rsplit("/cudnn", 1)[0] for name in weights} == {
        "bidirectional_rnn/fw",
        "bidirectional_rnn/bw",
    }
    expected, _ = numpy_run(cell_class, within(weights, scopes[0]), inputs, lengths)
    np.testing.assert_allclose(forward, expected, rtol=0, atol=TOLERANCE["float64"])
    for b, length in enumerate(lengths):
        one = inputs[b : b + 1, :length][:, ::-1]
        expected, _ = numpy_run(cell_class, within(weights, scopes[1]), one)
        np.testing.assert_allclose(
            backward[b, :length], expected[0, ::-1], rtol=0, atol=TOLERANCE["float64"]
        )
        assert not backward[b, length:].any()


@pytest.mark.parametrize("cell_class", CELLS)
def test_static_rnn(cell_class):
    inputs = random_inputs("float64")
    with tf.Graph().as_default(), tf.Session() as session:
        steps = tf.unstack(tf.constant(inputs), axis=1)
        outputs, _ = tf.nn.static_rnn(cell_class(NUM_UNITS), steps, dtype=tf.float64)
        weights = random_weights(session, tf.global_variables())
        found = session.run(tf.stack(outputs, axis=1))
    expected, _ = numpy_run(cell_class, within(weights, "rnn/" + SCOPE[cell_class]), inputs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE["float64"])


def loss_of(cell_class, weights, inputs):
    outputs, last = numpy_run(cell_class, weights, inputs)
    return np.sum(outputs * outputs) + np.sum(last)


@pytest.mark.parametrize("cell_class", CELLS)
def test_gradients_are_numeric_gradients(cell_class, control_flow):
    inputs = random_inputs("float64")
    with tf.Graph().as_default(), tf.Session() as session:
        cell = cell_class(NUM_UNITS)
        fed = tf.constant(inputs)
        outputs, state = tf.nn.dynamic_rnn(cell, fed, dtype=tf.float64)
        last = state.h if cell_class is CudnnCompatibleLSTMCell else state
        loss = tf.reduce_sum(outputs * outputs) + tf.reduce_sum(last)
        gradients = tf.gradients(loss, [fed] + list(cell.trainable_variables))
        weights = within(random_weights(session, cell.variables), "rnn/" + SCOPE[cell_class])
        found = session.run(gradients)
    names = [name for name, _ in variable_shapes(cell_class, INPUT_SIZE, NUM_UNITS)]
    random = np.random.RandomState(7)
    for array, gradient in zip([inputs] + [weights[name] for name in names], found):
        assert gradient.shape == array.shape
        for _ in range(5):
            where = tuple(random.randint(size) for size in array.shape)
            value, losses = array[where], []
            for shift in (-1e-5, 1e-5):
                array[where] = value + shift
                losses.append(loss_of(cell_class, weights, inputs))
            array[where] = value
            assert abs((losses[1] - losses[0]) / 2e-5 - gradient[where]) < 1e-6


@pytest.mark.parametrize("cell_class", CELLS)
def test_training_lowers_the_loss_under_every_kind_of_loop(cell_class, control_flow):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        outputs, _ = tf.nn.dynamic_rnn(
            MultiRNNCell([cell_class(NUM_UNITS) for _ in range(2)]),
            tf.constant(random_inputs()),
            dtype=tf.float32,
        )
        loss = tf.reduce_mean(tf.square(outputs - 0.5))
        train = tf.train.AdamOptimizer(0.05).minimize(loss)
        session.run(tf.global_variables_initializer())
        before = session.run(loss)
        for _ in range(30):
            session.run(train)
        assert session.run(loss) < 0.5 * before


def load_case(name):
    folder = os.path.join(GOLDEN, name)
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    return folder, case, np.load(os.path.join(folder, "expected.npz"))


def outer_scope(case):
    """Returns the scope of keys `<scope>/rnn/multi_rnn_cell/...`; dynamic_rnn adds `rnn`."""
    assert case["scope"].endswith("/rnn")
    return case["scope"][: -len("/rnn")]


@pytest.mark.parametrize("case_name", GOLDEN_CASES)
def test_golden_checkpoints_of_1_3_restore_into_cells(case_name):
    folder, case, expected = load_case(case_name)
    cell_class = dict(lstm=CudnnCompatibleLSTMCell, gru=CudnnCompatibleGRUCell)[case["rnn_mode"]]
    inputs = np.random.RandomState(5).uniform(-1, 1, [STEPS, BATCH, case["input_size"]])
    zeros = np.zeros([case["num_layers"], BATCH, case["num_units"]])
    configuration = reference.Configuration(
        case["rnn_mode"],
        case["input_mode"],
        case["direction"],
        case["num_layers"],
        case["num_units"],
        case["input_size"],
    )
    wanted = reference.forward(configuration, inputs, zeros, zeros, expected["opaque"])[0]
    with tf.Graph().as_default(), tf.Session() as session:
        cell = MultiRNNCell([cell_class(case["num_units"]) for _ in range(case["num_layers"])])
        with tf.variable_scope(outer_scope(case)):
            outputs, _ = tf.nn.dynamic_rnn(
                cell, tf.constant(inputs, tf.float32), dtype=tf.float32, time_major=True
            )
        # Every key except the raw buffer and cuDNN's separate biases has a variable.
        keys = {k: s for k, s in case["keys"].items() if "/cudnn_compatible_" in k}
        keys = {k: s for k, s in keys.items() if "/bias_cudnn" not in k}
        assert dict(names_and_shapes(tf.global_variables())) == keys
        tf.train.Saver().restore(session, os.path.join(folder, "model.ckpt"))
        np.testing.assert_allclose(session.run(outputs), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case_name", GOLDEN_CASES)
def test_cells_agree_with_the_cudnn_classes(case_name):
    folder, case, expected = load_case(case_name)
    is_lstm = case["rnn_mode"] == "lstm"
    cell_class = CudnnCompatibleLSTMCell if is_lstm else CudnnCompatibleGRUCell
    model_class = cudnn_rnn.CudnnLSTM if is_lstm else cudnn_rnn.CudnnGRU
    layers, units = case["num_layers"], case["num_units"]
    random = np.random.RandomState(6)
    inputs = random.uniform(-1, 1, [STEPS, BATCH, case["input_size"]]).astype("float32")
    first_state = random.uniform(-1, 1, [2, layers, BATCH, units]).astype("float32")
    with tf.Graph().as_default(), tf.Session() as session:
        model = model_class(layers, units, case["input_size"], input_mode=case["input_mode"])
        states = [tf.constant(part) for part in (first_state if is_lstm else first_state[:1])]
        opaque = tf.constant(expected["opaque"].astype("float32"))
        fused = model(tf.constant(inputs), *(states + [opaque]), is_training=False)

        h, c = first_state
        state = [LSTMStateTuple(c[i], h[i]) if is_lstm else h[i] for i in range(layers)]
        with tf.variable_scope(outer_scope(case)):
            outputs, last = tf.nn.dynamic_rnn(
                MultiRNNCell([cell_class(units) for _ in range(layers)]),
                tf.constant(inputs),
                initial_state=tf.nest.map_structure(tf.constant, tuple(state)),
                time_major=True,
            )
        tf.train.Saver().restore(session, os.path.join(folder, "model.ckpt"))
        found, (outputs, last) = session.run([fused, (outputs, last)])
    np.testing.assert_allclose(found[0], outputs, rtol=0, atol=1e-5)
    for layer in range(layers):
        h = last[layer].h if is_lstm else last[layer]
        np.testing.assert_allclose(found[1][layer], h, rtol=0, atol=1e-5)
        if is_lstm:
            np.testing.assert_allclose(found[2][layer], last[layer].c, rtol=0, atol=1e-5)
