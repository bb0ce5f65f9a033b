"""Refuses arguments of a Keras layer's call that cannot be tensors, before Keras sees them."""

import sys

import numpy as np
import tensorflow

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.arguments import check_shape, ensured_shape
from cudnn_rnn.graph.refusals import refuse
from cudnn_rnn.graph.texts import described

# The package of the Keras that `tf.keras` is. Since TensorFlow 2.16, a program can import both.
_KERAS = tensorflow.keras.layers.Layer.__module__.partition(".")[0]
_TITLES = {"keras": "Keras 3", "tf_keras": "tf_keras"}
# What to do, by the package of a tensor that a layer of the other Keras got.
_ADVICE = {
    "tf_keras": "Set the environment variable TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, "
    "or build the whole model with Keras 3 (import keras).",
    "keras": "Unset the environment variable TF_USE_LEGACY_KERAS before TensorFlow is imported, or "
    "build the whole model with tf_keras.",
}


def refuse_other_keras(layer, **values):
    """Raises `TypeError` if a layer of Keras 3 gets symbolic tensors of tf_keras, or the reverse.

    Args:
      layer: the layer that is called.
      values: arguments of the call by their names, nested structures of tensors.
    """
    if _KERAS not in _TITLES:
        return
    (other,) = set(_TITLES) - {_KERAS}
    if other not in sys.modules:
        return
    for name, value in values.items():
        if any(_is_symbolic_of(other, part) for part in tf.nest.flatten(value)):
            raise TypeError(
                "%s: %s is a symbolic tensor of %s, but this layer is a layer of %s and expects "
                "one of its tensors. %s"
                % (layer.name, name, _TITLES[other], _TITLES[_KERAS], _ADVICE[other])
            )


def _is_symbolic_of(package, value):
    return any(
        base.__name__ == "KerasTensor" and base.__module__.partition(".")[0] == package
        for base in type(value).__mro__
    )


def refuse_inputs(inputs, takes_lists, takes_ragged):
    """Raises `TypeError` or `ValueError` for inputs that are no tensor.

    Args:
      inputs: the first argument of a call.
      takes_lists: whether the layer takes a list of the inputs and the states.
      takes_ragged: whether the layer takes a `tf.RaggedTensor`.
    """
    if takes_ragged and isinstance(inputs, tf.RaggedTensor):
        return
    if not isinstance(inputs, (list, tuple)):
        refuse("inputs", inputs, "mask")
    elif not takes_lists or any(isinstance(part, (list, tuple, int, float)) for part in inputs):
        refuse("inputs", inputs, "mask")
        raise TypeError(
            "inputs must be a tensor, but is %s. Pass one tensor; states are the argument "
            "initial_state." % described(inputs)
        )


def refuse_states(states, num_states, shape):
    """Raises unless `states`, the argument initial_state, may be a list of `num_states` tensors.

    `shape` is text for the shape of a state.
    """
    if states is None:
        return
    if tf.is_tensor(states) or isinstance(states, np.ndarray):
        rows = states.shape[0] if len(states.shape) else None
        is_wrong = getattr(rows, "value", rows) != num_states  # one tensor may have all states
    else:
        is_wrong = isinstance(states, (list, tuple)) and len(states) != num_states
    if is_wrong:
        names = "h and c" if num_states == 2 else "h"
        raise (ValueError if isinstance(states, (list, tuple)) else TypeError)(
            "initial_state must be a list of %d tensors, %s, each of shape %s, but is %s."
            % (num_states, names, shape, described(states))
        )
    if isinstance(states, (list, tuple)):
        for index, state in enumerate(states):
            refuse("initial_state[%d]" % index, state)
    else:
        refuse("initial_state", states)


def refuse_mask(mask):
    """Raises `TypeError` or `ValueError` for a mask that is no tensor.

    None passes, and so does a list of masks, which Keras 2 has for inputs and states.
    """
    is_list_of_masks = isinstance(mask, (list, tuple)) and not any(
        isinstance(part, (list, tuple, int, float)) for part in mask
    )
    if mask is not None and not is_list_of_masks:
        refuse("mask", mask)


def converted(name, value, dtype, expected, meaning):
    """Returns an argument in the dtype of the layer; the kernels take their sizes from its shape.

    Args:
      name: name of the argument.
      value: a tensor.
      dtype: a real dtype.
      expected: the shape, a list of int and None.
      meaning: text for the shape.

    Raises:
      TypeError: the tensor is complex.
      ValueError: the static shape does not match. One that is known only at run time raises
        `tf.errors.InvalidArgumentError` then.
    """
    value = tf.convert_to_tensor(value)
    if value.dtype.is_complex:
        raise TypeError(
            "%s must be real, but is of dtype %s. Pass tf.math.real(...) or tf.math.abs(...) of it."
            % (name, value.dtype.name)
        )
    value = tf.cast(value, dtype)
    check_shape(name, value, expected, meaning)
    return ensured_shape(value, expected)
