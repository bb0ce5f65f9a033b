"""Finds the RNNs in a checkpoint by its keys and shapes alone.

| generation | keys |
| --- | --- |
| `CANONICAL`: 1.0 to 1.2; in 1.3 with a prefix | `CudnnRNNParamsToCanonical[_<n>]:<i>` |
| `CELLS_WITH_BIASES`: 1.3 | those of cells, and `bias_cudnn_0`, `bias_cudnn_1` |
| `CELLS`: 1.4 to 1.15, programs with cells | `.../cudnn_compatible_lstm_cell/kernel`, ... |
| `OBJECTS`: `tf.train.Checkpoint` | `<path>/cell-<i>/kernel/.ATTRIBUTES/VARIABLE_VALUE` |
| `OPAQUE`: the opaque variable alone | `<scope>/opaque_kernel` |
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from cudnn_rnn._core.config import GATES, RnnConfig
from cudnn_rnn.checkpoints import cell_saveables
from cudnn_rnn.checkpoints.cell_layout import LAYER_FORMATS
from cudnn_rnn.exchange.activations import Activations
from cudnn_rnn.exchange.contents import ExchangeError, Facts, mode_of, sentence
from cudnn_rnn.exchange.weights import DTYPES, UNKNOWN_ACTIVATION, model_config

CANONICAL, CELLS_WITH_BIASES, CELLS = "1.0 to 1.3", "1.3", "1.4 to 1.15"
OBJECTS, OPAQUE = "tf.train.Checkpoint", "an opaque variable only"

SAVEABLES: Dict[str, Any] = {
    saveable._rnn_mode: saveable
    for saveable in (
        cell_saveables.CudnnLSTMSaveable,
        cell_saveables.CudnnGRUSaveable,
        cell_saveables.CudnnRNNReluSaveable,
        cell_saveables.CudnnRNNTanhSaveable,
    )
}
_MODES_OF_CELLS: Dict[str, List[str]] = {}
for _mode, _saveable in SAVEABLES.items():
    _MODES_OF_CELLS.setdefault(_saveable._rnn_cell_name, []).append(_mode)

OBJECT_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
OPAQUE_NAME = "opaque_kernel"

_CANONICAL = re.compile(
    r"(?:(?P<prefix>.*)/)?(?P<op>CudnnRNNParamsToCanonical(?:V2)?(?:_\d+)?):(?P<index>\d+)"
)
_CELL = re.compile(
    r"(?:(?P<prefix>.*)/)?(?P<cell>%s)/(?P<name>(?:gates/|candidate/\w+/)?"
    r"(?:kernel|bias|bias_cudnn[_ ][01]))" % "|".join(_MODES_OF_CELLS)
)
# Where cells are, in programs with the saveables, with tf.nn.dynamic_rnn or with
# bidirectional_dynamic_rnn. The last two are those of a single cell.
_PLACES = [
    re.compile(r"(?:(?P<scope>.*)/)?" + place)
    for place in (
        r"rnn/multi_rnn_cell/cell_(?P<layer>\d+)",
        r"multi_rnn_cell/cell_(?P<layer>\d+)",
        r"stack_bidirectional_rnn/cell_(?P<layer>\d+)/bidirectional_rnn/(?P<way>fw|bw)",
        r"bidirectional_rnn/(?P<way>fw|bw)",
        r"rnn",
    )
] + [re.compile(r"(?P<scope>.*)")]


class Found(NamedTuple):
    """One RNN.

    Attributes:
      scope: str.
      generation: one of the constants above.
      rnn_mode: as in `RnnWeights`.
      config: the `RnnConfig` of its buffer; of an unknown activation, that with tanh.
      keys: list of str, in the order of the specs of the generation's saveable.
    """

    scope: str
    generation: str
    rnn_mode: str
    config: RnnConfig
    keys: List[str]


class _Stack(NamedTuple):
    """Cells that form one RNN."""

    scope: str
    cells: Dict[Tuple[int, int], Dict[str, str]]  # (layer, direction) -> name -> key
    is_object: bool


def find(
    shapes: Dict[str, List[int]],
    dtypes: Dict[str, Any],
    graph: Optional[Any],
    facts: Facts,
    activations: Activations,
    notes: List[str],
    problems: List[str],
) -> List[Found]:
    """Returns the RNNs of a checkpoint.

    Args:
      shapes: by key.
      dtypes: NumPy dtypes by key.
      graph: the `TrackableObjectGraph` of an object-based checkpoint, else None.
      facts: what is known beyond the file.
      activations: what tells tanh from ReLU.
      notes: list to which remarks are appended.
      problems: list to which descriptions of RNNs that cannot be read are appended: several models
        are possible for the same keys, or none.

    Raises:
      ExchangeError: the facts do not determine the model of an opaque vector.
    """
    stacks = _stacks_of_names(shapes) + (_stacks_of_objects(graph) if graph else [])
    groups = _groups_of_canonical_tensors(shapes)
    found: List[Found] = []
    for of_one, part in [(_of_cells, one) for one in stacks] + [(_of_group, one) for one in groups]:
        try:
            found.append(of_one(part, shapes, dtypes, facts, activations))
        except ExchangeError as error:
            problems.append(str(error))
    if not found and not problems:
        found = _of_opaque_vectors(shapes, dtypes, facts, notes)
    return sorted(_with_different_scopes(found), key=lambda one: _natural(one.scope))


def _natural(text):
    """Returns a key for sorting by which rnn_2 precedes rnn_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def _with_different_scopes(found):
    """Appends a number to a scope that an earlier RNN has."""
    result: List[Found] = []
    for one in found:
        scope, number = one.scope, 0
        while scope in [other.scope for other in result]:
            number += 1
            scope = "%s_%d" % (one.scope or "rnn", number)
        result.append(one._replace(scope=scope))
    return result


