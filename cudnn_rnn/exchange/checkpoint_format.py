"""TensorFlow checkpoints of all generations, read and written with this package's own saveables.

Read are the RNNs that `checkpoint_keys` finds. If the checkpoint also has the opaque variable of an
RNN, its exact biases are taken instead of halves of sums.

Written are the keys of a release, the variables that belong to no RNN, and the optimizer's slots:

| target | keys |
| --- | --- |
| `cells` | variables of platform-independent cells, which `tf.nn.dynamic_rnn` and `cells` restore |
| `1.1` | `CudnnRNNParamsToCanonical:<i>`: TensorFlow 1.0 to 1.2 |
| `1.3` | `<scope>/rnn/...`: `RNNParamsSaveable(..., base_variable_scope="<scope>/rnn")` |
| `1.4` | those of cells: `CudnnLSTMSaveable(..., scope="<scope>")` and its siblings |
| `1.15` | those of cells, and `<scope>/opaque_kernel`: the layers of TensorFlow 1.5 to 1.15 |
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Union

import numpy as np
from google.protobuf import text_format
from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState

from cudnn_rnn._compat import tf
from cudnn_rnn._core.disk import synchronize
from cudnn_rnn.exchange import checkpoint_keys as keys_module
from cudnn_rnn.exchange import opaque_vectors
from cudnn_rnn.exchange.checkpoint_extras import Extras, from_opaque
from cudnn_rnn.exchange.checkpoint_graph import Session, saveable_of, slots_to_cells
from cudnn_rnn.exchange.checkpoint_keys import (
    CANONICAL,
    CELLS,
    CELLS_WITH_BIASES,
    OPAQUE,
    Found,
    plain,
)
from cudnn_rnn.exchange.checkpoint_objects import OBJECT_GRAPH, object_graph
from cudnn_rnn.exchange.checkpoint_reader import CheckpointReader
from cudnn_rnn.exchange.checkpoint_weights import to_opaque
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    check_scopes,
    check_slots,
    mode_of,
    name_of,
    require_activation,
    sentence,
    temporary_folder_beside,
)
from cudnn_rnn.exchange.told_modes import ToldModes
from cudnn_rnn.exchange.weights import SIMPLE_MODES, RnnWeights

__all__ = ["Plan", "TARGETS", "plan", "read", "save", "write"]

# Generation of keys by target.
TARGETS = {
    "cells": CELLS,
    "1.1": CANONICAL,
    "1.3": CELLS_WITH_BIASES,
    "1.4": CELLS,
    "1.15": CELLS,
}


def exists(path: str) -> bool:
    """Returns whether there is a checkpoint with this prefix."""
    return os.path.exists(path + ".index") or bool(glob.glob(glob.escape(path) + ".data-*"))


def prefix_of(path: str) -> Optional[str]:
    """Returns the prefix of the checkpoint that a user's path means, None if there is none.

    The path is a prefix, a file of the checkpoint, or the folder of a checkpoint or SavedModel.
    """
    if os.path.isdir(path):
        variables = os.path.join(path, "variables", "variables")
        return variables if exists(variables) else _latest_of(path)
    path = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    return path if os.path.exists(path + ".index") or os.path.isfile(path) else None


def _latest_of(folder):
    """Returns the prefix that the file `checkpoint` of a folder names; None if there is none.

    Raises:
      ExchangeError: the file is damaged, or names a checkpoint outside of the folder.
    """
    state = os.path.join(folder, "checkpoint")
    if not os.path.isfile(state):
        return None
    with open(state, "rb") as file:
        content = file.read()
    try:
        named = text_format.Parse(content.decode("utf-8"), CheckpointState()).model_checkpoint_path
    except (ValueError, text_format.ParseError) as error:
        raise ExchangeError("%s is damaged: %s." % (state, error)) from error
    prefix = os.path.join(folder, named)
    if os.path.realpath(os.path.dirname(prefix)) != os.path.realpath(folder) or not named:
        raise ExchangeError(
            "%s names the checkpoint %r, which is not in its folder. Give the prefix of the "
            "checkpoint that you mean." % (state, named)
        )
    if not exists(prefix) and not os.path.isfile(prefix):
        raise ExchangeError("%s names the checkpoint %r, which does not exist." % (state, named))
    return prefix


def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads the RNNs of a checkpoint.

    Raises:
      ExchangeError: the file cannot be read, or the keys of every RNN fit several models or none.
    """
    reader = CheckpointReader(path)
    shapes, dtypes = reader.shapes, reader.dtypes
    notes: List[str] = []
    problems: List[str] = []
    is_object_based = OBJECT_GRAPH in shapes
    graph = object_graph(path, _serialized(reader)) if is_object_based else None
    told = ToldModes(path, graph, notes)
    found = keys_module.find(shapes, dtypes, graph, facts, told, notes, problems)
    if not found and not problems:
        found = opaque_vectors.find(shapes, dtypes, facts, told, notes, problems)
    rnns, variables, slots = [], {}, {}
    used: Set[str] = set()
    extras = Extras(reader, notes)
    for one in found:
        arrays = [reader.tensor(key) for key in one.keys]
        try:
            rnn = _to_weights(one, arrays)
            variable = one.keys[0] if one.generation == OPAQUE else None
            if variable is None:
                variable, rnn = extras.with_exact_biases(rnn, used)
                rnn = _with_activation(rnn, facts, told, [*one.keys, *filter(None, [variable])])
        except ExchangeError as error:
            problems.append(str(error))
            continue
        used.update(one.keys)
        rnns.append(rnn)
        if rnn.to_opaque().size != _size_of_buffer(one, variable, shapes):
            notes.append(
                "%s has input_mode skip_input. It becomes linear_input with identity matrices."
                % sentence(name_of(one.scope))
            )
        if variable is not None:
            variables[one.scope] = plain(variable)
            used.add(variable)
        slots[one.scope], of_slots = extras.slots(one, rnn, variable)
        used.update(of_slots)
    if problems and not rnns:
        raise ExchangeError("%s: %s" % (path, "\n".join(problems)))
    others = sorted(set(shapes) - used)
    generations = sorted({one.generation for one in found})
    name = "checkpoint with the keys of %s" % " and ".join(generations or ["no RNN"])
    return Contents(path, name, rnns, notes, others, variables, slots, problems)


