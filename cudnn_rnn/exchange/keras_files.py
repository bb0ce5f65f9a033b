"""Reads `.keras` and `.h5` files without Keras: configuration and arrays, as plain data.

Keras would import what a configuration names, build layers of any size, and run code. Here, a class
is only a name: layers other than the RNNs that this package knows are left out. The format of a
file follows from its first bytes: HDF5, or ZIP.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from cudnn_rnn.exchange import declared_sizes, guarded, keras_configs, keras_weights
from cudnn_rnn.exchange.contents import ExchangeError, Facts
from cudnn_rnn.exchange.keras_arrays import OPTIMIZER_KEYS, ArraysOfArchive, ArraysOfHdf5
from cudnn_rnn.exchange.keras_model import (
    SETTINGS,
    STACK_MODES,
    KerasLayer,
    KerasModel,
)
from cudnn_rnn.model.keras_classes import ADDED_ARGUMENTS, CUDNN_CLASSES, RNN_CLASSES

HDF5_START = b"\x89HDF\r\n\x1a\n"
ZIP_START = b"PK\x03\x04"
CONFIG, _WEIGHTS, _METADATA = "config.json", "model.weights.h5", "metadata.json"
# The folder of files that layers keep beside their weights, such as vocabularies.
_ASSETS = "assets/"


class KerasFile(NamedTuple):
    """A file of a Keras model.

    Attributes:
      model: the `KerasModel` of its configuration; weights are keys of `arrays`.
      arrays: dict of arrays, None for those that are not numbers.
      trainable: the keys of the arrays that an optimizer trains, in its order; None if unknown.
      compile_config: as in the file, or None.
      assumptions: list of str, what is taken for granted of a file of weights alone.
      is_whole: whether the file has the configuration of the model.
    """

    model: KerasModel
    arrays: Dict[str, Optional[np.ndarray]]
    trainable: Optional[List[str]]
    compile_config: Any = None
    assumptions: List[str] = []
    is_whole: bool = True

    def values(self, keys: List[str]) -> List[np.ndarray]:
        """Returns the arrays of these keys."""
        return [np.asarray(self.arrays[key]) for key in keys]


class StoredModel(NamedTuple):
    """A whole model in one HDF5 file, as it is there.

    Attributes:
      keras_version: str, such as "2.2.4-tf".
      config, training_config: nested dicts and lists; None if the file has none.
      weights: by the name of a layer, its arrays in Keras's order.
      optimizer_weights: the arrays of the optimizer's state, by their names, in Keras's order.
    """

    keras_version: str
    config: Any
    training_config: Any
    weights: Dict[str, List[np.ndarray]]
    optimizer_weights: Dict[str, np.ndarray]


class StoredArchive(NamedTuple):
    """A `.keras` archive, as it is.

    Attributes:
      keras_version: str, such as "2.15.0".
      config: nested dicts and lists; `compile_config` is one of its keys.
      arrays: dict of arrays by their paths in the file of weights; None for what is not numbers.
      places: finds the arrays of layers.
      has_assets: whether layers keep files beside their weights.
    """

    keras_version: str
    config: Any
    arrays: Dict[str, Optional[np.ndarray]]
    places: ArraysOfArchive
    has_assets: bool


def is_hdf5(path: str) -> bool:
    """Returns whether a file is HDF5, whatever its name is."""
    return _start_of(path) == HDF5_START


def read_hdf5_model(path: str) -> StoredModel:
    """Reads a whole model in one HDF5 file.

    Raises:
      ExchangeError: the file is damaged, declares more data than it has, or has only weights.
    """
    with explaining_errors(path):
        content = _hdf5(path, "an HDF5 file", path)
        attributes = content["attributes"][""]
        places = ArraysOfHdf5(path, content["attributes"], content["arrays"])
        training_config = attributes.get("training_config")
        names = places.names("model_weights", "layer_names")
        return StoredModel(
            str(attributes.get("keras_version", "")),
            _config_of_hdf5(path, attributes),
            json.loads(training_config) if isinstance(training_config, str) else None,
            {name: places.arrays("model_weights/" + name) for name in names},
            dict(zip(places.names("optimizer_weights"), places.arrays("optimizer_weights"))),
        )


def read_weights(path: str) -> Tuple[Dict[str, List[np.ndarray]], Optional[StoredArchive]]:
    """Reads the weights of an HDF5 file of weights alone (`save_weights`) or of a whole model.

    Returns:
      by the name of a layer its arrays in Keras's order, and None; or, for the form that Keras
      writes since 2.12 under names that end with .weights.h5, an empty dict, and the archive
      without a configuration.

    Raises:
      ExchangeError: the file is damaged, declares more data than it has, or is of another kind.
    """
    if not is_hdf5(path):
        raise ExchangeError("%s is not an HDF5 file, as files of Keras's weights are." % path)
    with explaining_errors(path):
        content = _hdf5(path, "an HDF5 file", path)
        attributes, arrays = content["attributes"], content["arrays"]
        places = ArraysOfHdf5(path, attributes, arrays)
        for group in ("", "model_weights"):  # of weights alone, and of a whole model
            names = places.names(group, "layer_names")
            if names:
                prefix = group and group + "/"
                return {name: places.arrays(prefix + name) for name in names}, None
        # The layers of a model that the weights are for may have other names.
        nameless = {
            group: {key: value for key, value in found.items() if key != "name"}
            for group, found in attributes.items()
        }
        of_archive = ArraysOfArchive(path, nameless, arrays)
        return {}, StoredArchive("", None, arrays, of_archive, has_assets=False)


def is_keras(path: str) -> bool:
    """Returns whether a file is HDF5, or a ZIP archive with Keras's configuration."""
    start = _start_of(path)
    if not start.startswith(ZIP_START):
        return start == HDF5_START
    try:
        with zipfile.ZipFile(path) as archive:
            return CONFIG in archive.namelist()
    except zipfile.BadZipFile as error:
        raise ExchangeError(
            "%s is a damaged ZIP archive, such as one that was not copied to its end: %s. Get it "
            "from its source again." % (path, str(error).rstrip("."))
        ) from error


