"""The cells' tensors of an opaque buffer as objects that `tf.train.Checkpoint` saves and restores.

Each looks like a variable of a platform-independent cell, under the same names, so that a
checkpoint of a layer is read into such cells and the other way round.
"""

import functools

from cudnn_rnn._tf import (
    IS_TENSORFLOW_1,
    SaveableObject,
    SaveSpec,
    Trackable,
    tf,
    without_autograph,
)

# How an object-based checkpoint calls the value of a variable.
_VALUE = "VARIABLE_VALUE"


class Parts:
    """All tensors of one buffer: saved each by itself, restored together."""

    def __init__(self, saveable, names, dtype, device):
        """Makes the parts.

        Args:
          saveable: object with `read_parts()`, a list of tensors, and `write_parts(tensors)`, which
            returns an op.
          names: of the parts, in that order.
          dtype: of the tensors.
          device: of the variable.
        """
        self._saveable = saveable
        self._names = list(names)
        self._restored = {}
        self.dtype = dtype
        self.device = device
        self.trackables = {name: _Part(self, name) for name in self._names}

    def read(self, name):
        """Returns the tensor to save."""
        return tf.identity(self._saveable.read_parts()[self._names.index(name)])

    def restore(self, name, tensor):
        """Takes a tensor that was read; the last one of all brings the buffer about."""
        if name in self._restored:  # left over from a checkpoint that did not have them all
            self._restored.clear()
        self._restored[name] = tensor
        if len(self._restored) < len(self._names):
            return tf.no_op()
        tensors = [self._restored[name] for name in self._names]
        self._restored.clear()
        return self._saveable.write_parts(tensors)


class _Part(Trackable):
    """One tensor, to a checkpoint a variable."""

    def __init__(self, parts, name):
        self._parts = parts
        self._name = name

    def _gather_saveables_for_checkpoint(self):
        return {_VALUE: functools.partial(_PartSaveable, self._parts, self._name)}


class _PartSaveable(SaveableObject):
    def __init__(self, parts, part_name, name):
        read = functools.partial(parts.read, part_name)
        spec = SaveSpec(read, "", name, dtype=parts.dtype, device=parts.device)
        super().__init__(read, [spec], name)
        self._restore_part = functools.partial(parts.restore, part_name)

    @without_autograph
    def restore(self, restored_tensors, restored_shapes):
        (tensor,) = restored_tensors
        return self._restore_part(tensor)


class _Node(Trackable):
    """An object in a checkpoint that has nothing but other objects."""


def track(owner, path, part):
    """Makes `part` a dependency of `owner`, an object of a checkpoint.

    Args:
      path: list of names, one for each object on the way from `owner` to `part`, and its own.
    """
    for name in path[:-1]:
        owner._maybe_initialize_trackable()
        child = owner._lookup_dependency(name)
        if child is None:
            child = _Node()
            owner._track_trackable(child, name)
        owner = child
    owner._track_trackable(part, path[-1])


def supports(rnn_mode):
    """Whether the layers of this mode can be in an object-based checkpoint.

    In TensorFlow 1 it was an LSTM or nothing, and programs (TensorFlow's own tests among them) may
    rely on being told.
    """
    return rnn_mode == "lstm" or not IS_TENSORFLOW_1