# Cells


def _stacks_of_names(shapes):
    stacks: Dict[Any, _Stack] = {}
    for key in sorted(shapes):
        match = _CELL.fullmatch(key)
        if not match:
            continue
        places = [pattern.fullmatch(match.group("prefix") or "") for pattern in _PLACES]
        number, place = next((i, place) for i, place in enumerate(places) if place)
        values = place.groupdict()
        scope = values["scope"] or ""
        position = int(values.get("layer") or 0), int(values.get("way") == "bw")
        identity = (number, scope, match.group("cell"))
        stack = stacks.setdefault(identity, _Stack(scope, {}, False))
        stack.cells.setdefault(position, {})[match.group("name")] = key
    return list(stacks.values())


def _stacks_of_objects(graph):
    """Returns the stacks of an object-based checkpoint: objects with `cell-0`, or fw and bw."""
    stacks, waiting, seen = [], [("", 0)], {0}
    while waiting:
        path, node = waiting.pop(0)
        children = _children(graph, node)
        directions = [node]
        if all("cell-0" in _children(graph, children.get(way, node)) for way in ("fw", "bw")):
            directions = [children.get("fw", node), children.get("bw", node)]
        cells = {
            (int(name[len("cell-") :]), way): _values(graph, cell)
            for way, direction in enumerate(dict.fromkeys(directions))
            for name, cell in _children(graph, direction).items()
            if re.fullmatch(r"cell-\d+", name)
        }
        if cells and all(cells.values()):
            stacks.append(_Stack(path, cells, True))
            continue
        for name, child in children.items():
            if child not in seen:
                seen.add(child)
                waiting.append(("%s/%s" % (path, name) if path else name, child))
    return stacks


def _children(graph, node):
    return {child.local_name: child.node_id for child in graph.nodes[node].children}


def _values(graph, cell):
    """Returns the keys of a cell's variables by their names."""
    return {
        name: graph.nodes[child].attributes[0].checkpoint_key
        for name, child in _children(graph, cell).items()
        if graph.nodes[child].attributes
    }


def _of_cells(stack, shapes, dtypes, facts, activations):
    """Returns the `Found` of a stack."""
    first = stack.cells[min(stack.cells)]
    name = "the cells %s" % (stack.scope or min(first.values()))
    positions = _positions(stack, name)
    gates, units, inputs = _sizes_of_cells(stack, positions, shapes, facts, name)
    rnn_mode = mode_of(gates, facts, name, activations.find(sorted(first.values()), stack.scope))
    sizes_mode = next(mode for mode, known in GATES.items() if len(known) == gates)
    num_layers, last_way = positions[-1][0] + 1, positions[-1][1]
    weight_names, bias_names = SAVEABLES[sizes_mode]._cell_variables
    has_both_biases = any("bias_cudnn" in part for part in first)
    if has_both_biases:
        bias_names = LAYER_FORMATS[sizes_mode].bias_names
    missing = [part for part in (*weight_names, *bias_names) if part not in first]
    if missing:
        raise ExchangeError("%s lack the variables %s." % (sentence(name), missing))
    keys = [
        stack.cells[position][part]
        for kind in (weight_names, bias_names)
        for position in positions
        for part in kind
    ]
    dtype = _dtype_of_all(keys, dtypes, name)
    config = model_config(rnn_mode, (num_layers, units, inputs), 1 + last_way, dtype)
    generation = CELLS_WITH_BIASES if has_both_biases else CELLS
    generation = OBJECTS if stack.is_object else generation
    return Found(stack.scope, generation, rnn_mode, config, keys)


