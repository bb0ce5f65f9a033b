"""The layer interface of the cells: losses, inputs and outputs, copies, counts.

TensorFlow 1.15 has base classes for this; without them, the library uses its own.
"""

import copy

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell, MultiRNNCell
from cudnn_rnn.cells.compatible import RNNCell
from cudnn_rnn.tf1_layers import cell_base
from helpers.cell_formulas import BATCH, INPUT_SIZE, NUM_UNITS, SCOPE, call_cell, variable_shapes
from helpers.rnn_models import initialize

pytestmark = pytest.mark.usefixtures("session")

# The library's own base class follows TensorFlow's documentation; the base class of TensorFlow 1.15
# deviates from it in `input` and similar attributes.
HAS_OWN_BASE = cell_base._NATIVE is None
own_base = pytest.mark.skipif(not HAS_OWN_BASE, reason="this TensorFlow has its own base class")


@pytest.fixture
def cell(session, cell_class):
    return cell_class(NUM_UNITS)


PUBLIC = """
    activity_regularizer add_loss add_update add_variable apply build call count_params dtype
    get_initial_state get_input_at get_input_shape_at get_losses_for get_output_at
    get_output_shape_at get_updates_for graph losses name non_trainable_variables
    non_trainable_weights output_size scope_name state_size trainable_variables
    trainable_weights updates variables weights zero_state __call__ __deepcopy__
""".split()


def test_all_names_exist(cell):
    call_cell(cell)
    missing = [name for name in PUBLIC if not hasattr(cell, name)]
    assert missing in ([], ["__deepcopy__"])  # TensorFlow 1.15 copies without a method for it
    output, _ = cell.apply(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32))
    assert output.shape.as_list() == [BATCH, NUM_UNITS]


def test_initial_states(session, cell):
    """TensorFlow's own cells have the method, too, with the arguments in this order."""
    fed = tf.placeholder(tf.float64, [None, INPUT_SIZE])
    states = [
        cell.get_initial_state(tf.zeros([BATCH, INPUT_SIZE])),
        cell.get_initial_state(None, BATCH, tf.float32),
        cell.get_initial_state(tf.zeros([BATCH, INPUT_SIZE]), BATCH, tf.float32),
        cell.get_initial_state(inputs=fed),
    ]
    for state in states:
        tf.nest.assert_same_structure(state, cell.state_size)
        for part in tf.nest.flatten(session.run(state, {fed: np.zeros([BATCH, INPUT_SIZE])})):
            assert part.dtype == (np.float64 if state is states[-1] else np.float32)
            np.testing.assert_array_equal(part, np.zeros([BATCH, NUM_UNITS]))
    for wrong in [(), (None, BATCH), (tf.zeros([2, 3]), 5), (tf.zeros([2, 3]), 2, tf.float64)]:
        with pytest.raises(ValueError, match="batch|dtype"):
            cell.get_initial_state(*wrong)


def test_lists_as_inputs(session, cell_class):
    """Nested lists are a tensor; numbers in them are float32."""
    cell = cell_class(NUM_UNITS)
    rows = [[0.5] * INPUT_SIZE] * BATCH
    output, _ = cell(rows, cell.zero_state(BATCH, tf.float32))
    again, _ = cell(tf.constant(rows), cell.zero_state(BATCH, tf.float32))
    initialize(session)
    one, other = session.run([output, again])
    np.testing.assert_array_equal(one, other)


def test_a_step_is_the_same_in_training(session, cell_class):
    cell, inputs = cell_class(NUM_UNITS), tf.ones([BATCH, INPUT_SIZE])
    state = cell.zero_state(BATCH, tf.float32)
    outputs = [cell(inputs, state)[0], cell(inputs, state, training=True)[0]]
    initialize(session)
    np.testing.assert_array_equal(*session.run(outputs))


@pytest.mark.parametrize("name, expected", [("ones", 1.0), ("zeros", 0.0), ("orthogonal", None)])
def test_initializers_by_name(session, name, expected):
    cell = CudnnCompatibleGRUCell(NUM_UNITS, kernel_initializer=name)
    call_cell(cell)
    initialize(session)
    kernel = session.run(cell.variables[0])
    if expected is None:  # orthonormal rows, as there are fewer of them
        np.testing.assert_allclose(kernel @ kernel.T, np.eye(kernel.shape[0]), atol=1e-5)
    else:
        assert np.all(kernel == expected)
    with pytest.raises(ValueError, match="global_variables|no_such"):
        wrong = "global_variables" if HAS_OWN_BASE else "no_such"
        call_cell(CudnnCompatibleGRUCell(NUM_UNITS, kernel_initializer=wrong))


