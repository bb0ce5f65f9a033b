"""Files of Keras's weights alone (`save_weights`): the RNNs that names and shapes tell.

Up to Keras 2.15, such a file lists the layers of the model and the names of their weights. Since
Keras 2.12, `.weights.h5` has a group for each layer instead, whose arrays have numbers. Neither
has the settings of a layer:

| bias | layer |
| --- | --- |
| `[4 * units]` | LSTM |
| `[8 * units]` | CuDNNLSTM |
| `[3 * units]` | GRU with reset_after=False |
| `[2, 3 * units]` | GRU with reset_after=True |
| `[6 * units]` | CuDNNGRU |
| `[units]` | SimpleRNN |

Only the layers of cuDNN certainly have the activations that cuDNN computes. Those of others are the
defaults since Keras 2.3; before, the default was hard_sigmoid, so the user must state them.
"""

from __future__ import annotations

import collections
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError, Facts
from cudnn_rnn.exchange.keras_arrays import FOLDER_OF_2_13, OPTIMIZER_KEYS, ArraysOfHdf5, numbered
from cudnn_rnn.exchange.keras_model import CLASSES, KerasLayer, KerasModel
from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_TANH
from cudnn_rnn.model.weights import SIMPLE_MODES, UNKNOWN_ACTIVATION, RnnWeights

_NAME = re.compile(
    r"(?:(?P<scope>.*)/)?(?P<part>kernel|recurrent_kernel|bias)(?P<number>_\d+)?(?::\d+)?",
    re.DOTALL,
)
_PARTS = ("kernel", "recurrent_kernel", "bias")
_NAME_OF_CELL = re.compile(r"(?:lstm|gru|simple_rnn)_cell(?:_\d+)?")
_GROUP = re.compile(r"(?:(?P<group>.*)/)?vars/(?P<index>[0-9]+)", re.DOTALL)
_WAYS = ("forward", "backward")
_MODES = {4: CUDNN_LSTM, 3: CUDNN_GRU, 1: CUDNN_RNN_TANH}


class Weights(NamedTuple):
    """What a file of weights alone has.

    Attributes:
      model: the `KerasModel`; layers that may follow each other are calls.
      assumptions: list of str, what the file does not tell, but was taken for granted.
    """

    model: KerasModel
    assumptions: List[str]


class Cell(NamedTuple):
    """The arrays of one direction of a layer.

    Attributes:
      place: what the directions of a layer have in common, comparable.
      name: str, of the layer.
      way: 0 forward, 1 backward; None if the layer is not bidirectional.
      keys: of kernel, recurrent kernel, and bias, if any.
      position: (container, number): layers with consecutive numbers in it are neighbours.
      written_by: str, the Keras that wrote the file, for messages.
      has_defaults: whether the default activations of that Keras are cuDNN's.
      depth: the number of TimeDistributed around the layer.
    """

    place: Any
    name: str
    way: Optional[int]
    keys: List[str]
    position: Tuple[Any, int]
    written_by: str = ""
    has_defaults: bool = False
    depth: int = 0


def read(
    path: str, attributes: Dict[str, Dict[str, Any]], arrays: Dict[str, Any], facts: Facts
) -> Weights:
    """Describes the RNNs of a file by its attributes and arrays.

    Args:
      path: the file, for errors.
      attributes, arrays: as `readers/hdf5` returns them.
      facts: a `rnn_mode` states what the layers with as many gates compute.

    Raises:
      ExchangeError: the file lists weights that it does not have.
    """
    if "layer_names" in attributes[""] or "layer_names0" in attributes[""]:
        version = str(attributes[""].get("keras_version", ""))
        has_defaults = tuple(map(int, re.findall(r"\d+", version)[:2])) >= (2, 3)
        written_by = "Keras %s" % (version or "of an unknown version")
        listed = _listed_cells(path, ArraysOfHdf5(path, attributes, arrays), arrays)
        cells = [cell._replace(written_by=written_by, has_defaults=has_defaults) for cell in listed]
    else:
        of_groups = _cells_of_groups(attributes, arrays)
        cells = [
            cell._replace(written_by="Keras 2.12 and newer", has_defaults=True)
            for cell in of_groups
        ]
    return describe(cells, {key: np.shape(array) for key, array in arrays.items()}, facts)


def describe(cells: Sequence[Cell], shapes: Dict[str, Tuple[int, ...]], facts: Facts) -> Weights:
    """Describes the RNNs that consist of these cells; `shapes` are by key."""
    describer = _Describer(shapes, facts)
    layers: List[KerasLayer] = []
    positions: List[Tuple[Any, int]] = []
    for of_layer in _by_layer(cells):
        layer = describer.layer(of_layer)
        if layer is not None:
            layers.append(layer)
            positions.append(of_layer[0].position)
    by_position = dict(zip(positions, layers))
    calls = [
        (layer, [by_position[container, number - 1]])
        for (container, number), layer in zip(positions, layers)
        if (container, number - 1) in by_position
    ]
    return Weights(KerasModel(layers, calls), sorted(describer.assumptions))


