"""Whole models in one HDF5 file, of Keras 2 and 3: read without Keras, built by today's."""

from __future__ import annotations

import re
import warnings
from typing import Any, Dict, Iterator

import tensorflow

from cudnn_rnn.exchange import keras_files
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.keras import _stored_weights
from cudnn_rnn.keras._layer import IS_KERAS_3, OUR_PREFIX, FusedLayer
from cudnn_rnn.keras._old_configs import Translator

keras = tensorflow.keras

# The numbers in the states of all stateful layers, which no array in the file limits.
_MOST_STATES = 2**28


def load(path: str, custom_objects: Dict[str, Any], compile: bool = True) -> Any:
    """Loads a model; the arguments are those of `load_model`.

    The model is not compiled; a warning says so if `compile` asks for it.
    """
    stored = keras_files.read_hdf5_model(path)
    _check_version(path, stored.keras_version)
    with keras_files.explaining_errors(path):
        config = Translator(stored.keras_version, custom_objects).model(stored.config)
        _check_states(path, config)
    arrays = [array for of_layer in stored.weights.values() for array in of_layer]
    with keras.utils.custom_object_scope({**_our_layers(), **custom_objects}):
        with _stored_weights.variables_no_larger_than(path, arrays):
            model = _built(path, config)
    _stored_weights.set_weights(path, model, stored.weights)
    if compile and stored.training_config:
        warnings.warn(
            "%s: the optimizer, the loss and the metrics are not loaded. To train, call "
            "model.compile; to avoid this warning, pass compile=False." % path,
            stacklevel=3,
        )
    return model


def _check_version(path, version):
    """Raises unless the file is of a Keras whose files are read."""
    known = "[23]" if IS_KERAS_3 else "2"
    if not re.match(known + r"\.\d", version):
        raise ExchangeError(
            "%s was written by Keras %s; expected Keras 2%s. Load it with that Keras and save it "
            "with one that is expected." % (path, version or "1", " or 3" if IS_KERAS_3 else "")
        )


def _check_states(path, config):
    """Raises if the states of stateful layers would be larger than any program has."""
    settings = list(_settings(config))
    shapes = [one.get("batch_shape") or one.get("batch_input_shape") or [0] for one in settings]
    batch_size = max([shape[0] or 0 for shape in shapes], default=0)
    units = sum(one.get("units") or 0 for one in settings if one.get("stateful"))
    if batch_size * units > _MOST_STATES:
        raise ExchangeError(
            "%s is damaged: its stateful layers have a batch size of %d and %d units; expected "
            "states of at most %d numbers." % (path, batch_size, units, _MOST_STATES)
        )


def _settings(value: Any) -> Iterator[Dict[str, Any]]:
    """Yields all dicts in a configuration."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for part in value if isinstance(value, list) else []:
        yield from _settings(part)


def _built(path, config):
    """Returns the model of a configuration."""
    try:
        return keras.layers.deserialize(config)
    except ExchangeError:
        raise
    except Exception as error:
        raise ValueError(
            "%s cannot be loaded, because this Keras cannot build its model: %s" % (path, error)
        ) from error


def _our_layers():
    """Returns this package's layers by the names under which TensorFlow 2 registers them."""
    from cudnn_rnn import keras as ours

    found = [value for value in vars(ours).values() if isinstance(value, type)]
    layers = [value for value in found if issubclass(value, FusedLayer)]
    return {OUR_PREFIX + layer.__name__: layer for layer in layers}
