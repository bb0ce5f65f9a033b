"""Gradients against differences of the op's outputs, in float64, with and without dropout."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import reference, sequence_cases
from helpers.networks import every_mode_and_direction, model, seeded_arrays
from helpers.op_harness import (
    Network,
    model_attributes,
    numeric_gradient,
    run_reference,
    size_arguments,
)

pytestmark = pytest.mark.once

LARGEST_ERROR = 5e-6
SMALL = model("lstm", "bidirectional", num_units=3)


def check_gradients(network, arrays):
    """Compares all gradients with differences; the loss weights all outputs differently."""

    def loss():
        outputs = network.forward(arrays)
        return sum((outputs[name] * arrays[name + "_backprop"]).sum() for name in outputs)

    found = network.run(arrays)
    for name in [name for name in reference.INPUTS if name in arrays]:
        expected = numeric_gradient(loss, arrays[name])
        assert np.abs(expected).max() > 0.1, name
        assert np.abs(found["d_" + name] - expected).max() < LARGEST_ERROR, name


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize("dropout", [0.0, 0.5, 1.0])
@every_mode_and_direction
def test_network(rnn_mode, direction, dropout):
    configuration = model(rnn_mode, direction, num_units=3)
    with Network(configuration, "float64", dropout=dropout, seed=1, seed2=2) as network:
        check_gradients(network, seeded_arrays(configuration, 3, 4, seed=7))


@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize(
    "configuration",
    [
        SMALL,
        SMALL._replace(num_proj=2),
        SMALL._replace(rnn_mode="gru"),
        SMALL._replace(input_mode="skip_input", input_size=3),
    ],
    ids=str,
)
def test_lengths_and_dropout(configuration):
    """The reference lacks the op's dropout pattern; differences do not need it."""
    arrays = sequence_cases.arrays_for(configuration, [0, 4, 6])
    for name in ("input", "output_backprop"):
        arrays[name] = np.nan_to_num(arrays[name])
    with Network(configuration, "float64", dropout=0.5, version=3) as network:
        check_gradients(network, arrays)


def test_through_conversion_and_network(cpu_session):
    """Gradients reach canonical tensors through canonical_to_params and the network."""
    configuration = model("gru", "bidirectional", num_units=3)
    arrays = seeded_arrays(configuration, 2, 3, seed=6)
    tensors = reference.params_to_canonical(configuration, arrays["params"])
    constants = [[tf.constant(tensor) for tensor in group] for group in tensors]
    params = gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params(
        weights=constants[0],
        biases=constants[1],
        **model_attributes(configuration),
        **size_arguments(configuration),
    )
    outputs = gen_cudnn_rnn_ops.cudnn_rnn(
        arrays["input"],
        arrays["input_h"],
        tf.constant([], tf.float64),
        params,
        **model_attributes(configuration),
    )
    backprops = [tf.constant(arrays[name + "_backprop"]) for name in ("output", "output_h")]
    found = cpu_session.run([tf.gradients(outputs[:2], group, backprops) for group in constants])
    d_params = run_reference(configuration, arrays)["d_params"]
    expected = reference.params_to_canonical(configuration, d_params)
    for found_tensor, expected_tensor in zip(sum(found, []), sum(expected, [])):
        np.testing.assert_allclose(found_tensor, expected_tensor, rtol=0, atol=1e-10)
