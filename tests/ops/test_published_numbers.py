"""Known results of real cuDNN: published sums of outputs, and parameter buffer sizes."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers import reference
from helpers.cases import PUBLISHED_SIZES, output_shapes
from helpers.networks import every_dtype, model
from helpers.op_harness import Network, call, model_attributes, size_arguments

# mode, layers, units, input size, batch, steps, sum over output, output_h (and output_c).
PUBLISHED_SUMS = [
    ("lstm", 4, 200, 200, 20, 10, 231833.22),
    ("gru", 4, 200, 200, 20, 10, 56000.0),
    ("rnn_tanh", 4, 200, 200, 20, 10, 56000.0),
    ("rnn_relu", 2, 8, 4, 4, 2, 130688.0),
]


@pytest.mark.parametrize("dropout", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row", PUBLISHED_SUMS, ids=lambda row: row[0])
def test_sum_of_outputs_if_all_values_are_one(row, dtype, dropout):
    rnn_mode, layers, units, input_size, batch, steps, expected = row
    configuration = model(rnn_mode, "unidirectional", layers, units, input_size)
    shapes = output_shapes(configuration, batch, steps)
    arrays = {
        "input": np.ones((steps, batch, input_size), dtype),
        "input_h": np.ones(shapes["output_h"], dtype),
        "params": np.ones(reference.params_size(configuration), dtype),
    }
    if rnn_mode == "lstm":
        arrays["input_c"] = np.ones(shapes["output_c"], dtype)
    with Network(configuration, dtype, dropout=dropout, is_training=False) as network:
        found = network.forward(arrays)
    assert all(value.shape == shapes[name] for name, value in found.items())
    total = sum(value.astype(np.float64).sum() for value in found.values())
    assert total == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("configuration, expected", PUBLISHED_SIZES, ids=str)
@every_dtype
def test_size_of_the_parameter_buffer(configuration, expected, dtype):
    configuration = reference.Configuration(*configuration)
    assert reference.params_size(configuration) == expected
    sizes = {name: np.int32(value) for name, value in size_arguments(configuration).items()}
    attributes = dict(model_attributes(configuration), T=tf.as_dtype(dtype), S=tf.int32)
    assert call("cudnn_rnn_params_size", sizes, **attributes).tolist() == [expected]
