"""The platform-independent cells: variables, scopes, sharing, base classes, and errors."""

import functools
import importlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell, LSTMStateTuple, MultiRNNCell
from cudnn_rnn.cells.compatible import RNNCell
from cudnn_rnn.tf1_layers import cell_base
from helpers import cell_formulas as formulas
from helpers.cell_formulas import INPUT_SIZE, NUM_UNITS, SCOPE, call_cell, random_inputs
from helpers.rnn_models import initialize
from helpers.versions import needs_the_original

pytestmark = pytest.mark.usefixtures("session")


def dynamic_rnn(cell):
    return tf.nn.dynamic_rnn(cell, tf.constant(random_inputs()), dtype=tf.float32)


def num_variables(cell_class):
    return len(formulas.variable_shapes(cell_class))


def test_first_values(session, cell_class):
    with tf.variable_scope("outer", initializer=tf.constant_initializer(0.25)):
        cell = cell_class(NUM_UNITS)
        call_cell(cell)
    initialize(session)
    for variable in cell.variables:
        expected = 1.0 if variable.op.name.endswith("gates/bias") else 0.0
        expected = 0.25 if variable.op.name.endswith("kernel") else expected
        np.testing.assert_array_equal(session.run(variable), expected, variable.op.name)


def test_gru_kernel_initializer(session):
    cell = CudnnCompatibleGRUCell(NUM_UNITS, kernel_initializer=tf.constant_initializer(0.5))
    dynamic_rnn(cell)
    initialize(session)
    kernels = [session.run(v) for v in cell.variables if v.op.name.endswith("kernel")]
    assert len(kernels) == 3 and all((kernel == 0.5).all() for kernel in kernels)


@pytest.mark.parametrize("reuse", [None, True, tf.AUTO_REUSE])
def test_reuse_and_a_second_cell(cell_class, reuse):
    first, second = cell_class(NUM_UNITS), cell_class(NUM_UNITS, reuse=reuse)
    call_cell(first)
    call_cell(first)
    assert len(tf.global_variables()) == num_variables(cell_class)
    call_cell(second)
    assert first.scope_name == SCOPE[cell_class]
    if reuse:
        assert len(tf.global_variables()) == num_variables(cell_class)
        assert [v.name for v in first.variables] == [v.name for v in second.variables]
    else:
        assert len(tf.global_variables()) == 2 * num_variables(cell_class)
        assert second.scope_name == SCOPE[cell_class] + "_1"


def test_subclasses(cell_class):
    """As in tf.contrib, those of the LSTM cell keep its scope, those of the GRU cell do not."""
    is_lstm = cell_class is CudnnCompatibleLSTMCell
    scope = SCOPE[cell_class] if is_lstm else "my_cell"
    my_cell = type("MyCell", (cell_class,), {})
    for number in range(2):
        cell = my_cell(NUM_UNITS)
        call_cell(cell)
        assert cell.scope_name == scope + ("_1" if number else "")
        assert {v.op.name.partition("/")[0] for v in cell.variables} == {cell.scope_name}
    cell = MultiRNNCell([my_cell(NUM_UNITS), my_cell(NUM_UNITS)])
    with tf.variable_scope("stack"):
        call_cell(cell)
    assert "stack/multi_rnn_cell/cell_1/%s/" % scope in cell.variables[-1].op.name


@needs_the_original
def test_seeds_give_the_values_of_contrib(cell_class):
    original = importlib.import_module("tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops")
    values = []
    for make in (cell_class, getattr(original, cell_class.__name__)):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(1)
            cell = make(NUM_UNITS)
            call_cell(cell)
            initialize(session)
            values.append([(v.op.name, session.run(v)) for v in cell.variables])
    for (name, one), (other_name, other) in zip(*values):
        assert name == other_name
        np.testing.assert_array_equal(one, other, name)


def test_reuse_of_nothing_is_an_error(cell_class):
    with pytest.raises(ValueError, match="does not exist"):
        call_cell(cell_class(NUM_UNITS, reuse=True))


