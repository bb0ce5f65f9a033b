"""Reads the RNNs of a TensorFlow checkpoint of any generation.

If the checkpoint also has the opaque variable of an RNN, its exact biases are taken instead of
halves of sums.
"""

from __future__ import annotations

from typing import List, Set

from cudnn_rnn.exchange import checkpoint_rnns, keras_objects, opaque_vectors
from cudnn_rnn.exchange.checkpoint_arrays import from_arrays
from cudnn_rnn.exchange.checkpoint_extras import Extras
from cudnn_rnn.exchange.checkpoint_objects import object_graph
from cudnn_rnn.exchange.checkpoint_reader import CheckpointReader
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    mode_of,
    name_of,
    sentence,
)
from cudnn_rnn.exchange.keras_model import different_scopes
from cudnn_rnn.exchange.told_modes import ToldModes
from cudnn_rnn.model import layout
from cudnn_rnn.model.keys import OBJECT_GRAPH, OPAQUE, plain
from cudnn_rnn.model.weights import SIMPLE_MODES


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
    stored_rnns = checkpoint_rnns.find(shapes, dtypes, graph, facts, told, notes, problems)
    if not stored_rnns and not problems:
        stored_rnns = opaque_vectors.find(shapes, dtypes, facts, told, notes, problems)
    rnns, variables, slots, plain_cells = [], {}, {}, {}
    used: Set[str] = set()
    extras = Extras(reader, notes)
    for stored in stored_rnns:
        arrays = [reader.tensor(key) for key in stored.keys]
        try:
            rnn = from_arrays(stored, arrays)
            variable = stored.keys[0] if stored.generation == OPAQUE else None
            if variable is None:
                variable, rnn = extras.with_exact_biases(rnn, used)
                rnn = _with_activation(rnn, facts, told, [*stored.keys, *filter(None, [variable])])
        except ExchangeError as error:
            problems.append(str(error))
            continue
        used.update(stored.keys)
        rnns.append(rnn)
        if rnn.params_size != _size_of_buffer(stored, variable, shapes):
            notes.append(
                "%s has input_mode skip_input. It becomes linear_input with identity matrices."
                % sentence(name_of(stored.scope))
            )
        if variable is not None:
            variables[stored.scope] = plain(variable)
            used.add(variable)
        slots[stored.scope], of_slots = extras.slots(stored, rnn, variable)
        used.update(of_slots)
        notes.extend(stored.notes)
        if stored.is_plain:
            plain_cells[stored.scope] = sorted({*stored.keys, *of_slots})
    if graph is not None:
        of_keras, keys = keras_objects.read(graph, shapes, reader.tensor, facts)
        rnns = different_scopes(rnns + of_keras.rnns)
        notes += of_keras.notes
        problems += of_keras.problems
        used.update(keys)
    if problems and not rnns:
        raise ExchangeError("%s: %s" % (path, "\n".join(problems)))
    if not rnns and not notes:
        notes += opaque_vectors.notes_on_none(shapes, dtypes, facts, told)
    others = sorted(set(shapes) - used)
    generations = sorted({stored.generation for stored in stored_rnns})
    generations += ["Keras"] * (len(rnns) > len(stored_rnns))
    name = "checkpoint with the keys of %s" % " and ".join(generations or ["no RNN"])
    return Contents(path, name, rnns, notes, others, variables, slots, problems, plain=plain_cells)


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


def _size_of_buffer(stored, variable, shapes):
    """Returns the number of elements of the RNN's own opaque vector."""
    return layout.params_size(stored.config) if variable is None else shapes[variable][0]
