"""Finds the RNNs in a checkpoint by its keys (`model/keys` has them) and shapes alone."""

from __future__ import annotations

import collections
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange import checkpoint_objects, plain_cells
from cudnn_rnn.exchange.contents import ExchangeError, Facts, StoredRnn, sentence
from cudnn_rnn.exchange.told_modes import ToldModes
from cudnn_rnn.model import keys as keys_module
from cudnn_rnn.model import layout
from cudnn_rnn.model.keys import (
    CANONICAL,
    CELL_NAMES,
    CELLS,
    CELLS_WITH_BIASES,
    KERAS_KERNEL,
    OBJECTS,
    PLAIN,
    PROJECTION,
    WAYS,
)
from cudnn_rnn.model.spec import DIRECTIONS, GATES, RnnConfig
from cudnn_rnn.model.weights import DTYPES, SIMPLE_MODES, UNKNOWN_ACTIVATION


class _Stack(NamedTuple):
    """Cells that form one RNN."""

    scope: str
    cells: Dict[Tuple[int, int], Dict[str, str]]  # (layer, direction) -> name -> key
    is_object: bool
    kind: str = ""  # the scope that its cells make; that of objects is not in the keys


def find(
    shapes: Dict[str, Tuple[int, ...]],
    dtypes: Dict[str, Any],
    graph: Optional[Any],
    facts: Facts,
    told: ToldModes,
    notes: List[str],
    problems: List[str],
) -> List[StoredRnn]:
    """Returns the RNNs of a checkpoint, except opaque vectors without other keys.

    Args:
      shapes: by key.
      dtypes: NumPy dtypes by key.
      graph: the `TrackableObjectGraph` of an object-based checkpoint, else None.
      facts: what is known beyond the file.
      told: what the file tells of the modes.
      notes: list to which remarks are appended.
      problems: list to which descriptions of RNNs that cannot be read are appended: several models
        are possible for the same keys, or none.
    """
    stacks = _stacks_of_names(shapes) + _stacks_of_objects(graph, notes)
    groups = _groups_of_canonical_tensors(shapes)
    rnns: List[StoredRnn] = []
    parts = [(_of_cells, stack) for stack in stacks] + [(_of_group, group) for group in groups]
    for read_part, part in parts:
        try:
            rnns.append(read_part(part, shapes, dtypes, facts, told))
        except ExchangeError as error:
            problems.append(str(error))
    return in_order(rnns)


def in_order(rnns: Sequence[StoredRnn]) -> List[StoredRnn]:
    """Returns the RNNs in the natural order of their scopes, which differ in the result."""
    return sorted(_with_different_scopes(rnns), key=lambda rnn: _natural(rnn.scope))


def _natural(text):
    """Returns a key for sorting by which rnn_2 precedes rnn_10."""
    parts = re.split("([0-9]+)", text)
    parts[1::2] = [(len(part.lstrip("0")), part.lstrip("0"), part) for part in parts[1::2]]
    return parts


def _with_different_scopes(rnns):
    """Appends a number to a scope that an earlier RNN has."""
    result: List[StoredRnn] = []
    scopes, numbers = set(), collections.Counter()  # type: ignore[var-annotated]
    for rnn in rnns:
        scope = rnn.scope
        while scope in scopes:
            numbers[rnn.scope] += 1
            scope = "%s_%d" % (rnn.scope or "rnn", numbers[rnn.scope])
        scopes.add(scope)
        result.append(rnn._replace(scope=scope))
    return result


# Cells


def _stacks_of_names(shapes):
    stacks: Dict[Any, _Stack] = {}
    for key in sorted(shapes):
        parsed = keys_module.parse_cell(key)
        if parsed:
            stack = stacks.setdefault(parsed.stack, _Stack(parsed.scope, {}, False, parsed.kind))
            stack.cells.setdefault(parsed.position, {})[parsed.name] = key
    return _with_both_ways(
        [
            stack
            for stack in stacks.values()
            if not any(KERAS_KERNEL in cell for cell in stack.cells.values())
        ],
        shapes,
    )


