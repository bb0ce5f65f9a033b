"""Shared by the saveables of all releases: names, checks of restored tensors, assignments."""

import collections
import contextlib
import functools
import re
import threading

from cudnn_rnn._compat import (
    PartitionedVariable,
    SaveSpec,
    assertion_op,
    is_variable,
    static_value,
    tf,
)
from cudnn_rnn.graph.arguments import variable_name
from cudnn_rnn.graph.texts import shape_text

# Collection of all saveables of a graph. Not a string, so that exporting a MetaGraphDef skips it.
_SAVEABLES_OF_GRAPH = ("cudnn_rnn", "saveables")


class SaverRefusal(ValueError):
    """Raised for a Saver that would restore an undefined value, or lose a value."""


# A tensor that a checkpoint must have. `shape`: list of int, None if unknown; `any_shape`: whether
# any shape with the same number of elements is accepted; `refuses_shapes`: whether another shape is
# refused before the restore. If it is not, TensorFlow may restore the variable anyway.
Expected = collections.namedtuple(
    "Expected", ["key", "shape", "any_shape", "dtype", "refuses_shapes"], defaults=[True]
)


def expected_tensor(key, shape, any_shape, dtype):
    """Returns an `Expected` for a `tf.TensorShape` and a `tf.DType`, possibly a reference dtype."""
    shape = shape.as_list() if shape.is_fully_defined() else None
    return Expected(key, shape, any_shape, dtype.base_dtype)


def saveables_of_graph():
    """Returns the list of this package's saveables in the default graph; append new ones to it."""
    return tf.get_default_graph().get_collection_ref(_SAVEABLES_OF_GRAPH)


def collected_from(saveable):
    """Returns this saveable and those created after it, as far as they are in the collection.

    The collection is `tf.GraphKeys.SAVEABLE_OBJECTS` of the saveable's graph.
    """
    with saveable.op.graph.as_default():
        collected = tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
        saveables = saveables_of_graph()
    if saveable not in saveables:  # see `forget`
        return []
    candidates = saveables[saveables.index(saveable) :]
    return [candidate for candidate in candidates if any(candidate is other for other in collected)]


def forget(saveable):
    """Removes a saveable from `saveables_of_graph`."""
    saveables = saveables_of_graph()
    saveables[:] = [other for other in saveables if other is not saveable]


def specs_read_later(read_part, keys, dtypes, device):
    """Returns specs that read their values at the time of saving, in eager execution.

    Args:
      read_part: function of an index that returns the tensor to save.
      keys: list of str, the keys of these tensors.
      dtypes: list of tf.DType, their dtypes.
      device: str, the variable's.
    """
    return [
        SaveSpec(functools.partial(read_part, index), "", key, dtype=dtype, device=device)
        for index, (key, dtype) in enumerate(zip(keys, dtypes))
    ]


def unique_name(name):
    """Returns `name`, with a number appended if a saveable of the graph already has that name."""
    taken = {saveable.name for saveable in saveables_of_graph()}
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = "%s_%d" % (name, number)
    return candidate


def identity_of_name(tensor, name):
    """Returns the tensor from an Identity node of this absolute name, if a node can have that name.

    A MetaGraphDef stores the name of each saveable in a collection. Importing the MetaGraphDef, or
    loading a SavedModel, fails if no node has that name.
    """
    is_name_of_node = re.match(r"[A-Za-z0-9.][\w.\\/>-]*$", name, re.ASCII) and name[-1] != "/"
    with tf.name_scope(None):
        return tf.identity(tensor, name=name if is_name_of_node else None)


# A tensor that a RestoreV2 op reads. `slice_spec`: str, empty for a whole tensor.
Read = collections.namedtuple("Read", ["key", "slice_spec", "tensor"])


def read_from(path):
    """Returns a list of `Read` for all tensors that ops of the graph read from a checkpoint.

    Args:
      path: the string tensor with the path of the checkpoint.
    """
    found = []
    for operation in path.consumers():
        if operation.type != "RestoreV2":
            continue
        keys, slices = (static_value(operation.inputs[index]) for index in (1, 2))
        if keys is not None and slices is not None:
            found += [
                Read(key.decode(), slice_spec.decode(), tensor)
                for key, slice_spec, tensor in zip(keys, slices, operation.outputs)
            ]
    return found


# Scopes of the checks that `_with_check` adds to a graph. `_patches/restores.py` finds the checks
# by these names, in imported graphs too.
SIZES_SCOPE, SHAPES_SCOPE = "cudnn_rnn_checkpoint_sizes", "cudnn_rnn_checkpoint_shapes"
CHECK, KEYS, SHAPES = "check", "keys", "shapes"  # nodes in such a scope
# A Saver made after an import may have the scope of an imported one; all nodes then have a number.
CHECK_NAME = re.compile(
    r"(?P<scope>(?:.*/)?(?P<kind>%s|%s)(?:_\d+)?)/%s(?P<number>(?:_\d+)?)$"
    % (SIZES_SCOPE, SHAPES_SCOPE, CHECK)
)


def _checkpoint_path(restored_tensor):
    """Returns the string tensor with the path of the checkpoint, None in eager execution."""
    operation = getattr(restored_tensor, "op", None)
    while operation is not None and operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation.inputs[0] if operation is not None and operation.type == "RestoreV2" else None


