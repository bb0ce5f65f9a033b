"""The least time that a configuration can take on a machine. Standard library only.

By arithmetic: the floating-point operations of its matrix products at the rate of a large matrix
product. By bytes: the weights that have to be read, at the rate at which the threads read a block
of that size over and over. Each step needs its layer's recurrent weights, in training once forward
and once backward; the weights of the inputs are read once a run, in training three times (forward,
for the gradient of the input, and their own gradient is written). In a decode loop each step needs
all weights. No order of the work gets by with less, as each step needs the state before it; only
where a slice of the weights stays in registers from step to step does it not count.
"""

from collections import namedtuple

from configurations import GATES


class Floor(namedtuple("Floor", "by_arithmetic by_bytes")):
    """Seconds."""

    __slots__ = ()

    @property
    def seconds(self):
        """The higher of the two."""
        return max(self.by_arithmetic, self.by_bytes or 0)


def input_weight_bytes(configuration):
    """Of all layers, in float."""
    width = 4 * GATES[configuration.rnn_mode] * configuration.num_units
    depths = [configuration.layer_input_size(n) for n in range(configuration.num_layers)]
    return width * configuration.num_directions * sum(depths)


def working_set(configuration):
    """Bytes that are read again and again, and so may stay in a cache: a layer's, or all."""
    if configuration.is_decode:
        return all_weight_bytes(configuration)
    return configuration.recurrent_bytes


def all_weight_bytes(configuration):
    """Of input and recurrent weights of all layers, in float."""
    recurrent = configuration.recurrent_bytes * configuration.num_layers
    return recurrent + input_weight_bytes(configuration)


def weight_traffic(configuration):
    """Bytes of weights that a run reads at least."""
    if configuration.is_decode:
        return configuration.steps * all_weight_bytes(configuration)
    steps = max(configuration.lengths or [configuration.steps])
    recurrent = steps * configuration.num_layers * configuration.recurrent_bytes
    if configuration.is_training:
        return 2 * recurrent + 3 * input_weight_bytes(configuration)
    return recurrent + input_weight_bytes(configuration)


def floor_of(configuration, operations_per_second, bytes_per_second):
    """The `Floor`; by_bytes is None where the bandwidth is not known."""
    by_bytes = weight_traffic(configuration) / bytes_per_second if bytes_per_second else None
    return Floor(configuration.operations / operations_per_second, by_bytes)