def _with_both_ways(stacks, shapes):
    """Joins single cells in the scopes `fw` and `bw` of one scope.

    These are the scopes of `bidirectional_dynamic_rnn(..., scope=...)`.
    """
    alone = {(stack.scope, stack.kind): stack for stack in stacks if _is_alone(stack)}
    joined = []
    for stack in stacks:
        if not _is_alone(stack):
            joined.append(stack)
        elif alone.pop((stack.scope, stack.kind), None):  # else joined with an earlier one
            outer, way = stack.scope[:-2], stack.scope[-2:]
            is_way = way in WAYS and outer[-1:] in ("", "/")
            place = outer + WAYS[1 - WAYS.index(way)] if is_way else "", stack.kind
            other = alone.get(place) if is_way else None
            if other is not None and _are_alike(stack, other, shapes):
                del alone[place]
                number = WAYS.index(way)
                cells = {(0, number): stack.cells[0, 0], (0, 1 - number): other.cells[0, 0]}
                stack = stack._replace(scope=outer.rstrip("/"), cells=cells)
            joined.append(stack)
    return joined


def _is_alone(stack):
    """Returns whether a stack is a single cell that is directly in its scope."""
    start = (stack.scope + "/" if stack.scope else "") + stack.kind + "/"
    keys = [key for cell in stack.cells.values() for key in cell.values()]
    return list(stack.cells) == [(0, 0)] and all(key.startswith(start) for key in keys)


def _are_alike(stack, other, shapes):
    """Returns whether two single cells have the same variables and shapes."""
    first, second = (
        {name: shapes[key] for name, key in one.cells[0, 0].items()} for one in (stack, other)
    )
    return first == second


def _stacks_of_objects(graph, notes):
    found = checkpoint_objects.stacks(graph, keys_module.VARIABLES, notes) if graph else []
    return [_Stack(path, cells, True) for path, cells in found]


def _of_cells(stack, shapes, dtypes, facts, told):
    """Returns the `StoredRnn` of a stack."""
    name = "the cells %s" % (stack.scope or min(stack.cells[min(stack.cells)].values()))
    if keys_module.MISSPELT.search(stack.scope):
        raise ExchangeError("%s are not where TensorFlow has those of an RNN." % sentence(name))
    positions = _positions(stack, name)
    _check_keys([key for cell in stack.cells.values() for key in cell.values()], shapes, name)
    cells = [stack.cells[position] for position in positions]
    if stack.is_object:
        stack = stack._replace(kind=plain_cells.kind_of_objects(cells[0], told))
    is_plain = plain_cells.is_plain(stack.kind)
    if is_plain:
        plain_cells.refuse_others(stack.kind, cells[0], name)
    gates, units, inputs, num_proj = _sizes_of_cells(stack, positions, shapes, facts, told, name)
    rnn_mode = _mode_with(gates)
    has_both_biases = any("bias_cudnn" in part for part in cells[0])
    keys = _keys_of_cells(CELL_NAMES[rnn_mode], cells, has_both_biases, num_proj > 0, name)
    dtype = dtype_of_all(keys, dtypes, name)
    config = RnnConfig.checked(
        rnn_mode,
        positions[-1][0] + 1,
        units,
        inputs,
        direction=DIRECTIONS[positions[-1][1]],
        dtype=dtype.name,
        num_proj=num_proj,
    )
    generation = CELLS_WITH_BIASES if has_both_biases else PLAIN if is_plain else CELLS
    stored = StoredRnn(stack.scope, OBJECTS if stack.is_object else generation, config, keys)
    if not is_plain:
        return stored
    biases = plain_cells.forget_biases(stack.kind, cells, facts, told, name)
    return stored._replace(is_plain=True, forget_biases=biases.values, notes=(biases.note,))


