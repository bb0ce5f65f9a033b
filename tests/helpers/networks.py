"""Small models, their data and results in one line, and the parametrizations that tests share."""

import functools

import numpy as np
import pytest

from helpers import reference
from helpers.cases import COLUMNS, make_arrays, random_arrays, relu_distance
from helpers.op_harness import (
    BACKWARD_OPS,
    FORWARD,
    FORWARD_OPS,
    Network,
    assert_refused,
    call,
    run_reference,
)

every_mode = pytest.mark.parametrize("rnn_mode", COLUMNS["rnn_mode"])
every_direction = pytest.mark.parametrize("direction", COLUMNS["direction"])
every_dtype = pytest.mark.parametrize("dtype", COLUMNS["dtype"])
unknown_modes = pytest.mark.parametrize(
    "name, value",
    [("rnn_mode", "lstn"), ("input_mode", "linear"), ("direction", "both"), ("rnn_mode", "")],
)


def every_mode_and_direction(test):
    return every_mode(every_direction(test))


def model(rnn_mode="lstm", direction="unidirectional", num_layers=2, num_units=5, input_size=4):
    """Returns a reference.Configuration with an input matrix."""
    return reference.Configuration(
        rnn_mode, "linear_input", direction, num_layers, num_units, input_size
    )


def seeded_arrays(configuration, batch, steps, dtype="float64", seed=0):
    """Returns all inputs of the op; those of a relu stay away from the kink."""
    random = np.random.RandomState(seed)
    while True:
        arrays = random_arrays(configuration, batch, steps, dtype, random)
        if configuration.rnn_mode != "rnn_relu" or relu_distance(configuration, arrays) > 1e-6:
            return arrays


@functools.lru_cache(maxsize=None)
def arrays_and_results(case):
    """Returns the arrays of a case of the table and the reference's results; do not change them."""
    arrays = make_arrays(case)
    return arrays, run_reference(case.configuration, arrays)


def forward_arrays(*arguments, **named):
    """Returns the inputs of the forward op, in the op's order, of `seeded_arrays`."""
    arrays = seeded_arrays(*arguments, **named)
    return {name: arrays[name] for name in reference.INPUTS if name in arrays}


def run_network(configuration, dtype, arrays, names=None, **options):
    """Returns the results in `names` (default: all) of a new Network with these options."""
    with Network(configuration, dtype, **options) as network:
        return network.run(arrays, names)


def backward_inputs(inputs, attributes, version=1):
    """Returns valid inputs of the backward op: a forward call's inputs, results and gradients."""
    outputs = call(FORWARD_OPS[version], inputs, **attributes)
    inputs = dict(inputs, **dict(zip(FORWARD + ("reserve_space", "host_reserved"), outputs)))
    inputs.update((name + "_backprop", np.ones_like(inputs[name])) for name in FORWARD)
    return inputs


def assert_network_refuses(parts, inputs, attributes, version=1, changes=(), **changed_attributes):
    """Checks that forward, in training or not, and backward refuse valid inputs with `changes`."""
    backward = backward_inputs(inputs, attributes, version)
    attributes = dict(attributes, **changed_attributes)
    inference = dict(attributes, is_training=False)
    inputs, backward = dict(inputs, **dict(changes)), dict(backward, **dict(changes))
    assert_refused(parts, FORWARD_OPS[version], inputs, **attributes)
    assert_refused(parts, FORWARD_OPS[version], inputs, **inference)
    assert_refused(parts, BACKWARD_OPS[version], backward, **attributes)
