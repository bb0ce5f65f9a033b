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


def stacks(configuration):
    """Returns all pairs (layer, direction)."""
    return [
        (layer, direction)
        for layer in range(configuration.num_layers)
        for direction in range(configuration.num_directions)
    ]


def make_arrays(configuration, seed=1):
    """Returns the arrays of a configuration by name; the same in every process."""
    random = np.random.RandomState(seed)
    units, batch, steps = configuration.num_units, configuration.batch, configuration.steps
    directions = configuration.num_directions
    width = GATES[configuration.rnn_mode] * units
    states = (configuration.num_layers * directions, batch, units)

    def normal(*shape):
        return random.standard_normal(shape).astype(np.float32)

    def weights(*shape):
        return (random.uniform(-1, 1, shape) / np.sqrt(units)).astype(np.float32)

    arrays = {
        "input": normal(steps, batch, configuration.input_size),
        "input_h": normal(*states),
        "output_backprop": normal(steps, batch, directions * units),
        "output_h_backprop": normal(*states),
    }
    if configuration.has_cell_state:
        arrays["input_c"] = normal(*states)
        arrays["output_c_backprop"] = normal(*states)
    for layer, direction in stacks(configuration):
        suffix = "_%d_%d" % (layer, direction)
        arrays["w" + suffix] = weights(width, configuration.layer_input_size(layer))
        arrays["r" + suffix] = weights(width, units)
        arrays["bw" + suffix] = weights(width)
        arrays["br" + suffix] = weights(width)
    return arrays


def expected_results(configuration):
    """Returns the names of the results that every peer must have."""
    states = ["h", "c"] if configuration.has_cell_state else ["h"]
    names = ["output"] + ["output_" + state for state in states]
    if configuration.is_training:
        names += ["d_input"] + ["d_input_" + state for state in states]
        for layer, direction in stacks(configuration):
            names += ["d_%s_%d_%d" % (kind, layer, direction) for kind in ("w", "r", "bw")]
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