def _keys_of_cells(names, cells, has_both_biases, has_projection, name):
    """Returns the keys of all cells, in the order of a `StoredRnn`."""
    weight_names = names.weights + (PROJECTION,) * has_projection
    bias_names = names.biases + names.summands * has_both_biases
    missing = [part for part in weight_names + bias_names if part not in cells[0]]
    if missing:
        raise ExchangeError("%s lack the variables %s." % (sentence(name), missing))
    return [cell[part] for kind in (weight_names, bias_names) for cell in cells for part in kind]


def _with_told_mode(facts, told, scope, keys):
    """Returns the facts with the mode that the file tells of these keys, if it tells one."""
    by_file = told.of(scope, keys)
    return facts if by_file is None else facts._replace(rnn_mode=by_file.rnn_mode)


def _mode_with(num_gates):
    """Returns a mode with this number of gates."""
    return next(mode for mode, gates in GATES.items() if len(gates) == num_gates)


def _check_keys(keys, shapes, name):
    """Raises unless all keys differ, and the checkpoint has them. Objects refer to any key."""
    missing = [key for key in keys if key not in shapes]
    if missing:
        raise ExchangeError("%s lack the tensors %s." % (sentence(name), missing[:8]))
    if len(set(keys)) != len(keys):
        raise ExchangeError("%s share variables; each needs its own." % sentence(name))