def _with_activation(rnn, facts, told, keys):
    """Returns the weights with the activation of a simple RNN, unknown if nothing tells it."""
    if rnn.rnn_mode not in SIMPLE_MODES:
        return rnn
    by_file = told.of(rnn.scope, keys)
    return rnn.with_rnn_mode(mode_of(rnn.num_gates, facts, name_of(rnn.scope), by_file))


def _serialized(reader):
    """Returns the object graph, which must be one string."""
    value = reader.tensor(OBJECT_GRAPH)
    return value.item() if value.dtype == object and value.size == 1 else b"\xff"


def _size_of_buffer(found, variable, shapes):
    """Returns the number of elements of the RNN's own opaque vector."""
    return found.config.params_size() if variable is None else shapes[variable][0]


def _to_weights(found: Found, arrays: Sequence[np.ndarray]) -> RnnWeights:
    """Returns the weights for the tensors of a generation."""
    if found.generation == OPAQUE:
        return from_opaque(arrays[0], found.config, found.scope)
    return from_opaque(to_opaque(found, arrays), found.config, found.scope)


# Writing


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
    vectors = [rnn.to_opaque() for rnn in source.rnns]
    for rnn, vector, of_rnn in zip(source.rnns, vectors, _tensors(source.rnns, vectors, target)):
        _add(arrays, of_rnn, rnn.scope)
        opaque = variable or source.variables.get(rnn.scope)
        if opaque is None and target == "1.15":
            opaque = rnn.scope + "/opaque_kernel" if rnn.scope else _default_variable(rnn)
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
            converted = slots_to_cells(rnn.layout, slots) if slots else {}
            for (before, after), values in converted.items():
                of_slot = [before + key + "/" + after for key in of_rnn]
                _add(arrays, dict(zip(of_slot, values)), rnn.scope)
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