def has_config(path: str) -> bool:
    """Returns whether a file for which `is_keras` holds has a whole model, or only weights."""
    if not is_hdf5(path):
        return True
    with explaining_errors(path):
        attributes = guarded.call(path, "an HDF5 file", "hdf5.root_attributes", path)
        return isinstance(attributes.get("model_config"), str)


def _start_of(path):
    """Returns the first bytes of a file; raises `ExchangeError` for a folder."""
    if os.path.isdir(path):
        raise ExchangeError(
            "%r is a folder, such as a SavedModel, and so neither a .keras file nor HDF5. Load "
            "other formats with keras.models.load_model, or build the model with the layers of "
            "cudnn_rnn.keras and call load_weights with a file of weights." % path
        )
    with open(path, "rb") as file:
        return file.read(len(HDF5_START))


def read(path: str, facts: Facts = Facts()) -> KerasFile:  # noqa: B008 (immutable)
    """Reads a file; `facts` state what a file of weights alone does not tell.

    Raises:
      ExchangeError: the file is damaged, declares more data than it has, or is of another kind.
    """
    start = _start_of(path)
    with explaining_errors(path):
        if start == HDF5_START:
            return _read_hdf5(path, facts)
        if start.startswith(ZIP_START):
            return _read_archive(path)
    raise ExchangeError(
        "%s cannot be read as a Keras model: expected an HDF5 file or a ZIP archive, but it starts "
        "with %r." % (path, start)
    )


@contextlib.contextmanager
def explaining_errors(path: str) -> Iterator[None]:
    """Raises an `ExchangeError` for each error that a damaged file causes."""
    try:
        yield
    except ExchangeError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ExchangeError(
            "%s cannot be read as a Keras model: its configuration is damaged (%s: %s)."
            % (path, type(error).__name__, error)
        ) from error
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ExchangeError("%s cannot be read as a Keras model: %s." % (path, error)) from error


def _read_hdf5(path, facts):
    content = _hdf5(path, "an HDF5 file", path)
    attributes, arrays = content["attributes"], content["arrays"]
    version = str(attributes[""].get("keras_version", ""))
    if version.startswith("1."):
        raise ExchangeError(
            "%s was written by Keras %s; expected Keras 2 or 3. Load it with Keras 2.0 and save it "
            "with that: model.save('model.h5')." % (path, version)
        )
    if "model_config" not in attributes[""]:
        weights = keras_weights.read(path, attributes, arrays, facts)
        return KerasFile(weights.model, arrays, None, None, weights.assumptions, is_whole=False)
    config = _config_of_hdf5(path, attributes[""])
    model = _ModelReader(path, ArraysOfHdf5(path, attributes, arrays)).read(config)
    return KerasFile(model, arrays, None)


