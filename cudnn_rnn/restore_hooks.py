"""Wraps the functions with which TensorFlow builds and runs restores.

A `tf.train.Saver` reads all tensors of a checkpoint with one op, before a saveable gets any. The
errors of this op name at most the key. A custom op would make graphs that other programs cannot
load, and a Python op would make graphs that only this process can run. So `install` wraps:

* `tf.train.Saver.build`: leaves displaced saveables out, and `restore_order.py` orders competing
  assignments of one variable.
* `tf.train.Saver.restore`: checks keys, dtypes and shapes before anything is restored, and explains
  errors about the contents of the checkpoint.
* of `tf.train.Checkpoint`, the functions that read the names of objects and restore their tensors:
  the same checks, and the same order.

The wrappers call the original and do nothing else unless saveables of this package take part.
"""

import os
import re

from cudnn_rnn import checkpoint_errors, restore_order, restoring, trackable_parts
from cudnn_rnn._tf import (
    RESTORES_ONE_BY_ONE,
    CheckpointRestoreCoordinator,
    CheckpointRestorer,
    SaveableObject,
    objects_to_restore,
    static_value,
    tf,
    wrap,
)

_CHECK = re.compile(
    r"(?P<scope>(?:.*/)?(?P<kind>%s|%s)(?:_\d+)?)/%s"
    % (restoring.SIZES_SCOPE, restoring.SHAPES_SCOPE, restoring.CHECK)
)


def install():
    """Wraps the functions; once, however often it is called."""
    wrap(tf.train.Saver, "build", _saver_build)
    wrap(tf.train.Saver, "restore", _saver_restore)
    wrap(CheckpointRestorer, "restore", _objects_restore)
    wrap(CheckpointRestoreCoordinator, "restore_saveables", _restore_saveables)


def _saver_build(original, self):
    if tf.executing_eagerly() or not restoring.saveables_of_graph():
        return original(self)
    _leave_out_displaced(self)
    original(self)
    if self.saver_def is None:  # there is nothing to save
        return
    graph = tf.get_default_graph()
    path = graph.get_tensor_by_name(self.saver_def.filename_tensor_name)
    restore_order.refuse_shared_keys(path)
    restore_order.order_assignments(path)


def _leave_out_displaced(saver):
    """Takes displaced saveables from what a Saver saves: their keys belong to later ones."""
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


def _saver_restore(original, self, sess, save_path):
    own, others = _read_by_saver(self, sess)
    if not own or not isinstance(save_path, (str, bytes, os.PathLike)):
        return original(self, sess, save_path)
    path = os.fsdecode(save_path)
    # A Saver can read an object-based checkpoint too, under other keys.
    if not checkpoint_errors.is_object_based(path):
        checkpoint_errors.check(path, own + others)
    try:
        return original(self, sess, save_path)
    except tf.errors.OpError as error:
        explained = _explained(error, path, own + others)
        if explained is error:
            raise
        raise explained from error


def _explained(error, path, expected):
    """Returns what to raise in place of an `OpError` of `Saver.restore`, maybe the error itself."""
    if "Cannot assign a device for operation" not in str(error):
        return checkpoint_errors.explained(error, path, expected)
    # TensorFlow suspects the checkpoint, which has not been read.
    text = (
        "The checkpoint %s cannot be restored: the graph is pinned to a device that this process "
        "does not have. Make the session with tf.ConfigProto(allow_soft_placement=True), or remove "
        "tf.device from the program.\nTensorFlow says: %s"
    )
    return type(error)(None, None, text % (path, getattr(error, "message", error)))


def _objects_restore(original, self, save_path, *arguments, **named):
    def expected():
        return trackable_parts.expected_below(objects_to_restore(self))

    if isinstance(save_path, (str, bytes, os.PathLike)):
        checkpoint_errors.check_object_graph(os.fsdecode(save_path), expected)
    status = original(self, save_path, *arguments, **named)
    coordinator = getattr(status, "_checkpoint", None)
    if RESTORES_ONE_BY_ONE and isinstance(coordinator, CheckpointRestoreCoordinator):
        missing = _missing_parts(coordinator)
        checkpoint_errors.check(coordinator.save_path_string, [], missing=missing)
    return status