def notes_on(assumptions: Sequence[str], rnns: Sequence[RnnWeights]) -> List[str]:
    """Returns a note on what was taken for granted, if there are RNNs."""
    stacks = ["%r (%d layers)" % (rnn.scope, rnn.num_layers) for rnn in rnns if rnn.num_layers > 1]
    assumed = list(assumptions)
    if stacks:
        assumed.append(
            "layers next to each other, whose widths fit, are one RNN: %s" % ", ".join(stacks)
        )
    return ["The file has weights alone. Assumed: %s." % "; ".join(assumed)] * bool(rnns)


def _listed_cells(path: str, places: ArraysOfHdf5, arrays: Dict[str, Any]) -> Iterator[Cell]:
    """Yields the cells in the lists of names, as Keras up to 2.15 writes them."""
    for number, layer in enumerate(places.names("", "layer_names")):
        parts: Dict[Tuple[str, str], Dict[str, str]] = {}
        for name in places.names(layer):
            match = _NAME.fullmatch(name)
            if match:
                scope = match.group("scope") or "", match.group("number") or ""
                parts.setdefault(scope, {})[match.group("part")] = "%s/%s" % (layer, name)
        found = [
            cell_of_names(layer, scope, suffix, [keys[part] for part in _PARTS if part in keys])
            for (scope, suffix), keys in parts.items()
            if {"kernel", "recurrent_kernel"} <= set(keys)
        ]
        missing = [key for cell in found for key in cell.keys if arrays.get(key) is None]
        if missing:
            raise ExchangeError(
                "%s is damaged: the layer %r must have the arrays %s. Get the file from its source "
                "again." % (path, layer, ", ".join(missing))
            )
        # The file does not name the layers between the RNNs of a nested model.
        if len({cell.place for cell in found}) == 1:
            found = [cell._replace(position=("", number)) for cell in found]
        yield from found


def is_name_of_cell(name: str) -> bool:
    """Returns whether a part of a weight's name is that of a cell, as TensorFlow 2.2 has them."""
    return _NAME_OF_CELL.fullmatch(name) is not None


def cell_of_names(layer: str, scope: str, suffix: str, keys: List[str]) -> Cell:
    """Returns the cell in a layer whose names of weights begin with `scope`, end with `suffix`."""
    names, way = scope.split("/"), None
    if is_name_of_cell(names[-1]):
        names.pop()
    if len(names) > 1 and names[-1].split("_")[0] in _WAYS:
        way = _WAYS.index(names.pop().split("_")[0])
    place = (layer, *names, suffix)
    name = (names[-1] if names and names[-1] else layer) + suffix
    return Cell(place, name, way, keys, position=(place, 0))


def _cells_of_groups(
    attributes: Dict[str, Dict[str, Any]], arrays: Dict[str, Any]
) -> Iterator[Cell]:
    """Yields the cells in groups of numbered arrays, as Keras writes them since 2.12."""
    groups: Dict[str, Dict[str, str]] = collections.defaultdict(dict)
    for key in arrays:
        match = _GROUP.fullmatch(key)
        if match and not key.startswith(OPTIMIZER_KEYS):
            groups[match.group("group") or ""][match.group("index")] = key
    counts: Dict[Any, Set[str]] = {}  # the layers of a class
    for group in sorted(groups, key=_natural):
        keys = [groups[group][index] for index in sorted(groups[group])]
        has_all = "".join(sorted(groups[group])) in ("01", "012")
        if not has_all or any(arrays[key] is None for key in keys):
            continue
        names, way, depth = group.split("/"), None, 0
        if names[-1] == "cell":
            names.pop()
        elif len(keys) < 3 or not _is_of_cudnn(*[arrays[key].shape for key in keys]):
            continue  # layers of other kinds may have matrices of these shapes, too
        if names and names[-1] in ("forward_layer", "backward_layer"):
            way = _WAYS.index(names.pop()[: -len("_layer")])
        while len(names) > 1 and names[-1] == "layer":
            names.pop()
            depth += 1
        layer = "/".join(names)
        stored = attributes.get(layer + "/vars", {}).get("name")
        name = stored if isinstance(stored, str) else names[-1] if names else ""
        base, number = numbered(names[-1] if names else "")
        container = "/".join(names[:-1]), base
        if FOLDER_OF_2_13 in names[-2:]:
            number = len(counts.setdefault(container, set()) - {layer})
            counts[container].add(layer)
        position = container, number
        yield Cell(layer, name, way, keys, position, depth=depth)