def _config_of_hdf5(path, attributes):
    config = attributes.get("model_config")
    if not isinstance(config, str):
        raise ExchangeError(
            "%s has weights without the layers that they belong to. Load it into its model "
            "(model.load_weights) and save that: model.save('model.keras')." % path
        )
    return _loads(path, config)


def _hdf5(path, what, name):
    ratio = declared_sizes.LARGEST_RATIO
    return guarded.call(path, what, "hdf5.read", path, ratio, name=name)


def version_and_classes(path: str) -> Tuple[str, Set[str]]:
    """Returns the version of Keras that wrote an archive, and the names of its classes.

    A class that a package has registered has the name of the package before its own.
    """
    with explaining_errors(path):
        declared_sizes.check_zip(path)
        with zipfile.ZipFile(path) as archive:
            metadata = json.loads(archive.read(_METADATA).decode())
            config = json.loads(archive.read(CONFIG).decode())
        classes = set()
        for entry in keras_configs.dicts_in(config):
            registered = str(entry.get("registered_name"))
            if isinstance(entry.get("class_name"), str):
                classes.add(registered if ">" in registered else entry["class_name"])
        return str(metadata["keras_version"]), classes


def read_archive(path: str) -> StoredArchive:
    """Reads a `.keras` archive.

    Raises:
      ExchangeError: the file is damaged, declares more data than it has, or is of another kind.
    """
    with explaining_errors(path):
        declared_sizes.check_zip(path)
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            names = archive.namelist()
            missing = {CONFIG, _WEIGHTS} - set(names)
            if missing:
                raise ExchangeError(
                    "%s cannot be read as a Keras model: it lacks %s." % (path, min(missing))
                )
            config = _loads(path, archive.read(CONFIG).decode())
            metadata = json.loads(archive.read(_METADATA).decode()) if _METADATA in names else {}
            extracted = archive.extract(_WEIGHTS, folder)
            content = _hdf5(extracted, "the weights of a Keras model", path)
        return StoredArchive(
            str(metadata.get("keras_version", "")),
            config,
            content["arrays"],
            ArraysOfArchive(path, content["attributes"], content["arrays"]),
            any(name.startswith(_ASSETS) for name in names),
        )


def _read_archive(path):
    stored = read_archive(path)
    reader = _ModelReader(path, stored.places)
    model = reader.read(stored.config)
    compile_config = stored.config.get("compile_config")
    return KerasFile(model, stored.arrays, reader.trainable, compile_config)


def _loads(path, text):
    config = json.loads(text)
    if not isinstance(config, dict) or "class_name" not in config:
        raise ExchangeError("%s has no configuration of a Keras model." % path)
    return config


