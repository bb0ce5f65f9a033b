"""Files of Keras models for tests: of older releases, and with changed configurations."""

import json
import os
import re
import zipfile

import numpy as np

from helpers.paths import GOLDEN

OLD_MODELS = os.path.join(GOLDEN, "keras")
ARCHIVES = os.path.join(GOLDEN, "keras_files")


def members_of_archives(folder, is_wanted):
    """Returns (name of an archive, name of a member) of the wanted members of all `.zip` files."""
    found = []
    for archive in sorted(os.listdir(folder)):
        if archive.endswith(".zip"):
            with zipfile.ZipFile(os.path.join(folder, archive)) as content:
                names = filter(is_wanted, sorted(content.namelist()))
            found += [(archive, name) for name in names]
    return found


def names_of_old_models():
    """Returns "RELEASE/NAME" of each model in `tests/golden/keras`."""
    members = members_of_archives(OLD_MODELS, lambda name: name.endswith(".h5"))
    return ["%s/%s" % (archive[: -len(".zip")], name[: -len(".h5")]) for archive, name in members]


def extract_old_model(name, folder):
    """Extracts a model; returns its path, and lists of inputs and of the outputs."""
    release, _, name = name.rpartition("/")
    with zipfile.ZipFile(os.path.join(OLD_MODELS, release + ".zip")) as archive:
        path = archive.extract(name + ".h5", str(folder))
        return (path,) + _inputs_and_outputs(archive, name, folder)


def extract_archive(name, folder):
    """Extracts a `.keras` archive of `tests/golden/keras_files` like `extract_old_model`."""
    release, _, name = name.rpartition("/")
    others = os.path.join(OLD_MODELS, release + ".zip")
    with zipfile.ZipFile(os.path.join(ARCHIVES, release + ".zip")) as archive:
        path = archive.extract(name + ".keras", str(folder))
        if name + ".npz" in archive.namelist():
            return (path,) + _inputs_and_outputs(archive, name, folder)
    with zipfile.ZipFile(others) as archive:
        return (path,) + _inputs_and_outputs(archive, name, folder)


def _inputs_and_outputs(archive, name, folder):
    with np.load(archive.extract(name + ".npz", str(folder))) as arrays:
        names = sorted(arrays.files)  # arr_0, ... are the inputs; y, y1, ... the outputs
        inputs = [arrays[name] for name in names if name.startswith("arr_")]
        return inputs, [arrays[name] for name in names if name.startswith("y")]


def extract_old_file(name, folder, source="keras_files"):
    """Extracts a file or folder "ARCHIVE/NAME" of `tests/golden/<source>`; returns its path."""
    release, _, name = name.rpartition("/")
    with zipfile.ZipFile(os.path.join(GOLDEN, source, release + ".zip")) as archive:
        members = [
            one for one in archive.namelist() if re.match(re.escape(name) + r"($|[./])", one)
        ]
        archive.extractall(str(folder), members)
    return os.path.join(str(folder), name)


def read_config(path):
    """Returns the configuration of a model in a `.keras` file or in HDF5."""
    if str(path).endswith(".keras"):
        with zipfile.ZipFile(str(path)) as archive:
            return json.loads(archive.read("config.json").decode())
    import h5py

    with h5py.File(str(path), "r") as file:
        return json.loads(file.attrs["model_config"])


def change(path, config=None, **members):
    """Replaces the configuration (an object or a str) or members of a saved model.

    Members of HDF5 are attributes of the root.
    """
    text = config if config is None or isinstance(config, str) else json.dumps(config)
    if str(path).endswith(".h5"):
        import h5py

        with h5py.File(str(path), "r+") as file:
            file.attrs.update(dict(members, **({} if text is None else {"model_config": text})))
        return
    if text is not None:
        members["config.json"] = text.encode()
    with zipfile.ZipFile(str(path)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(str(path), "w") as archive:
        for name, value in dict(content, **members).items():
            archive.writestr(name, value)


def layers_of(config):
    """Returns the entries of a model's layers by their names."""
    return {entry["config"]["name"]: entry for entry in config["config"]["layers"]}
