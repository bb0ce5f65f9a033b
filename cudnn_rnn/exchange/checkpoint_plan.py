"""Decides what a new checkpoint of a release has: its arrays by key.

| target | keys |
| --- | --- |
| `cells` | variables of platform-independent cells, which `tf.nn.dynamic_rnn` and `cells` restore |
| `1.1` | `CudnnRNNParamsToCanonical:<i>`: TensorFlow 1.0 to 1.2 |
| `1.3` | `<scope>/rnn/...`: `RNNParamsSaveable(..., base_variable_scope="<scope>/rnn")` |
| `1.4` | those of cells: `CudnnLSTMSaveable(..., scope="<scope>")` and its siblings |
| `1.15` | those of cells, and `<scope>/opaque_kernel`: the layers of TensorFlow 1.5 to 1.15 |

Beside the RNNs, it has the variables that belong to no RNN, and the optimizer's slots.
"""

from __future__ import annotations

import collections
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from cudnn_rnn.exchange.checkpoint_arrays import to_arrays
from cudnn_rnn.exchange.checkpoint_extras import is_average
from cudnn_rnn.exchange.checkpoint_reader import CheckpointReader
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    check_scopes,
    check_slots,
    name_of,
    require_activation,
    sentence,
)
from cudnn_rnn.model import dialects
from cudnn_rnn.model.keys import (
    CANONICAL,
    CELLS,
    CELLS_WITH_BIASES,
    OBJECT_GRAPH,
    OPAQUE_NAME,
    plain,
)
from cudnn_rnn.model.weights import RnnWeights, from_buffer

# Generation of keys by target.
TARGETS = {
    "cells": CELLS,
    "1.1": CANONICAL,
    "1.3": CELLS_WITH_BIASES,
    "1.4": CELLS,
    "1.15": CELLS,
}

# What TensorFlow takes as the name of a scope at the root of a graph.
_SCOPE = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_./>-]*)?")


class Plan(NamedTuple):
    """What a checkpoint will have.

    Attributes:
      arrays: by key.
      notes: list of str, what a user should know.
    """

    arrays: Dict[str, Any]
    notes: List[str]


def plan(
    source: Union[Contents, Sequence[RnnWeights]], target: str, variable: Optional[str] = None
) -> Plan:
    """Returns the tensors of a checkpoint.

    Args:
      source: the RNNs, or the `Contents` of a file, whose slots are converted too. If that is a
        checkpoint, so are the variables that belong to no RNN.
      target: one of `TARGETS`.
      variable: the key of the opaque variable, if there is one RNN. By default that of the source;
        with "1.15" `<scope>/opaque_kernel`, and without a scope `cudnn_lstm/opaque_kernel` and so
        on.

    Raises:
      ExchangeError: the target cannot hold an RNN, or two tensors would have the same key.
    """
    if target not in TARGETS:
        raise ExchangeError("target must be one of %s, but is %r." % (sorted(TARGETS), target))
    if not isinstance(source, Contents):
        source = Contents("", "", list(source))
    if variable is not None and len(source.rnns) != 1:
        raise ExchangeError(
            "variable=%r (--variable) needs one RNN, but there are %d. Pick one (--scope)."
            % (variable, len(source.rnns))
        )
    arrays: Dict[str, Any] = {}
    notes: List[str] = []
    leaves_out_slots = False
    check_scopes(source.rnns)
    for rnn, of_rnn in zip(source.rnns, _arrays_of_rnns(source.rnns, target)):
        vector = rnn.to_opaque()
        _add(arrays, of_rnn, rnn.scope)
        if not _SCOPE.fullmatch(rnn.scope):
            notes.append(
                "TensorFlow refuses variable scopes such as %r. To restore the checkpoint in a "
                "graph, give another (--target-scope)." % rnn.scope
            )
        opaque = variable or source.variables.get(rnn.scope)
        if opaque is None and target == "1.15":
            opaque = rnn.scope + "/" + OPAQUE_NAME if rnn.scope else _default_variable(rnn)
            notes.append(
                "The opaque variable of %s has the key %s, as in a layer of that name. "
                "variable= (--variable) gives it another." % (name_of(rnn.scope), opaque)
            )
        opaque = None if target == "cells" else opaque
        if opaque is not None:
            _add(arrays, {opaque: vector}, rnn.scope)
        slots = source.slots.get(rnn.scope, {})
        check_slots(slots, vector, rnn.scope)
        if target == "cells":
            for before, after, of_slot in _slots_of_cells(rnn, slots):
                prefix = before + _prefix(target, rnn.scope)
                named = {prefix + key + "/" + after: array for key, array in of_slot.items()}
                _add(arrays, named, rnn.scope)
        elif opaque is not None:
            named = {before + opaque + "/" + after: v for (before, after), v in slots.items()}
            _add(arrays, named, rnn.scope)
        elif slots:
            notes.append(
                "Left out: the slots %s of %s, because %s has no opaque variable. Give its "
                "key: variable= (--variable)."
                % (sorted({after for _, after in slots}), name_of(rnn.scope), target)
            )
            leaves_out_slots = True
    if not leaves_out_slots:
        arrays.update(source.optimizer)
    elif source.optimizer:
        notes.append("Left out with the slots: %s." % ", ".join(sorted(source.optimizer)))
    if source.others and source.is_checkpoint:
        _add_others(arrays, source, notes)
    elif source.others:
        notes.append("Left out, as no part of an RNN: %s." % ", ".join(source.others))
    return Plan(arrays, notes)