def with_checked_sizes(tensors, keys, shapes):
    """Checks the numbers of elements, and returns the tensors reshaped to these shapes.

    Returns the tensors unchecked if a shape is unknown, because a user's own function gave it.

    Raises:
      InvalidArgumentError: when run, if a number is wrong; names checkpoint, keys and both shapes.
    """
    if not all(shape.is_fully_defined() for shape in shapes):
        return tensors
    expected = tf.constant([shape.num_elements() for shape in shapes])
    found = tf.stack([tf.size(tensor) for tensor in tensors])
    wrong = tf.not_equal(found, expected)
    return _with_check(tensors, keys, shapes, SIZES_SCOPE, "number of elements", wrong)


def with_checked_shapes(tensors, keys, shapes):
    """Checks the shapes, and returns the tensors with these static shapes.

    The rest is as in `with_checked_sizes`.
    """
    if not all(shape.is_fully_defined() for shape in shapes):
        return tensors
    expected = tf.constant([shape_text(shape) for shape in shapes])
    wrong = tf.not_equal(_shape_texts_when_run(tensors), expected)
    return _with_check(tensors, keys, shapes, SHAPES_SCOPE, "shape", wrong)


def _shape_texts_when_run(tensors):
    sizes = [
        tf.strings.reduce_join(tf.as_string(tf.shape(tensor)), separator=", ") for tensor in tensors
    ]
    return tf.strings.join(["[", tf.stack(sizes), "]"])


def _with_check(tensors, keys, shapes, scope, what, wrong):
    path = _checkpoint_path(tensors[0])
    with tf.name_scope(scope):
        keys = tf.constant(keys, name=KEYS)
        expected = tf.constant([shape_text(shape) for shape in shapes], name=SHAPES)
        check = assertion_op(
            tf.logical_not(tf.reduce_any(wrong)),
            "Tensors of the checkpoint",
            "" if path is None else path,
            "have the wrong %s. Keys:" % what,
            tf.boolean_mask(keys, wrong),
            "shapes expected:",
            tf.boolean_mask(expected, wrong),
            "shapes found:",
            tf.boolean_mask(_shape_texts_when_run(tensors), wrong),
            name=CHECK,
        )
    # In eager execution there is no op to depend on.
    with tf.control_dependencies([] if check is None else [check]):
        return [tf.reshape(tensor, shape) for tensor, shape in zip(tensors, shapes)]


def as_variable(variable):
    """Returns a variable unchanged, and for a graph tensor its variable; None for other values.

    `tf.train.import_meta_graph` puts such tensors into user collections.
    """
    if is_variable(variable):
        return variable
    if tf.is_tensor(variable) and not tf.executing_eagerly():
        return variable_of(variable.op)
    return None


def variable_of(operation):
    """Returns the variable of the default graph whose operation this is; None without one."""
    if operation.graph is tf.get_default_graph():
        for variable in tf.global_variables() + tf.local_variables():
            # By name: a variable on several devices has no operation of its own.
            if variable.op.name == operation.name:
                return variable
    return None


def refuse_partitioned(argument, value):
    """Raises `TypeError` if a value is or contains a partitioned variable or a part of one."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    for variable in values:
        if isinstance(variable, PartitionedVariable):
            name, kind = variable.name, "the partitioned variable"
        elif getattr(variable, "_save_slice_info", None) is not None:
            name = variable._save_slice_info.full_name
            kind = "a part of the partitioned variable"
        else:
            continue
        raise TypeError(
            "%s must be a variable that holds the whole opaque buffer, but is or contains %s %s. "
            "Create the variable with tf.Variable, or with tf.get_variable in a variable scope "
            "without a partitioner: `with tf.variable_scope(name) as scope: "
            "scope.set_partitioner(None)`." % (argument, kind, name)
        )


def as_stored(value, variable):
    """Returns a rebuilt opaque buffer in the shape of its variable; surplus elements become 0."""
    needed, found = value.shape.num_elements(), variable.shape.num_elements()
    if value.shape == variable.shape or None in (needed, found) or found < needed:
        return value
    if found > needed:
        value = tf.pad(value, [[0, found - needed]])
    return tf.reshape(value, variable.shape)


def assign(variable, value, scope):
    """Returns an op that assigns a rebuilt value to a variable, after checking the shape.

    `scope` is `EXACT_SCOPE` or `SUMS_SCOPE`. Inside `direct_values` of the variable, the op does
    nothing.
    """
    value = tf.convert_to_tensor(value, dtype=variable.dtype.base_dtype)
    if not value.shape.is_compatible_with(variable.shape):
        raise ValueError(
            "canonical_to_params must return a tensor of shape %s for the variable %s, but "
            "returned one of shape %s."
            % (shape_text(variable.shape), variable_name(variable), shape_text(value.shape))
        )
    if any(variable is other for other in getattr(_direct, "variables", ())):
        return tf.no_op()
    if variable.shape.rank is not None:
        value = tf.ensure_shape(value, variable.shape)
    with tf.name_scope(scope):
        return tf.assign(variable, value, validate_shape=False)


# Scopes of the assignments of rebuilt values: from both biases of each gate, and from their sums.
# `restore_order.py` finds the assignments by these names.
EXACT_SCOPE, SUMS_SCOPE = "cudnn_rnn_assign_exact", "cudnn_rnn_assign_sums"

_direct = threading.local()


@contextlib.contextmanager
def direct_values(variables):
    """Disables `assign` for these variables in this context, because they are restored directly.

    In eager execution the last assignment wins, and TensorFlow orders assignments by their keys.
    """
    before = getattr(_direct, "variables", ())
    _direct.variables = tuple(variables)
    try:
        yield
    finally:
        _direct.variables = before
