"""The checkpoints of the original releases."""

import glob
import os

import tensorflow.compat.v1 as tf

from helpers.paths import GOLDEN


def golden_cases(release, pattern="*"):
    """Returns the folders of the checkpoints of a release, relative to GOLDEN."""
    folders = glob.glob(os.path.join(GOLDEN, "tf" + release, pattern))
    return [os.path.relpath(folder, GOLDEN) for folder in sorted(folders)]


def read_checkpoint(path):
    reader = tf.train.load_checkpoint(path)
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
