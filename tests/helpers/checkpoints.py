"""Saves and restores variables in a session, and compares their values."""

import numpy as np
import tensorflow.compat.v1 as tf


def assert_all_equal(found, expected):
    """Compares two sequences, or two dicts, of arrays element by element."""
    assert len(found) == len(expected)
    for key in expected if isinstance(expected, dict) else range(len(expected)):
        np.testing.assert_array_equal(found[key], expected[key], err_msg=str(key))


def assert_all_close(found, expected, **tolerances):
    """Compares two sequences of arrays element by element, within `tolerances`."""
    assert len(found) == len(expected)
    for left, right in zip(found, expected):
        np.testing.assert_allclose(left, right, **tolerances)


def zeroed_and_restored(session, saver, path, variables):
    """Sets the variables to zero, restores them, and returns their values."""
    session.run([variable.assign(tf.zeros_like(variable)) for variable in variables])
    saver.restore(session, path)
    return session.run(variables)


def assert_round_trip(session, saver, variables, tmp_path):
    """Saves and restores the variables, which keep their values; returns the checkpoint's path."""
    expected = session.run(variables)
    path = saver.save(session, str(tmp_path / "model"))
    assert_all_equal(zeroed_and_restored(session, saver, path, variables), expected)
    return path
