"""SavedModels that the original releases of tf.keras wrote."""

import os
import zipfile

import numpy as np

from helpers.paths import GOLDEN

FOLDER = os.path.join(GOLDEN, "saved_models")


def names_of_saved_models():
    """Returns "tf<TensorFlow>_<case>" of each model."""
    names = sorted(os.listdir(FOLDER))
    return [name[: -len(".zip")] for name in names if name.endswith(".zip")]


def extract_saved_model(name, folder):
    """Extracts a model; returns the path of its SavedModel and the arrays of `arrays.npz`."""
    with zipfile.ZipFile(os.path.join(FOLDER, name + ".zip")) as archive:
        archive.extractall(str(folder))
    arrays = dict(np.load(os.path.join(str(folder), "arrays.npz")))
    return os.path.join(str(folder), "saved_model"), arrays
