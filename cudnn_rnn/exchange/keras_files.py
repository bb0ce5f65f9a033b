"""Reads `.keras` and `.h5` files without Keras: configuration and arrays, as plain data.

Keras would import what a configuration names, build layers of any size, and run code. Here, a class
is only a name: layers other than the RNNs that this package knows are left out. The format of a
file follows from its first bytes: HDF5, or ZIP.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import zipfile
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from cudnn_rnn.exchange import declared_sizes, guarded
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.exchange.keras_arrays import ArraysOfArchive, ArraysOfHdf5
from cudnn_rnn.exchange.keras_model import (
    CLASSES,
    SETTINGS,
    STACK_MODES,
    KerasLayer,
    KerasModel,
)

HDF5_START = b"\x89HDF\r\n\x1a\n"
ZIP_START = b"PK\x03\x04"
OPTIMIZER_KEYS = ("optimizer/", "optimizer_weights/")
_CONFIG, _WEIGHTS, _METADATA = "config.json", "model.weights.h5", "metadata.json"
# The folder of files that layers keep beside their weights, such as vocabularies.
_ASSETS = "assets/"
# The modules of the classes that are read; other modules may have classes of the same names.
_MODULES = re.compile(r"(tensorflow\.(python\.)?)?(tf_)?keras(\..*)?|cudnn_rnn\.keras(\..*)?")


class KerasFile(NamedTuple):
    """A file of a Keras model.

    Attributes:
      model: the `KerasModel` of its configuration; weights are keys of `arrays`.
      arrays: dict of arrays, None for those that are not numbers.
      trainable: the keys of the arrays that an optimizer trains, in its order; None if unknown.
      compile_config: as in the file, or None.
    """

    model: KerasModel
    arrays: Dict[str, Optional[np.ndarray]]
    trainable: Optional[List[str]]
    compile_config: Any

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


def is_keras(path: str) -> bool:
    """Returns whether a file is HDF5, or a ZIP archive with Keras's configuration."""
    start = _start_of(path)
    if not start.startswith(ZIP_START):
        return start == HDF5_START
    with zipfile.ZipFile(path) as archive:
        return _CONFIG in archive.namelist()


def has_config(path: str) -> bool:
    """Returns whether a file for which `is_keras` holds has a whole model, or only weights."""
    if not is_hdf5(path):
        return True
    with explaining_errors(path):
        attributes = _hdf5(path, "an HDF5 file", path)["attributes"][""]
        return isinstance(attributes.get("model_config"), str)


def _start_of(path):
    with open(path, "rb") as file:
        return file.read(len(HDF5_START))


def read(path: str) -> KerasFile:
    """Reads a file.

    Raises:
      ExchangeError: the file is damaged, declares more data than it has, or is of another kind.
    """
    start = _start_of(path)
    with explaining_errors(path):
        if start == HDF5_START:
            return _read_hdf5(path)
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


def _read_hdf5(path):
    content = _hdf5(path, "an HDF5 file", path)
    config = _config_of_hdf5(path, content["attributes"][""])
    places = ArraysOfHdf5(path, content["attributes"], content["arrays"])
    model = _ModelReader(path, places).read(config)
    return KerasFile(model, content["arrays"], None, None)


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
    """Returns the version of Keras that wrote an archive, and the classes that it names."""
    with explaining_errors(path):
        declared_sizes.check_zip(path)
        with zipfile.ZipFile(path) as archive:
            metadata = json.loads(archive.read(_METADATA).decode())
            config = archive.read(_CONFIG).decode()
        return str(metadata["keras_version"]), set(re.findall(r'"class_name": *"([^"]*)"', config))


