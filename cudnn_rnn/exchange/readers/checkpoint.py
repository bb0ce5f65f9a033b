"""Reads a checkpoint with TensorFlow's own reader; runs in a child process."""

import os

import numpy as np

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow  # noqa: E402 (after its environment)


class Refused(Exception):
    """The file declares more than it has."""


def list_tensors(path, most):
    """Returns a list of [key, shape, dtype]; the dtype is None if it has no numbers.

    `most`: the most bytes that all arrays together may have.
    """
    reader = tensorflow.train.load_checkpoint(path)
    dtypes = reader.get_variable_to_dtype_map()
    found = []
    for key, shape in reader.get_variable_to_shape_map().items():
        dtype = np.dtype(dtypes[key].as_numpy_dtype)
        declared = dtype.itemsize
        for length in shape:
            declared *= length
        most -= declared
        if most < 0:
            raise Refused("it declares %s with shape %s, more than it has" % (key, list(shape)))
        is_number = dtype.kind in "biufc"
        found.append([key, list(shape), dtype.str if is_number else None])
    return found


def read(path, keys):
    """Returns the list of the arrays of these keys."""
    reader = tensorflow.train.load_checkpoint(path)
    return [np.asarray(reader.get_tensor(key)) for key in keys]
