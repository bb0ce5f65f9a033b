"""Converts weights between layouts. Must also run on Python 3.7."""

import numpy as np


def reordered(stacked, order):
    """Returns the gates of `[G * H, ...]` in another order: new gate i is old gate order[i]."""
    gates = np.split(stacked, len(order))
    return np.concatenate([gates[index] for index in order])


def joint_kernel(arrays):
    """Returns the kernel `[I + H, G * H]` by which a TensorFlow cell multiplies `[x, h']`."""
    return np.concatenate([arrays["w"].T, arrays["r"].T])


def weights_of(stack, weights, order):
    """Returns w, r, bw and br of a (layer, direction) by these names, with gates in this order."""
    names = {kind: "%s_%d_%d" % ((kind,) + stack) for kind in ("w", "r", "bw", "br")}
    return {kind: reordered(weights[name], order) for kind, name in names.items()}


def pull_back(convert, weights, gradients):
    """Returns a list of the gradients of the weights, from those of `convert(weights)`, a list.

    `convert` moves elements, and may add those of br to those of bw. Here it converts the numbers
    of the elements, imaginary for br, so that no peer needs the inverse conversion.
    """
    ends = np.cumsum([value.size for value in weights.values()])
    numbers = {
        name: np.arange(end - value.size + 1, end + 1).reshape(value.shape)
        * (1j if name.startswith("br") else 1)
        for (name, value), end in zip(weights.items(), ends)
    }
    flat = np.zeros(ends[-1] + 1, np.float32)  # element 0 stands for "not here"
    for number, gradient in zip(convert(numbers), gradients):
        flat[number.real.astype(int)] = flat[number.imag.astype(int)] = gradient
    parts = np.split(flat[1:], ends[:-1])
    return [part.reshape(value.shape) for part, value in zip(parts, weights.values())]
