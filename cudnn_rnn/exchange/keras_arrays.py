"""Where the arrays of a Keras model's layers are in a file.

A place is where a layer or model keeps its arrays: a list of keys in a model in one HDF5 file, the
path of a group in the weights of a `.keras` archive.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError

# Where Keras 2.12 to 2.14 keeps the layers of a model; later releases have "layers".
FOLDER_OF_2_13 = "_layer_checkpoint_dependencies"
OPTIMIZER_KEYS = ("optimizer/", "optimizer_weights/")


class _Arrays:
    """What both kinds of files have in common."""

    root: Any = None

    def __init__(self, path: str, attributes: Dict[str, Dict[str, Any]], arrays: Dict[str, Any]):
        self._path, self._attributes, self._arrays = path, attributes, arrays

    def shape(self, key: str) -> Sequence[int]:
        """Returns the shape of an array."""
        return np.shape(self._arrays[key])

    def is_float(self, key: str) -> bool:
        """Returns whether an array has floating-point numbers."""
        array = self._arrays[key]
        return array is not None and array.dtype.kind in "fV"  # V: bfloat16

    def _split(self, keys, name, numbers):
        """Returns the keys of each cell of an RNN layer; `numbers` counts the arrays of each."""
        missing = [key for key in keys if self._arrays.get(key) is None]
        if len(keys) != sum(numbers) or missing:
            raise ExchangeError(
                "%s is damaged: the layer %r must have %d arrays, but has %s."
                % (
                    self._path,
                    name,
                    sum(numbers),
                    ", ".join(key for key in keys if key not in missing) or "none",
                )
            )
        remaining = iter(keys)
        return [list(itertools.islice(remaining, number)) for number in numbers]


class ArraysOfHdf5(_Arrays):
    """The arrays of a whole model in one HDF5 file: lists of names, layer by layer."""

    def children(self, names: List[str], classes: List[str], place: Any) -> List[Any]:
        """Returns the places of a model's layers; a model inside has one list for all of them."""
        del classes
        if place is not None:
            return [place] * len(names)
        return [self._listed("model_weights/" + name) for name in names]

    def inside_wrappers(self, place: Any, depth: int) -> Any:
        """Returns the place of the layer in so many TimeDistributed."""
        del depth
        return place

    def names(self, group: str, attribute: str = "weight_names") -> List[str]:
        """Returns the list of names that a group has as an attribute; long lists are in parts."""
        attributes = self._attributes.get(group, {})
        names = list(attributes.get(attribute, []))
        number = 0
        while "%s%d" % (attribute, number) in attributes:
            names += attributes["%s%d" % (attribute, number)]
            number += 1
        return names

    def arrays(self, group: str) -> List[np.ndarray]:
        """Returns the arrays of a group in the order of its names.

        Raises:
          ExchangeError: the file lacks one of them.
        """
        found = [self._arrays.get(key) for key in self._listed(group)]
        if any(array is None for array in found):
            raise ExchangeError(
                "%s is damaged: %s must have the arrays %s, but lacks one of them."
                % (self._path, group, ", ".join(self.names(group)))
            )
        return found

    def _listed(self, group):
        return ["%s/%s" % (group, name) for name in self.names(group)]

    def keys(self, place: Any) -> List[str]:
        """Returns the keys at a place."""
        return list(place)

    def weights(self, place: Any, name: str, kind: str, numbers: Sequence[int]) -> List[List[str]]:
        """Returns lists of keys of an RNN layer, one list for each cell."""
        del kind
        # In a model inside a model, names of weights begin with that of their layer.
        own = [key for key in place if name in key.split("/")[2:-1]] or list(place)
        return self._split(own, name, numbers)


class ArraysOfArchive(_Arrays):
    """The arrays of a `.keras` archive: groups have names of classes, numbered within a class."""

    root = ""

    def children(self, names: List[str], classes: List[str], place: Any) -> List[Any]:
        """Returns the places of a model's layers."""
        places = []
        start = place + "/" if place else ""
        groups = self._groups_of_2_13(start + FOLDER_OF_2_13 + "/")
        start += (FOLDER_OF_2_13 if groups else "layers") + "/"
        for name, group in zip(names, self.groups(classes)):
            base, number = numbered(group)
            existing = groups.get(base, [])
            path = start + (existing[number] if number < len(existing) else group)
            stored = self._attributes.get(path + "/vars", {}).get("name", name)
            if stored != name:
                raise ExchangeError(
                    "%s is damaged: %s must have the weights of the layer %r, but has those of %r."
                    % (self._path, path, name, stored)
                )
            places.append(path)
        return places

    @staticmethod
    def groups(classes: Sequence[str]) -> List[str]:
        """Returns the names of the groups of objects of these classes that are in one list."""
        counts: Dict[str, int] = {}
        names = []
        for class_name in classes:
            group = _snake_case(class_name.rpartition(">")[2])
            number = counts.get(group, 0)
            counts[group] = number + 1
            names.append("%s_%d" % (group, number) if number else group)
        return names

    def _groups_of_2_13(self, start):
        """Returns the groups of each class in a folder, in the order of the layers.

        Keras 2.12 and 2.13 count layers with weights twice, so the numbers have gaps.
        """
        found = [path[len(start) :] for path in self._attributes if path.startswith(start)]
        groups: Dict[str, List[str]] = {}
        for group in sorted({path.split("/")[0] for path in found}, key=numbered):
            groups.setdefault(numbered(group)[0], []).append(group)
        return groups

    def inside_wrappers(self, place: Any, depth: int) -> Any:
        """Returns the place of the layer in so many TimeDistributed."""
        return place + "/layer" * depth

    def keys(self, place: Any) -> List[str]:
        """Returns the keys at a place."""
        return sorted((key for key in self._below().get(place, [])), key=_natural_order)

    def _below(self):
        """Returns the keys below each path."""
        if not hasattr(self, "_by_path"):
            self._by_path: Dict[str, List[str]] = {}
            for key in self._arrays:
                parts = key.split("/")
                for end in range(2, len(parts)):
                    self._by_path.setdefault("/".join(parts[:end]), []).append(key)
        return self._by_path

    def weights(self, place: Any, name: str, kind: str, numbers: Sequence[int]) -> List[List[str]]:
        """Returns lists of keys of an RNN layer, one list for each cell."""
        ways = {"Bidirectional": ["/forward_layer", "/backward_layer"]}.get(kind, [""])
        keys = self.keys(place)
        # Only layers of cuDNN and RNNStack have no cell.
        starts = [place + way + folder for way in ways for folder in ("/cell/vars/", "/vars/")]
        own = [key for start in starts for key in keys if key.startswith(start)]
        return self._split(own, name, numbers)


def numbered(name: str) -> Tuple[str, int]:
    """Returns ("lstm", 2) for lstm_2, and ("lstm", 0) for lstm."""
    base, _, number = name.rpartition("_")
    return (base, int(number)) if re.fullmatch("[1-9][0-9]{0,8}", number) and base else (name, 0)


def _natural_order(key):
    """Sorts numbers in keys by their values."""
    return [(len(part), part) if part.isdigit() else (0, part) for part in key.split("/")]


def _snake_case(class_name):
    """Returns what Keras calls the group of a class, such as simple_rnn."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", class_name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
