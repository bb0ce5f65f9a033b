"""Regression tests for problems that users of the original had when building and running models.

Each docstring describes the original problem. The test names give the issue numbers, those of
TensorFlow unless another repository is named. Training, checkpoints and frozen graphs have files of
their own: `test_known_issues_training.py`, `test_known_issues_saving.py`, `test_foreign_graphs.py`.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.model import layout
from helpers.arrays import assert_equal
from helpers.layer_models import (
    BATCH,
    LAYERS,
    STEPS,
    UNITS,
    WIDTH,
    assert_like_reference,
    built_layer,
    make_inputs,
    set_params,
)
from helpers.rnn_models import CLASSES, call_arguments, initialize, opaque_values


@pytest.mark.parametrize("use_resource", [False, True])
def test_6620_9422_the_variable_of_the_parameters_has_a_static_shape(session, use_resource):
    """A variable of params_size elements had no static shape, nor had tensors computed from it."""
    model = cudnn_rnn.CudnnLSTM(2, UNITS, WIDTH)
    params = tf.Variable(tf.random_uniform([model.params_size()]), use_resource=use_resource)
    assert params.shape.as_list() == [layout.params_size(model.config)]
    assert tf.gradients(tf.nn.l2_loss(params), params)[0].shape == params.shape
    outer = tf.get_variable("outer", [], initializer=tf.zeros_initializer())
    initial = tf.zeros([model.params_size()]) + outer.shape.rank
    inner = tf.get_variable("inner", initializer=initial, use_resource=use_resource)
    assert inner.shape == params.shape


@pytest.mark.parametrize("classes", [CLASSES, LAYERS], ids=["op_level", "layer"])
def test_6466_dropout_of_a_single_layer_is_warned_about_once(session, classes, recwarn):
    """dropout=0.5 on one layer had no effect, and no warning said so."""
    sizes = (UNITS, WIDTH) if classes is CLASSES else (UNITS,)
    for num_layers, dropout in (1, 0.0), (2, 0.5), (1, 0.5):
        recwarn.clear()
        model = classes["gru"](num_layers, *sizes, dropout=dropout)
        for _ in range(2):
            if classes is CLASSES:
                model(**call_arguments(model))
            else:
                model(make_inputs())
        texts = [str(warning.message) for warning in recwarn if "dropout" in str(warning.message)]
        assert len(texts) == (num_layers == 1 and dropout > 0), texts
    assert "dropout=0.5 has no effect in a CudnnGRU of one layer" in texts[0]


# The lengths of three sequences in consecutive calls; 0 is a row of padding only.
LENGTHS_OF_CALLS = ([5, 5, 5], [1, 4, 2], [0, 3, 5], [0, 0, 0], [5, 0, 1], [2, 2, 2])


def test_6633_23269_41630_lengths_that_change_with_every_batch(session, rnn_mode, direction):
    """Lengths were unsupported; later they failed if they were 0 or changed between calls."""
    layer = LAYERS[rnn_mode](2, UNITS, direction=direction)
    inputs = tf.placeholder(tf.float32, [None, None, WIDTH])
    lengths = tf.placeholder(tf.int32, [None])
    outputs, states = layer(inputs, sequence_lengths=lengths)
    loss = tf.add_n([tf.reduce_sum(tensor) for tensor in (outputs,) + states])
    gradient = tf.gradients(loss, inputs)[0]
    params = set_params(session, layer)
    for seed, batch_lengths in enumerate(LENGTHS_OF_CALLS):
        values = make_inputs(seed=seed)
        feeds = {inputs: values, lengths: batch_lengths}
        found, found_gradient = session.run([(outputs,) + states, gradient], feeds)
        assert_like_reference(found, layer, params, values, lengths=batch_lengths)
        for row, length in enumerate(batch_lengths):
            assert not found[0][length:, row].any()
            assert not found_gradient[length:, row].any()
        assert found_gradient.any() == any(batch_lengths)


@pytest.mark.parametrize("num_layers, direction", [(1, "unidirectional"), (2, "bidirectional")])
def test_33148_36139_batches_of_other_sizes_and_lengths_in_eager_mode(
    eager, rnn_mode, num_layers, direction
):
    """In eager mode, a batch with another size or shorter sequences than the first one failed."""
    layer = built_layer(rnn_mode, num_layers, direction=direction)
    size = layer.kernel.shape.num_elements()  # With the first values, all ReLUs may be 0.
    layer.kernel.assign(np.random.RandomState(3).uniform(-1, 1, size))
    batches = [(5, None), (5, [5, 3]), (7, [2, 7, 0, 1]), (2, [0]), (5, [1, 5])]
    for steps, lengths in batches + [(1, [1, 1]), (5, [0, 0])]:
        inputs = make_inputs(steps=steps, batch=len(lengths or [5, 5]))
        with tf.GradientTape() as tape:
            outputs, states = layer(inputs, sequence_lengths=lengths)
            loss = tf.reduce_sum(outputs)
        assert isinstance(states, tuple)
        found = [value.numpy() for value in (outputs, *states)]
        assert_like_reference(found, layer, layer.kernel.numpy(), inputs, lengths=lengths)
        gradient = tape.gradient(loss, layer.kernel).numpy()
        assert np.isfinite(gradient).all() and gradient.any() == any(lengths or [5])


def test_8311_the_gru_is_not_grucell_but_the_compatible_cell(session):
    """GRUCell gave other outputs for a CudnnGRU's weights; users had to guess the formula."""
    gru = CLASSES["gru"](1, UNITS, WIDTH)
    params = tf.Variable(np.random.RandomState(5).uniform(-1, 1, layout.params_size(gru.config)))
    params = tf.cast(params, tf.float32)
    inputs = make_inputs()
    outputs, _ = gru(inputs, tf.zeros([1, BATCH, UNITS]), params, is_training=False)
    cell = cudnn_rnn.CudnnCompatibleGRUCell(UNITS)
    cell_outputs, _ = tf.nn.dynamic_rnn(
        cell, tf.constant(inputs), dtype=tf.float32, time_major=True
    )
    converter = cudnn_rnn.CudnnParamsFormatConverterGRU(1, UNITS, WIDTH)
    initialize(session)
    for kind, values in zip(("kernel", "bias"), converter.opaque_to_tf_canonical(params)):
        variables = [variable for variable in cell.variables if variable.op.name.endswith(kind)]
        assert len(variables) == len(values) == 3
        for variable, value in zip(variables, values):
            session.run(variable.assign(value))
    found, of_cell, by_gate = session.run([outputs, cell_outputs, gru.params_to_canonical(params)])
    np.testing.assert_allclose(found, of_cell, rtol=1e-5, atol=1e-6)

    documented, as_grucell = (gru_by_formula(inputs, *by_gate, after=after) for after in (1, 0))
    np.testing.assert_allclose(found, documented, rtol=1e-5, atol=1e-6)
    assert np.abs(found - as_grucell).max() > 0.01