def test_reused_scope_shares_the_variables(session, cell_class, control_flow):
    outputs = []
    for reuse in (False, True):
        with tf.variable_scope("model", reuse=reuse):
            cell = MultiRNNCell([cell_class(NUM_UNITS) for _ in range(2)])
            outputs.append(dynamic_rnn(cell)[0])
    assert len(tf.global_variables()) == 2 * num_variables(cell_class)
    initialize(session)
    np.testing.assert_array_equal(*session.run(outputs))


def test_scope_argument_and_calls_in_sequence(cell_class):
    single, stack = cell_class(NUM_UNITS), MultiRNNCell([cell_class(NUM_UNITS)])
    call_cell(single, scope="mine")
    assert all(variable.name.startswith("mine/") for variable in single.variables)
    state = stack.zero_state(formulas.BATCH, tf.float32)
    for _ in range(3):
        _, state = stack(tf.zeros([formulas.BATCH, INPUT_SIZE]), state)
    assert len(tf.global_variables()) == 2 * num_variables(cell_class)


def test_custom_getter_and_partitioner(session, cell_class, control_flow):
    asked = []

    def custom_getter(getter, name, *args, **kwargs):
        asked.append(name)
        return getter(name, *args, **kwargs)

    with tf.variable_scope(
        "model", custom_getter=custom_getter, partitioner=tf.fixed_size_partitioner(2)
    ):
        outputs, _ = dynamic_rnn(cell_class(NUM_UNITS))
    scope = "model/rnn/" + SCOPE[cell_class]
    names = [name for name, _ in formulas.variable_shapes(cell_class)]
    assert sorted(set(asked)) == sorted("%s/%s" % (scope, name) for name in names)
    assert len(tf.global_variables()) == 2 * len(names)
    parts = formulas.within(formulas.random_weights(session, tf.global_variables()), scope)
    weights = {
        name: np.concatenate([parts[name + "/part_0"], parts[name + "/part_1"]]) for name in names
    }
    expected, _ = formulas.numpy_run(cell_class, weights, random_inputs())
    tolerance = formulas.TOLERANCE["float32"]
    np.testing.assert_allclose(session.run(outputs), expected, rtol=0, atol=tolerance)


def test_unknown_batch_and_time(session, cell_class, control_flow):
    fed = tf.placeholder(tf.float32, [None, None, INPUT_SIZE])
    outputs, _ = tf.nn.dynamic_rnn(cell_class(NUM_UNITS), fed, dtype=tf.float32)
    assert outputs.shape.as_list() == [None, None, NUM_UNITS]
    initialize(session)
    for batch in (1, 4):
        value = session.run(outputs, {fed: random_inputs(batch=batch)})
        assert value.shape == (batch, formulas.STEPS, NUM_UNITS)


def test_zero_states_sizes_and_names(session):
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
    assert lstm.name.startswith("cudnn_compatible_lstm_cell")
    assert gru.name.startswith("cudnn_compatible_gru_cell")
    assert isinstance(lstm, RNNCell) and isinstance(both, RNNCell)


def test_object_based_checkpoint(session, tmp_path):
    cell = MultiRNNCell([CudnnCompatibleLSTMCell(2), CudnnCompatibleGRUCell(3)])
    call_cell(cell)
    if cell_base._NATIVE is None:
        cell.add_loss(tf.constant(1.0))  # not in the checkpoint
    values = formulas.random_weights(session, cell.variables)
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


def test_states_joined_in_one_tensor(session):
    cells = [CudnnCompatibleGRUCell(units) for units in (2, 3)]
    joined = MultiRNNCell(cells, state_is_tuple=False)
    assert joined.state_size == 5
    outputs, state = dynamic_rnn(joined)
    initialize(session)
    last_outputs, last_state = session.run([outputs[:, -1], state])
    assert last_state.shape == (formulas.BATCH, 5)
    np.testing.assert_array_equal(last_state[:, 2:], last_outputs)


def test_cells_are_instances_of_tensorflows_cells(session):
    try:
        native = tf.nn.rnn_cell.RNNCell
    except AttributeError:
        pytest.skip("TensorFlow with Keras 3 has no RNNCell")
    assert RNNCell is native and MultiRNNCell is tf.nn.rnn_cell.MultiRNNCell
    assert LSTMStateTuple is tf.nn.rnn_cell.LSTMStateTuple
    cell = CudnnCompatibleLSTMCell(NUM_UNITS)
    assert isinstance(cell, native)
    outputs, _ = dynamic_rnn(tf.nn.rnn_cell.DropoutWrapper(cell, output_keep_prob=1.0))
    initialize(session)
    assert session.run(outputs).shape == (formulas.BATCH, formulas.STEPS, NUM_UNITS)


