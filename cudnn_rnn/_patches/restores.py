"""Wrappers of the functions with which TensorFlow builds and runs restores.

A `tf.train.Saver` reads all tensors of a checkpoint with one op, before any saveable gets its
tensors. The errors of this op name at most the key. A custom op would make graphs that other
programs cannot load, and a Python op would make graphs that only this process can run. So these
functions are wrapped instead.
"""

import contextlib
import os
import re
import warnings

from cudnn_rnn._compat import (
    RESTORES_ONE_BY_ONE,
    CheckpointRestoreCoordinator,
    SaveableObject,
    objects_to_restore,
    static_value,
    tf,
)
from cudnn_rnn._patches.hooks import guarded
from cudnn_rnn.checkpoints import object_based, restore_ops, restore_order, validation


def saver_build(original, self):
    if tf.executing_eagerly() or self.saver_def or not restore_ops.saveables_of_graph():
        return original(self)  # With a SaverDef, build() creates no ops.
    given = self._var_list
    try:
        guarded(_leave_out_displaced, self)
        original(self)
        if self.saver_def is not None:  # None: there is nothing to save
            guarded(_order_assignments, self)
    except restore_ops.SaverRefusal:
        # A program that catches the error must not get a Saver that counts as built.
        self._var_list, self.saver_def, self._is_built = given, None, False
        raise


def _order_assignments(saver):
    path = tf.get_default_graph().get_tensor_by_name(saver.saver_def.filename_tensor_name)
    try:
        restore_order.refuse_shared_keys(path)
    except restore_ops.SaverRefusal as error:
        # A MonitoredTrainingSession creates a Saver (with allow_empty=True) also for programs that
        # never save.
        if not saver._allow_empty:
            raise
        warnings.warn("%s With this Saver, saving will fail." % error, stacklevel=2)
    restore_order.order_assignments(path)


def _leave_out_displaced(saver):
    """Removes displaced saveables from a Saver: later saveables own their keys."""
    saved = saver._var_list
    if saved is None:
        saved = tf.global_variables() + tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
    if not isinstance(saved, (list, tuple)):
        return
    displaced = [value for value in saved if getattr(value, "is_displaced", False)]
    kept = [value for value in saved if not any(value is other for other in displaced)]
    for saveable in displaced:
        saveable.require_saved_by(kept)
    if displaced:
        saver._var_list = kept


def saver_restore(original, self, sess, save_path):
    own, others = guarded(_read_by_saver, self, sess, default=([], []))
    if not own or not isinstance(save_path, (str, bytes, os.PathLike)):
        return original(self, sess, save_path)
    path = os.fsdecode(save_path)
    guarded(_check_tensors, path, own + others)
    with _explaining_errors(_explained, path, own + others):
        return original(self, sess, save_path)


@contextlib.contextmanager
def _explaining_errors(explain, path, expected):
    """While this context lasts, replaces an `OpError` with `explain(error, path, expected)`."""
    try:
        yield
    except tf.errors.OpError as error:
        explained = guarded(explain, error, path, expected, default=error)
        if explained is error:
            raise
        raise explained from error


def _check_tensors(path, expected):
    # A Saver can also read an object-based checkpoint, under other keys.
    if not validation.is_object_based(path):
        validation.check(path, expected)


def _explained(error, path, expected):
    """Returns the error to raise for an `OpError` of `Saver.restore`, possibly the same one."""
    if "Cannot assign a device for operation" not in str(error):
        return validation.explained(error, path, expected)
    # TensorFlow's message blames the checkpoint, which has not been read yet.
    text = (
        "The checkpoint %s cannot be restored: the graph is pinned to a device that this process "
        "does not have. Create the session with tf.ConfigProto(allow_soft_placement=True), or "
        "remove tf.device from the program.\nTensorFlow says: %s"
    )
    return type(error)(None, None, text % (path, getattr(error, "message", error)))


def objects_restore(original, self, save_path, *arguments, **named):
    if isinstance(save_path, (str, bytes, os.PathLike)):
        guarded(_check_names, self, os.fsdecode(save_path))
    status = original(self, save_path, *arguments, **named)
    coordinator = getattr(status, "_checkpoint", None)
    if RESTORES_ONE_BY_ONE and isinstance(coordinator, CheckpointRestoreCoordinator):
        guarded(_check_missing_parts, coordinator)
    return status


def _check_names(restorer, path):
    validation.check_object_graph(
        path, lambda: object_based.expected_below(objects_to_restore(restorer))
    )


def _check_missing_parts(coordinator):
    missing = _missing_parts(coordinator)
    validation.check(coordinator.save_path_string, [], missing=missing)


