"""Keras's layers in a checkpoint of objects: `save_weights` in TensorFlow's format, SavedModels.

Each layer is an object with its variables, or with an object `cell` that has them. The names of the
objects tell the order of the layers in a model: `layer-<number>`. A key may name another object
that has the variable (`variables/0`), so the keys come from the graph. As in Keras's weights alone,
nothing tells the settings of a layer.

What `export` of Keras 3 writes has no layers, only lists of variables: `variables/<number>` in the
order of the layers. The names of the variables tell which layer has them.
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
_EXPORTED, _EXPORTED_AGAIN = "variables", "_all_variables"  # lists of an exported model
_STATE = "seed_generator_state"  # a variable of dropout, which layers of any class may have
_PART_OF_STACK = re.compile(r"(forward|backward)_(0|[1-9][0-9]{0,5})_(%s)" % "|".join(_PARTS))
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
    found = list(_cells(objects, names)) or _exported_cells(objects, names)
    for cell in found:
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
    of_rnns = {names.get(key) for key in keys}
    again = [key for key in shapes if key.startswith(_EXPORTED_AGAIN + "/")]
    keys += [key for key in again if names.get(key) in of_rnns]
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


def _exported_cells(objects: Objects, names: Dict[str, str]) -> List[Cell]:
    """Returns the cells of a model that Keras 3 exported, whose layers follow each other."""
    root = objects.children(0)
    if _EXPORTED_AGAIN not in root or _EXPORTED not in root:
        return []
    cells: List[Cell] = []
    number = 0
    for scope, keys in _exported_parts(objects, root[_EXPORTED], names):
        *container, name = scope.split("/")
        stacked = _PART_OF_STACK.fullmatch(name + "_kernel")
        parts = [keys[part] for part in _PARTS if part in keys]
        if stacked:
            layer, way = "/".join(container), ("forward", "backward").index(stacked.group(1))
            place: Tuple[Any, ...] = (layer, stacked.group(2))
            cell = Cell(place, layer.rpartition("/")[2], way, parts, ("", 0))
        else:
            cell = keras_weights.cell_of_names("", scope, "", parts)
            container = list(cell.place[1:-2])
        last = cells[-1] if cells else None
        is_other_way = (
            last is not None
            and (last.place[:-1], last.way, cell.way) == (cell.place, 0, 1)
            and last.place[-1] == number
        )
        number += not is_other_way
        if {"kernel", "recurrent_kernel"} <= set(keys):
            has_defaults = stacked or keras_weights.is_name_of_cell(name)
            cells.append(
                cell._replace(
                    place=(*cell.place, number),
                    position=(tuple(container), number),
                    written_by="Keras 3",
                    has_defaults=bool(has_defaults),
                )
            )
    return cells


def _exported_parts(objects, node, names):
    """Yields (scope, keys by part) of variables that follow each other in one scope."""
    children = objects.children(node)
    numbers = sorted(int(name) for name in children if _NUMBER.fullmatch(name))
    scope, parts = None, {}  # type: ignore[var-annotated]
    for number in numbers:
        key = objects.key(children[str(number)])
        of_variable, _, part = names.get(key, "").rpartition("/")
        stacked = _PART_OF_STACK.fullmatch(part)
        if stacked:
            of_variable += "/%s_%s" % stacked.group(1, 2)
            part = stacked.group(3)
        if part == _STATE:
            continue
        if (of_variable, part in parts) != (scope, False):
            if scope is not None:
                yield scope, parts
            scope, parts = of_variable, {}
        parts[part] = key
    if scope is not None:
        yield scope, parts


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
