"""The cells' tensors of an opaque buffer as objects that `tf.train.Checkpoint` saves and restores.

Each looks like a variable of a platform-independent cell, under the same names, so that a
checkpoint of a layer is read into such cells and the other way round.
"""

import collections
import functools

from cudnn_rnn._compat import (
    IS_TENSORFLOW_1,
    SaveableObject,
    SaveSpec,
    Trackable,
    Variable,
    tf,
    without_autograph,
)
from cudnn_rnn.checkpoints import validation

# How an object-based checkpoint calls the value of a variable.
_VALUE = "VARIABLE_VALUE"


class Parts:
    """All tensors of one buffer: saved each by itself, restored together."""

    def __init__(self, saveable, names, dtype, device):
        """Makes the parts.

        Args:
          saveable: object with `read_parts()`, a list of tensors, `expected_tensors()`, a list of
            `restoring.Expected`, and `write_parts(tensors, keys)`, which returns an op.
          names: of the parts, in that order.
          dtype: of the tensors.
          device: of the variable.
        """
        self._saveable = saveable
        self._names = list(names)
        self._restored = collections.OrderedDict()
        self._path = None
        self.dtype = dtype
        self.device = device
        self.trackables = {name: _Part(self, name) for name in self._names}
        # Before, checkpoints that were restored earlier hand over their parts one by one.
        self.are_tracked = False

    def read(self, name):
        """Returns the tensor to save."""
        return tf.identity(self._saveable.read_parts()[self._names.index(name)])

    def restore(self, name, key, tensor):
        """Takes a tensor that was read; the last one of all brings the buffer about.

        Args:
          name: of the part.
          key: of the tensor in the checkpoint.
          tensor: the value.

        Returns:
          An op.
        """
        if name in self._restored:  # left over from a checkpoint that did not have them all
            self._restored.clear()
        self._restored[name] = key, tensor
        if len(self._restored) < len(self._names):
            return tf.no_op()
        keys, tensors = zip(*[self._restored[name] for name in self._names])
        self._restored.clear()
        return self._saveable.write_parts(list(tensors), list(keys))

    def expected(self, keys):
        """Returns a list of `restoring.Expected`.

        Args:
          keys: dict of names of parts to their keys in the checkpoint.
        """
        by_name = dict(zip(self._names, self._saveable.expected_tensors()))
        return [by_name[name]._replace(key=key) for name, key in keys.items()]

    def missing(self, keys):
        """Returns a list of `restoring.Expected` for the parts that are not in the dict `keys`."""
        name, key = next(iter(keys.items()))
        top, place = self.trackables[name].place_of_key(key)
        return self.expected(
            {
                other: top + self.trackables[other].keys[place]
                for other in self._names
                if other not in keys
            }
        )

    def read_from(self, path):
        """Takes the path of the checkpoint from which the next tensors come."""
        self._path = path

    def all_tracked(self):
        """To be called once all parts are dependencies; checks what was restored meanwhile."""
        self.are_tracked = True
        if self._restored and self._path is not None:
            keys = {name: key for name, (key, _) in self._restored.items()}
            self._restored.clear()
            validation.check(self._path, [], missing=self.missing(keys))


class _Part(Trackable):
    """One tensor, to a checkpoint a variable."""

    # Tells parts from other objects; unlike isinstance also those made before a re-import.
    is_part_of_cudnn_rnn = True

    def __init__(self, parts, name):
        self.parts = parts
        self.name = name
        # Of the value, relative to the layer; one for each place that `track` gives it.
        self.keys = []

    def __repr__(self):
        (expected,) = self.parts.expected({self.name: " or ".join(self.keys)})
        return "<%s, shape %s>" % (expected.key, expected.shape)

    def place_of_key(self, key):
        """Returns what is in front of the layer's own part of a key, and the index in `keys`."""
        # The longest first, as the key of one place may be the end of that of another.
        for place in sorted(range(len(self.keys)), key=lambda place: -len(self.keys[place])):
            if ("/" + key).endswith("/" + self.keys[place]):
                return key[: -len(self.keys[place])], place
        return "", 0  # saved as a part of an object of another kind

    def _gather_saveables_for_checkpoint(self):
        return {_VALUE: functools.partial(_PartSaveable, self.parts, self.name)}


class _PartSaveable(SaveableObject):
    def __init__(self, parts, part_name, name):
        read = functools.partial(parts.read, part_name)
        spec = SaveSpec(read, "", name, dtype=parts.dtype, device=parts.device)
        super().__init__(read, [spec], name)
        self._restore_part = functools.partial(parts.restore, part_name, name)

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
    part.keys.append(_key(path))
    for name in path[:-1]:
        owner._maybe_initialize_trackable()
        child = owner._lookup_dependency(name)
        if child is None:
            child = _Node()
            owner._track_trackable(child, name)
        owner = child
    owner._track_trackable(part, path[-1])


def _key(path):
    """Returns the key that a checkpoint gives to the value of the object of this path."""
    escaped = [name.replace(".", "..").replace("/", ".S") for name in path]
    return "/".join(escaped) + "/.ATTRIBUTES/" + _VALUE


def _is_part(candidate):
    return getattr(type(candidate), "is_part_of_cudnn_rnn", False)


def bound_parts(coordinator):
    """Returns the parts that an object-based checkpoint has values for.

    Args:
      coordinator: what TensorFlow makes for one call of `tf.train.Checkpoint.restore`.

    Returns:
      Dict of `Parts` to dicts of names of parts to keys in the checkpoint.
    """
    bound = collections.OrderedDict()
    for index, trackable in list(coordinator.object_by_proto_id.items()):
        attributes = coordinator.object_graph_proto.nodes[index].attributes
        if _is_part(trackable) and attributes:
            bound.setdefault(trackable.parts, {})[trackable.name] = attributes[0].checkpoint_key
    return bound


def bound_variables(coordinator):
    """Returns a list of the variables that an object-based checkpoint has values for.

    Args:
      coordinator: what TensorFlow makes for one call of `tf.train.Checkpoint.restore`.
    """
    nodes = coordinator.object_graph_proto.nodes
    return [
        trackable
        for index, trackable in list(coordinator.object_by_proto_id.items())
        if isinstance(trackable, Variable) and nodes[index].attributes
    ]


def expected_below(objects):
    """Returns a list of `restoring.Expected` for a list of (object, path).

    None for objects without any layer of this package; layers that are not built expect nothing.
    """
    expected, has_layers = [], False
    for candidate, path in objects:
        has_layers = has_layers or hasattr(candidate, "_saveable_cls")
        if _is_part(candidate):
            expected += candidate.parts.expected({candidate.name: _key(path)})
    return expected if has_layers or expected else None


def supports(rnn_mode):
    """Whether the layers of this mode can be in an object-based checkpoint.

    In TensorFlow 1 it was an LSTM or nothing, and programs (TensorFlow's own tests among them) may
    rely on being told.
    """
    return rnn_mode == "lstm" or not IS_TENSORFLOW_1