def test_variables_by_any_name(session, cell):
    assert not cell.built and cell.variables == [] and cell.losses == []
    call_cell(cell)
    names = [variable.op.name for variable in cell.variables]
    shapes = variable_shapes(type(cell))
    assert names == ["%s/%s" % (SCOPE[type(cell)], name) for name, _ in shapes]
    for same in (cell.weights, cell.trainable_variables, cell.trainable_weights):
        assert [variable.op.name for variable in same] == names
    assert cell.non_trainable_variables == [] and cell.non_trainable_weights == []
    assert cell.graph is (session.graph if HAS_OWN_BASE else None)
    assert cell.scope_name == SCOPE[type(cell)]
    assert cell.activity_regularizer is None
    assert cell.count_params() == sum(int(np.prod(shape)) for _, shape in shapes)


@pytest.mark.parametrize("batch", [None, 24.0, 24.5, "batch"])
def test_build_without_a_call(cell, batch):
    with pytest.raises(ValueError):
        cell.count_params()
    with pytest.raises(ValueError, match="has no scope_name before|has not been used yet"):
        cell.scope_name  # noqa: B018
    with tf.variable_scope("outer"):
        cell.build([batch, INPUT_SIZE])
    assert cell.built
    found = [variable.shape.as_list() for variable in cell.variables]
    assert found == [shape for _, shape in variable_shapes(type(cell))]


def test_regularizer_of_the_scope(session, cell_class):
    with tf.variable_scope("model", regularizer=tf.nn.l2_loss):
        cell = cell_class(NUM_UNITS)
        call_cell(cell)
        call_cell(cell)
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert cell.losses == (losses if HAS_OWN_BASE else [])
    initialize(session)
    found, values = session.run([losses, cell.variables])
    assert len(found) == len(variable_shapes(cell_class))
    expected = sorted(np.sum(value**2) / 2 for value in values)
    np.testing.assert_allclose(sorted(found), expected, rtol=1e-5)


@own_base
def test_regularizer_of_one_variable():
    class Cell(CudnnCompatibleGRUCell):
        def build(self, inputs_shape):
            super().build(inputs_shape)
            named = dict(initializer=tf.ones_initializer(), regularizer=tf.reduce_sum)
            self.scale = self.add_variable("scale", [3], trainable=False, **named)

    cell = Cell(NUM_UNITS)
    call_cell(cell)
    assert [variable.op.name for variable in cell.non_trainable_variables] == ["cell/scale"]
    assert len(cell.losses) == 1 and cell.losses == cell.get_losses_for(None)
    stacked = MultiRNNCell([Cell(NUM_UNITS), Cell(NUM_UNITS)])
    call_cell(stacked)
    assert len(stacked.losses) == 2


@own_base
@pytest.mark.parametrize("missing", ["state_size", "output_size", "call"])
def test_an_unfinished_cell(missing):
    class Unfinished(RNNCell):
        pass

    cell = Unfinished()
    with pytest.raises(NotImplementedError, match="^Unfinished does not define %s$" % missing):
        getattr(cell, missing) if missing != "call" else cell(tf.zeros([2, 3]), tf.zeros([2, 4]))


@own_base
def test_variables_of_a_cell_of_another_library():
    class Foreign:
        """Adds a variable that is trained, and one that is not, to the inputs."""

        state_size = output_size = NUM_UNITS

        def __init__(self):
            self.trainable_variables = [tf.get_variable("trained", [NUM_UNITS])]
            self.non_trainable_variables = [tf.get_variable("fixed", [NUM_UNITS], trainable=False)]

        def __call__(self, inputs, state):
            output = inputs + self.trainable_variables[0] + self.non_trainable_variables[0]
            return output, state

    stack = MultiRNNCell([CudnnCompatibleGRUCell(NUM_UNITS), Foreign()])
    states = tuple(tf.zeros([BATCH, NUM_UNITS]) for _ in range(2))
    stack(tf.zeros([BATCH, INPUT_SIZE]), states)
    own = [variable for variable in tf.global_variables() if "gru" in variable.name]
    names = [variable.op.name for variable in own]
    assert len(own) == 6
    found = [variable.op.name for variable in stack.trainable_variables]
    assert found == names + ["trained"]
    assert [variable.op.name for variable in stack.non_trainable_variables] == ["fixed"]
    assert [variable.op.name for variable in stack.variables] == names + ["trained", "fixed"]


@own_base
def test_losses_and_updates_of_inputs(cell):
    inputs, _ = call_cell(cell)
    always, sometimes, update = tf.constant(1.0), tf.reduce_sum(inputs), tf.no_op()
    cell.add_loss(always)
    cell.add_loss([sometimes], inputs=inputs)
    cell.add_update(update, inputs=[inputs])
    assert cell.losses == [always, sometimes]
    assert cell.get_losses_for(None) == [always] and cell.get_losses_for(inputs) == [sometimes]
    assert cell.updates == [update] == cell.get_updates_for(inputs)
    assert cell.get_updates_for(None) == []
    collected = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert collected == [always, sometimes]
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == [update]


