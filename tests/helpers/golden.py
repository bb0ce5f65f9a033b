"""The checkpoints of the original releases."""

import glob
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

from helpers.paths import GOLDEN


def golden_cases(release, pattern="*"):
    """Returns the folders of the checkpoints of a release, relative to GOLDEN."""
    folders = glob.glob(os.path.join(GOLDEN, "tf" + release, pattern))
    return [os.path.relpath(folder, GOLDEN) for folder in sorted(folders)]


def read_checkpoint(path):
    """Returns a dict from the keys of a checkpoint to its tensors (arrays, or bytes)."""
    reader = tf.train.load_checkpoint(path)
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def read_case(folder):
    """Returns case.json and the arrays of expected.npz in a folder of `golden_cases`."""
    folder = os.path.join(GOLDEN, folder)
    with open(os.path.join(folder, "case.json")) as file:
        return json.load(file), dict(np.load(os.path.join(folder, "expected.npz")))


class GoldenCheckpoint:
    """A checkpoint of a release, its description, and its expected arrays by name."""

    def __init__(self, name):
        self.case, self.expected = read_case(name)
        self.path = os.path.join(GOLDEN, name, "model.ckpt")
        self.opaque = self.expected["opaque"]
        self.num_directions = 2 if self.case["direction"] == "bidirectional" else 1
        self.sizes = [self.case[name] for name in ("num_layers", "num_units", "input_size")]
        self.saver_holds_the_variable = self.case.get("saver", "all") == "all"
