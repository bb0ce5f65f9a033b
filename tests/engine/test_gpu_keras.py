"""The layers of `cudnn_rnn.keras` on the kernels that call cuDNN, over a mock of cuDNN.

The results are compared with those of the CPU kernels, on which tests/api compares the layers with
Keras's.
"""

import pytest
import tensorflow as tf

import cudnn_rnn.keras
from cudnn_rnn.graph import keras_params
from helpers import mock_kernels
from helpers.keras_layers import (
    BATCH,
    KINDS,
    STEPS,
    UNITS,
    WIDTH,
    build,
    make_inputs,
    outputs_and_gradients,
)
from helpers.op_harness import TOLERANCES, assert_close, kernel_labels
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.once, pytest.mark.ci, needs_tensorflow_2]

# The last sequence of the right-padded mask has no steps, which cuDNN itself does not accept.
MASKS = {
    None: None,
    "right-padded": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
    "any": [[0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1]],
}


@pytest.fixture
def mock(monkeypatch):
    """Yields the mock, with weights rearranged as where a GPU is visible."""
    library = mock_kernels.load()
    library.mock_reset()
    library.mock_set_any_memory(1)
    monkeypatch.setattr(keras_params, "_has_kernel", lambda dtype: False)
    yield library
    assert library.mock_violations() == 0, library.mock_violation_text().decode()


def results(layer, label, dtype, **named):
    """Returns arrays by name: outputs, states and gradients, from kernels with this label."""

    @tf.function
    def run(inputs):
        with kernel_labels(label):
            return outputs_and_gradients(layer, inputs, **named)

    found = run(tf.constant(make_inputs(), dtype))
    return {str(index): value.numpy() for index, value in enumerate(found)}


def assert_parity(mock, kind, dtype, masks, training):
    """Asserts that both kernels compute the same; returns how often cuDNN ran forward."""
    policy = "mixed_float16" if dtype == "float16" else dtype
    named = {"return_sequences": True, "return_state": True, "dtype": policy}
    layer = build(getattr(cudnn_rnn.keras, kind)(UNITS, **named), (BATCH, STEPS, WIDTH))
    mask = None if masks is None else tf.cast(MASKS[masks], tf.bool)
    call = {"mask": mask, "training": training}
    expected = results(layer, "", dtype, **call)
    assert mock.mock_calls(b"cudnnRNNForward") == 0
    found = results(layer, mock_kernels.LABEL, dtype, **call)
    assert mock.mock_calls(b"cudnnRNNBackwardWeights_v8") == 1
    assert len(found) == (3 if kind == "LSTM" else 2) + 4
    assert found["0"].dtype == dtype
    assert_close(found, expected, TOLERANCES[dtype], "outputs, then gradients")
    return mock.mock_calls(b"cudnnRNNForward")


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_training(mock, kind, dtype, masks):
    assert assert_parity(mock, kind, dtype, masks, training=True) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_inference_runs_the_op_again(mock, kind):
    assert assert_parity(mock, kind, "float32", "right-padded", training=False) == 2
