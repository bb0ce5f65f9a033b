"""Lets `model.load_weights` of Keras read HDF5 files of layers of cuDNN into this package's layers.

The biases of those files have twice the size, and each gate's block of a matrix is transposed.
Keras 3 knows no such file; Keras 2 converts by the name of a layer's class, which does not tell
this package's `CuDNNLSTM` from its own.
"""

from __future__ import annotations

import importlib
from typing import Optional

import tensorflow

from cudnn_rnn import _patches
from cudnn_rnn._compat import IS_TENSORFLOW_1
from cudnn_rnn._patches.hooks import Patch
from cudnn_rnn.keras import _stored_weights
from cudnn_rnn.keras._fused_layer import IS_KERAS_3, FusedLayer
from cudnn_rnn.model import dialects

_PURPOSE = "converts the arrays of layers of cuDNN for layers of this package"


def _convert(original, layer, weights):
    """Wraps Keras 2's function that returns the arrays of a layer as its class has them."""
    if not isinstance(layer, FusedLayer):
        return original(layer, weights)
    arrays = _stored_weights.of_today(layer, weights, dialects.sum_of)
    shapes = [tuple(weight.shape.as_list()) for weight in layer.weights]
    # Keras in TensorFlow 1 assigns arrays of any shape.
    if IS_TENSORFLOW_1 and shapes != [array.shape for array in arrays]:
        raise ValueError(
            "The layer %r has weights of the shapes %s, but the file has arrays of the shapes %s. "
            "Build the layer as it was when the file was written."
            % (layer.name, shapes, [array.shape for array in arrays])
        )
    return arrays


def _set(original, instance, symbolic_weights, weight_values, *arguments, **named):
    """Wraps Keras 3's function that assigns arrays to the variables of a layer or a model."""
    values = list(weight_values)
    places = {id(weight): place for place, weight in enumerate(symbolic_weights)}
    for layer in _stored_weights.layers_inside(instance):
        of_layer = [places.get(id(weight), -1) for weight in layer.weights]
        if not isinstance(layer, FusedLayer) or not all(0 <= at < len(values) for at in of_layer):
            continue
        arrays = [values[at] for at in of_layer]
        for at, array in zip(of_layer, _stored_weights.of_today(layer, arrays, dialects.sum_of)):
            values[at] = array
    return original(instance, symbolic_weights, values, *arguments, **named)


def _patch() -> Optional[Patch]:
    """Returns the function of this Keras that is wrapped; None if it has none."""
    if IS_KERAS_3:
        modules, name = ["keras.src.legacy.saving.legacy_h5_format"], "_set_weights"
    else:
        root = tensorflow.keras.layers.Layer.__module__.partition(".engine")[0]
        modules = [root + ".saving.legacy.hdf5_format", root + ".saving.hdf5_format"]
        name = "_convert_rnn_weights"
    for module in modules:
        try:
            owner = importlib.import_module(module)
        except ImportError:
            continue
        if hasattr(owner, name):
            return Patch(owner, name, _set if IS_KERAS_3 else _convert, _PURPOSE)
    return None


PATCH = _patch()


def install() -> None:
    """Wraps the function, unless the package's patches are off."""
    if PATCH is not None and _patches.are_on():
        PATCH.install()