def _missing_parts(coordinator):
    """Returns a `restore_ops.Expected` for each tensor that a layer needs but that is missing."""
    return [
        entry
        for parts, keys in object_based.bound_parts(coordinator).items()
        if parts.are_tracked
        for entry in parts.missing(keys)
    ]


def restore_saveables(original, self, *arguments, **named):
    expected = guarded(_expected_by_parts, self, default=[])
    if not expected:
        return original(self, *arguments, **named)
    guarded(_check_parts, self, expected)
    direct = guarded(object_based.bound_variables, self, default=[])
    explaining = _explaining_errors(validation.explained, self.save_path_string, expected)
    with explaining, restore_ops.direct_values(direct):
        return original(self, *arguments, **named)


def _expected_by_parts(coordinator):
    """Returns a list of `restore_ops.Expected`; also tells the parts which checkpoint is read."""
    expected = []
    for parts, keys in object_based.bound_parts(coordinator).items():
        parts.read_from(coordinator.save_path_string)
        expected += parts.expected(keys)
    return expected


def _check_parts(coordinator, expected):
    # A layer that is built later gets its tensors one by one, so some may be checked already.
    checked = coordinator.__dict__.setdefault("checked_by_cudnn_rnn", set())
    unchecked = [entry for entry in expected if entry.key not in checked]
    # In a graph, this call only creates the ops that will read, so damage is looked for here.
    with_data = not tf.executing_eagerly()
    missing = [] if RESTORES_ONE_BY_ONE else _missing_parts(coordinator)
    validation.check(coordinator.save_path_string, unchecked, with_data, missing)
    checked.update(entry.key for entry in unchecked)


def _read_by_saver(saver, session):
    """Returns the tensors that a Saver reads, as two lists of `restore_ops.Expected`.

    The first list has the tensors that this package's saveables expect, and the variables of its
    cells and layers; if there are none, both lists are empty. The second list has the other
    tensors. The shape of one of these is known if a variable gets it unchanged, but it is refused
    only if TensorFlow certainly refuses it.
    """
    if tf.executing_eagerly():
        return _expected_by_saveables(saver._var_list), []
    graph = getattr(session, "graph", None)
    if graph is None or saver.saver_def is None:
        return [], []
    try:
        path = graph.get_tensor_by_name(saver.saver_def.filename_tensor_name)
    except (KeyError, ValueError):  # a Saver of another graph; TensorFlow reports that
        return [], []
    checks = [restore_ops.CHECK_NAME.match(operation.name) for operation in path.consumers()]
    reads = restore_ops.read_from(path)
    if not any(checks) and not any(validation.is_of_layer_or_cell(entry.key) for entry in reads):
        return [], []
    everything = {entry.key: _expected_by_variables(entry) for entry in reads}
    own = {key: entry for key, entry in everything.items() if validation.is_of_layer_or_cell(key)}
    for check in filter(None, checks):
        keys, shapes = (
            static_value(graph.get_tensor_by_name(check.expand(r"\g<scope>/%s\g<number>:0" % name)))
            for name in (restore_ops.KEYS, restore_ops.SHAPES)
        )
        for key, shape in zip(keys, shapes):
            key, shape = key.decode(), [int(size) for size in re.findall(rb"\d+", shape)]
            any_shape = check.group("kind") == restore_ops.SIZES_SCOPE
            own[key] = restore_ops.Expected(key, shape, any_shape, everything[key].dtype)
    others = [expected for key, expected in everything.items() if key not in own]
    return list(own.values()), others


def _expected_by_variables(read):
    """Returns the `restore_ops.Expected` for one `restore_ops.Read` of a graph."""
    dtype = read.tensor.dtype
    if read.slice_spec:
        shape = [int(size) for size in read.slice_spec.split(" ")[:-1]]
        return restore_ops.Expected(read.key, shape, False, dtype)
    shape, any_shape = restore_order.assigned_shape(read.tensor)
    refuses = validation.is_of_layer_or_cell(read.key) or restore_order.refuses_other_shapes(
        read.tensor
    )
    return restore_ops.Expected(read.key, shape, any_shape, dtype, refuses)


def _expected_by_saveables(variables):
    """Returns a list of `restore_ops.Expected` for this package's saveables in a `var_list`."""
    variables = variables.values() if isinstance(variables, dict) else variables or []
    return [
        expected
        for variable in variables
        if isinstance(variable, SaveableObject) and hasattr(variable, "expected_tensors")
        for expected in variable.expected_tensors()
    ]
