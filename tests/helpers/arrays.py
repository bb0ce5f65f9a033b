"""Comparisons of nested structures of arrays."""

import numpy as np
import tensorflow.compat.v1 as tf


def assert_equal(found, expected):
    """Compares element by element; lists and tuples count as the same."""
    found, expected = tf.nest.flatten(found), tf.nest.flatten(expected)
    assert len(found) == len(expected)
    for left, right in zip(found, expected):
        np.testing.assert_array_equal(left, right)
