"""The layer interface of the cells: losses, inputs and outputs, copies, counts.

TensorFlow 1.15 has base classes for this; without them, the library uses its own.
"""

import copy

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

from cudnn_rnn.cells import base
from cudnn_rnn.cells.compatible import (
    CudnnCompatibleGRUCell,
    CudnnCompatibleLSTMCell,
    MultiRNNCell,
)
from helpers.cell_formulas import BATCH, CELLS, INPUT_SIZE, NUM_UNITS, SCOPE, variable_shapes

tf.logging.set_verbosity(tf.logging.ERROR)

# The library's own base class follows TensorFlow's documentation; the base class of TensorFlow 1.15
# deviates from it in `input` and similar attributes.
HAS_OWN_BASE = base._NATIVE is None
own_base = pytest.mark.skipif(not HAS_OWN_BASE, reason="this TensorFlow has its own base class")


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def called(cell, batch=BATCH):
    inputs = tf.zeros([batch, INPUT_SIZE])
    return inputs, cell(inputs, cell.zero_state(batch, tf.float32))


PUBLIC = """
    activity_regularizer add_loss add_update add_variable apply build call count_params dtype
    get_input_at get_input_shape_at get_losses_for get_output_at get_output_shape_at
    get_updates_for graph losses name non_trainable_variables non_trainable_weights output_size
    scope_name state_size trainable_variables trainable_weights updates variables weights zero_state
    __call__ __deepcopy__
""".split()


@pytest.mark.parametrize("cell_class", CELLS)
def test_all_names_exist(cell_class):
    cell = cell_class(NUM_UNITS)
    called(cell)
    missing = [name for name in PUBLIC if not hasattr(cell, name)]
    assert missing in ([], ["__deepcopy__"])  # TensorFlow 1.15 copies without a method for it


@pytest.mark.parametrize("cell_class", CELLS)
def test_variables_by_any_name(cell_class, graph):
    cell = cell_class(NUM_UNITS)
    assert not cell.built and cell.variables == [] and cell.losses == []
    called(cell)
    names = [variable.op.name for variable in cell.variables]
    shapes = variable_shapes(cell_class, INPUT_SIZE, NUM_UNITS)
    assert names == ["%s/%s" % (SCOPE[cell_class], name) for name, _ in shapes]
    for same in (cell.weights, cell.trainable_variables, cell.trainable_weights):
        assert [variable.op.name for variable in same] == names
    assert cell.non_trainable_variables == [] and cell.non_trainable_weights == []
    assert cell.graph is (graph if HAS_OWN_BASE else None)
    assert cell.scope_name == SCOPE[cell_class]
    assert cell.activity_regularizer is None
    assert cell.count_params() == sum(int(np.prod(shape)) for _, shape in shapes)


@pytest.mark.parametrize("cell_class", CELLS)
def test_count_params_before_build(cell_class):
    with pytest.raises(ValueError):
        cell_class(NUM_UNITS).count_params()


@pytest.mark.parametrize("cell_class", CELLS)
def test_apply_is_calling(cell_class):
    cell = cell_class(NUM_UNITS)
    output, _ = cell.apply(tf.zeros([BATCH, INPUT_SIZE]), cell.zero_state(BATCH, tf.float32))
    assert output.shape.as_list() == [BATCH, NUM_UNITS]


@pytest.mark.parametrize("cell_class", CELLS)
def test_build_without_a_call(cell_class):
    cell = cell_class(NUM_UNITS)
    with tf.variable_scope("outer"):
        cell.build([None, INPUT_SIZE])
    assert cell.built
    assert [tuple(variable.shape.as_list()) for variable in cell.variables] == [
        tuple(shape) for _, shape in variable_shapes(cell_class, INPUT_SIZE, NUM_UNITS)
    ]


@pytest.mark.parametrize("cell_class", CELLS)
def test_regularizer_of_the_scope(cell_class):
    with tf.variable_scope("model", regularizer=tf.nn.l2_loss):
        cell = cell_class(NUM_UNITS)
        called(cell)
        called(cell)
    num_variables = len(variable_shapes(cell_class, INPUT_SIZE, NUM_UNITS))
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert cell.losses == (losses if HAS_OWN_BASE else [])
    assert len(losses) == num_variables
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run(losses)
        values = session.run(cell.variables)
    np.testing.assert_allclose(
        sorted(found), sorted(np.sum(value**2) / 2 for value in values), rtol=1e-5
    )


