"""`BasicRNNCell` and `stack_bidirectional_dynamic_rnn`: values, names of variables, errors."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import BasicRNNCell, CudnnCompatibleGRUCell
from cudnn_rnn import stack_bidirectional_dynamic_rnn as stack
from helpers.arrays import assert_equal
from helpers.cell_formulas import (
    BATCH,
    INPUT_SIZE,
    NUM_UNITS,
    STEPS,
    names_and_shapes,
    random_inputs,
)
from helpers.rnn_models import initialize

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize("activation", [None, tf.nn.relu, "relu"])
def test_basic_cell(session, activation):
    inputs = random_inputs()
    cell = BasicRNNCell(NUM_UNITS, activation=activation)
    outputs, state = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=tf.float32)
    variables = tf.global_variables()
    assert names_and_shapes(variables) == [
        ("rnn/basic_rnn_cell/kernel", [INPUT_SIZE + NUM_UNITS, NUM_UNITS]),
        ("rnn/basic_rnn_cell/bias", [NUM_UNITS]),
    ]
    initialize(session)
    kernel, bias = session.run(variables)
    assert not bias.any()
    found, last = session.run([outputs, state])
    function = np.tanh if activation is None else lambda x: np.maximum(x, 0)
    h = np.zeros([BATCH, NUM_UNITS])
    for t in range(STEPS):
        h = function(np.concatenate([inputs[:, t], h], 1).dot(kernel))
        np.testing.assert_allclose(found[:, t], h, atol=1e-6)
    np.testing.assert_allclose(last, h, atol=1e-6)


def test_basic_cell_is_a_cell():
    cell = BasicRNNCell(NUM_UNITS, name="mine")
    assert cell.state_size == cell.output_size == NUM_UNITS
    assert isinstance(cell, cudnn_rnn.cells.compatible.RNNCell)
    cell(tf.zeros([2, 3]), cell.zero_state(2, tf.float32))
    assert [v.op.name for v in cell.variables] == ["mine/kernel", "mine/bias"]
    again = BasicRNNCell(NUM_UNITS, reuse=True, name="mine")
    again(tf.zeros([2, 3]), again.zero_state(2, tf.float32))
    assert len(tf.global_variables()) == 2


own_cell = pytest.mark.skipif(
    cudnn_rnn.tf1_layers.cell_base._NATIVE is not None, reason="this TensorFlow has its own cell"
)


@own_cell
@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((2.5,), TypeError, "num_units must be a positive integer"),
        ((0,), ValueError, "num_units must be between 1 and"),
        ((2, "no_such_function"), TypeError, "activation must be a function"),
    ],
)
def test_wrong_basic_cell(arguments, error, message):
    with pytest.raises(error, match=message):
        BasicRNNCell(*arguments)


@own_cell
def test_basic_cell_with_inputs_of_unknown_size():
    message = r"inputs of BasicRNNCell must have a last dimension that is known .*\(2, (None|\?)\)"
    with pytest.raises(ValueError, match=message):
        BasicRNNCell(NUM_UNITS)(tf.placeholder(tf.float32, [2, None]), tf.zeros([2, NUM_UNITS]))


def cells(cell_class=CudnnCompatibleGRUCell, num_layers=2):
    return [cell_class(NUM_UNITS) for _ in range(num_layers)]


@pytest.mark.parametrize("cell_class", [CudnnCompatibleGRUCell, BasicRNNCell])
def test_names_of_a_bidirectional_stack(cell_class):
    with tf.variable_scope("model"):
        stack(cells(cell_class), cells(cell_class), random_inputs(), dtype=tf.float32)
    scopes = {v.op.name.rsplit("_cell/", 1)[0] for v in tf.global_variables()}
    prefix = "basic_rnn" if cell_class is BasicRNNCell else "cudnn_compatible_gru"
    assert scopes == {
        "model/stack_bidirectional_rnn/cell_%d/bidirectional_rnn/%s/%s" % (layer, way, prefix)
        for layer in range(2)
        for way in ("fw", "bw")
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("lengths", [None, [5, 0, 2]])
def test_a_bidirectional_stack_equals_its_layers(session, lengths, time_major):
    inputs = random_inputs()
    states = [tf.ones([BATCH, NUM_UNITS]) * value for value in (0.1, 0.2, 0.3, 0.4)]
    named = dict(sequence_length=lengths, dtype=tf.float32)
    output, forward, backward = stack(
        cells(),
        cells(),
        inputs.swapaxes(0, 1) if time_major else inputs,
        states[:2],
        states[2:],
        scope="one",
        time_major=time_major,
        **named,
    )
    first, second = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    assert output.shape.as_list() == [first, second, 2 * NUM_UNITS]
    layer = tf.constant(inputs)
    for index in range(2):
        with tf.variable_scope("one/cell_%d" % index, reuse=True):
            both, last = tf.nn.bidirectional_dynamic_rnn(
                *cells(),
                layer,
                initial_state_fw=states[index],
                initial_state_bw=states[2 + index],
                **named,
            )
        layer = tf.concat(both, 2)
    assert isinstance(forward, tuple) and len(forward) == len(backward) == 2
    output = tf.transpose(output, [1, 0, 2]) if time_major else output
    initialize(session)
    assert_equal(*session.run([(output, forward[1], backward[1]), (layer, *last)]))


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(cells_fw=None), "cells_fw must be a list"),
        (dict(cells_bw=[]), "cells_bw must have an item for each layer"),
        (dict(cells_bw=cells(num_layers=1)), "cells_bw must have as many items as cells_fw, 2"),
        (dict(initial_states_fw=[None]), "initial_states_fw must have as many items"),
        (dict(initial_states_bw=3), "initial_states_bw must be a list"),
    ],
)
def test_wrong_stacks(change, message):
    arguments = dict(cells_fw=cells(), cells_bw=cells(), inputs=random_inputs())
    with pytest.raises(ValueError, match=message):
        stack(dtype=tf.float32, **dict(arguments, **change))
