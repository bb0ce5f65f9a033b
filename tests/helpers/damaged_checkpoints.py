"""Damages checkpoints in the ways that the restore tests need."""

import glob
import os
from functools import partial

import numpy as np
import tensorflow.compat.v1 as tf

from helpers.golden import read_checkpoint


def write(path, tensors):
    """Writes a checkpoint with exactly these tensors (a dict by key)."""
    with tf.Graph().as_default(), tf.Session() as session:
        names = sorted(tensors)
        values = [tf.convert_to_tensor(tensors[name]) for name in names]
        session.run(
            tf.raw_ops.SaveV2(
                prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
            )
        )


def without(path, key):
    """Removes a key."""
    tensors = read_checkpoint(path)
    del tensors[key]
    write(path, tensors)


def with_value(path, key, change):
    """Replaces the value of a key with `change(value)`."""
    tensors = read_checkpoint(path)
    tensors[key] = change(tensors[key])
    write(path, tensors)


def place_in_data(path, key):
    """Returns the data file that contains the value of a key, and the value's offset in it."""
    value, places = read_checkpoint(path)[key].tobytes(), []
    for name in glob.glob(path + ".data-*"):
        with open(name, "rb") as file:
            data = file.read()
        if value in data:
            places.append((name, data.index(value)))
            assert data.count(value) == 1, "choose values that are in the file once"
    (place,) = places
    return place


def flip_a_bit(path, key):
    """Flips a bit in the value of a key, so that its checksum no longer matches."""
    name, place = place_in_data(path, key)
    with open(name, "r+b") as file:
        file.seek(place + 1)
        byte = file.read(1)[0]
        file.seek(place + 1)
        file.write(bytes([byte ^ 4]))


def cut_data(path, key):
    """Truncates the data file within the value of a key."""
    name, place = place_in_data(path, key)
    os.truncate(name, place + 3)


def remove_data(path, key):
    """Removes the data files."""
    for name in glob.glob(path + ".data-*"):
        os.remove(name)


def cut_index(path, key, kept=2 / 3):
    """Keeps only this fraction of the index."""
    os.truncate(path + ".index", int(kept * os.path.getsize(path + ".index")))


def other_shape(path, key):
    """Drops the first half of the rows of a key's value."""
    with_value(path, key, lambda value: value[len(value) // 2 :])


# Name -> (function that does the damage, TensorFlow error that restoring must raise).
DAMAGES = {
    "missing_key": (without, tf.errors.NotFoundError),
    "other_shape": (other_shape, tf.errors.InvalidArgumentError),
    "other_dtype": (partial(with_value, change=np.float64), tf.errors.InvalidArgumentError),
    "flipped_bit": (flip_a_bit, tf.errors.DataLossError),
    "cut_data": (cut_data, tf.errors.DataLossError),
    "no_data": (remove_data, tf.errors.DataLossError),
    "cut_index": (cut_index, tf.errors.DataLossError),
    "empty_index": (partial(cut_index, kept=0), tf.errors.DataLossError),
}
