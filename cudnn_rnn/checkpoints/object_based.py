"""The cells' tensors of an opaque buffer as objects that `tf.train.Checkpoint` saves and restores.

Each object looks like a variable of a platform-independent cell, under the same name. So such cells
can restore the checkpoint of a layer, and a layer can restore the checkpoint of cells.
"""

import collections
import functools

from cudnn_rnn._compat import (
    SaveableObject,
    SaveSpec,
    Trackable,
    is_variable,
    tf,
    without_autograph,
)
from cudnn_rnn.checkpoints import validation

# The name of a variable's value in an object-based checkpoint.
_VALUE = "VARIABLE_VALUE"


class BufferParts:
    """All tensors of one buffer, which are saved individually and restored together."""

    def __init__(self, saveable, names, dtype, device):
        """Creates the parts.

        Args:
          saveable: object with `_read_part(index)`, a tensor, `expected_tensors()`, a list of
            `restore_ops.Expected`, and `write_parts(tensors, keys)`, which returns an op.
          names: names of the parts, in the order of these lists.
          dtype: dtype of the tensors.
          device: device of the variable.
        """
        self._saveable = saveable
        self._names = list(names)
        self._restored = collections.OrderedDict()
        self._path = None
        self.dtype = dtype
        self.device = device
        self.trackables = {name: _Part(self, name) for name in self._names}
        # Until all are tracked, a checkpoint restored earlier delivers the parts one by one.
        self.are_tracked = False

    def read(self, name):
        """Returns the tensor to save."""
        return tf.identity(self._saveable._read_part(self._names.index(name)))

    def restore(self, name, key, tensor):
        """Takes a part's tensor and its key in the checkpoint; returns an op.

        The last missing tensor triggers assembly of the buffer.
        """
        if name in self._restored:  # left over from an incomplete checkpoint
            self._restored.clear()
        self._restored[name] = key, tensor
        if len(self._restored) < len(self._names):
            return tf.no_op()
        keys, tensors = zip(*[self._restored[name] for name in self._names])
        self._restored.clear()
        return self._saveable.write_parts(list(tensors), list(keys))

    def expected(self, keys):
        """Returns a list of `restore_ops.Expected` for a dict of names to checkpoint keys."""
        by_name = dict(zip(self._names, self._saveable.expected_tensors()))
        return [by_name[name]._replace(key=key) for name, key in keys.items()]

    def missing(self, keys):
        """Returns a list of `restore_ops.Expected` for the parts missing from the dict `keys`."""
        name, key = next(iter(keys.items()))
        top, place = self.trackables[name].split_key(key)
        others = [other for other in self._names if other not in keys]
        return self.expected({other: top + self.trackables[other].keys[place] for other in others})

    def read_from(self, path):
        """Sets the path of the checkpoint from which the next tensors come."""
        self._path = path

    def all_tracked(self):
        """Must be called once all parts are tracked; raises if only some have been restored."""
        self.are_tracked = True
        if self._restored and self._path is not None:
            keys = {name: key for name, (key, _) in self._restored.items()}
            self._restored.clear()
            validation.check(self._path, [], missing=self.missing(keys))


class _Part(Trackable):
    """One tensor, which a checkpoint treats as a variable."""

    # Identifies parts; unlike isinstance, also those created before a re-import of the package.
    is_part_of_cudnn_rnn = True

    def __init__(self, parts, name):
        self.parts = parts
        self.name = name
        # Keys of the value relative to the layer, one for each path given to `track`.
        self.keys = []

    def __repr__(self):
        (expected,) = self.parts.expected({self.name: " or ".join(self.keys)})
        return "<%s, shape %s>" % (expected.key, expected.shape)

    def split_key(self, key):
        """Splits a key: returns the prefix before the layer's own part, and the index in `keys`."""
        # Longest first, because one element of `keys` may be the end of another.
        for place in sorted(range(len(self.keys)), key=lambda place: -len(self.keys[place])):
            if ("/" + key).endswith("/" + self.keys[place]):
                return key[: -len(self.keys[place])], place
        return "", 0  # saved as part of another kind of object

    def _gather_saveables_for_checkpoint(self):
        return {_VALUE: functools.partial(_PartSaveable, self.parts, self.name)}

    def _copy_trackable_to_cpu(self, object_map):
        """Copies the value to a variable, which a thread writes to the checkpoint later.

        The first call puts the variable into `object_map`, from which TensorFlow takes it.
        """
        value = self.parts.read(self.name)
        with tf.device("/cpu:0"):
            if self in object_map:
                object_map[self].assign(value)
            else:
                object_map[self] = tf.Variable(value, trainable=False, use_resource=True)


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
    """An object in a checkpoint that only contains other objects."""


def track(owner, paths):
    """Makes parts dependencies of `owner`, in place of parts that have the same paths.

    Args:
      owner: a `Trackable`.
      paths: list of (path, part); a path has the names of the objects from `owner` to the part.

    Raises:
      ValueError: another object has one of the paths; nothing has been tracked then.
    """
    for path, _ in paths:
        found = _object_at(owner, path)
        if found is not None and not is_part(found):
            raise ValueError(
                "%s needs the name %r for a part of its parameters in object-based checkpoints, "
                "but %r has that name. Track that object under another name."
                % (type(owner).__name__, "/".join(path), found)
            )
    for path, part in paths:
        part.keys.append(_key(path))
        parent = owner
        for name in path[:-1]:
            child = _object_at(parent, [name])
            if child is None:
                child = _Node()
                parent._track_trackable(child, name)
            parent = child
        parent._track_trackable(part, path[-1], overwrite=True)


def _object_at(owner, path):
    """Returns the object at this path below `owner`, or None."""
    for name in path:
        if owner is None:
            return None
        owner._maybe_initialize_trackable()
        owner = owner._lookup_dependency(name)
    return owner


def _key(path):
    """Returns the checkpoint key for the value of the object at this path."""
    escaped = [name.replace(".", "..").replace("/", ".S") for name in path]
    return "/".join(escaped) + "/.ATTRIBUTES/" + _VALUE


def is_part(candidate):
    """Returns whether an object is one of the `trackables` of some `BufferParts`."""
    return getattr(type(candidate), "is_part_of_cudnn_rnn", False)


def bound_parts(coordinator):
    """Returns a dict of `BufferParts` to dicts of names of parts to keys in the checkpoint.

    It has the parts that the checkpoint has values for. `coordinator` is the object that TensorFlow
    creates for one call of `tf.train.Checkpoint.restore`.
    """
    bound: dict = collections.OrderedDict()
    for index, trackable in list(coordinator.object_by_proto_id.items()):
        attributes = coordinator.object_graph_proto.nodes[index].attributes
        if is_part(trackable) and attributes:
            bound.setdefault(trackable.parts, {})[trackable.name] = attributes[0].checkpoint_key
    return bound


def bound_variables(coordinator):
    """Returns a list of the variables that the checkpoint has values for; see `bound_parts`."""
    nodes = coordinator.object_graph_proto.nodes
    return [
        trackable
        for index, trackable in list(coordinator.object_by_proto_id.items())
        if is_variable(trackable) and nodes[index].attributes
    ]


def expected_below(objects):
    """Returns a list of `restore_ops.Expected` for a list of (object, path).

    Returns None if no object is a layer of this package. Layers not built yet expect nothing.
    """
    expected, has_layers = [], False
    for candidate, path in objects:
        has_layers = has_layers or hasattr(candidate, "_saveable_cls")
        if is_part(candidate):
            expected += candidate.parts.expected({candidate.name: _key(path)})
    return expected if has_layers or expected else None
