"""The arrays that all peers get, and the comparison of their results. Needs only NumPy.

A problem is a dict of float32 arrays, with the gates in cuDNN's order (lstm: i, f, g, o; gru: r, u,
n). T is the number of steps, B the batch size, L the number of layers, D of directions, H of units,
G of gates, and I(l) the input width of layer l:
  input [T, B, I(0)]; input_h and, for an LSTM, input_c [L * D, B, H], index layer * D + direction;
  for each layer l and direction d: w_l_d [G * H, I(l)], r_l_d [G * H, H], bw_l_d, br_l_d [G * H];
  the output gradients output_backprop [T, B, D * H], output_h_backprop, output_c_backprop.
Results are output, output_h, output_c, and in training the gradients d_input, d_input_h, d_input_c,
d_w_l_d and so on. A peer with a single bias omits d_br_l_d.
"""

import numpy as np
from configurations import GATES

# Relative to the largest magnitude of a result. The peers sum in different orders; the resulting
# differences are several times smaller, even after 10,000 steps. A wrong layout or gate order makes
# differences that are orders of magnitude larger.
TOLERANCE = 5e-5


class Mismatch(Exception):
    """A peer's results differ from ours; the message says which."""


class Refused(Exception):
    """The peer is known not to support the configuration; the message says why."""


def regions(configuration):
    """Yields the name and shape of each part of cuDNN's parameter buffer, in order."""
    units = configuration.num_units
    width = GATES[configuration.rnn_mode] * units
    for stack in configuration.stacks:
        yield "w_%d_%d" % stack, (width, configuration.layer_input_size(stack[0]))
        yield "r_%d_%d" % stack, (width, units)
    for stack in configuration.stacks:
        yield "bw_%d_%d" % stack, (width,)
        yield "br_%d_%d" % stack, (width,)


def joined_params(configuration, arrays):
    """Returns the parameter buffer, a vector."""
    return np.concatenate([arrays[name].ravel() for name, _ in regions(configuration)])


def input_names(configuration):
    """Returns the names of the input and the initial states."""
    return ["input"] + ["input_" + state for state in configuration.states]


def output_names(configuration):
    """Returns the names of the output and the final states."""
    return ["output"] + ["output_" + state for state in configuration.states]


def backprops(configuration, arrays):
    """Returns the gradients of the output and the final states."""
    return [arrays[name + "_backprop"] for name in output_names(configuration)]


def make_arrays(configuration, seed=1):
    """Returns the arrays of a configuration by name; the same in every process."""
    random = np.random.RandomState(seed)
    units, batch, steps = configuration.num_units, configuration.batch, configuration.steps
    states = (len(configuration.stacks), batch, units)
    shapes = {
        "input": (steps, batch, configuration.input_size),
        "output_backprop": (steps, batch, configuration.num_directions * units),
    }
    for state in configuration.states:
        shapes["input_" + state] = shapes["output_%s_backprop" % state] = states
    arrays = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    for name, shape in regions(configuration):
        arrays[name] = random.uniform(-1, 1, shape) / np.sqrt(units)
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def expected_results(configuration):
    """Returns the names of the results that every peer must have."""
    names = output_names(configuration)
    if configuration.is_training:
        names += ["d_" + name for name in input_names(configuration)]
        weights = [name for name, _ in regions(configuration) if not name.startswith("br")]
        names += ["d_" + name for name in weights]
    return names


def compare(configuration, found, expected):
    """Returns the largest difference, relative to the largest magnitude in its array.

    Args:
      configuration: the configuration that the results belong to.
      found: the peer's results by name.
      expected: our results by name.

    Raises:
      Mismatch: an array is missing, has the wrong shape, or differs by more than TOLERANCE.
    """
    largest = 0.0
    for name in sorted(set(expected_results(configuration)) | set(found)):
        if name not in found or name not in expected:
            raise Mismatch(name + " is missing")
        one, other = np.asarray(found[name]), np.asarray(expected[name])
        if one.shape != other.shape:
            raise Mismatch("%s has shape %s; expected %s" % (name, one.shape, other.shape))
        difference = float(np.max(np.abs(one - other)) / max(np.max(np.abs(other)), 1e-30))
        if not difference <= TOLERANCE:
            raise Mismatch(
                "%s differs by %.2g relative to its largest value; expected at most %.2g"
                % (name, difference, TOLERANCE)
            )
        largest = max(largest, difference)
    return largest
