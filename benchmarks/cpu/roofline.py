"""Computes lower bounds on the time of a configuration on a machine. Standard library only.

By arithmetic: the floating-point operations of the matrix products, at the rate of a large matrix
product. By bytes: the weights that must be read, at the rate at which the threads repeatedly read a
block of that size. Each step reads its layer's recurrent weights, in training once forward and once
backward. The input weights are read once per run; training counts them three times (forward,
gradient of the input, and writing their own gradient). In a decode loop each step reads all
weights. No order of the work reads less, because each step needs the previous state. The exception:
a slice of the weights that stays in registers between steps is read only once.
"""

from collections import namedtuple

from configurations import GATES


class Floor(namedtuple("Floor", "by_arithmetic by_bytes")):
    """The two bounds, in seconds; `by_bytes` may be None."""

    __slots__ = ()

    @property
    def seconds(self):
        """The higher of the two bounds."""
        return max(self.by_arithmetic, self.by_bytes or 0)


def input_weight_bytes(configuration):
    """Returns the bytes of all layers' float input weights."""
    width = 4 * GATES[configuration.rnn_mode] * configuration.num_units
    depths = [configuration.layer_input_size(n) for n in range(configuration.num_layers)]
    return width * configuration.num_directions * sum(depths)


def working_set(configuration):
    """Returns the bytes read repeatedly, which caches may hold: one layer's weights, or all."""
    if configuration.is_decode:
        return all_weight_bytes(configuration)
    return configuration.recurrent_bytes


def all_weight_bytes(configuration):
    """Returns the bytes of all layers' float input and recurrent weights."""
    recurrent = configuration.recurrent_bytes * configuration.num_layers
    return recurrent + input_weight_bytes(configuration)


def weight_traffic(configuration):
    """Returns the least number of bytes of weights that a run reads."""
    if configuration.is_decode:
        return configuration.steps * all_weight_bytes(configuration)
    steps = max(configuration.lengths or [configuration.steps])
    recurrent = steps * configuration.num_layers * configuration.recurrent_bytes
    if configuration.is_training:
        return 2 * recurrent + 3 * input_weight_bytes(configuration)
    return recurrent + input_weight_bytes(configuration)


def floor_of(configuration, operations_per_second, bytes_per_second):
    """Returns the `Floor`; its `by_bytes` is None if the bandwidth is not known."""
    by_bytes = weight_traffic(configuration) / bytes_per_second if bytes_per_second else None
    return Floor(configuration.operations / operations_per_second, by_bytes)