class _ModelReader:
    """Describes the model of a configuration.

    `places` finds arrays: `root` is the place of the whole model, `children(names, classes, place)`
    returns those of its layers, `keys(place)` all keys there, and `weights(place, name, kind,
    numbers)` lists of keys of an RNN layer, one list of this number of keys for each cell.
    """

    def __init__(self, path, places):
        self._path, self._places = path, places
        self._layers: List[KerasLayer] = []
        self._calls: List[Any] = []
        self.trainable: List[str] = []

    def read(self, config):
        """Returns the `KerasModel`."""
        if not keras_configs.is_container(config):
            raise ExchangeError(
                "%s has a model of the class %s, whose layers are not in the file. Load it in your "
                "program and call cudnn_rnn.exchange.keras_format.from_model."
                % (self._path, config["class_name"])
            )
        self._add_model(config, self._places.root, is_trainable=True)
        return KerasModel(self._layers, self._calls)

    def _add_model(self, config, place, is_trainable):
        """Adds the layers and calls of a model, which may be inside another one."""
        entries = keras_configs.entries_of(config)
        names = [keras_configs.name_of(entry) for entry in entries]
        classes = [entry["class_name"] for entry in entries]
        described = []
        for outer, name, outer_place in zip(
            entries, names, self._places.children(names, classes, place)
        ):
            entry, depth = keras_configs.unwrapped(outer)
            inside = self._places.inside_wrappers(outer_place, depth)
            is_trained = is_trainable and all(
                keras_configs.settings_of(one).get("trainable", True) for one in (outer, entry)
            )
            if keras_configs.is_container(entry):
                self._add_model(entry, inside, is_trained)
                described.append(KerasLayer(None, name))
                continue
            layer = self._layer(entry, name, inside)._replace(depth=depth)
            described.append(layer)
            self._layers.append(layer)
            if is_trained:
                self.trainable += self._trained(entry["class_name"], layer)
        if config["class_name"] == "Sequential":
            chain = [layer for layer, kind in zip(described, classes) if kind != "InputLayer"]
            self._calls += [(layer, [before]) for before, layer in zip(chain, chain[1:])]
            return
        by_name = dict(zip(names, described))
        for entry, layer in zip(entries, described):
            calls = [
                [by_name.get(name, _UNKNOWN) for name in keras_configs.inputs_of(node)]
                for node in entry.get("inbound_nodes") or []
            ]
            self._check_calls(layer, calls)
            self._calls += [(layer, inputs) for inputs in calls]

    def _check_calls(self, layer, calls):
        """Raises unless it is known what an RNN follows: a stack would be several RNNs."""
        is_known = calls and all(calls) and not any(one is _UNKNOWN for one in sum(calls, []))
        if layer.kind is not None and not is_known:
            raise ExchangeError(
                "%s is damaged: its configuration does not say which layers the RNN %r follows."
                % (self._path, layer.name)
            )

    def _layer(self, entry, name, place):
        """Returns the `KerasLayer` of an entry of the configuration."""
        kind, config = keras_configs.kind_of(entry), entry["config"]
        all_keys = self._places.keys(place)
        if kind == "RNNStack":
            stack = STACK_MODES[config["cell"]], 2 if config["bidirectional"] else 1
            num_cells = stack[1] * config["num_layers"]
            cells = self._places.weights(place, name, kind, [3] * num_cells)
            keys = [key for cell in cells for key in cell]
            return KerasLayer(kind, name, weights=keys, stack=stack, weight_names=all_keys)
        cells = keras_configs.cells_of(kind, entry)
        if not cells:
            return KerasLayer(None, name, weight_names=all_keys)
        numbers = [3 if cell["config"].get("use_bias", True) else 2 for cell in cells]
        keys_of_cells = self._places.weights(place, name, kind, numbers)
        made = [self._cell(cell, name, keys) for cell, keys in zip(cells, keys_of_cells)]
        if kind != "Bidirectional":
            return made[0]._replace(weight_names=all_keys)
        settings = {"merge_mode": config.get("merge_mode")}
        return KerasLayer(kind, name, settings, cells=made, weight_names=all_keys)

    def _cell(self, entry, name, keys):
        """Returns the description of one direction; compares its size with that of the arrays."""
        config = entry["config"]
        shapes = [self._places.shape(key) for key in keys]
        if len(shapes[1]) != 2 or shapes[1][0] != config["units"]:
            raise ExchangeError(
                "%s is damaged: the layer %r has %r units, but weights of the shapes %s."
                % (self._path, name, config["units"], ", ".join(map(str, shapes)))
            )
        class_name = entry["class_name"]
        defaults = ADDED_ARGUMENTS.get(class_name, {})
        settings = {setting: config.get(setting, defaults.get(setting)) for setting in SETTINGS}
        kind, is_cudnn = RNN_CLASSES[class_name], class_name in CUDNN_CLASSES
        return KerasLayer(kind, name, settings, keys, is_cudnn=is_cudnn)

    def _trained(self, class_name, layer):
        """Returns the keys of the arrays of a layer that an optimizer trains."""
        keys = weights_of_rnn(layer) or layer.weight_names
        if class_name == "BatchNormalization":
            keys = keys[:-2]  # the moving averages are last
        return [key for key in keys if self._places.is_float(key)]


_UNKNOWN = KerasLayer(None, "")


def weights_of_rnn(layer: KerasLayer) -> List[str]:
    """Returns the keys of a layer's arrays if it is an RNN, else none."""
    return [key for cell in layer.cells or [layer] for key in cell.weights]


def of_no_layer(file: KerasFile) -> List[str]:
    """Returns the keys of the arrays that belong neither to a layer nor to the optimizer."""
    of_layers = {key for layer in file.model.layers for key in layer.weight_names}
    return [
        key for key in file.arrays if key not in of_layers and not key.startswith(OPTIMIZER_KEYS)
    ]
