"""Whole models that this or another Keras wrote: read without Keras, built by today's."""

from __future__ import annotations

import re
import warnings
from typing import Any, Dict

import tensorflow

from cudnn_rnn.exchange import keras_configs, keras_files
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.keras import _archived_weights, _stored_weights
from cudnn_rnn.keras._functions import TensorFlowFunction
from cudnn_rnn.keras._fused_layer import IS_KERAS_3, OUR_PREFIX
from cudnn_rnn.keras._implicit_masks import InputMask
from cudnn_rnn.keras._old_configs import Translator
from cudnn_rnn.keras._training import Stored, compile_model, state_of_archive

keras = tensorflow.keras

# The numbers in the states of all stateful layers, which no array in the file limits.
_MOST_STATES = 2**28


class Left(UserWarning):
    """Warns that a part of a file was not restored."""


def writes_archives() -> bool:
    """Returns whether this Keras reads and writes `.keras` archives."""
    return IS_KERAS_3 or hasattr(getattr(keras, "saving", None), "load_model")


def load_hdf5(
    path: str, custom_objects: Dict[str, Any], compile: bool = True, with_ours: bool = True
) -> Any:
    """Loads a model in one HDF5 file; the arguments are those of `load_model`.

    with_ours: whether recurrent layers become this package's, or Keras's own.
    """
    stored = keras_files.read_hdf5_model(path)
    arrays = [array for of_layer in stored.weights.values() for array in of_layer]
    model = _built(path, stored, arrays, custom_objects, with_ours)
    _stored_weights.set_weights(path, model, stored.weights)
    if compile and stored.training_config:
        training = Stored(stored.training_config, stored.optimizer_weights)
        _compile(path, model, training, custom_objects)
    return model


def load_archive(
    path: str, custom_objects: Dict[str, Any], compile: bool = True, with_ours: bool = True
) -> Any:
    """Loads a model in a `.keras` archive; the arguments are those of `load_hdf5`."""
    stored = keras_files.read_archive(path)
    if stored.has_assets:
        raise ExchangeError(
            "%s has a layer that keeps files beside its weights, such as a vocabulary. They are "
            "read only by the Keras that wrote them (%s): save the model there with the vocabulary "
            "in its configuration." % (path, stored.keras_version)
        )
    arrays = [array for array in stored.arrays.values() if array is not None]
    model = _built(path, stored, arrays, custom_objects, with_ours)
    _archived_weights.set_weights(path, model, stored)
    compile_config = stored.config.get("compile_config")
    if compile and compile_config:
        training = Stored(compile_config, state_of_archive(stored.arrays))
        _compile(path, model, training, custom_objects)
    return model


def _compile(path, model, training, custom_objects):
    """Compiles a model; a warning says what was left out."""
    left = compile_model(model, training, custom_objects)
    if left:
        warnings.warn("%s: %s." % (path, left), Left, stacklevel=4)


def _check_version(path, version):
    """Raises unless the file is of a Keras whose files are read."""
    if not re.match(r"[23]\.\d", version):
        raise ExchangeError(
            "%s was written by Keras %s; expected Keras 2 or 3. Load it with that Keras, and save "
            "it with one that is expected." % (path, version or "1")
        )


def _check_states(path, config):
    """Raises if the states of stateful layers would be larger than any program has."""
    settings = list(keras_configs.dicts_in(config))
    shapes = [one.get("batch_shape") or one.get("batch_input_shape") or [0] for one in settings]
    batch_size = max([shape[0] or 0 for shape in shapes], default=0)
    units = sum(one.get("units") or 0 for one in settings if one.get("stateful"))
    if batch_size * units > _MOST_STATES:
        raise ExchangeError(
            "%s is damaged: its stateful layers have a batch size of %d and %d units; expected "
            "states of at most %d numbers." % (path, batch_size, units, _MOST_STATES)
        )


def _built(path, stored, arrays, custom_objects, with_ours):
    """Returns the model of what a file has, with weights that are not its own yet."""
    with _stored_weights.variables_no_larger_than(path, arrays):
        return build(path, stored.keras_version, stored.config, custom_objects, with_ours)


def build(
    path: str,
    keras_version: str,
    config: Any,
    custom_objects: Dict[str, Any],
    with_ours: bool = True,
) -> Any:
    """Returns a new model of a configuration; `path` is for messages."""
    _check_version(path, keras_version)
    with keras_files.explaining_errors(path):
        config = Translator(keras_version, custom_objects, with_ours).model(config)
        _check_states(path, config)
    try:
        in_scope = {**_our_layers(), **_without_functions_of_layers(config, custom_objects)}
        with keras.utils.custom_object_scope(in_scope):
            return keras.layers.deserialize(config)
    except ExchangeError:
        raise
    except Exception as error:
        raise ValueError(
            "%s cannot be loaded, because this Keras cannot build its model: %s" % (path, error)
        ) from error


def _without_functions_of_layers(config, custom_objects):
    """Returns objects without the functions of Lambda layers by the names of the layers.

    Keras of TensorFlow 2.4 replaces each str that is the name of a function, names of layers too.
    The translated configuration has the function itself.
    """
    if IS_KERAS_3:
        return custom_objects
    names = {str(one.get("name")) for one in keras_configs.dicts_in(config)}
    return {
        name: value
        for name, value in custom_objects.items()
        if isinstance(value, type) or name not in names
    }


def _our_layers():
    """Returns this package's layers by the names under which TensorFlow 2 registers them."""
    from cudnn_rnn import keras as ours

    found = [getattr(ours, name) for name in ours.__all__]
    layers = [value for value in found if isinstance(value, type)] + [
        InputMask,
        TensorFlowFunction,
    ]
    return {OUR_PREFIX + layer.__name__: layer for layer in layers}
