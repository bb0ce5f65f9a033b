"""Creates the saveable of a layer.

A layer gets its parameters from `tf.get_variable`, so a custom getter of the enclosing variable
scope may replace the variable with a tensor, such as a cast of it, or the variable plus noise.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import warnings
from typing import Any, Optional, Type

from cudnn_rnn._compat import is_variable, tf
from cudnn_rnn.checkpoints import restore_ops
from cudnn_rnn.checkpoints.cell_saveables import CudnnOpaqueParamsSaveable
from cudnn_rnn.checkpoints.graph_walk import source
from cudnn_rnn.graph.arguments import variable_name
from cudnn_rnn.graph.config import DTYPES
from cudnn_rnn.graph.texts import shape_text
from cudnn_rnn.model.keys import OPAQUE_NAME

# Ops whose outputs are their inputs, possibly rounded to another dtype.
_SAME_PARAMETERS = (
    "Cast",
    "CheckNumerics",
    "CheckNumericsV2",
    "EnsureShape",
    "Identity",
    "IdentityN",
    "PreventGradient",
    "ReadVariableOp",
    "RefIdentity",
    "Snapshot",
    "StopGradient",
)

# The modules of tf.distribute, whose getters return variables.
_DISTRIBUTION = re.compile(r"tensorflow(_core)?\.python\.distribute\.")


def create_saveable(
    layer: Any, saveable_cls: Type[CudnnOpaqueParamsSaveable], params: Any, **description: Any
) -> Optional[CudnnOpaqueParamsSaveable]:
    """Returns the saveable of a layer that is built in the current variable scope.

    Returns another layer's saveable if both have the same variable and the same keys. Otherwise
    creates a saveable and registers it for the graph's Savers. If no variable holds the parameters,
    warns and returns None.

    Args:
      layer: the layer, which gets the cells' tensors as dependencies for `tf.train.Checkpoint`.
      saveable_cls: class of the saveable.
      params: the opaque parameter buffer of the layer, a variable or what a custom getter returned.
      **description: arguments of `saveable_cls` that describe the layer.

    Raises:
      ValueError, TypeError: see `saveable_cls`; nothing has been registered then.
    """
    variable = _variable_behind(params)
    if variable is None:
        warnings.warn(_warning(layer, saveable_cls, params), stacklevel=4)  # build's caller
        return None
    scope = tf.get_variable_scope()
    is_graph = not tf.executing_eagerly()
    saveable = None
    # With `tf.AUTO_REUSE`, no layer can tell that it shares its variable, and one Saver cannot hold
    # two saveables for it.
    for other in tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) if is_graph else ():
        is_alike = type(other) is saveable_cls and other._scope == (scope.name or None)
        if is_alike and other._variables is variable:
            saveable = other
    registers = is_graph and saveable is None
    if saveable is None:
        name = "%s_saveable" % variable_name(variable)
        saveable = saveable_cls(opaque_params=variable, scope=scope, name=name, **description)
    try:
        saveable._add_trackable_dependencies(trackable=layer, dtype=variable.dtype.base_dtype)
    except BaseException:
        if registers:
            restore_ops.forget(saveable)
        raise
    if registers:
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    return saveable


def refuse_no_variable(layer, params):
    """Raises an error if the parameters of a layer are not those of one variable.

    Raises:
      TypeError: a custom getter returned a tensor in eager execution.
      ValueError: the partitioner of a distribution strategy has split the variable.
    """
    if type(params).__name__ == "ShardedVariable":
        raise ValueError(
            "The variable_partitioner of the distribution strategy split the variable %s of %s "
            "into %d pieces; expected one, because its parameters are one vector. Use a "
            "partitioner that leaves this variable whole, such as MinSizePartitioner with a larger "
            "min_shard_bytes, or none."
            % (_variable_text(layer), type(layer).__name__, len(params.variables))
        )
    if tf.executing_eagerly() and isinstance(params, tf.Tensor):
        raise TypeError(
            "%s returned a tensor for the variable %s of %s; expected a variable. In eager "
            "execution a tensor never changes, so training the layer and restoring a checkpoint "
            "would have no effect. Return the variable, or build the layer in a tf.Graph."
            % (_getter_text(), _variable_text(layer), type(layer).__name__)
        )


def _variable_behind(params):
    """Returns the variable whose values the parameters are, up to their dtype; None without one."""
    if is_variable(params):
        return params
    if not isinstance(params, tf.Tensor) or tf.executing_eagerly():
        return None
    variable = restore_ops.variable_of(source(params, _SAME_PARAMETERS))
    if variable is None or getattr(variable, "_save_slice_info", None) is not None:
        return None
    is_float = variable.dtype.base_dtype in DTYPES
    return variable if is_float and variable.shape.is_compatible_with(params.shape) else None


def _warning(layer, saveable_cls, params):
    cls = getattr(saveable_cls, "__name__", "CudnnOpaqueParamsSaveable")
    return (
        "%s returned %s for the variable %s of %s. These values are not those of one variable, so "
        "the layer has no saveable: Savers write the variables behind the values under the "
        "variables' own names, but no tensors of platform-independent cells, and "
        "tf.train.Checkpoint writes nothing of the layer. If a variable holds the parameters that "
        "are to be saved, create the saveable, %s(variable, num_layers, num_units, input_size, "
        "scope=...), and add it to tf.GraphKeys.SAVEABLE_OBJECTS."
        % (_getter_text(), _value_text(params), _variable_text(layer), type(layer).__name__, cls)
    )


def _value_text(params):
    name, shape = getattr(params, "name", None), getattr(params, "shape", None)
    return "the %s %s of shape %s" % (type(params).__name__, name, shape_text(shape))


def _variable_text(layer):
    return "%s/%s" % (layer.scope_name, OPAQUE_NAME)


def _getter_text():
    names = _getter_names(tf.get_variable_scope().custom_getter)
    if not names:  # A tf.variable_creator_scope can replace variables, too.
        return "A variable creator"
    return "The custom getter%s %s" % ("s" * (len(names) > 1), " in ".join(names))


def _getter_names(getter):
    """Returns a list of texts, the outermost getter first, for a variable scope's getter."""
    while isinstance(getter, functools.partial):
        getter = getter.func
    is_function = inspect.isfunction(getter)
    inner = inspect.getclosurevars(getter).nonlocals if is_function else {}
    if {"custom_getter", "old_getter"} <= set(inner):  # TensorFlow's combination of two getters
        return _getter_names(inner["custom_getter"]) + _getter_names(inner["old_getter"])
    if getter is None or _DISTRIBUTION.match(getattr(getter, "__module__", None) or ""):
        return []
    name = getattr(getter, "__qualname__", type(getter).__qualname__)
    code = getattr(getter, "__code__", None)
    if code is not None:
        name += " (%s:%d)" % (os.path.basename(code.co_filename), code.co_firstlineno)
    return [name]