def _arrays_of_rnns(rnns, target):
    """Returns a dict of arrays by key for each RNN."""
    numbers: Dict[bool, int] = collections.Counter()
    by_rnn = []
    for rnn in rnns:
        if rnn.num_proj and target != "1.1":
            raise ExchangeError(
                "%s has a projection (num_proj %d), which the keys of %s do not have. Those of 1.1 "
                "do." % (sentence(name_of(rnn.scope)), rnn.num_proj, target)
            )
        # A graph numbers its nodes of an op; those of an RNN with a projection are of another op.
        arrays = to_arrays(TARGETS[target], rnn, numbers[bool(rnn.num_proj)])
        numbers[bool(rnn.num_proj)] += 1
        by_rnn.append({_prefix(target, rnn.scope) + key: array for key, array in arrays.items()})
    return by_rnn


def _prefix(target, scope):
    """Returns what precedes the keys of an RNN."""
    parts = {"1.1": [], "1.3": [scope, "rnn"]}.get(target, [scope])
    return "".join(part + "/" for part in parts if part)


def _slots_of_cells(rnn, slots):
    """Yields (before, after, arrays by the key in the scope of the RNN) for each slot."""
    for pair, vector in slots.items():
        merge = dialects.sum_of if is_average(pair) else dialects.mean_of
        of_slot = from_buffer(vector, rnn.layout)
        yield (*pair, to_arrays(CELLS, of_slot, merge=merge))


def _default_variable(rnn):
    # The names that the layers CudnnLSTM, CudnnGRU, CudnnRNNRelu and CudnnRNNTanh give themselves.
    require_activation(rnn, "the default key of the opaque variable (--variable gives another)")
    return "cudnn_%s/%s" % (rnn.rnn_mode, OPAQUE_NAME)


def _add(arrays, new, scope):
    for key, array in new.items():
        if key in arrays:
            raise ExchangeError(
                "Two tensors would have the key %s; one is of %s. Give the RNNs different scopes, "
                "or pick one (--scope)." % (key, name_of(scope))
            )
        arrays[key] = array


def _add_others(arrays, source, notes):
    """Adds the variables that belong to no RNN; names of objects lose their suffix."""
    reader = CheckpointReader(source.path)
    left_out = []
    for key in source.others:
        is_of_objects = key == OBJECT_GRAPH or plain(key) == "save_counter" or "/.OPT" in key
        if is_of_objects or plain(key) in arrays:
            left_out.append(key)
        else:
            arrays[plain(key)] = reader.tensor(key)
    if left_out:
        notes.append("Left out: %s." % ", ".join(left_out))