def read_archive(path: str) -> StoredArchive:
    """Reads a `.keras` archive.

    Raises:
      ExchangeError: the file is damaged, declares more data than it has, or is of another kind.
    """
    with explaining_errors(path):
        declared_sizes.check_zip(path)
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            names = archive.namelist()
            missing = {_CONFIG, _WEIGHTS} - set(names)
            if missing:
                raise ExchangeError(
                    "%s cannot be read as a Keras model: it lacks %s." % (path, min(missing))
                )
            config = _loads(path, archive.read(_CONFIG).decode())
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
    counts)` lists of keys of an RNN layer, one list for each cell.
    """

    def __init__(self, path, places):
        self._path, self._places = path, places
        self._layers: List[KerasLayer] = []
        self._calls: List[Any] = []
        self.trainable: List[str] = []

    def read(self, config):
        """Returns the `KerasModel`."""
        if not _is_container(config):
            raise ExchangeError(
                "%s has a model of the class %s, whose layers are not in the file. Load it in your "
                "program and call cudnn_rnn.exchange.keras_format.from_model."
                % (self._path, config["class_name"])
            )
        self._add_model(config, self._places.root, is_trainable=True)
        return KerasModel(self._layers, self._calls)

    def _add_model(self, config, place, is_trainable):
        """Adds the layers and calls of a model, which may be inside another one."""
        entries = _entries_of(config)
        names = [_name_of(entry) for entry in entries]
        classes = [entry["class_name"] for entry in entries]
        described = []
        for entry, name, inside in zip(
            entries, names, self._places.children(names, classes, place)
        ):
            is_trained = is_trainable and _settings_of(entry).get("trainable", True)
            if _is_container(entry):
                self._add_model(entry, inside, is_trained)
                described.append(KerasLayer(None, name))
                continue
            layer = self._layer(entry, name, inside)
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
                [by_name.get(name, _UNKNOWN) for name in _inputs_of(node)]
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
        kind, config, all_keys = _kind_of(entry), entry["config"], self._places.keys(place)
        if kind == "RNNStack":
            stack = STACK_MODES[config["cell"]], 2 if config["bidirectional"] else 1
            num_cells = stack[1] * config["num_layers"]
            cells = self._places.weights(place, name, kind, num_cells, 3)
            keys = [key for cell in cells for key in cell]
            return KerasLayer(kind, name, weights=keys, stack=stack, weight_names=all_keys)
        cells = _cells_of(kind, entry)
        if not cells:
            return KerasLayer(None, name, weight_names=all_keys)
        num_arrays = 3 if cells[0]["config"].get("use_bias", True) else 2
        keys_of_cells = self._places.weights(place, name, kind, len(cells), num_arrays)
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
        settings = {setting: config.get(setting) for setting in SETTINGS}
        return KerasLayer(entry["class_name"], name, settings, keys)

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


def _cells_of(kind, entry):
    """Returns the entries of a layer's directions; an empty list if it is no RNN."""
    if kind != "Bidirectional":
        return [dict(entry, class_name=kind)] if kind else []
    config = entry["config"]
    forward, backward = config["layer"], config.get("backward_layer")
    if backward is None:
        settings = forward["config"]
        reverse = dict(settings, go_backwards=not settings.get("go_backwards"))
        backward = dict(forward, config=reverse)
    cells = [dict(cell, class_name=_kind_of(cell)) for cell in (forward, backward)]
    return cells if {cell["class_name"] for cell in cells} <= set(CLASSES.values()) else []


def _entries_of(config):
    """Returns the list of the layers of a model; up to Keras 2.2.2 it is a Sequential's config."""
    inner = config["config"]
    return inner if isinstance(inner, list) else inner["layers"]


def _is_container(entry):
    inner = entry.get("config")
    return isinstance(inner, list) or isinstance(_settings_of(entry).get("layers"), list)


def _settings_of(entry):
    """Returns the configuration of a layer or model, which up to Keras 2.2.2 may be a list."""
    inner = entry.get("config")
    return inner if isinstance(inner, dict) else {}


def _name_of(entry):
    name = _settings_of(entry).get("name") or entry.get("name")
    if not isinstance(name, str):
        raise ValueError("a layer of the class %r has no name" % entry.get("class_name"))
    return name


def _kind_of(entry):
    """Returns the class of a layer if it is one that can be read, else None."""
    known = {*CLASSES.values(), "Bidirectional", "RNNStack"}
    # Files in HDF5 name a registered class by its package.
    package, _, name = str(entry["class_name"]).rpartition(">")
    if name not in known or package not in ("", "cudnn_rnn"):
        return None
    return name if _MODULES.fullmatch(str(entry.get("module") or "keras")) else None


def _inputs_of(node):
    """Returns the names of the layers whose outputs a call takes."""
    names: List[str] = []
    waiting = [node]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            # [name of a layer, index of its call, index of the tensor]; in Keras 2 also the
            # keywords of the call, which may have tensors.
            if len(value) in (3, 4) and isinstance(value[0], str) and isinstance(value[1], int):
                names.append(value[0])
                waiting += value[3:]
            else:
                waiting += value
    return names