def _saveable_of_target(target, rnn, variable):
    if rnn.num_proj and target != "1.1":
        raise ExchangeError(
            "%s has a projection (num_proj %d), which the keys of %s do not have. Those of 1.1 do."
            % (sentence(name_of(rnn.scope)), rnn.num_proj, target)
        )
    scope = rnn.scope
    if target == "1.3":
        scope = scope + "/rnn" if scope else "rnn"
    return saveable_of(TARGETS[target], rnn.layout, variable, scope)


def _tensors(rnns, vectors, target):
    """Returns the arrays by key that the saveable of each RNN saves."""
    # One graph for all: the keys of 1.1 are names of nodes, which are counted.
    with Session() as session:
        variables = session.variables(vectors)
        saveables = [_saveable_of_target(target, *pair) for pair in zip(rnns, variables)]
        values = session.run([[spec.tensor for spec in one.specs] for one in saveables])
    return [
        dict(zip([spec.name for spec in one.specs], arrays))
        for one, arrays in zip(saveables, values)
    ]


def _default_variable(rnn):
    # The names that the layers CudnnLSTM, CudnnGRU, CudnnRNNRelu and CudnnRNNTanh give themselves.
    require_activation(rnn, "the default key of the opaque variable (--variable gives another)")
    return "cudnn_%s/%s" % (rnn.rnn_mode, keys_module.OPAQUE_NAME)


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


def save(path: str, arrays: Dict[str, Any]) -> None:
    """Writes a checkpoint with these arrays by key.

    The files are complete before they get their names, the index last. The data files have other
    names than those of an old checkpoint, which the old index needs until the new one replaces it:
    if a step fails, or the process is killed, the old checkpoint stays as it was.

    Raises:
      ExchangeError: the files cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(path))
    old = {os.path.basename(file) for file in glob.glob(glob.escape(path) + ".data-*")}
    numbers = range(1, len(arrays) + 1)
    free = [n for n in numbers if not any(file.endswith("-of-%05d" % n) for file in old)]
    with temporary_folder_beside(path) as temporary:
        _save_now(os.path.join(temporary, name), arrays, num_shards=(free or [1])[0])
        written = {file for file in os.listdir(temporary) if file.startswith(name + ".")}
        for file in written:
            synchronize(os.path.join(temporary, file))
        try:
            for file in sorted(written, key=lambda file: file.endswith(".index")):
                os.replace(os.path.join(temporary, file), os.path.join(folder, file))
        except OSError:
            _remove(folder, written - old - {name + ".index"})
            raise
    _remove(folder, old - written)


def _remove(folder, names):
    """Removes files that no index names; what cannot be removed does no harm."""
    for name in names:
        with contextlib.suppress(OSError):
            os.remove(os.path.join(folder, name))


def _save_now(prefix, arrays, num_shards):
    """Writes a checkpoint; raises `OSError`. Each shard needs an array."""
    keys = sorted(arrays)
    shards = [prefix] if num_shards == 1 else [prefix + "-%d" % i for i in range(num_shards)]
    try:
        with Session() as session:
            for number, shard in enumerate(shards):
                of_shard = keys[number::num_shards]
                session.run(
                    tf.raw_ops.SaveV2(
                        prefix=shard,
                        tensor_names=of_shard,
                        shape_and_slices=[""] * len(of_shard),
                        tensors=[session.value(arrays[key]) for key in of_shard],
                    )
                )
            if num_shards > 1:
                session.run(
                    tf.raw_ops.MergeV2Checkpoints(
                        checkpoint_prefixes=shards,
                        destination_prefix=prefix,
                        delete_old_dirs=False,
                    )
                )
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def write(
    path: str,
    source: Union[Contents, Sequence[RnnWeights]],
    target: str,
    variable: Optional[str] = None,
) -> List[str]:
    """Writes a checkpoint; see `plan` and `save`. Returns the notes of the plan."""
    planned = plan(source, target, variable)
    save(path, planned.arrays)
    return planned.notes
