"""Inputs, states and masks of shapes that a Keras layer was not built for.

The kernels take their sizes from the tensors, and parameters may be more than they need. So tensors
of smaller sizes would give results of another model.
"""

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from helpers.keras_layers import (
    BATCH,
    KINDS,
    STEPS,
    UNITS,
    WIDTH,
    build,
    make,
    make_inputs,
    pair,
    random_mask,
)

pytestmark = pytest.mark.usefixtures("eager")
NARROW = make_inputs(shape=(BATCH, STEPS, WIDTH - 1))
STACK = "stack"


def layer_of(kind, **named):
    if kind == STACK:
        return build(ours.RNNStack("lstm", 2, UNITS, **named))
    return build(make(ours, kind, UNITS, **named))


def unknown_shape(array):
    return tf.TensorSpec([None] * array.ndim, tf.float32)


@pytest.mark.parametrize("training", [None, True, False])
@pytest.mark.parametrize("kind", (*KINDS, STACK))
def test_narrow_inputs(kind, training):
    layer = layer_of(kind)
    with pytest.raises(ValueError, match=r"inputs must have shape \[\?, \?, 4\] .*\[3, 6, 3\]"):
        layer(tf.constant(NARROW), training=training)

    @tf.function(input_signature=[unknown_shape(NARROW)])
    def run(inputs):
        return layer(inputs, training=training)

    assert run(tf.constant(make_inputs())).shape == (BATCH, UNITS)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[3,6,3\].*\[\?,\?,4\]"):
        run(tf.constant(NARROW))


@pytest.mark.parametrize("kind", (*KINDS, STACK))
def test_narrow_states(kind):
    layer = layer_of(kind)
    count = 2 if kind in ("LSTM", STACK) else 1
    shape = (BATCH, 2, UNITS) if kind == STACK else (BATCH, UNITS)
    states = [tf.zeros(shape)] * count
    assert layer(make_inputs(), initial_state=states).shape == (BATCH, UNITS)
    narrow = [tf.zeros(shape[:-1] + (UNITS - 1,))] * count
    with pytest.raises(ValueError, match=r"initial_state\[0\] must have shape \[\?, .*5\]"):
        layer(make_inputs(), initial_state=narrow)
    with pytest.raises(ValueError, match=r"initial_state\[%d\] must have" % (count - 1)):
        layer(make_inputs(), initial_state=states[1:] + narrow[:1])


def test_states_of_another_number_of_layers():
    layer = layer_of(STACK)
    states = [tf.zeros((BATCH, 1, UNITS))] * 2
    with pytest.raises(ValueError, match=r"\[\?, 2, 5\] \(\[batch, num_layers \* directions, uni"):
        layer(make_inputs(), initial_state=states)


@pytest.mark.parametrize("kind", (*KINDS, STACK))
def test_complex_inputs(kind):
    with pytest.raises(TypeError, match=r"inputs must be real, but is of dtype complex64\."):
        layer_of(kind)(tf.complex(make_inputs(), make_inputs()))


@pytest.mark.parametrize("kind", KINDS)
def test_masks(kind):
    mask = random_mask(np.random.RandomState(4), "random", BATCH, STEPS)
    (_, layer), inputs = pair(kind), make_inputs()
    expected = layer(inputs, mask=tf.constant(mask)).numpy()
    np.testing.assert_array_equal(layer(inputs, mask=tf.constant(mask[:, :, None])), expected)
    for wrong in (mask[:, 0], mask[:, :, None, None], np.ones((BATCH, STEPS, 2), bool)):
        with pytest.raises(ValueError, match="mask must have shape"):
            layer(inputs, mask=tf.constant(wrong))