def test_a_custom_cell_on_the_same_base(session, control_flow):
    class CountingCell(RNNCell):
        """Sums its weighted inputs; gets the weight variable in every call."""

        state_size = output_size = INPUT_SIZE

        def call(self, inputs, state):
            ones = tf.ones_initializer()
            total = state + inputs * tf.get_variable("weight", [INPUT_SIZE], initializer=ones)
            return total, total

    cell = CountingCell()
    call_cell(cell)
    outputs, _ = dynamic_rnn(cell)
    initialize(session)
    expected = np.cumsum(random_inputs(), axis=1)
    np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)


def refused(cell_class, text, inputs, state):
    with pytest.raises(ValueError, match=text):
        cell_class(5)(inputs, state)


def test_bad_inputs_and_states_of_an_lstm():
    x, h = tf.zeros([2, 3]), tf.zeros([2, 5])
    refuses = functools.partial(refused, CudnnCompatibleLSTMCell)
    refuses(r"\[batch, input_size\].*\(2, 3, 4", tf.zeros([2, 3, 4]), (h, h))
    refuses(r"state\.c .*\[2, 5\].*\(2, 4\)", x, LSTMStateTuple(tf.zeros([2, 4]), h))
    refuses(r"state\.h .*\[2, 5\].*\(3, 5\)", x, LSTMStateTuple(h, tf.zeros([3, 5])))
    for state in h, (h,):
        refuses(r"must be a pair \(c, h\)", x, state)
    text = "state.c .*dtype of inputs, float32, but has float64"
    refuses(text, x, LSTMStateTuple(tf.cast(h, tf.float64), h))


def test_bad_inputs_and_states_of_a_gru():
    x, h = tf.zeros([2, 3]), tf.zeros([2, 5])
    refuses = functools.partial(refused, CudnnCompatibleGRUCell)
    refuses(r"\[batch, input_size\].*\(2, 3, 4", tf.zeros([2, 3, 4]), h)
    refuses(r"\[batch, input_size\]", tf.zeros([3]), h)
    refuses(r"state .*\[2, 5\].*\(2, 4\)", x, tf.zeros([2, 4]))
    refuses(r"state .*\[2, 5\].*\(3, 5\)", x, tf.zeros([3, 5]))
    refuses("must be one tensor", x, (h, h))
    refuses(r"last dimension.*\(2, (None|\?)\)", tf.placeholder(tf.float32, [2, None]), h)
    refuses("last dimension", tf.placeholder(tf.float32, None), h)


def test_other_input_size_in_a_later_call(cell_class):
    cell = cell_class(NUM_UNITS)
    state = cell.zero_state(2, tf.float32)
    cell(tf.zeros([2, 3]), state)
    with pytest.raises(ValueError, match=r"inputs .*\[2, 3\] .*input_size.*\(2, 4\)"):
        cell(tf.zeros([2, 4]), state)


def test_bad_cells_of_multi_rnn_cell():
    with pytest.raises(TypeError, match="cells must be a list"):
        MultiRNNCell(CudnnCompatibleGRUCell(2))
    with pytest.raises(ValueError, match="at least one cell"):
        MultiRNNCell([])
    with pytest.raises(ValueError, match="state_is_tuple"):
        MultiRNNCell([CudnnCompatibleLSTMCell(2)], state_is_tuple=False)
    if cell_base._NATIVE is None:  # TensorFlow's own class only logs a warning
        with pytest.raises(ValueError, match="cells must be different objects.*listed twice"):
            MultiRNNCell([CudnnCompatibleGRUCell(2)] * 2)
    cell = MultiRNNCell([CudnnCompatibleGRUCell(2)])
    with pytest.raises(ValueError, match="state"):
        cell(tf.zeros([2, 3]), tf.zeros([2, 2]))
