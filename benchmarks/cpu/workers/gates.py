"""Reorders gates and converts weights between layouts. Must also run on Python 3.7."""

import numpy as np


def reordered(stacked, order):
    """Returns the gates of `[G * H, ...]` in another order: new gate i is old gate order[i]."""
    gates = np.split(stacked, len(order))
    return np.concatenate([gates[index] for index in order])


def inverse(order):
    """Returns the order that undoes `order`."""
    return [order.index(index) for index in range(len(order))]


def joint_kernel(arrays, suffix, order):
    """Returns the kernel `[I + H, G * H]` by which a TensorFlow cell multiplies `[x, h']`."""
    parts = [reordered(arrays[name + suffix], order).T for name in ("w", "r")]
    return np.concatenate(parts)


def split_joint_kernel(kernel, input_size, order):
    """Splits the result of `joint_kernel` into W `[G * H, I]` and R `[G * H, H]`."""
    back = inverse(order)
    return [reordered(part.T, back) for part in (kernel[:input_size], kernel[input_size:])]
