"""Keras's layers in a checkpoint of objects: `save_weights` in TensorFlow's format, SavedModels.

Each layer is an object with its variables, or with an object `cell` that has them. The names of the
objects tell the order of the layers in a model: `layer-<number>`. A key may name another object
that has the variable (`variables/0`), so the keys come from the graph. As in Keras's weights alone,
nothing tells the settings of a layer.
"""

from __future__ import annotations

import collections
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange import keras_model, keras_weights
from cudnn_rnn.exchange.checkpoint_objects import Objects
from cudnn_rnn.exchange.contents import Contents
from cudnn_rnn.exchange.keras_weights import Cell
from cudnn_rnn.model import dialects

_PARTS = ("kernel", "recurrent_kernel", "bias")
_LAYER = re.compile("layer-([0-9]{1,9})")
_NUMBER = re.compile("([0-9]{1,9})")
_LISTS = ("_operations", "_layers")  # of Keras 3
_WAYS = ("forward_layer", "backward_layer")
# What refers to layers and variables a second time, or belongs to the optimizer.
_OTHERS = {
    "keras_api",
    "layer_regularization_losses",
    "non_trainable_variables",
    "optimizer",
    "regularization_losses",
    "signatures",
    "states",
    "trainable_variables",
    "variables",
}


class _Place(NamedTuple):
    """Where an object is: fields of the `Cell` that it may have."""

    place: Any
    position: Tuple[Any, int]
    way: Any = None
    depth: int = 0


def read(
    graph: Any,
    shapes: Dict[str, Tuple[int, ...]],
    tensor: Callable[[str], np.ndarray],
    facts: Any,
) -> Tuple[Contents, List[str]]:
    """Returns the RNNs of Keras's layers in a checkpoint, and the keys of the layers' arrays.

    Args:
      graph: its `TrackableObjectGraph`.
      shapes: by key.
      tensor: returns the array of a key.
      facts: what is known beyond the file.
    """
    objects = Objects(graph, set(_PARTS))
    names = {
        attribute.checkpoint_key: attribute.full_name
        for node in graph.nodes
        for attribute in node.attributes
    }
    cells, problems = [], []
    for cell in _cells(objects, names):
        missing = [key for key in cell.keys if key not in shapes]
        if missing:
            problems.append("The layer %r lacks the tensors %s." % (cell.name, missing))
        else:
            cells.append(cell)
    weights = keras_weights.describe(cells, shapes, facts)

    def arrays(keys: Sequence[str]) -> List[np.ndarray]:
        return [tensor(key) for key in keys]

    contents = keras_model.rnns_of(weights.model, keras_model.Source(arrays, dialects.halves_of))
    notes = keras_weights.notes_on(weights.assumptions, contents.rnns)
    keys = [key for layer in weights.model.layers for key in layer.weight_names]
    problems += contents.problems
    return contents._replace(notes=notes + contents.notes, problems=problems), keys


def _cells(objects: Objects, names: Dict[str, str]) -> Iterator[Cell]:
    """Yields the cells of all layers; each object is looked at once, wherever it is found."""
    waiting = collections.deque([(0, _Place(0, (0, 0)))])
    seen = {0}
    while waiting:
        node, place = waiting.popleft()
        variables = objects.variables(node)
        if {"kernel", "recurrent_kernel"} <= set(variables):
            keys = [variables[part] for part in _PARTS if part in variables]
            yield _cell(place, keys, names.get(keys[0], ""), objects.path(node))
            continue
        children = objects.children(node)
        # `layer-0` first, because the same object may also be `layer_with_weights-0`.
        for name in sorted(children, key=lambda name: (_LAYER.fullmatch(name) is None, name)):
            child = children[name]
            if name in _OTHERS or child in seen:
                continue
            seen.add(child)
            objects.parents[child] = node, name
            waiting.append((child, _place_of_child(objects, node, place, name)))


def _place_of_child(objects, node, place, name):
    """Returns the place of the child of this name."""
    child = objects.children(node)[name]
    if name == "cell":
        return place
    if name == "layer":
        return place._replace(depth=place.depth + 1)
    if name in _WAYS:
        return place._replace(place=node, way=_WAYS.index(name))
    match = _LAYER.fullmatch(name)
    if match is None and objects.parents.get(node, (0, ""))[1] in _LISTS:
        match = _NUMBER.fullmatch(name)
    return _Place(child, (node, int(match.group(1))) if match else (("alone", child), 0))


def _cell(place, keys, full_name, path):
    """Returns a cell; `full_name` is that of its kernel in the program, if the file has it."""
    scope = full_name.rpartition("/")[0]
    is_named_by_cell = keras_weights.is_name_of_cell(scope.rpartition("/")[2])
    name = keras_weights.cell_of_names("", scope, "", keys).name if scope else ""
    return Cell(
        place.place,
        name or path,
        place.way,
        keys,
        place.position,
        "TensorFlow 2.2 and newer" if is_named_by_cell else "Keras of an unknown version",
        is_named_by_cell,
        place.depth,
    )
