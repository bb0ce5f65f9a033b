"""The layers of `cudnn_rnn.keras` in TensorFlow 2 on a GPU, compared with the same layers on a CPU.

The variables stay on the CPU. The layers run no matrix product of TensorFlow's, whose library may
be missing on the GPU; so there is no comparison with Keras's own layers here.
"""

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras
from helpers.keras_layers import (
    BATCH,
    KINDS,
    STEPS,
    UNITS,
    WIDTH,
    build,
    make_inputs,
    outputs_and_gradients,
    random_mask,
)
from helpers.op_harness import TOLERANCES, assert_close


def make_layer(kind, **named):
    with tf.device("/cpu:0"):
        layer = getattr(cudnn_rnn.keras, kind)(UNITS, return_sequences=True, **named)
        return build(layer, (BATCH, STEPS, WIDTH))


def run_on(device, layer, in_function, inputs, **named):
    """Returns the layer's outputs, states and gradients as arrays by name."""
    run = tf.function(outputs_and_gradients) if in_function else outputs_and_gradients
    with tf.device(device):
        found = run(layer, tf.constant(inputs), **named)
    expected, actual = map(tf.DeviceSpec.from_string, (device, found[0].device))
    assert actual.device_type == expected.device_type, found[0].device
    return {str(index): value.numpy() for index, value in enumerate(found)}


@pytest.mark.parametrize("masks", [None, "right-padded", "any"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_on_both_devices(op_device, kind, dtype, masks):
    """Training in a function, as `fit` does, and inference with a gradient, executed eagerly."""
    policy = "mixed_float16" if dtype == "float16" else dtype
    layer = make_layer(kind, return_state=True, dtype=policy)
    inputs = make_inputs().astype(dtype)
    for training in (True, False):
        call = {"training": training}
        if masks:
            mask = random_mask(np.random.RandomState(3), masks, BATCH, STEPS)
            call["mask"] = tf.constant(mask)
        cpu, gpu = [
            run_on(device, layer, training, inputs, **call) for device in ("/cpu:0", op_device)
        ]
        assert_close(gpu, cpu, 2 * TOLERANCES[dtype], f"{kind} {dtype} {masks} {training}")


@pytest.mark.parametrize("kind", KINDS)
def test_going_backwards(op_device, kind):
    layer = make_layer(kind, go_backwards=True)
    mask = tf.constant(random_mask(np.random.RandomState(4), "right-padded", BATCH, STEPS))
    cpu, gpu = [
        run_on(device, layer, True, make_inputs(), mask=mask, training=True)
        for device in ("/cpu:0", op_device)
    ]
    assert_close(gpu, cpu, 2 * TOLERANCES["float32"], kind)


@pytest.mark.gpu_only
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_placer_chooses_the_gpu(op_device, kind, training):
    """Without tf.device, eagerly and in a function."""
    layer = make_layer(kind)

    def call(inputs):
        return layer(inputs, training=training)

    for run in (call, tf.function(call)):
        assert "GPU" in run(tf.constant(make_inputs())).device
