"""Refuses this package's layers and cells inside Keras models.

Keras finds the variables of a model through Keras classes, and the layers of this package are not
Keras layers. A Keras model would call them, but silently leave their variables out of training and
saving. This module does not import Keras, because code that builds a Keras model has done so.

In TensorFlow 1 the base classes of layers and cells are Keras layers, which do not need this module
and do not call it.
"""

import sys
from types import FrameType
from typing import Optional

from cudnn_rnn._compat import tf

_IMPORTED_AS = ("keras", "tf_keras", "tensorflow.python.keras")
_PACKAGES = ("keras", "tf_keras", "tensorflow")
# Modules of TensorFlow 1 base classes that are built on Keras. Their variables come from variable
# scopes and are found through collections.
_LEGACY_MODULES = ("legacy_tf_layers", "legacy_cells", "legacy_rnn")
# Methods of a Keras model that run the computation it trains. AutoGraph adds the prefix "tf__".
_METHODS = frozenset(
    prefix + name
    for prefix in ("", "tf__")
    for name in ("__call__", "call", "train_step", "test_step", "predict_step")
)


def refuse_inside(layer, arguments=()):
    """Raises `TypeError` if a call of a layer is part of a Keras model.

    Args:
      layer: the layer or cell that is called.
      arguments: the arguments of the call, a nested structure.
    """
    if any(_is_symbolic(value) for value in tf.nest.flatten(arguments)):
        refuse(layer, "it received a symbolic Keras tensor")
    if any(module in sys.modules for module in _IMPORTED_AS):
        owner = _running_keras_layer()
        if owner is not None:
            refuse(layer, "%s called it" % type(owner).__name__)


def refuse(layer, reason):
    """Raises the `TypeError`, which lists alternatives; `reason` says how Keras was detected."""
    raise TypeError(
        "%s is not a Keras layer and cannot be part of a Keras model (%s): Keras would neither "
        "train nor save its variables. Call it outside of Keras, train its trainable_variables "
        "with tf.GradientTape or an optimizer in a graph, and save it with tf.train.Checkpoint or "
        "tf.compat.v1.train.Saver. In a Keras model, use cudnn_rnn.keras.LSTM, GRU or SimpleRNN, "
        "or create the parameters as a weight of a Keras layer, self.add_weight(shape=[size]), and "
        "pass this weight to an op-level object such as cudnn_rnn.CudnnLSTM."
        % (type(layer).__name__, reason)
    )


def _is_symbolic(value):
    if hasattr(value, "_keras_history"):  # TensorFlow 2.0 to 2.3, which have no KerasTensor
        return True
    return any(
        base.__name__ == "KerasTensor" and _is_of_keras(base) for base in type(value).__mro__
    )


def _is_of_keras(keras_class):
    module = keras_class.__module__
    return module.split(".")[0] in _PACKAGES and "keras" in module


def _running_keras_layer():
    """Returns the Keras layer or model whose method is running in this thread, or None."""
    frame: Optional[FrameType] = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in _METHODS:
            owner = frame.f_locals.get("self")
            if _is_keras_layer(type(owner)):
                return owner
        frame = frame.f_back
    return None


def _is_keras_layer(owner_class):
    bases = [base for base in owner_class.__mro__ if _is_of_keras(base)]
    is_legacy = any(name in base.__module__ for base in bases for name in _LEGACY_MODULES)
    return not is_legacy and any(base.__name__ == "Layer" for base in bases)
