"""Runs this package's saveables on arrays, in graphs of their own.

Converts the tensors of a checkpoint to an opaque vector, and an optimizer's slots both ways.
"""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from cudnn_rnn import op_level
from cudnn_rnn._compat import tf
from cudnn_rnn.checkpoints.canonical_saveable import RNNParamsSaveable
from cudnn_rnn.checkpoints.optimizer_slots import _SlotConversion
from cudnn_rnn.exchange.checkpoint_keys import CANONICAL, CELLS, OBJECTS, SAVEABLES
from cudnn_rnn.exchange.contents import ExchangeError, name_of

_MODELS = {
    "lstm": op_level.CudnnLSTM,
    "gru": op_level.CudnnGRU,
    "rnn_relu": op_level.CudnnRNNRelu,
    "rnn_tanh": op_level.CudnnRNNTanh,
}


class Session:
    """A graph and session of their own on the CPU, with values that are fed."""

    def __init__(self):
        self._graph = tf.Graph()
        self._feeds: Dict[Any, Any] = {}

    def __enter__(self):
        self._contexts = [self._graph.as_default(), tf.device("/cpu:0")]
        for context in self._contexts:
            context.__enter__()
        self._session = tf.Session(config=tf.ConfigProto(device_count={"GPU": 0}))
        return self

    def __exit__(self, *error):
        self._session.close()
        for context in reversed(self._contexts):
            context.__exit__(*error)

    def value(self, array):
        """Returns a tensor that has the value of the array; not a constant, which has a limit."""
        dtype = tf.string if np.asarray(array).dtype.kind in "OS" else np.asarray(array).dtype
        tensor = tf.placeholder(dtype, np.shape(array))
        self._feeds[tensor] = array
        return tensor

    def variable(self, array):
        """Returns an initialized variable."""
        variable = tf.Variable(self.value(array), trainable=False)
        self.run(variable.initializer)
        return variable

    def run(self, fetches):
        """Runs tensors and ops."""
        return self._session.run(fetches, self._feeds)


def saveable_of(generation, config, variable, scope=""):
    """Returns the saveable of a generation for the variable with the opaque vector."""
    sizes = (config.num_layers, config.num_units, config.input_size)
    if generation in (CELLS, OBJECTS):
        return SAVEABLES[config.rnn_mode](
            variable, *sizes, config.input_mode, config.direction, scope=scope
        )
    named = {"num_proj": config.num_proj} if config.num_proj else {}
    model = _MODELS[config.rnn_mode](
        *sizes, config.input_mode, config.direction, dtype=config.dtype, **named
    )
    functions = (model.params_to_canonical, model.canonical_to_params)
    if generation == CANONICAL:
        return RNNParamsSaveable(*functions, [variable])
    return RNNParamsSaveable(model, *functions, [variable], scope)


def restored(found, arrays):
    """Returns the opaque vector that the saveable of the generation restores."""
    size, stored = found.config.params_size(), sum(array.size for array in arrays)
    if size > 2 * stored:  # it has the weights of the tensors and up to two biases for each
        raise ExchangeError(
            "The tensors of %s do not fit together: they have %d elements; expected at least %d."
            % (name_of(found.scope), stored, size // 2)
        )
    with Session() as session:
        zeros = np.zeros(size, found.config.dtype.as_numpy_dtype)
        variable = session.variable(zeros)
        saveable = saveable_of(found.generation, found.config, variable)
        expected = saveable.expected_tensors()
        wrong = [
            "  %s: has shape %s; expected %s" % (key, list(array.shape), one.shape)
            for key, array, one in zip(found.keys, arrays, expected)
            if one.shape is not None
            and (
                array.size != int(np.prod(one.shape))
                if one.any_shape
                else list(array.shape) != one.shape
            )
        ]
        if wrong or len(arrays) != len(expected):
            raise ExchangeError(
                "The tensors of %s do not fit together:\n%s"
                % (name_of(found.scope), "\n".join(wrong[:8]))
            )
        tensors = [session.value(array) for array in arrays]
        session.run(saveable.restore(tensors, None))
        return session.run(variable)


def slots_to_opaque(found, slots):
    """Returns opaque vectors for a dict of slots of cells."""
    vectors = {pair: restored(found, slots[pair]) for pair in slots if _is_average(pair)}
    others = [pair for pair in slots if not _is_average(pair)]
    if others:
        with Session() as session:
            zeros = np.zeros(found.config.params_size(), found.config.dtype.as_numpy_dtype)
            conversion = _slot_conversion(session.variable(zeros), found.config)
            tensors = [[session.value(array) for array in slots[pair]] for pair in others]
            values = session.run([conversion.from_cells(of_slot) for of_slot in tensors])
        vectors.update(zip(others, values))
    return vectors


def slots_to_cells(session, config, variable, slots):
    """Returns lists of cells' tensors for a dict of opaque vectors of slots."""
    conversion = None
    tensors = {}
    for pair, vector in slots.items():
        if _is_average(pair):
            saveable = saveable_of(CELLS, config, session.variable(vector))
            tensors[pair] = [spec.tensor for spec in saveable.specs]
        else:
            conversion = conversion or _slot_conversion(variable, config)
            tensors[pair] = conversion.to_cells(session.value(vector))
    return session.run(tensors)


def _slot_conversion(variable, config):
    return _SlotConversion(saveable_of(CELLS, config, variable).format_converter, variable)


def _is_average(pair):
    """Returns whether a slot (before, after) holds a mean of values: sums of biases stay sums."""
    return pair[1].rpartition("/")[2] == "ExponentialMovingAverage"
