"""Finds the RNNs in a checkpoint that has only opaque variables.

The file has no sizes. They come from `Facts`, and the mode also from what the file tells of it.
Whatever is not determined is asked for: a vector of one size can belong to many models.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np

from cudnn_rnn.exchange.checkpoint_rnns import agrees, dtype_of_all, in_order, list_of
from cudnn_rnn.exchange.contents import ExchangeError, Facts, StoredRnn, contradiction
from cudnn_rnn.exchange.told_modes import ToldModes
from cudnn_rnn.model import layout
from cudnn_rnn.model.keys import OPAQUE, OPAQUE_NAME, plain
from cudnn_rnn.model.spec import CUDNN_INPUT_SKIP_MODE, CUDNN_LSTM, DIRECTIONS, RnnConfig


def find(
    shapes: Dict[str, Tuple[int, ...]],
    dtypes: Dict[str, Any],
    facts: Facts,
    told: ToldModes,
    notes: List[str],
    problems: List[str],
) -> List[StoredRnn]:
    """Returns the RNNs of a checkpoint that `checkpoint_rnns.find` finds nothing in.

    Args:
      shapes, dtypes, facts, told, problems: as in `checkpoint_rnns.find`.
      notes: list to which remarks on vectors are appended of which too little is known.
    """
    vectors = [key for key in sorted(shapes) if len(shapes[key]) == 1 and _is_float(dtypes[key])]
    own = [key for key in vectors if plain(key).rpartition("/")[2] == OPAQUE_NAME]
    scopes = {key: _scope_of_vector(key) for key in vectors}
    by_files = {key: told.of(scope, [key, plain(key)]) for key, scope in scopes.items()}
    if len(own) == 1:
        by_files[own[0]] = by_files[own[0]] or told.of_only_rnn()
    known = own or [key for key in vectors if by_files[key] is not None]
    rnns = []
    for key in known or [key for key in vectors if _may_be(shapes[key][0], dtypes[key], facts)]:
        by_file = by_files[key]
        try:
            dtype = dtype_of_all([key], dtypes, "the parameters %s" % key)
            config = _config_of_vector(key, shapes[key][0], dtype, facts, by_file, bool(own))
        except ExchangeError as error:
            problems.append(str(error))
            continue
        if config is not None:
            rnns.append(StoredRnn(scopes[key], OPAQUE, config, [key]))
        elif known:
            notes.append(_what_lacks(key, shapes[key][0], facts, by_file))
    return in_order(rnns)


def notes_on_none(
    shapes: Dict[str, Tuple[int, ...]], dtypes: Dict[str, Any], facts: Facts, told: ToldModes
) -> List[str]:
    """Returns notes on vectors that may be opaque, if no RNN was found, but the graph has some.

    The graph does not tell which of them, if its nodes are in functions.
    """
    vectors = [key for key in sorted(shapes) if len(shapes[key]) == 1 and _is_float(dtypes[key])]
    if not told.modes or not vectors:
        return []
    listed = ", ".join("%s, [%d]" % (plain(key), shapes[key][0]) for key in vectors[:8])
    what_to_do = "Give rnn_mode and num_units (--rnn-mode, --num-units)."
    if facts.rnn_mode is not None and facts.num_units is not None:
        known = {name: fact for name, fact in facts._asdict().items() if fact is not None}
        what_to_do = "None is that of an RNN with %s." % known
    return [
        "The graph in %s has RNNs (%s), and no RNN was found by the names of variables. A vector "
        "may be the opaque vector of one: %s. %s"
        % (told.graph_path, ", ".join(sorted(told.modes)), listed, what_to_do)
    ]


def _may_be(size, dtype, facts):
    """Returns whether a vector may be opaque; one of bfloat16, which is refused, must fit."""
    if dtype.kind == "f" or facts.rnn_mode is None or facts.num_units is None:
        return dtype.kind == "f"
    return bool(configs_of_vector(size, np.dtype(np.float32), facts))


def _is_float(dtype):
    return dtype.kind == "f" or dtype.name == "bfloat16"


def _scope_of_vector(key):
    name = plain(key)
    is_of_layer = name.rpartition("/")[2] == OPAQUE_NAME
    return name[: -len(OPAQUE_NAME)].rstrip("/") if is_of_layer else name


def _what_lacks(key, size, facts, by_file):
    """Returns a note on a vector with too few facts."""
    lacks = {"num_units": facts.num_units}
    if by_file is None:
        lacks = {"rnn_mode": facts.rnn_mode, **lacks}
    names = [name for name, value in lacks.items() if value is None]
    options = ["--" + name.replace("_", "-") for name in names]
    return "%s, [%d], is the opaque vector of %s that the file does not describe. Give %s (%s)." % (
        key,
        size,
        "an RNN" if by_file is None else "an RNN with rnn_mode %r" % by_file.rnn_mode,
        " and ".join(names),
        ", ".join(options),
    )


def _config_of_vector(key, size, dtype, facts, by_file, is_of_layer):
    """Returns the config of an opaque vector, None if it is none or if too little is known.

    Args:
      key, size, dtype: of the vector.
      facts: what is known beyond the file.
      by_file: what is told of its mode, or None.
      is_of_layer: whether it is the variable of a layer. Layers have no projection.

    Raises:
      ExchangeError: the facts contradict the file, or several RNNs are possible.
    """
    if by_file is not None:
        if facts.rnn_mode not in (None, by_file.rnn_mode):
            raise contradiction(key, by_file.rnn_mode, facts.rnn_mode, by_file.source)
        facts = facts._replace(rnn_mode=by_file.rnn_mode)
    if facts.rnn_mode is None or facts.num_units is None:
        return None
    possible = configs_of_vector(size, dtype, facts)
    if len(possible) > 1:
        raise ExchangeError(
            "%s, [%d], may be any of these RNNs:\n%s\nGive num_layers and direction "
            "(--num-layers, --direction)." % (key, size, list_of(possible))
        )
    may_project = facts.rnn_mode == CUDNN_LSTM and not is_of_layer
    if may_project and facts.num_proj is None and possible:
        raise ExchangeError(
            "%s, [%d], may be an LSTM without a projection (%s), or one with a projection and "
            "another input_size. Give num_proj (--num-proj; 0 without a projection)."
            % (key, size, list_of(possible).strip())
        )
    if not possible and (is_of_layer or by_file is not None):
        known = {name: fact for name, fact in facts._asdict().items() if fact is not None}
        raise ExchangeError(
            "%s, [%d], is not the opaque vector of an RNN with %s." % (key, size, known)
        )
    return possible[0] if possible else None


def configs_of_vector(size: int, dtype: Any, facts: Any) -> List[RnnConfig]:
    """Returns all configs with these `Facts`, num_units among them, of this size of the vector."""
    possible, units, num_proj = [], facts.num_units, facts.num_proj or 0
    # A layer has more parameters. A config whose size exceeds int64 raises an error.
    smallest_layer = units * (num_proj or units)
    if (facts.num_layers or 1) * smallest_layer > size:
        return []
    for num_layers in [facts.num_layers] if facts.num_layers else range(1, 1000):
        for ways in (1, 2):
            smallest = RnnConfig.checked(
                facts.rnn_mode,
                num_layers,
                units,
                input_size=1,
                direction=DIRECTIONS[ways - 1],
                dtype=dtype.name,
                num_proj=num_proj,
            )
            per_input = layout.params_size(smallest)
            column = ways * len(smallest.gates) * units  # parameters per element of the input
            extra, rest = divmod(size - per_input, column)
            if rest == 0 and extra >= 0:
                config = smallest._replace(input_size=1 + extra)
                possible += [config] if agrees(config, facts) else []
            elif size == per_input - column:
                config = smallest._replace(input_size=units, input_mode=CUDNN_INPUT_SKIP_MODE)
                possible += [config] if agrees(config, facts) else []
        if per_input - column > size:
            break
    return possible
