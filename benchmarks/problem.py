"""The arrays that all peers get, and the comparison of their results. Needs only NumPy.

T is the number of steps, B the batch size, L the number of layers, D of directions, H of units, G
of gates, in cuDNN's order (lstm: i, f, g, o; gru: r, u, n), and I(l) the input width of layer l.
"""

from collections import namedtuple

import numpy as np
from configurations import GATES

# Relative to the largest magnitude of a result. The peers sum in different orders and, in bfloat16,
# round different intermediate values; the resulting differences are several times smaller, even
# after 10,000 steps. A wrong layout or gate order makes differences that are far larger.
# The bound of int8 is for weights of 7 bits: ONNX Runtime 1.31.1 differs by at most 2.8e-2 in the
# group table, and by 3.1e-2 after 10,000 steps (on an AMD EPYC with AVX2).
TOLERANCES = {"float": 5e-5, "bfloat16": 5e-2, "int8": 5e-2}

Problem = namedtuple("Problem", "inputs backprops weights")
"""float32 arrays.

inputs: a list of the input [T, B, I(0)] and the initial states [L * D, B, H], index layer * D +
  direction; the states are h and, for an LSTM, c.
backprops: a list of the gradients of the output [T, B, D * H] and the final states.
weights: a dict in the order of cuDNN's parameter buffer, for each layer l and direction d: w_l_d
  [G * H, I(l)], r_l_d [G * H, H], bw_l_d and br_l_d [G * H].
"""


class Mismatch(Exception):
    """A peer's results differ from ours; the message says which."""


class Refused(Exception):
    """The peer is known not to support the configuration; the message says why."""


def regions(configuration):
    """Returns the shape of each part of cuDNN's parameter buffer by name, in order."""
    units, found = configuration.num_units, {}
    width = GATES[configuration.rnn_mode] * units
    for stack in configuration.stacks:
        found["w_%d_%d" % stack] = width, configuration.layer_input_size(stack[0])
        found["r_%d_%d" % stack] = width, units
    for stack in configuration.stacks:
        found["bw_%d_%d" % stack] = found["br_%d_%d" % stack] = (width,)
    return found


def joined(weights):
    """Returns the parameter buffer, a vector, of the weights by name."""
    return np.concatenate([value.ravel() for value in weights.values()])


def array_names(which, configuration):
    """Returns the names of the "input" or "output" and of its states."""
    return [which] + ["%s_%s" % (which, state) for state in configuration.states]


def result_names(configuration):
    """Returns the names of the arrays that every peer computes, in order."""
    leaves = array_names("input", configuration) + list(regions(configuration))
    gradients = ["d_" + name for name in leaves] if configuration.is_training else []
    return array_names("output", configuration) + gradients


def make_problem(configuration):
    """Returns the `Problem` of a configuration; the same in every process."""
    random = np.random.RandomState(1)
    units, batch, steps = configuration.num_units, configuration.batch, configuration.steps
    states = [(len(configuration.stacks), batch, units)] * len(configuration.states)
    inputs = [(steps, batch, configuration.input_size)] + states
    outputs = [(steps, batch, configuration.num_directions * units)] + states
    normal = [
        [random.standard_normal(shape).astype(np.float32) for shape in shapes]
        for shapes in (inputs, outputs)
    ]
    weights = {
        name: (random.uniform(-1, 1, shape) / np.sqrt(units)).astype(np.float32)
        for name, shape in regions(configuration).items()
    }
    return Problem(*normal, weights)


def compare(configuration, found, expected, arithmetics=()):
    """Returns the largest difference, relative to the largest magnitude in its array.

    `found` are the peer's results, `expected` ours, in the order of `result_names`; `arithmetics`
    are those of both peers. Raises `Mismatch` if an array is missing, has the wrong shape, or
    differs by more than the largest of their TOLERANCES.
    """
    tolerance = max(TOLERANCES[one] for one in (configuration.dtype, *arithmetics))
    largest, names = 0.0, result_names(configuration)
    if not len(found) == len(expected) == len(names):
        text = "%d results, ours %d; expected %d"
        raise Mismatch(text % (len(found), len(expected), len(names)))
    for name, one, other in zip(names, found, expected):
        if one.shape != other.shape:
            raise Mismatch("%s has shape %s; expected %s" % (name, one.shape, other.shape))
        difference = float(np.max(np.abs(one - other)) / max(np.max(np.abs(other)), 1e-30))
        if not difference <= tolerance:
            raise Mismatch(
                "%s differs by %.2g relative to its largest value; expected at most %.2g"
                % (name, difference, tolerance)
            )
        largest = max(largest, difference)
    return largest