def gru_by_formula(inputs, weights, biases, after):
    """The documented GRU; with `after` false GRUCell, which resets before the matrix product."""
    w_r, w_u, w_n, r_r, r_u, r_n = (matrix.T for matrix in weights)
    bw_r, bw_u, bw_n, br_r, br_u, br_n = biases
    h, outputs = np.zeros([BATCH, UNITS]), []
    for x in inputs:
        reset = 1 / (1 + np.exp(-(x @ w_r + bw_r + h @ r_r + br_r)))
        update = 1 / (1 + np.exp(-(x @ w_u + bw_u + h @ r_u + br_u)))
        recurrent = reset * (h @ r_n + br_n) if after else (reset * h) @ r_n + br_n
        h = (1 - update) * np.tanh(x @ w_n + bw_n + recurrent) + update * h
        outputs.append(h)
    return np.stack(outputs)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_18669_other_dtypes(session, rnn_mode, dtype):
    """float16 layers failed."""
    layer = LAYERS[rnn_mode](2, UNITS, dtype=tf.as_dtype(dtype))
    inputs = make_inputs(dtype)
    outputs, states = layer(tf.constant(inputs), training=True)
    assert {tensor.dtype for tensor in (outputs, *states)} == {tf.as_dtype(dtype)}
    assert layer.kernel.dtype.base_dtype == layer.dtype == dtype
    gradient = tf.gradients(tf.reduce_sum(outputs), layer.kernel)[0]
    params = set_params(session, layer)
    found, gradient = session.run([(outputs, *states), gradient])
    assert_like_reference(found, layer, params, inputs, dtype)
    assert gradient.dtype == dtype and np.isfinite(gradient).all() and gradient.any()


@pytest.mark.parametrize("lengths", [None, [5, 0, 2]], ids=["full", "lengths"])
def test_13860_training_as_a_placeholder_of_a_layer(session, rnn_mode, lengths):
    """`training` had to be a Python bool; one graph must both train with dropout and evaluate."""
    layer = LAYERS[rnn_mode](2, UNITS, dropout=1.0)  # drops everything
    training = tf.placeholder(tf.bool, [])
    inputs = make_inputs()
    outputs, states = layer(inputs, sequence_lengths=lengths, training=training)
    assert outputs.shape.as_list() == [STEPS, BATCH, UNITS]
    both = {value: layer(inputs, None, lengths, True, value) for value in (True, False)}
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(outputs))
    before = set_params(session, layer)
    found = {}
    for value in (True, False):
        expected, found[value] = session.run([both[value], (outputs, states)], {training: value})
        assert_equal(found[value], expected)
    assert np.abs(found[True][0] - found[False][0]).max() > 1e-3
    session.run(train, {training: True})
    assert np.abs(session.run(layer.kernel) - before).max() > 0


def test_15752_models_of_different_sizes_in_eager_mode(eager):
    """In eager mode, the second CudnnGRU of a program got the kernel of the first, and failed."""
    for num_units, width, batch in ((2, 4, 3), (5, 3, 1), (2, 4, 4), (3, 3, 3)):
        model = CLASSES["gru"](1, num_units, width)
        params = tf.constant(opaque_values(int(model.params_size())))
        inputs = make_inputs(width=width, batch=batch)
        of_model = model(inputs, tf.zeros([1, batch, num_units]), params)
        layer = built_layer("gru", 1, num_units, width)
        layer.kernel.assign(params)
        outputs, (state,) = layer(inputs)
        for found in of_model, (outputs, state):
            found = [tensor.numpy() for tensor in found]
            assert_like_reference(found, layer, params.numpy(), inputs)
