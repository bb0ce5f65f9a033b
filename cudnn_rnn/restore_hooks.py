"""Makes TensorFlow's restoring tell what is wrong with a checkpoint of this package's saveables.

A `tf.train.Saver` reads all tensors of a checkpoint with one op, before a saveable gets any. What
this op says of one that is missing or damaged is its key at most. An op of this package in its
place would make graphs that other programs cannot load, and one that calls Python graphs that
nobody else can run. So `install` wraps the functions in which TensorFlow's Python does the reading:
`tf.train.Saver.restore`, and of `tf.train.Checkpoint` the one that reads the names of objects, and
the one that restores their tensors.

They do what they did, unless a tensor of this package's saveables is among those to restore. Then
what the list of keys, dtypes and shapes shows to be wrong is an error before anything is restored,
so that no variable at all has changed; and an error that TensorFlow itself raises is explained.
"""

import os
import re

from cudnn_rnn import checkpoint_errors, restoring, trackable_parts
from cudnn_rnn._tf import (
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
    wrap(tf.train.Saver, "restore", _saver_restore)
    wrap(CheckpointRestorer, "restore", _objects_restore)
    wrap(CheckpointRestoreCoordinator, "restore_saveables", _restore_saveables)


def _saver_restore(original, self, sess, save_path):
    own, others = _read_by_saver(self, sess)
    if not own or not isinstance(save_path, (str, bytes, os.PathLike)):
        return original(self, sess, save_path)
    path = os.fsdecode(save_path)
    # A Saver can read an object-based checkpoint too, under other keys.
    if not checkpoint_errors.is_object_based(path):
        checkpoint_errors.check(path, own)
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
    return original(self, save_path, *arguments, **named)


def _restore_saveables(original, self, *arguments, **named):
    expected, missing = [], []
    for parts, keys in trackable_parts.bound_parts(self).items():
        parts.read_from(self.save_path_string)
        expected += parts.expected(keys)
        if parts.are_tracked:
            missing += parts.missing(keys)
    if not expected:
        return original(self, *arguments, **named)
    # A layer that is built later gets its tensors one by one.
    checked = self.__dict__.setdefault("checked_by_cudnn_rnn", set())
    unchecked = [entry for entry in expected if entry.key not in checked]
    # In a graph, what happens here only makes the ops that will read.
    with_data = not tf.executing_eagerly()
    checkpoint_errors.check(self.save_path_string, unchecked, with_data, missing)
    checked.update(entry.key for entry in unchecked)
    try:
        return original(self, *arguments, **named)
    except tf.errors.OpError as error:
        explained = checkpoint_errors.explained(error, self.save_path_string, expected)
        if explained is error:
            raise
        raise explained from error


def _read_by_saver(saver, session):
    """Returns what a Saver reads, two lists of `restoring.Expected`.

    The first has what this package's saveables expect; without any, both are empty. The second has
    the other tensors, of which the dtype is known.
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
    dtypes = _dtypes_of_keys(path)
    own = {}
    for check in filter(None, checks):
        keys, shapes = (
            static_value(graph.get_tensor_by_name("%s/%s:0" % (check.group("scope"), name)))
            for name in (restoring.KEYS, restoring.SHAPES)
        )
        for key, shape in zip(keys, shapes):
            key, shape = key.decode(), [int(size) for size in re.findall(rb"\d+", shape)]
            any_shape = check.group("kind") == restoring.SIZES_SCOPE
            own[key] = restoring.Expected(key, shape, any_shape, dtypes[key])
    others = [
        restoring.Expected(key, None, True, dtype)
        for key, dtype in dtypes.items()
        if own and key not in own
    ]
    return list(own.values()), others


def _dtypes_of_keys(path):
    """Returns a dict of the keys read from the checkpoint, by ops of the graph, to dtypes."""
    dtypes = {}
    for operation in path.consumers():
        keys = static_value(operation.inputs[1]) if operation.type == "RestoreV2" else None
        if keys is not None:
            dtypes.update(
                (key.decode(), tensor.dtype) for key, tensor in zip(keys, operation.outputs)
            )
    return dtypes


def _expected_by_saveables(variables):
    """Returns a list of `restoring.Expected` for the saveables of this package in a `var_list`."""
    variables = variables.values() if isinstance(variables, dict) else variables or []
    return [
        expected
        for variable in variables
        if isinstance(variable, SaveableObject) and hasattr(variable, "expected_tensors")
        for expected in variable.expected_tensors()
    ]
