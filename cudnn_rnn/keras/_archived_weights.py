"""The arrays of a `.keras` archive in the layers of a model that was built from its configuration.

In the archive, a group has the attributes of a Python object: `vars` are its own variables by
number, all others are objects in it, such as `layers`, `cell` or `forward_layer`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import tensorflow

from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.exchange.keras_arrays import FOLDER_OF_2_13
from cudnn_rnn.exchange.keras_configs import name_of
from cudnn_rnn.exchange.keras_files import StoredArchive
from cudnn_rnn.keras import _stored_weights
from cudnn_rnn.keras._fused_layer import IS_KERAS_3
from cudnn_rnn.keras._old_nodes import layers_of
from cudnn_rnn.keras._time_major import TimeMajor
from cudnn_rnn.model import dialects

_layers = tensorflow.keras.layers
_RECURRENT = (_layers.LSTM, _layers.GRU, _layers.SimpleRNN)
_FOLDERS = ("layers/", FOLDER_OF_2_13 + "/")
_VARIABLES = "vars"
# Objects that are not restored: the states of random generators.
_IGNORED = ("seed_generator",)


def set_weights_without_config(path: str, model: Any, stored: StoredArchive) -> None:
    """Like `set_weights`, for weights alone: the classes of the layers are those of the model.

    If the file has groups of cuDNN layers, all LSTM and GRU layers are read as cuDNN layers.
    """
    entry = {"class_name": type(model).__name__, "config": model.get_config()}
    if any("/cu_dnn" in "/" + key for key in stored.arrays):
        entry = _with_classes_of_cudnn(entry)
    set_weights(path, model, stored._replace(config=entry))


def _with_classes_of_cudnn(value):
    if isinstance(value, (list, tuple)):
        return [_with_classes_of_cudnn(one) for one in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _with_classes_of_cudnn(one) for key, one in value.items()}
    name = str(value.get("class_name")).rpartition(">")[2]
    return dict(changed, class_name="CuDNN" + name) if name in ("LSTM", "GRU") else changed


def set_weights(path: str, model: Any, stored: StoredArchive) -> None:
    """Gives the variables of a model the arrays of an archive.

    Raises:
      ExchangeError: an array or a variable is missing, or a shape does not fit. No variable has
        changed then.
    """
    found = _Found(path, stored)
    found.add_model(model, stored.config, stored.places.root)
    given = {id(variable) for variable, _ in found.pairs}
    missing = [weight for weight in model.weights if id(weight) not in given]
    if missing:
        raise ExchangeError("%s is damaged: it lacks the array of %s." % (path, missing[0].name))
    if found.num_arrays() != len(found.pairs):
        raise ExchangeError(
            "%s has %d arrays of layers, but the model has %d."
            % (path, found.num_arrays(), len(found.pairs))
        )
    if not IS_KERAS_3:
        tensorflow.keras.backend.batch_set_value(found.pairs)
        return
    for variable, array in found.pairs:
        variable.assign(array)


class _Found:
    """Pairs of variables and arrays."""

    def __init__(self, path: str, stored: StoredArchive):
        self._path, self._places = path, stored.places
        self.pairs: List[Tuple[Any, np.ndarray]] = []
        # By the path of a group: the names in it, and the arrays of its variables.
        self._groups: Dict[str, Dict[str, None]] = {}
        self._arrays: Dict[str, Dict[int, Any]] = {}
        for key, array in stored.arrays.items():
            parts = key.split("/")
            for end in range(1, len(parts)):
                self._groups.setdefault("/".join(parts[:end]), {})[parts[end]] = None
            if len(parts) > 1 and parts[-2] == _VARIABLES and parts[-1].isdigit():
                group = "/".join(parts[:-2])
                self._arrays.setdefault(group, {})[int(parts[-1])] = array

    def num_arrays(self) -> int:
        """Returns the number of arrays of all layers in the archive."""
        return sum(
            len(numbered)
            for group, numbered in self._arrays.items()
            if group.startswith(_FOLDERS) and group.rpartition("/")[2] not in _IGNORED
        )

    def add_model(self, model: Any, entry: Any, place: str) -> None:
        """Adds all layers of a model; `entry` is its configuration in the file."""
        entries = layers_of(entry)
        names = [name_of(one) for one in entries]
        classes = [one["class_name"] for one in entries]
        layers = {layer.name: layer for layer in model.layers}
        for name, one, inside in zip(names, entries, self._places.children(names, classes, place)):
            if name in layers:  # today's Sequential does not list the layer of its input
                self._add(layers[name], one, inside)

    def _add(self, layer, entry, place):
        """Adds a layer or another object at a place; `entry` may be an empty dict."""
        if layers_of(entry) is not None:
            self.add_model(layer, entry, place)
            return
        has_wrapper = str(entry.get("class_name")).endswith(TimeMajor.__name__)
        if isinstance(layer, TimeMajor) and not has_wrapper:
            layer = layer.layer
        elif has_wrapper and not isinstance(layer, TimeMajor):
            entry, place = entry["config"]["layer"], place + "/layer"
        if isinstance(layer, _RECURRENT):
            of_cell = place + "/cell"
            self._pair(layer, layer.weights, of_cell if of_cell in self._groups else place)
            return
        self._pair(layer, _own_variables(layer), place)
        for name in self._groups.get(place, {}):
            if name == _VARIABLES or name in _IGNORED:
                continue
            inner = getattr(layer, name, None)
            if inner is None:
                raise ExchangeError(
                    "%s cannot be loaded: its layer %r keeps arrays in %r, which this Keras does "
                    "not have there." % (self._path, layer.name, name)
                )
            self._add_inner(inner, _entry_inside(entry, name), place + "/" + name)

    def _add_inner(self, inner, entry, place):
        if not isinstance(inner, (list, tuple)):
            self._add(inner, entry, place)
            return
        classes = [type(one).__name__ for one in inner]
        for one, name in zip(inner, self._places.groups(classes)):
            self._add(one, {}, place + "/" + name)

    def _pair(self, layer, variables, place):
        """Adds the variables of one object."""
        numbered = self._arrays.get(place, {})
        arrays = [numbered[number] for number in sorted(numbered)]
        if not any(array is None for array in arrays):
            arrays = _stored_weights.of_today(layer, arrays, dialects.sum_of)
        shapes = [tuple(variable.shape) for variable in variables]
        if shapes != [np.shape(array) for array in arrays]:
            raise ExchangeError(
                "%s is damaged: its layer %r must have arrays of the shapes %s, but has %s."
                % (self._path, layer.name, shapes, [np.shape(array) for array in arrays])
            )
        self.pairs += zip(variables, arrays)


def _own_variables(layer):
    """Returns the variables that a layer itself has, in the order of the file."""
    kind = "variables" if IS_KERAS_3 else "weights"
    names = ("_trainable_" + kind, "_non_trainable_" + kind)
    return [variable for name in names for variable in getattr(layer, name, [])]


def _entry_inside(entry, name):
    """Returns the configuration of a wrapper's layer, an empty dict for any other object."""
    config = entry.get("config")
    if not isinstance(config, dict):
        return {}
    if name == "backward_layer":
        return config.get("backward_layer") or config.get("layer") or {}
    return config.get("layer") or {} if name in ("layer", "forward_layer") else {}