def _dtype_of_all(keys, dtypes, name):
    """Returns the dtype of an RNN's tensors; raises unless all have the same, of floats."""
    found = sorted({dtypes[key].name for key in keys})
    if len(found) != 1 or found[0] not in DTYPES:
        raise ExchangeError(
            "%s have the dtypes %s; expected one of %s for all of them."
            % (sentence(name), ", ".join(found), ", ".join(DTYPES))
        )
    return dtypes[keys[0]]


def _positions(stack, name):
    """Returns all (layer, direction) in order; raises unless all have the same variables."""
    num_layers, ways = (1 + max(place) for place in zip(*stack.cells))
    # A key can name any layer, such as cell_999999999.
    is_complete = num_layers * ways == len(stack.cells)
    if not is_complete or len({frozenset(cell) for cell in stack.cells.values()}) > 1:
        raise ExchangeError(
            "%s are incomplete: of %d layers in %d directions, some have other variables or none."
            % (sentence(name), num_layers, ways)
        )
    return sorted(stack.cells)


def _sizes_of_cells(stack, positions, shapes, facts, name):
    """Returns (number of gates, num_units, input_size)."""
    part = "gates/" if "gates/kernel" in stack.cells[0, 0] else ""
    kernel, bias = (stack.cells[0, 0].get(part + variable) for variable in ("kernel", "bias"))
    if kernel is None or bias is None or len(shapes[kernel]) != 2 or len(shapes[bias]) != 1:
        variables = sorted(stack.cells[0, 0])
        raise ExchangeError("%s lack a kernel or a bias: %s." % (sentence(name), variables))
    last = stack.cells[positions[-1]][part + "kernel"]
    ways = 1 + positions[-1][1]
    possible = []
    # (gates of the RNN, gates in `bias`); a GRU's candidate has variables of its own.
    for gates, gates_in_bias in ((3, 2),) if part else ((4, 4), (1, 1)):
        units, rest = divmod(shapes[bias][0], gates_in_bias)
        inputs = shapes[kernel][0] - units
        fits_above = positions[-1][0] == 0 or list(shapes[last][:1]) == [(ways + 1) * units]
        cell_name = next(
            SAVEABLES[mode]._rnn_cell_name for mode, known in GATES.items() if len(known) == gates
        )
        is_named = stack.is_object or "/%s/" % cell_name in "/" + kernel
        if is_named and units > 0 and not rest and inputs > 0 and fits_above:
            possible.append((gates, units, inputs))
    if len(possible) > 1 and facts.rnn_mode is not None:
        wanted = len(GATES[facts.rnn_mode])
        possible = [one for one in possible if one[0] == wanted] or possible
    if len(possible) != 1:
        raise ExchangeError(
            "%s with shapes %s %s"
            % (
                sentence(name),
                {key: list(shapes[key]) for key in (kernel, bias, last)},
                "may be an LSTM or a simple RNN. Give rnn_mode (--rnn-mode lstm, rnn_tanh or "
                "rnn_relu)."
                if possible
                else "are no RNN of this package.",
            )
        )
    return possible[0]


# Canonical tensors


def _groups_of_canonical_tensors(shapes):
    """Returns a list of ((prefix, name of the op), keys by index), in the order of the ops."""
    groups: Dict[Tuple[str, str], Dict[int, str]] = {}
    for key in sorted(shapes):
        match = _CANONICAL.fullmatch(key)
        if match:
            identity = match.group("prefix") or "", match.group("op")
            groups.setdefault(identity, {})[int(match.group("index"))] = key
    return sorted(groups.items(), key=lambda group: list(map(_natural, group[0])))


def _of_group(group, shapes, dtypes, facts, activations):
    """Returns the `Found` of one of `_groups_of_canonical_tensors`."""
    (prefix, operation), by_index = group
    name = "the tensors %s:<i>" % "/".join(filter(None, (prefix, operation)))
    keys = [by_index[index] for index in sorted(by_index)]
    if sorted(by_index) != list(range(len(keys))):
        raise ExchangeError("Some of %s are missing." % name)
    sizes = [int(np.prod(shapes[key])) for key in keys]
    config = _config_of_sizes(sizes, _dtype_of_all(keys, dtypes, name), facts, name)
    # The scope of the RNN is the part before dynamic_rnn's own scope, as with cells.
    scope = re.sub(r"(^|/)rnn$", "", prefix)
    rnn_mode = mode_of(len(config.gates), facts, name, activations.find(keys[:1], scope))
    return Found(scope, CANONICAL, rnn_mode, config, keys)


