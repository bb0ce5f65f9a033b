"""The platform-independent cells: variables, scopes, sharing, base classes, and errors."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn.cells.compatible import (
    CudnnCompatibleGRUCell,
    CudnnCompatibleLSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    RNNCell,
)
from helpers.cell_formulas import (
    BATCH,
    CELLS,
    INPUT_SIZE,
    NUM_UNITS,
    SCOPE,
    STEPS,
    TOLERANCE,
    numpy_run,
    random_inputs,
    random_weights,
    variable_shapes,
    within,
)
from helpers.processes import SECONDS_FOR_A_PROCESS

tf.logging.set_verbosity(tf.logging.ERROR)


@pytest.mark.parametrize("cell_class", CELLS)
def test_first_values(cell_class):
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("outer", initializer=tf.constant_initializer(0.25)):
            cell = cell_class(NUM_UNITS)
            cell(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32))
        session.run(tf.global_variables_initializer())
        for variable in cell.variables:
            expected = 1.0 if variable.op.name.endswith("gates/bias") else 0.0
            expected = 0.25 if variable.op.name.endswith("kernel") else expected
            np.testing.assert_array_equal(session.run(variable), expected, variable.op.name)


def test_gru_kernel_initializer():
    with tf.Graph().as_default(), tf.Session() as session:
        cell = CudnnCompatibleGRUCell(NUM_UNITS, kernel_initializer=tf.constant_initializer(0.5))
        tf.nn.dynamic_rnn(cell, tf.constant(random_inputs()), dtype=tf.float32)
        session.run(tf.global_variables_initializer())
        kernels = [v for v in cell.variables if v.op.name.endswith("kernel")]
        assert len(kernels) == 3
        for kernel in kernels:
            np.testing.assert_array_equal(session.run(kernel), 0.5)


@pytest.mark.parametrize("reuse", [True, tf.AUTO_REUSE])
@pytest.mark.parametrize("cell_class", CELLS)
def test_reuse(cell_class, reuse):
    with tf.Graph().as_default():
        inputs = tf.zeros([BATCH, INPUT_SIZE])
        first, second = cell_class(NUM_UNITS), cell_class(NUM_UNITS, reuse=reuse)
        for cell in (first, second):
            cell(inputs, cell.zero_state(BATCH, tf.float32))
        assert len(tf.global_variables()) == len(variable_shapes(cell_class, 1, 1))
        assert [v.name for v in first.variables] == [v.name for v in second.variables]


@pytest.mark.parametrize("cell_class", CELLS)
def test_reuse_of_nothing_is_an_error(cell_class):
    with tf.Graph().as_default():
        cell = cell_class(NUM_UNITS, reuse=True)
        with pytest.raises(ValueError, match="does not exist"):
            cell(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32))


@pytest.mark.parametrize("cell_class", CELLS)
def test_reused_scope_shares_the_variables(cell_class, control_flow):
    with tf.Graph().as_default(), tf.Session() as session:
        inputs, outputs = tf.constant(random_inputs()), []
        for reuse in (False, True):
            with tf.variable_scope("model", reuse=reuse):
                cell = MultiRNNCell([cell_class(NUM_UNITS) for _ in range(2)])
                outputs.append(tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32)[0])
        assert len(tf.global_variables()) == 2 * len(variable_shapes(cell_class, 1, 1))
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(*session.run(outputs))


@pytest.mark.parametrize("cell_class", CELLS)
def test_a_second_cell_has_variables_of_its_own(cell_class):
    with tf.Graph().as_default():
        cells = [cell_class(NUM_UNITS) for _ in range(2)]
        for cell in cells:
            cell(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32))
        assert cells[0].scope_name == SCOPE[cell_class]
        assert cells[1].scope_name == SCOPE[cell_class] + "_1"
        assert len(tf.global_variables()) == 2 * len(variable_shapes(cell_class, 1, 1))


@pytest.mark.parametrize("cell_class", CELLS)
def test_one_cell_called_again_keeps_its_variables(cell_class):
    with tf.Graph().as_default():
        cell = MultiRNNCell([cell_class(NUM_UNITS)])
        state = cell.zero_state(BATCH, tf.float32)
        for _ in range(3):
            _, state = cell(tf.zeros([BATCH, INPUT_SIZE]), state)
        assert len(tf.global_variables()) == len(variable_shapes(cell_class, 1, 1))


@pytest.mark.parametrize("cell_class", CELLS)
def test_scope_argument(cell_class):
    with tf.Graph().as_default():
        cell = cell_class(NUM_UNITS)
        cell(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32), scope="mine")
        assert all(variable.name.startswith("mine/") for variable in cell.variables)


@pytest.mark.parametrize("cell_class", CELLS)
def test_custom_getter_and_partitioner(cell_class, control_flow):
    asked = []

    def custom_getter(getter, name, *args, **kwargs):
        asked.append(name)
        return getter(name, *args, **kwargs)

    inputs = random_inputs()
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope(
            "model", custom_getter=custom_getter, partitioner=tf.fixed_size_partitioner(2)
        ):
            outputs, _ = tf.nn.dynamic_rnn(
                cell_class(NUM_UNITS), tf.constant(inputs), dtype=tf.float32
            )
        names = [
            "model/rnn/%s/%s" % (SCOPE[cell_class], n) for n, _ in variable_shapes(cell_class, 1, 1)
        ]
        assert sorted(set(asked)) == sorted(names)
        assert len(tf.global_variables()) == 2 * len(names)
        random_weights(session, tf.global_variables())
        parts = {v.op.name: session.run(v) for v in tf.global_variables()}
        weights = {
            name: np.concatenate([parts[name + "/part_0"], parts[name + "/part_1"]])
            for name in names
        }
        found = session.run(outputs)
    weights = within(weights, "model/rnn/" + SCOPE[cell_class])
    expected, _ = numpy_run(cell_class, weights, inputs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE["float32"])


@pytest.mark.parametrize("cell_class", CELLS)
def test_unknown_batch_and_time(cell_class, control_flow):
    with tf.Graph().as_default(), tf.Session() as session:
        fed = tf.placeholder(tf.float32, [None, None, INPUT_SIZE])
        outputs, _ = tf.nn.dynamic_rnn(cell_class(NUM_UNITS), fed, dtype=tf.float32)
        assert outputs.shape.as_list() == [None, None, NUM_UNITS]
        session.run(tf.global_variables_initializer())
        for batch in (1, 4):
            value = session.run(outputs, {fed: random_inputs(batch=batch)})
            assert value.shape == (batch, STEPS, NUM_UNITS)


def test_zero_states_and_sizes():
    with tf.Graph().as_default(), tf.Session() as session:
        lstm, gru = CudnnCompatibleLSTMCell(4), CudnnCompatibleGRUCell(5)
        assert lstm.state_size == LSTMStateTuple(4, 4) and lstm.output_size == 4
        assert gru.state_size == 5 and gru.output_size == 5
        both = MultiRNNCell([lstm, gru])
        assert both.state_size == (LSTMStateTuple(4, 4), 5) and both.output_size == 5
        (memory, output), state = session.run(both.zero_state(tf.constant(2), tf.float64))
        assert memory.shape == output.shape == (2, 4) and state.shape == (2, 5)
        assert not memory.any() and not state.any() and state.dtype == np.float64
        assert isinstance(lstm.zero_state(2, tf.float32), LSTMStateTuple)
        assert lstm.zero_state(2, tf.float32).h.shape.as_list() == [2, 4]
        assert both.zero_state(2, tf.float32)[0].dtype == tf.float32
    with pytest.raises(TypeError, match="float"):
        LSTMStateTuple(np.float32(0), np.float64(0)).dtype  # noqa: B018


def test_names_of_the_cells():
    with tf.Graph().as_default():
        assert CudnnCompatibleLSTMCell(2).name.startswith("cudnn_compatible_lstm_cell")
        assert CudnnCompatibleGRUCell(2).name.startswith("cudnn_compatible_gru_cell")
        assert isinstance(CudnnCompatibleLSTMCell(2), RNNCell)
        assert isinstance(MultiRNNCell([CudnnCompatibleGRUCell(2)]), RNNCell)


def test_object_based_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        cell = MultiRNNCell([CudnnCompatibleLSTMCell(2), CudnnCompatibleGRUCell(3)])
        cell(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32))
        values = random_weights(session, cell.variables)
        checkpoint = tf.train.Checkpoint(stack=cell)
        path = checkpoint.save(str(tmp_path / "cells"), session=session)
        kept = {
            name.replace("/.ATTRIBUTES/VARIABLE_VALUE", ""): tf.train.load_variable(path, name)
            for name, _ in tf.train.list_variables(path)
            if name.startswith("stack/")
        }
    expected = {}
    for name, value in values.items():
        layer, _, rest = name[len("multi_rnn_cell/cell_") :].split("/", 2)
        expected["stack/cell-%s/%s" % (layer, rest.replace("/", ".S"))] = value
    assert sorted(kept) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(kept[name], value)


def test_states_joined_in_one_tensor():
    with tf.Graph().as_default(), tf.Session() as session:
        cells = [CudnnCompatibleGRUCell(units) for units in (2, 3)]
        joined = MultiRNNCell(cells, state_is_tuple=False)
        assert joined.state_size == 5
        outputs, state = tf.nn.dynamic_rnn(joined, tf.constant(random_inputs()), dtype=tf.float32)
        session.run(tf.global_variables_initializer())
        last_outputs, last_state = session.run([outputs[:, -1], state])
        assert last_state.shape == (BATCH, 5)
        np.testing.assert_array_equal(last_state[:, 2:], last_outputs)


def test_cells_are_instances_of_tensorflows_cells():
    try:
        native = tf.nn.rnn_cell.RNNCell
    except AttributeError:
        pytest.skip("TensorFlow with Keras 3 has no RNNCell")
    assert RNNCell is native and MultiRNNCell is tf.nn.rnn_cell.MultiRNNCell
    assert LSTMStateTuple is tf.nn.rnn_cell.LSTMStateTuple
    with tf.Graph().as_default(), tf.Session() as session:
        cell = CudnnCompatibleLSTMCell(NUM_UNITS)
        assert isinstance(cell, native)
        wrapped = tf.nn.rnn_cell.DropoutWrapper(cell, output_keep_prob=1.0)
        outputs, _ = tf.nn.dynamic_rnn(wrapped, tf.constant(random_inputs()), dtype=tf.float32)
        session.run(tf.global_variables_initializer())
        assert session.run(outputs).shape == (BATCH, STEPS, NUM_UNITS)


def test_a_custom_cell_on_the_same_base(control_flow):
    class CountingCell(RNNCell):
        """Sums its weighted inputs; gets the weight variable in every call."""

        state_size = INPUT_SIZE
        output_size = INPUT_SIZE

        def call(self, inputs, state):
            total = state + inputs * tf.get_variable(
                "weight", [INPUT_SIZE], initializer=tf.ones_initializer()
            )
            return total, total

    with tf.Graph().as_default(), tf.Session() as session:
        cell = CountingCell()
        cell(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32))
        outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(random_inputs()), dtype=tf.float32)
        session.run(tf.global_variables_initializer())
        expected = np.cumsum(random_inputs(), axis=1)
        np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)


@pytest.mark.parametrize("cell_class", CELLS)
@pytest.mark.parametrize(
    "num_units, error, text",
    [
        (0, ValueError, "num_units must be between 1 and 2147483647, but is 0"),
        (-3, ValueError, "num_units must be between 1 and 2147483647, but is -3"),
        (2.5, TypeError, "num_units must be a positive integer, but is 2.5"),
        ("8", TypeError, "num_units must be a positive integer, but is '8'"),
        (None, TypeError, "num_units must be a positive integer, but is None"),
        (True, TypeError, "num_units must be a positive integer, but is the bool True"),
    ],
)
def test_bad_num_units(cell_class, num_units, error, text):
    with pytest.raises(error, match=text):
        cell_class(num_units)


def test_bad_inputs_and_states():
    def zeros(*shape):
        return tf.zeros(shape)

    lstm, gru, tuple_ = CudnnCompatibleLSTMCell, CudnnCompatibleGRUCell, LSTMStateTuple
    cases = [
        (
            lstm,
            zeros(2, 3, 4),
            tuple_(zeros(2, 5), zeros(2, 5)),
            r"\[batch, input_size\].*\(2, 3, 4",
        ),
        (lstm, zeros(2, 3), tuple_(zeros(2, 4), zeros(2, 5)), r"state\.c .*\[2, 5\].*\(2, 4\)"),
        (lstm, zeros(2, 3), tuple_(zeros(2, 5), zeros(3, 5)), r"state\.h .*\[2, 5\].*\(3, 5\)"),
        (lstm, zeros(2, 3), zeros(2, 5), r"must be a pair \(c, h\)"),
        (lstm, zeros(2, 3), (zeros(2, 5),), r"must be a pair \(c, h\)"),
        (
            lstm,
            zeros(2, 3),
            tuple_(tf.zeros([2, 5], tf.float64), zeros(2, 5)),
            "state.c .*dtype of inputs, float32, but has float64",
        ),
        (gru, zeros(2, 3, 4), zeros(2, 5), r"\[batch, input_size\].*\(2, 3, 4"),
        (gru, zeros(3), zeros(2, 5), r"\[batch, input_size\]"),
        (gru, zeros(2, 3), zeros(2, 4), r"state .*\[2, 5\].*\(2, 4\)"),
        (gru, zeros(2, 3), zeros(3, 5), r"state .*\[2, 5\].*\(3, 5\)"),
        (gru, zeros(2, 3), (zeros(2, 5), zeros(2, 5)), "must be one tensor"),
        (
            gru,
            tf.placeholder(tf.float32, [2, None]),
            zeros(2, 5),
            r"last dimension.*\(2, (None|\?)\)",
        ),
        (gru, tf.placeholder(tf.float32), zeros(2, 5), "last dimension"),
    ]
    for cell_class, inputs, state, text in cases:
        with pytest.raises(ValueError, match=text):
            cell_class(5)(inputs, state)


def in_a_graph(test):
    def run():
        with tf.Graph().as_default():
            test()

    run.__name__ = test.__name__
    return run


test_bad_inputs_and_states = in_a_graph(test_bad_inputs_and_states)


@pytest.mark.parametrize("cell_class", CELLS)
def test_other_input_size_in_a_later_call(cell_class):
    with tf.Graph().as_default():
        cell = cell_class(NUM_UNITS)
        state = cell.zero_state(2, tf.float32)
        cell(tf.zeros([2, 3]), state)
        with pytest.raises(ValueError, match=r"inputs .*\[2, 3\] .*input_size.*\(2, 4\)"):
            cell(tf.zeros([2, 4]), state)


def test_bad_cells_of_multi_rnn_cell():
    with tf.Graph().as_default():
        with pytest.raises(TypeError, match="cells must be a list"):
            MultiRNNCell(CudnnCompatibleGRUCell(2))
        with pytest.raises(ValueError, match="at least one cell"):
            MultiRNNCell([])
        with pytest.raises(ValueError, match="state_is_tuple"):
            MultiRNNCell([CudnnCompatibleLSTMCell(2)], state_is_tuple=False)
        cell = MultiRNNCell([CudnnCompatibleGRUCell(2)])
        with pytest.raises(ValueError, match="state"):
            cell(tf.zeros([2, 3]), tf.zeros([2, 2]))


def test_with_tensorflow_2_behavior_disabled():
    """Cells train after tf.disable_v2_behavior(), which changes loops, variables and tensors."""
    program = """
        import tensorflow.compat.v1 as tf
        tf.disable_v2_behavior()
        tf.logging.set_verbosity(tf.logging.ERROR)
        from cudnn_rnn.cells.compatible import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
        from cudnn_rnn.cells.compatible import MultiRNNCell
        cell = MultiRNNCell([CudnnCompatibleLSTMCell(4), CudnnCompatibleGRUCell(5)])
        inputs = tf.placeholder(tf.float32, [None, None, 3])
        outputs, state = tf.nn.dynamic_rnn(cell, inputs, sequence_length=[2, 1], dtype=tf.float32)
        loss = tf.reduce_sum(outputs)
        train = tf.train.AdamOptimizer(0.01).minimize(loss)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            feed = {inputs: [[[1.0, 2.0, 3.0]] * 2] * 2}
            before = session.run(loss, feed)
            session.run(train, feed)
            assert session.run(loss, feed) < before
        print(len(tf.global_variables()))
    """
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    # The package may be importable only through sys.path, for example from the working directory.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=environment,
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert process.returncode == 0, process.stderr
    # 2 + 6 variables with two Adam slots each, and Adam's two powers of beta.
    assert process.stdout.split() == ["26"]
