"""Edge cases: empty batches, no time steps, states that a mode does not have, size 1."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers.networks import (
    every_dtype,
    every_mode,
    every_mode_and_direction,
    model,
    run_network,
    seeded_arrays,
)
from helpers.op_harness import (
    Network,
    assert_close,
    assert_same_bits,
    call,
    model_attributes,
    run_reference,
)

pytestmark = pytest.mark.once


@every_dtype
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@every_mode_and_direction
def test_no_time_steps(rnn_mode, direction, dropout, dtype):
    """States and their gradients pass through unchanged; the gradient of params is zero."""
    configuration = model(rnn_mode, direction)
    arrays = seeded_arrays(configuration, 3, 0, dtype)
    expected = {
        "output": np.zeros((0, 3, configuration.directions * 5), dtype),
        "output_h": arrays["input_h"],
        "d_input": np.zeros((0, 3, 4), dtype),
        "d_input_h": arrays["output_h_backprop"],
        "d_params": np.zeros_like(arrays["params"]),
    }
    if rnn_mode == "lstm":
        expected["output_c"] = arrays["input_c"]
        expected["d_input_c"] = arrays["output_c_backprop"]
    assert_same_bits(run_network(configuration, dtype, arrays, dropout=dropout), expected)
    forward = {name: value for name, value in expected.items() if name.startswith("output")}
    found = run_network(configuration, dtype, arrays, dropout=dropout, is_training=False)
    assert_same_bits(found, forward)


@every_dtype
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@every_mode_and_direction
def test_empty_batch(rnn_mode, direction, dropout, dtype):
    """Results are empty and have the right shapes; the gradient of params is zero."""
    configuration = model(rnn_mode, direction)
    with Network(configuration, dtype, dropout=dropout) as network:
        for steps in (0, 1, 4):
            arrays = seeded_arrays(configuration, 0, steps, dtype)
            expected = {result_like(name): np.zeros_like(arrays[name]) for name in arrays}
            assert_same_bits(network.run(arrays), expected)


def result_like(name):
    """Returns the name of the result that has the shape of the named input."""
    return name[: -len("_backprop")] if name.endswith("_backprop") else "d_" + name


def run_forward(configuration, arrays, input_c, is_training=True):
    """Returns all four outputs of CudnnRNN for any input_c."""
    inputs = {name: arrays[name] for name in ("input", "input_h", "params")}
    attributes = model_attributes(configuration)
    return call("cudnn_rnn", dict(inputs, input_c=input_c), is_training=is_training, **attributes)


@pytest.mark.parametrize("rnn_mode", ["gru", "rnn_relu", "rnn_tanh"])
def test_input_c_is_ignored_by_modes_without_a_cell_state(rnn_mode):
    configuration = model(rnn_mode)
    arrays = seeded_arrays(configuration, 3, 4, "float32")
    expected = run_reference(configuration, arrays)
    for shape in ((0,), (), (4, 2), arrays["input_h"].shape):
        input_c = np.full(shape, np.nan, np.float32)
        output, output_h, output_c, _ = run_forward(configuration, arrays, input_c)
        assert output_c.shape == ()
        found = {"output": output, "output_h": output_h}
        assert_close(found, {name: expected[name] for name in found}, 1e-5, rnn_mode)


@every_mode
def test_inference_reserves_nothing(rnn_mode):
    configuration = model(rnn_mode)
    arrays = seeded_arrays(configuration, 3, 4, "float32")
    input_c = arrays.get("input_c", np.zeros([0], np.float32))
    assert run_forward(configuration, arrays, input_c, is_training=False)[3].size == 0
    assert run_forward(configuration, arrays, input_c, is_training=True)[3].size > 0


@pytest.mark.parametrize("version", [1, 2, 3])
@every_mode
def test_a_gradient_of_inference_is_refused_with_advice(rnn_mode, version):
    network = Network(model(rnn_mode), "float32", version=version, is_training=False)
    with network, network.session.graph.as_default():
        with pytest.raises(ValueError, match="is_training must be set to True"):
            tf.gradients(network.raw_outputs[0], network.placeholders["params"])


@every_mode
def test_all_sizes_one(rnn_mode):
    configuration = model(rnn_mode, num_layers=1, num_units=1, input_size=1)
    arrays = seeded_arrays(configuration, 1, 1)
    found = run_network(configuration, "float64", arrays)
    assert_close(found, run_reference(configuration, arrays), 1e-14, rnn_mode)
