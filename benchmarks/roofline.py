"""Computes lower bounds on the time of a configuration on a machine. Standard library only.

docs/benchmarks/README.md defines them. The input weights count three times in training: forward,
gradient of the input, and writing their own gradient. No order of the work reads less, because each
step needs the previous state. The exception: a slice of the weights that stays in registers between
steps is read only once.
"""

from collections import namedtuple

from configurations import GATES

Floor = namedtuple("Floor", "by_arithmetic by_bytes seconds")
"""The two bounds and the higher one, in seconds; `by_bytes` may be None."""


def _weight_bytes(configuration):
    """Returns the bytes of all input weights, and of one layer's recurrent weights."""
    bytes_of_one = 4 if configuration.dtype == "float" else 2
    width = bytes_of_one * GATES[configuration.rnn_mode] * configuration.num_units
    depths = [configuration.layer_input_size(layer) for layer, _ in configuration.stacks]
    return width * sum(depths), width * configuration.num_units * configuration.num_directions


def working_set(configuration):
    """Returns the bytes read repeatedly, which caches may hold: one layer's weights, or all."""
    inputs, recurrent = _weight_bytes(configuration)
    return inputs + configuration.num_layers * recurrent if configuration.is_decode else recurrent


def weight_traffic(configuration):
    """Returns the least number of bytes of weights that a run reads."""
    if configuration.is_decode:
        return configuration.steps * working_set(configuration)
    inputs, recurrent = _weight_bytes(configuration)
    steps = max(configuration.lengths or [configuration.steps])
    recurrent_traffic = steps * configuration.num_layers * recurrent
    if configuration.is_training:
        return 2 * recurrent_traffic + 3 * inputs
    return recurrent_traffic + inputs


def floor_of(configuration, operations_per_second, bytes_per_second):
    """Returns the `Floor`; its `by_bytes` is None if the bandwidth is not known."""
    by_bytes = weight_traffic(configuration) / bytes_per_second if bytes_per_second else None
    by_arithmetic = configuration.operations / operations_per_second
    return Floor(by_arithmetic, by_bytes, max(by_arithmetic, by_bytes or 0))
