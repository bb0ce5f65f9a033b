"""Converts weights between layouts. Must also run on Python 3.7."""

import numpy as np


def reordered(stacked, order):
    """Returns the gates of `[G * H, ...]` in another order: new gate i is old gate order[i]."""
    gates = np.split(stacked, len(order))
    return np.concatenate([gates[index] for index in order])


def joint_kernel(arrays, order):
    """Returns the kernel `[I + H, G * H]` by which a TensorFlow cell multiplies `[x, h']`."""
    return np.concatenate([reordered(arrays[name], order).T for name in ("w", "r")])


def weights_of(stack, arrays):
    """Returns w, r, bw and br of a (layer, direction) by these names."""
    return {kind: arrays["%s_%d_%d" % ((kind,) + stack)] for kind in ("w", "r", "bw", "br")}


def pull_back(convert, weights, gradients):
    """Returns the gradients of the weights by name, from those of `convert(weights)`, a list.

    `convert` moves elements, and may add those of br to those of bw. Here it converts the numbers
    of the elements, so that no peer needs the inverse conversion.
    """
    found = {}
    for is_br in (False, True):
        numbers, count = {}, 1
        for name, value in weights.items():
            numbers[name] = np.zeros(value.shape, np.int64)
            if name.startswith("br") == is_br:
                numbers[name] += np.arange(count, count + value.size).reshape(value.shape)
                count += value.size
        flat = np.zeros(count, np.float32)
        for number, gradient in zip(convert(numbers), gradients):
            flat[number[number > 0]] = gradient[number > 0]
        for name in weights:
            if name.startswith("br") == is_br:
                found[name] = flat[numbers[name]]
    return found