def _config_of_sizes(sizes, dtype, facts, name):
    """Returns the config whose canonical tensors, weights then biases, have these sizes."""
    possible = []
    for num_gates in (4, 3, 1):
        for ways in (1, 2):
            for has_projection in (False, True)[: 1 + (num_gates == 4)]:
                per_cell = 4 * num_gates + has_projection
                num_layers, rest = divmod(len(sizes), per_cell * ways)
                if rest or not num_layers:
                    continue
                config = _possible_config(sizes, dtype, num_gates, num_layers, ways, has_projection)
                if config is not None:
                    possible.append(config)
    if len(possible) > 1:
        possible = [config for config in possible if _agrees(config, facts)] or possible
    if len(possible) != 1:
        raise ExchangeError(
            "%s, %d tensors with %s elements, %s"
            % (
                sentence(name),
                len(sizes),
                sizes if len(sizes) < 40 else "%s..." % str(sizes[:40])[:-1],
                "may be any of these RNNs:\n%s\nGive rnn_mode, num_layers or direction "
                "(--rnn-mode, --num-layers, --direction)." % _list(possible)
                if possible
                else "are those of no RNN.",
            )
        )
    return possible[0]


def _possible_config(sizes, dtype, num_gates, num_layers, ways, has_projection):
    """Returns the config of these sizes, None if there is none."""
    units, (inputs, recurrent) = sizes[-1], (sizes[0], sizes[num_gates])
    if not units or inputs % units or recurrent % units:
        return None
    rnn_mode = next(mode for mode, gates in GATES.items() if len(gates) == num_gates)
    try:
        config = model_config(
            rnn_mode,
            (num_layers, units, inputs // units or units),
            ways,
            dtype,
            recurrent // units if has_projection else 0,
            skip_input=inputs == 0,
        )
    except ValueError:
        return None
    entries = config.canonical_weights() + config.canonical_biases()
    return config if [int(np.prod(entry.shape)) for entry in entries] == sizes else None


# Opaque vectors


def _of_opaque_vectors(shapes, dtypes, facts, notes):
    """Returns the RNNs of opaque variables, whose description must come from `facts`."""
    vectors = [key for key in sorted(shapes) if len(shapes[key]) == 1 and dtypes[key].kind == "f"]
    own = [key for key in vectors if plain(key).rpartition("/")[2] == OPAQUE_NAME]
    if facts.rnn_mode is None or facts.num_units is None:
        for key in own:
            notes.append(
                "%s, [%d], is the opaque vector of an RNN that the file does not describe. Give "
                "rnn_mode and num_units (--rnn-mode, --num-units)." % (key, shapes[key][0])
            )
        return []
    found = []
    for key in own or vectors:
        possible = _configs_of_vector(shapes[key][0], dtypes[key], facts)
        if len(possible) > 1:
            raise ExchangeError(
                "%s, [%d], may be any of these RNNs:\n%s\nGive num_layers and direction "
                "(--num-layers, --direction)." % (key, shapes[key][0], _list(possible))
            )
        if own and not possible:
            raise ExchangeError(
                "%s, [%d], is not the opaque vector of an RNN with %s."
                % (key, shapes[key][0], {k: v for k, v in facts._asdict().items() if v is not None})
            )
        scope = plain(key)[: -len(OPAQUE_NAME)].rstrip("/") if own else plain(key)
        found += [Found(scope, OPAQUE, config.rnn_mode, config, [key]) for config in possible]
    return found


def _configs_of_vector(size, dtype, facts):
    """Returns all configs with these facts whose opaque vector has this size."""
    possible, units = [], facts.num_units
    # A layer has more than units**2 parameters. A config whose size exceeds int64 raises an error.
    if (facts.num_layers or 1) * units**2 > size:
        return []
    for num_layers in [facts.num_layers] if facts.num_layers else range(1, 1000):
        for ways in (1, 2):
            smallest = model_config(facts.rnn_mode, (num_layers, units, 1), ways, dtype)
            per_input = smallest.params_size()
            column = ways * len(smallest.gates) * units  # parameters per element of the input
            extra, rest = divmod(size - per_input, column)
            if rest == 0 and extra >= 0:
                config = smallest._replace(input_size=1 + extra)
                possible += [config] if _agrees(config, facts) else []
        if per_input > size:
            break
    return possible


def _agrees(config, facts):
    return (
        (facts.rnn_mode is None or len(config.gates) == len(GATES[facts.rnn_mode]))
        and facts.num_layers in (None, config.num_layers)
        and facts.num_units in (None, config.num_units)
        and facts.direction in (None, config.direction)
    )


def _list(configs):
    return "\n".join(
        "  %s, num_layers %d, num_units %d, %s, input_size %d"
        % (
            UNKNOWN_ACTIVATION if len(config.gates) == 1 else config.rnn_mode,
            config.num_layers,
            config.num_units,
            config.direction,
            config.input_size,
        )
        for config in configs
    )


def plain(key: str) -> str:
    """Returns a key without the suffix that `tf.train.Checkpoint` appends."""
    return key[: -len(OBJECT_SUFFIX)] if key.endswith(OBJECT_SUFFIX) else key
