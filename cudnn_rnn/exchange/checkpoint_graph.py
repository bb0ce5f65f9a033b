"""Runs this package's saveables on arrays, in graphs of their own, to write checkpoints."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from cudnn_rnn import op_level
from cudnn_rnn._compat import tf
from cudnn_rnn.checkpoints.canonical_saveable import RNNParamsSaveable
from cudnn_rnn.checkpoints.optimizer_slots import _SlotConversion
from cudnn_rnn.exchange.checkpoint_extras import is_average
from cudnn_rnn.exchange.checkpoint_keys import CANONICAL, CELLS, OBJECTS, SAVEABLES

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

    def variables(self, arrays):
        """Returns initialized variables."""
        variables = [tf.Variable(self.value(array), trainable=False) for array in arrays]
        self.run([variable.initializer for variable in variables])
        return variables

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


def slots_to_cells(config, slots):
    """Returns lists of cells' tensors for a dict of opaque vectors of slots."""
    with Session() as session:
        conversion = None
        tensors = {}
        for (pair, vector), variable in zip(slots.items(), session.variables(slots.values())):
            if is_average(pair):
                saveable = saveable_of(CELLS, config, variable)
                tensors[pair] = [spec.tensor for spec in saveable.specs]
            else:
                conversion = conversion or _slot_conversion(variable, config)
                tensors[pair] = conversion.to_cells(session.value(vector))
        return session.run(tensors)


def _slot_conversion(variable, config):
    return _SlotConversion(saveable_of(CELLS, config, variable).format_converter, variable)