def _missing_parts(coordinator):
    """Returns `restoring.Expected`s: what layers need beside what the checkpoint has for them."""
    return [
        entry
        for parts, keys in trackable_parts.bound_parts(coordinator).items()
        if parts.are_tracked
        for entry in parts.missing(keys)
    ]


def _restore_saveables(original, self, *arguments, **named):
    expected = []
    for parts, keys in trackable_parts.bound_parts(self).items():
        parts.read_from(self.save_path_string)
        expected += parts.expected(keys)
    if not expected:
        return original(self, *arguments, **named)
    # A layer that is built later gets its tensors one by one.
    checked = self.__dict__.setdefault("checked_by_cudnn_rnn", set())
    unchecked = [entry for entry in expected if entry.key not in checked]
    # In a graph, what happens here only makes the ops that will read.
    with_data = not tf.executing_eagerly()
    missing = [] if RESTORES_ONE_BY_ONE else _missing_parts(self)
    checkpoint_errors.check(self.save_path_string, unchecked, with_data, missing)
    checked.update(entry.key for entry in unchecked)
    direct = trackable_parts.bound_variables(self)
    try:
        with restoring.direct_values(direct):
            return original(self, *arguments, **named)
    except tf.errors.OpError as error:
        explained = checkpoint_errors.explained(error, self.save_path_string, expected)
        if explained is error:
            raise
        raise explained from error


def _read_by_saver(saver, session):
    """Returns what a Saver reads, two lists of `restoring.Expected`.

    The first has what this package's saveables expect; without any, both are empty. The second has
    the other tensors. Their shapes are known if variables get them as they are.
    """
    if tf.executing_eagerly():
        return _expected_by_saveables(saver._var_list), []
    graph = getattr(session, "graph", None)
    if graph is None or saver.saver_def is None:
        return [], []
    try:
        path = graph.get_tensor_by_name(saver.saver_def.filename_tensor_name)
    except (KeyError, ValueError):  # a Saver of another graph; TensorFlow says so
        return [], []
    checks = [_CHECK.match(operation.name) for operation in path.consumers()]
    if not any(checks):
        return [], []
    everything = {entry.key: _expected_by_variables(entry) for entry in restoring.read_from(path)}
    own = {}
    for check in filter(None, checks):
        keys, shapes = (
            static_value(graph.get_tensor_by_name("%s/%s:0" % (check.group("scope"), name)))
            for name in (restoring.KEYS, restoring.SHAPES)
        )
        for key, shape in zip(keys, shapes):
            key, shape = key.decode(), [int(size) for size in re.findall(rb"\d+", shape)]
            any_shape = check.group("kind") == restoring.SIZES_SCOPE
            own[key] = restoring.Expected(key, shape, any_shape, everything[key].dtype)
    others = [expected for key, expected in everything.items() if key not in own]
    return list(own.values()), others


def _expected_by_variables(read):
    """Returns the `restoring.Expected` for one `restoring.Read` of a graph."""
    dtype = read.tensor.dtype
    if read.slice_spec:
        shape = [int(size) for size in read.slice_spec.split(" ")[:-1]]
        return restoring.Expected(read.key, shape, False, dtype)
    shape, any_shape = restore_order.assigned_shape(read.tensor)
    return restoring.Expected(read.key, shape, any_shape, dtype)


def _expected_by_saveables(variables):
    """Returns a list of `restoring.Expected` for the saveables of this package in a `var_list`."""
    variables = variables.values() if isinstance(variables, dict) else variables or []
    return [
        expected
        for variable in variables
        if isinstance(variable, SaveableObject) and hasattr(variable, "expected_tensors")
        for expected in variable.expected_tensors()
    ]