@own_base
def test_regularizer_of_one_variable():
    class Cell(CudnnCompatibleGRUCell):
        def build(self, inputs_shape):
            super().build(inputs_shape)
            self.scale = self.add_variable(
                "scale",
                [3],
                initializer=tf.ones_initializer(),
                regularizer=tf.reduce_sum,
                trainable=False,
            )

    cell = Cell(NUM_UNITS)
    called(cell)
    assert [variable.op.name for variable in cell.non_trainable_variables] == ["cell/scale"]
    assert len(cell.losses) == 1 and cell.losses == cell.get_losses_for(None)
    stacked = MultiRNNCell([Cell(NUM_UNITS), Cell(NUM_UNITS)])
    called(stacked)
    assert len(stacked.losses) == 2


@own_base
@pytest.mark.parametrize("cell_class", CELLS)
def test_losses_and_updates_of_inputs(cell_class):
    cell = cell_class(NUM_UNITS)
    inputs, _ = called(cell)
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
    inputs, (output, state) = called(cell)
    assert cell.input is inputs
    assert [tensor is other for tensor, other in zip(cell.output, [output, *state])] == [True] * 3
    assert cell.input_shape == (BATCH, INPUT_SIZE)
    assert cell.output_shape == [(BATCH, NUM_UNITS)] * 3
    again, (output, state) = called(cell)
    assert cell.get_input_at(1) is again and cell.get_output_at(1)[2] is state.h
    assert cell.get_input_shape_at(1) == (BATCH, INPUT_SIZE) == cell.input_shape
    with pytest.raises(AttributeError, match="was called 2 times"):
        cell.output  # noqa: B018
    with pytest.raises(ValueError, match="index 2: it was called 2 times"):
        cell.get_input_at(2)
    called(cell, BATCH + 1)
    with pytest.raises(AttributeError, match="different shapes"):
        cell.input_shape  # noqa: B018
    assert cell.get_output_shape_at(2)[0] == (BATCH + 1, NUM_UNITS)


@pytest.mark.parametrize("cell_class", CELLS)
def test_a_copy_of_an_unused_cell_has_its_own_variables(cell_class):
    cell = cell_class(NUM_UNITS)
    cells = [cell, copy.deepcopy(cell), copy.deepcopy(cell)]
    called(MultiRNNCell(cells))
    num_variables = len(variable_shapes(cell_class, INPUT_SIZE, NUM_UNITS))
    assert len(tf.global_variables()) == 3 * num_variables
    assert all(len(one.variables) == num_variables for one in cells)


@own_base
@pytest.mark.parametrize("cell_class", CELLS)
def test_a_copy_of_a_used_cell_shares_its_variables(cell_class):
    cell = cell_class(NUM_UNITS)
    called(cell)
    cell.add_loss(tf.constant(1.0))
    copied = copy.deepcopy(cell)
    assert copied is not cell and copied.state_size == cell.state_size
    assert all(one is other for one, other in zip(copied.variables, cell.variables))
    called(copied)
    assert len(tf.global_variables()) == len(cell.variables)
    copied.add_loss(tf.constant(2.0))
    assert len(cell.losses) == 1 and len(copied.losses) == 2
    assert len(copied._calls) == 1


@own_base
@pytest.mark.parametrize("cell_class", CELLS)
def test_a_copy_keeps_settings(cell_class):
    settings = {}
    if cell_class is CudnnCompatibleGRUCell:
        settings["kernel_initializer"] = tf.constant_initializer(0.5)
    copied = copy.deepcopy(cell_class(NUM_UNITS, reuse=tf.AUTO_REUSE, **settings))
    assert copied._reuse == tf.AUTO_REUSE
    called(copied)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        if settings:
            assert (session.run(copied.variables[0]) == 0.5).all()


@own_base
def test_records_do_not_enter_object_based_checkpoints(tmp_path):
    cell = CudnnCompatibleLSTMCell(NUM_UNITS)
    called(cell)
    cell.add_loss(tf.constant(1.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = tf.train.Checkpoint(cell=cell).save(str(tmp_path / "checkpoint"), session)
    keys = [name for name, _ in tf.train.list_variables(path)]
    assert [key.split("/.ATTR")[0] for key in keys if key.startswith("cell")] == [
        "cell/bias",
        "cell/kernel",
    ]


@own_base
def test_eager_execution():
    with context.eager_mode():
        cell = CudnnCompatibleGRUCell(NUM_UNITS)
        called(cell)
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