@own_base
def test_inputs_and_outputs_of_calls():
    cell = CudnnCompatibleLSTMCell(NUM_UNITS)
    with pytest.raises(AttributeError, match="was called 0 times, but has a single input only"):
        cell.input  # noqa: B018
    with pytest.raises(RuntimeError, match="has no output before its first call"):
        cell.get_output_at(0)
    inputs, (output, state) = call_cell(cell)
    assert cell.input is inputs
    assert [tensor is other for tensor, other in zip(cell.output, [output, *state])] == [True] * 3
    assert cell.input_shape == (BATCH, INPUT_SIZE)
    assert cell.output_shape == [(BATCH, NUM_UNITS)] * 3
    again, (output, state) = call_cell(cell)
    assert cell.get_input_at(1) is again and cell.get_output_at(1)[2] is state.h
    assert cell.get_input_shape_at(1) == (BATCH, INPUT_SIZE) == cell.input_shape
    with pytest.raises(AttributeError, match="was called 2 times"):
        cell.output  # noqa: B018
    with pytest.raises(ValueError, match="index 2: it was called 2 times"):
        cell.get_input_at(2)
    call_cell(cell, BATCH + 1)
    with pytest.raises(AttributeError, match="different shapes"):
        cell.input_shape  # noqa: B018
    assert cell.get_output_shape_at(2)[0] == (BATCH + 1, NUM_UNITS)


def test_a_copy_of_an_unused_cell_has_its_own_variables(cell):
    cells = [cell, copy.deepcopy(cell), copy.deepcopy(cell)]
    call_cell(MultiRNNCell(cells))
    num_variables = len(variable_shapes(type(cell)))
    assert len(tf.global_variables()) == 3 * num_variables
    assert all(len(one.variables) == num_variables for one in cells)


@own_base
def test_a_copy_of_a_used_cell_shares_its_variables(cell):
    call_cell(cell)
    cell.add_loss(tf.constant(1.0))
    copied = copy.deepcopy(cell)
    assert copied is not cell and copied.state_size == cell.state_size
    assert all(one is other for one, other in zip(copied.variables, cell.variables))
    call_cell(copied)
    assert len(tf.global_variables()) == len(cell.variables)
    copied.add_loss(tf.constant(2.0))
    assert len(cell.losses) == 1 and len(copied.losses) == 2
    assert len(copied._calls) == 1


@own_base
def test_a_copy_keeps_settings(session, cell_class):
    settings = {}
    if cell_class is CudnnCompatibleGRUCell:
        settings["kernel_initializer"] = tf.constant_initializer(0.5)
    copied = copy.deepcopy(cell_class(NUM_UNITS, reuse=tf.AUTO_REUSE, **settings))
    assert copied._reuse == tf.AUTO_REUSE
    call_cell(copied)
    initialize(session)
    if settings:
        assert (session.run(copied.variables[0]) == 0.5).all()


@own_base
def test_eager_execution(eager):
    cell = CudnnCompatibleGRUCell(NUM_UNITS)
    call_cell(cell)
    for ask in (
        lambda: cell.input,
        lambda: cell.graph,
        lambda: cell.get_output_at(0),
        lambda: cell.add_loss(tf.constant(1.0)),
    ):
        with pytest.raises(RuntimeError, match="available only in graph mode"):
            ask()
    assert cell.losses == [] and len(cell.variables) == 6
    assert cell._calls == []


PRIVATE = {
    CudnnCompatibleLSTMCell: {"_kernel": "kernel", "_bias": "bias"},
    CudnnCompatibleGRUCell: {
        "_gate_kernel": "gates/kernel",
        "_gate_bias": "gates/bias",
        "_candidate_input_kernel": "candidate/input_projection/kernel",
        "_candidate_hidden_kernel": "candidate/hidden_projection/kernel",
        "_candidate_input_bias": "candidate/input_projection/bias",
        "_candidate_hidden_bias": "candidate/hidden_projection/bias",
    },
}


@pytest.mark.parametrize("cls", PRIVATE)
def test_private_names_of_the_original(cls):
    """Programs read them, to regularize a kernel; each variable has one."""
    cell = cls(NUM_UNITS)
    with pytest.raises(AttributeError):
        getattr(cell, next(iter(PRIVATE[cls])))
    call_cell(cell)
    found = {name: getattr(cell, name) for name in PRIVATE[cls]}
    for name, end in PRIVATE[cls].items():
        assert found[name].name.endswith("_cell/%s:0" % end)
    assert {id(one) for one in found.values()} == {id(one) for one in cell.variables}


def test_a_subclass_may_use_a_private_name_for_itself():
    class Cell(CudnnCompatibleLSTMCell):
        def __init__(self):
            super().__init__(NUM_UNITS)
            self._bias = "mine"

    cell = Cell()
    call_cell(cell)
    assert cell._bias == "mine" and cell._kernel is cell.kernel