def _natural(path):
    """Returns a key for sorting paths by which lstm_2 precedes lstm_10."""
    parts = re.split("([0-9]+)", path)
    return [(len(part), part) if part.isdigit() else (0, part) for part in parts]


def _is_of_cudnn(kernel, recurrent_kernel, bias):
    """Returns whether shapes are those of a layer of cuDNN, which has two biases in one vector."""
    return (
        len(kernel) == len(recurrent_kernel) == 2
        and kernel[1] == recurrent_kernel[1]
        and recurrent_kernel[1] in (3 * recurrent_kernel[0], 4 * recurrent_kernel[0])
        and bias == (2 * kernel[1],)
    )


def _by_layer(cells: Sequence[Cell]) -> Iterator[List[Cell]]:
    """Yields the cells of each layer: one, or forward and backward."""
    pairs: Dict[Any, List[Cell]] = collections.defaultdict(list)
    for cell in cells:
        if cell.way is not None:
            pairs[cell.place].append(cell)
    for cell in cells:
        pair = sorted(pairs.get(cell.place, []), key=lambda one: one.way or 0)
        if [one.way for one in pair] != [0, 1]:
            yield [cell]
        elif cell is pair[0]:
            yield pair


class _Describer:
    """Tells the layers of a file from the shapes of their arrays."""

    def __init__(self, shapes, facts):
        self._shapes, self._facts = shapes, facts
        self.assumptions = set()

    def layer(self, of_layer: List[Cell]) -> Optional[KerasLayer]:
        """Returns the layer of one or two cells; None if its shapes are not those of an RNN."""
        made = [self._cell(cell) for cell in of_layer]
        cells = [cell for cell in made if cell is not None]
        if len(cells) != len(made):
            return None
        if len(cells) == 1:
            self.assumptions.add("go_backwards=False")
            return cells[0]
        self.assumptions.add("merge_mode='concat'")
        first = of_layer[0]
        cells[1] = cells[1]._replace(settings={"go_backwards": True})
        return KerasLayer(
            "Bidirectional",
            first.name,
            {"merge_mode": "concat"},
            cells=cells,
            weight_names=[key for cell in of_layer for key in cell.keys],
            depth=first.depth,
        )

    def _cell(self, cell: Cell) -> Optional[KerasLayer]:
        shapes = [tuple(self._shapes[key]) for key in cell.keys]
        (kernel, recurrent_kernel), bias = shapes[:2], shapes[2] if len(shapes) == 3 else None
        if len(kernel) != 2 or len(recurrent_kernel) != 2 or not recurrent_kernel[0]:
            return None
        units, width = recurrent_kernel
        gates = width // units
        if gates not in _MODES or kernel[1] != width or width % units:
            return None
        mode = _MODES[gates]
        is_cudnn = gates > 1 and bias == (2 * width,)
        problem = ""
        if not is_cudnn:
            problem = self._problem(cell, mode, units, kernel[0], bias)
        if gates == 1:
            given = self._facts.rnn_mode
            mode = given if given in SIMPLE_MODES else UNKNOWN_ACTIVATION
        return KerasLayer(
            CLASSES[_MODES[gates]],
            cell.name,
            weights=cell.keys,
            weight_names=cell.keys,
            is_cudnn=is_cudnn,
            depth=cell.depth,
            mode=mode,
            problem=problem,
        )

    def _problem(self, cell, mode, units, inputs, bias):
        """Returns why a layer that is not of cuDNN cannot be read; "" if it can."""
        what = "The layer %r, %s with %d units and inputs of width %d," % (
            cell.name,
            CLASSES[mode],
            units,
            inputs,
        )
        width = units * next(gates for gates, known in _MODES.items() if known == mode)
        is_gru = mode == CUDNN_GRU
        if is_gru and bias == (width,):
            return "%s has reset_after=False, which cuDNN's RNNs do not compute." % what
        expected = (2, width) if is_gru else (width,)
        if bias not in (None, expected):
            return "%s has a bias of shape %s; expected %s." % (what, list(bias), list(expected))
        if mode == CUDNN_RNN_TANH or self._facts.rnn_mode == mode:
            return ""
        if cell.has_defaults and not (is_gru and bias is None):
            self.assumptions.add(
                "activation='tanh' and recurrent_activation='sigmoid', the defaults of %s"
                % cell.written_by
            )
            return ""
        reason = (
            "which has no bias, so that nothing tells reset_after"
            if cell.has_defaults
            else "was written by %s, whose default recurrent_activation may be hard_sigmoid, "
            "which cuDNN's RNNs do not compute" % cell.written_by
        )
        return (
            "%s %s. The file has weights alone, without the settings of the layer. If the program "
            "has %s(%d, activation='tanh', recurrent_activation='sigmoid'%s), say so with "
            "rnn_mode=%r (--rnn-mode %s)."
            % (what, reason, CLASSES[mode], units, ", reset_after=True" * is_gru, mode, mode)
        )
