"""Finds the RNNs in a checkpoint by its keys (`model/keys` has them) and shapes alone."""

from __future__ import annotations

import collections
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange import checkpoint_objects
from cudnn_rnn.exchange.contents import ExchangeError, Facts, StoredRnn, sentence
from cudnn_rnn.exchange.told_modes import ToldModes
from cudnn_rnn.model import keys as keys_module
from cudnn_rnn.model import layout
from cudnn_rnn.model.keys import CANONICAL, CELL_NAMES, CELLS, CELLS_WITH_BIASES, OBJECTS
from cudnn_rnn.model.spec import DIRECTIONS, GATES, RnnConfig
from cudnn_rnn.model.weights import DTYPES, SIMPLE_MODES, UNKNOWN_ACTIVATION


class _Stack(NamedTuple):
    """Cells that form one RNN."""

    scope: str
    cells: Dict[Tuple[int, int], Dict[str, str]]  # (layer, direction) -> name -> key
    is_object: bool


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
            stack = stacks.setdefault(parsed.stack, _Stack(parsed.scope, {}, False))
            stack.cells.setdefault(parsed.position, {})[parsed.name] = key
    return list(stacks.values())


def _stacks_of_objects(graph, notes):
    found = checkpoint_objects.stacks(graph, keys_module.VARIABLES, notes) if graph else []
    return [_Stack(path, cells, True) for path, cells in found]


def _of_cells(stack, shapes, dtypes, facts, told):
    """Returns the `StoredRnn` of a stack."""
    first = stack.cells[min(stack.cells)]
    name = "the cells %s" % (stack.scope or min(first.values()))
    if keys_module.MISSPELT.search(stack.scope):
        raise ExchangeError("%s are not where TensorFlow has those of an RNN." % sentence(name))
    positions = _positions(stack, name)
    _check_keys([key for cell in stack.cells.values() for key in cell.values()], shapes, name)
    _refuse_other_cells(stack, told, name)
    gates, units, inputs = _sizes_of_cells(stack, positions, shapes, facts, told, name)
    rnn_mode = _mode_with(gates)
    num_layers, last_way = positions[-1][0] + 1, positions[-1][1]
    names = CELL_NAMES[rnn_mode]
    has_both_biases = any("bias_cudnn" in part for part in first)
    weight_names, bias_names = names.weights, names.biases + names.summands * has_both_biases
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
    config = RnnConfig.checked(
        rnn_mode, num_layers, units, inputs, direction=DIRECTIONS[last_way], dtype=dtype.name
    )
    generation = CELLS_WITH_BIASES if has_both_biases else CELLS
    return StoredRnn(stack.scope, OBJECTS if stack.is_object else generation, config, keys)


def _refuse_other_cells(stack, told, name):
    """Refuses an object-based checkpoint of other LSTM cells, whose keys are those of ours."""
    for key in stack.cells[min(stack.cells)].values():
        match = keys_module.OTHER_CELL.search(told.name(key)) if stack.is_object else None
        if match:
            raise ExchangeError(
                "%s are variables of a %s: %s. Such a cell adds its forget_bias, by default 1, in "
                "every step; the file does not tell which. Restore them in a program, add the "
                "forget_bias to the forget gate's bias (the third quarter), and save that with "
                "CudnnCompatibleLSTMCell." % (sentence(name), match.group("cell"), told.name(key))
            )


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


def _sizes_of_cells(stack, positions, shapes, facts, told, name):
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
        cell_name = CELL_NAMES[_mode_with(gates)].cell
        is_named = stack.is_object or "/%s/" % cell_name in "/" + kernel
        if is_named and units > 0 and not rest and inputs > 0 and fits_above:
            possible.append((gates, units, inputs))
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
    possible = _configs_of_sizes(sizes, _dtype_of_all(keys, dtypes, name))
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