def dtype_of_all(keys, dtypes, name):
    """Returns the dtype of an RNN's tensors; raises unless all have the same, of floats."""
    found = sorted({dtypes[key].name for key in keys})
    if len(found) != 1 or found[0] not in DTYPES:
        advice = ""
        if found == ["bfloat16"]:
            advice = " Restore them in a program, cast them with tf.cast, and save the result."
        raise ExchangeError(
            "%s have the dtypes %s; expected one of %s for all of them.%s"
            % (sentence(name), ", ".join(found), ", ".join(DTYPES), advice)
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


def _sizes_of_cells(stack, positions, shapes, facts, told, name):
    """Returns (number of gates, num_units, input_size, num_proj)."""
    part = "gates/" if "gates/kernel" in stack.cells[0, 0] else ""
    kernel, bias = (stack.cells[0, 0].get(part + variable) for variable in ("kernel", "bias"))
    if kernel is None or bias is None or len(shapes[kernel]) != 2 or len(shapes[bias]) != 1:
        variables = sorted(stack.cells[0, 0])
        raise ExchangeError("%s lack a kernel or a bias: %s." % (sentence(name), variables))
    last = stack.cells[positions[-1]][part + "kernel"]
    ways = 1 + positions[-1][1]
    is_plain = plain_cells.is_plain(stack.kind)
    num_proj = _projection_of(stack, shapes, name) if is_plain else 0
    possible = []
    # (gates of the RNN, gates in `bias`); a GRU's candidate has variables of its own.
    for gates, gates_in_bias in ((3, 2),) if part else ((4, 4), (1, 1)):
        units, rest = divmod(shapes[bias][0], gates_in_bias)
        outputs = num_proj or units
        inputs = shapes[kernel][0] - outputs
        fits_above = positions[-1][0] == 0 or list(shapes[last][:1]) == [(ways + 1) * outputs]
        cell_name = CELL_NAMES[_mode_with(gates)].cell
        is_named = gates == 4 if is_plain else stack.is_object or stack.kind == cell_name
        if is_named and units > 0 and not rest and inputs > 0 and fits_above:
            possible.append((gates, units, inputs, num_proj))
    if len(possible) > 1:
        rnn_mode = _with_told_mode(facts, told, stack.scope, [kernel, bias]).rnn_mode
        wanted = len(GATES.get(rnn_mode, ()))
        possible = [sizes for sizes in possible if sizes[0] == wanted] or possible
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


def _projection_of(stack, shapes, name):
    """Returns the width of the projection of plain cells, 0 if they have none."""
    key = stack.cells[0, 0].get(PROJECTION)
    if key is None:
        return 0
    shape = list(shapes[key])
    if len(shape) != 2 or not 0 < shape[1] < shape[0]:
        raise ExchangeError(
            "%s have a projection %s of shape %s; cuDNN's are [num_units, num_proj] with num_proj "
            "from 1 to num_units - 1." % (sentence(name), key, shape)
        )
    return shape[1]


# Canonical tensors


def _groups_of_canonical_tensors(shapes):
    """Returns a list of ((prefix, name of the op), keys by index), in the order of the ops."""
    groups: Dict[Tuple[str, str], Dict[int, str]] = {}
    for key in sorted(shapes):
        parsed = keys_module.parse_canonical(key)
        if parsed:
            groups.setdefault(parsed[0], {})[parsed[1]] = key
    return sorted(groups.items(), key=lambda group: list(map(_natural, group[0])))


def _of_group(group, shapes, dtypes, facts, told):
    """Returns the `StoredRnn` of one of `_groups_of_canonical_tensors`."""
    (prefix, operation), by_index = group
    name = "the tensors %s:<i>" % "/".join(filter(None, (prefix, operation)))
    keys = [by_index[index] for index in sorted(by_index)]
    if sorted(by_index) != list(range(len(keys))):
        raise ExchangeError("Some of %s are missing." % name)
    # The scope of the RNN is the part before dynamic_rnn's own scope, as with cells.
    scope = re.sub(r"(^|/)rnn$", "", prefix)
    sizes = [int(np.prod(shapes[key])) for key in keys]
    possible = _configs_of_sizes(sizes, dtype_of_all(keys, dtypes, name))
    if len(possible) > 1:
        known = _with_told_mode(facts, told, scope, keys)
        possible = [config for config in possible if agrees(config, known)] or possible
    if len(possible) != 1:
        raise ExchangeError(
            "%s, %d tensors with %s elements, %s"
            % (
                sentence(name),
                len(sizes),
                sizes if len(sizes) < 40 else "%s..." % str(sizes[:40])[:-1],
                "may be any of these RNNs:\n%s\nGive rnn_mode, num_layers or direction "
                "(--rnn-mode, --num-layers, --direction)." % list_of(possible)
                if possible
                else "are those of no RNN.",
            )
        )
    return StoredRnn(scope, CANONICAL, possible[0], keys)


def _configs_of_sizes(sizes, dtype):
    """Returns the configs whose canonical tensors, weights then biases, have these sizes."""
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
    return possible


def _possible_config(sizes, dtype, num_gates, num_layers, ways, has_projection):
    """Returns the config of these sizes, None if there is none."""
    units, (inputs, recurrent) = sizes[-1], (sizes[0], sizes[num_gates])
    if not units or inputs % units or recurrent % units:
        return None
    try:
        config = RnnConfig.checked(
            _mode_with(num_gates),
            num_layers,
            units,
            inputs // units or units,
            "linear_input" if inputs else "skip_input",
            DIRECTIONS[ways - 1],
            dtype.name,
            num_proj=recurrent // units if has_projection else 0,
        )
    except ValueError:
        return None
    return config if [region.size for region in layout.regions(config)] == sizes else None


def agrees(config: RnnConfig, facts: Facts) -> bool:
    """Returns whether a config agrees with the facts; the activation may differ."""
    return (
        (facts.rnn_mode is None or len(config.gates) == len(GATES[facts.rnn_mode]))
        and facts.num_layers in (None, config.num_layers)
        and facts.num_units in (None, config.num_units)
        and facts.direction in (None, config.direction)
        and facts.num_proj in (None, config.num_proj)
    )


def list_of(configs: Sequence[RnnConfig]) -> str:
    """Returns a line on each config."""
    return "\n".join(
        "  %s, num_layers %d, num_units %d, %s, input_size %d%s"
        % (
            UNKNOWN_ACTIVATION if config.rnn_mode in SIMPLE_MODES else config.rnn_mode,
            config.num_layers,
            config.num_units,
            config.direction,
            config.input_size,
            ", skip_input" if config.skips_input_projection else "",
        )
        for config in configs
    )
