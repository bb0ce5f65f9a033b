"""Recreates the saveables of an imported graph.

A `MetaGraphDef` keeps only the names of saveables. But the Savers of the graph, which it keeps,
contain what the saveables did: the keys, the tensors to save, and the ops that compute the value of
a variable from restored tensors. An `ImportedSaveable` saves the same tensors and restores with
copies of these ops. So it is exact whatever made the saveable: this package or tf.contrib.cudnn_rnn
of any release, with any hooks overridden.
"""

from __future__ import annotations

import collections
import re
from typing import Any, Dict, Iterable, List, Sequence

from cudnn_rnn._compat import SaveableObject, SaveSpec, static_value, tf
from cudnn_rnn.checkpoints import graph_walk, restore_ops
from cudnn_rnn.checkpoints.graph_walk import SAME_VALUES, source
from cudnn_rnn.checkpoints.restore_order import ASSIGN_TYPES, REBUILT
from cudnn_rnn.graph import nodes
from cudnn_rnn.graph.arguments import variable_name
from cudnn_rnn.graph.types import TensorLike

_CONVERSION = re.compile("CudnnRNN(ParamsToCanonical|CanonicalToParams)(V2)?$")

# The assignment of a restored value: the variable, the value, and the scope for `restore_ops`.
_Assignment = collections.namedtuple("_Assignment", ["variable", "value", "scope"])


class _HeldSaveable:
    """A saveable that a Saver of a graph holds."""

    def __init__(self, keys, restored, saved, assignments):
        self.keys = keys  # list of str
        self.restored = restored  # list of the tensors that RestoreV2 reads, one for each key
        self.saved = saved  # list of the tensors that SaveV2 writes, one for each key
        self.assignments = assignments  # list of `_Assignment`

    def saves(self, tensor):
        return tensor.name in [other.name for other in self.saved]

    def restores(self, operation):
        """Returns whether `operation` is that of a variable that is restored."""
        names = [assignment.variable.op.name for assignment in self.assignments]
        return operation.name in names

    def id_of_first_op(self):
        return min(tensor.op._id for tensor in self.saved)


class ImportedSaveable(SaveableObject):
    """A saveable of an imported graph; see the module's docstring."""

    def __init__(self, held, name, prefix):
        """Creates the saveable.

        Args:
          held: a `_HeldSaveable`.
          name: str, the saveable's name, which a node of the graph may have.
          prefix: str, the prefix of its keys: the scope of the import.
        """
        self._restored = held.restored
        self._assignments = held.assignments
        device = nodes.device_of_specs()
        specs = [
            SaveSpec(tensor, "", prefix + key, device=device)
            for key, tensor in zip(held.keys, _on_one_device(held))
        ]
        op = _output_of_identity(name)
        name = restore_ops.unique_name(name)
        if op is None:
            op = restore_ops.identity_of_name(held.saved[0], name)
        super().__init__(op, specs, name)
        restore_ops.saveables_of_graph().append(self)

    def restore(self, restored_tensors: Sequence[TensorLike], restored_shapes: Any) -> tf.Operation:
        """Returns an op that assigns the variables the values read from a checkpoint.

        Args:
          restored_tensors: list of tensors, one for each of `specs`.
          restored_shapes: ignored; a variable's shape says nothing about the tensors.
        """
        del restored_shapes
        tensors = self._checked(list(restored_tensors))
        copies = {tensor.name: copy for tensor, copy in zip(self._restored, tensors)}
        return tf.group(
            *[
                restore_ops.assign(variable, _copied(value, self._restored, copies), scope)
                for variable, value, scope in self._assignments
            ]
        )

    @property
    def is_displaced(self) -> bool:
        """Whether the program has since put a saveable with one of the keys into the collection.

        `tf.train.Saver()` then saves that one in place of this one.
        """
        keys = {spec.name for spec in self.specs}
        return any(
            saveable is not self and not keys.isdisjoint(spec.name for spec in saveable.specs)
            for saveable in restore_ops.collected_from(self)
        )

    def require_saved_by(self, saved: Iterable[Any]) -> None:
        """Raises `SaverRefusal` unless `saved` (variables, saveables) covers the variables."""
        held: List[Any] = []
        for other in saved:
            variables = getattr(other, "_variables", other)
            held += variables if isinstance(variables, (list, tuple)) else [variables]
        for variable in [assignment.variable for assignment in self._assignments]:
            if not any(variable is other for other in held):
                raise restore_ops.SaverRefusal(
                    "This Saver would save neither the imported saveable %r nor its variable %s: a "
                    "later saveable in tf.GraphKeys.SAVEABLE_OBJECTS has the same keys, and the "
                    "variable is not in var_list (by default tf.GraphKeys.GLOBAL_VARIABLES). Add "
                    "the variable to var_list." % (self.name, variable_name(variable))
                )

    def _checked(self, tensors):
        """Repeats the check of the imported graph, whose errors have the keys before the import."""
        kinds = {
            match.group("kind")
            for match in map(_check_of, _dependent(self._restored).values())
            if match is not None
        }
        keys = [spec.name for spec in self.specs]
        shapes = [spec.tensor.shape for spec in self.specs]
        if restore_ops.SIZES_SCOPE in kinds:
            return restore_ops.with_checked_sizes(tensors, keys, shapes)
        # The original checked nothing, and its shapes are unknown.
        return restore_ops.with_checked_shapes(tensors, keys, shapes)


def _on_one_device(held):
    """Returns the tensors to save of a `_HeldSaveable`, on one device, as a sharded Saver requires.

    The original pins a part of them to a GPU.
    """
    if len({tensor.device for tensor in held.saved}) == 1:
        return held.saved
    with tf.name_scope(None), tf.device(None), tf.device(held.assignments[0].variable.device):
        return [tf.identity(tensor, tensor.op.name + "_to_save") for tensor in held.saved]


def recreate(names: Sequence[str], operations: Sequence[tf.Operation], prefix: str) -> List[str]:
    """Recreates saveables, and registers them for the Savers of the default graph.

    Args:
      names: names of saveables in the imported collection.
      operations: the imported operations.
      prefix: what the import put before every name, "" or a scope and "/".

    Returns:
      A list of the names of saveables that no Saver among the operations holds.
    """
    if not any(_is_of_rnn(operation) for operation in operations):
        return []
    held = _held_in(operations)
    distinct = list(dict.fromkeys(names))
    by_name = _matched(distinct, held, prefix)
    for name, held_saveable in _undisplaced(by_name).items():
        saveable = ImportedSaveable(held_saveable, prefix + name, prefix)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    return [name for name in distinct if name not in by_name]


def _is_of_rnn(operation):
    is_rnn = operation.type.startswith("CudnnRNN")
    return is_rnn or REBUILT.match(operation.name) is not None


def _base(name):
    """Returns the name from which `restore_ops.unique_name` made this one."""
    return re.sub(r"_\d+$", "", name)


def _undisplaced(by_name):
    """Leaves out those displaced; see `CudnnOpaqueParamsSaveable.is_displaced`."""
    last = {(_base(name), tuple(held.keys)): name for name, held in by_name.items()}
    return {name: held for name, held in by_name.items() if name in last.values()}


def _matched(names, held, prefix):
    """Returns a dict from names of saveables to the `_HeldSaveable` that they stand for."""
    by_name: Dict[str, _HeldSaveable] = {}
    rest = list(held)
    for rule in _of_identity, _of_layer:
        for name in [name for name in names if name not in by_name]:
            candidates = rule(prefix + name, rest)
            if candidates:
                by_name[name] = max(candidates, key=_HeldSaveable.id_of_first_op)
                rest.remove(by_name[name])
    # Saveables that a program made with the original have any names, and no nodes.
    unknown = [name for name in names if name not in by_name and _no_node(prefix + name)]
    if len(unknown) == len(rest):
        by_name.update(zip(sorted(unknown), rest))
    return {name: by_name[name] for name in names if name in by_name}


def _of_identity(name, held):
    """Returns this package's saveables: an Identity named `name` reads their variable or a tensor.

    A saveable makes its other ops before this Identity.
    """
    output = _output_of_identity(name)
    if output is None:
        return []
    read = output.op.inputs[0]
    variable = source(read, SAME_VALUES + ("ReadVariableOp",))
    return [
        saveable
        for saveable in held
        if saveable.saves(read)
        or (saveable.restores(variable) and saveable.id_of_first_op() < output.op._id)
    ]


def _of_layer(name, held):
    """Returns the saveables of the original's layers, whose names contain the variable's name."""
    name_of_variable = re.sub("_saveable$", "", name)
    variables = [saveable.assignments[0].variable.op.name for saveable in held]
    return [saveable for saveable, name in zip(held, variables) if name == name_of_variable]


def _output_of_identity(name):
    """Returns the output of the Identity node of this name; None without one."""
    try:
        operation = tf.get_default_graph().get_operation_by_name(name)
    except (KeyError, ValueError):  # no node, no valid name
        return None
    return operation.outputs[0] if operation.type == "Identity" else None


def _no_node(name):
    return _output_of_identity(name) is None


# --- What Savers hold ---


def _held_in(operations):
    """Returns a list of `_HeldSaveable`, in the order of the Savers' ops, without duplicates."""
    by_tensors: Dict[Any, _HeldSaveable] = {}
    writers = [operation for operation in operations if operation.type == "SaveV2"]
    paths = {op.inputs[0].name: op.inputs[0] for op in operations if op.type == "RestoreV2"}
    for path in paths.values():
        saved = _saved_to(path, writers)
        for saveable in _held_by_saver(restore_ops.read_from(path), saved):
            # The last Saver wins: one made after an import into a scope has other keys.
            by_tensors[tuple(tensor.name for tensor in saveable.saved)] = saveable
    return list(by_tensors.values())


def _saved_to(path, writers):
    """Returns a dict from keys to tensors that SaveV2 ops write to the checkpoint at `path`."""
    saved: Dict[str, tf.Tensor] = {}
    for writer in writers:
        if path.op.name in graph_walk.reachable([writer.inputs[0].op], graph_walk.dependencies):
            keys = static_value(writer.inputs[1])
            saved.update(zip([key.decode() for key in keys], writer.inputs[3:]))
    return saved


def _held_by_saver(reads, saved):
    """Returns a list of `_HeldSaveable`.

    Args:
      reads: list of `restore_ops.Read`, what the Saver restores.
      saved: dict from keys to tensors, what the Saver saves.
    """
    groups, plain = _groups([read.tensor for read in reads])
    assigned = plain.union(*[names for names, _ in groups])
    # Both summands of a bias may be restored, but not their sum.
    unused = [r for r in reads if r.tensor.name not in assigned and r.key in saved]
    conversions = {read.key: _conversions([saved[read.key]]) for read in unused}
    held = []
    for names, assignments in groups:
        own = [read for read in reads if read.tensor.name in names]
        if not all(read.key in saved and not read.slice_spec for read in own):
            continue
        of_group = _conversions([saved[read.key] for read in own])
        also = {read.tensor.name for read in unused if of_group & conversions[read.key]}
        own = [read for read in reads if read.tensor.name in names | also]
        saveable = _HeldSaveable(
            [read.key for read in own],
            [read.tensor for read in own],
            [saved[read.key] for read in own],
            assignments,
        )
        if of_group or _is_ours(saveable):
            held.append(saveable)
    return held


def _groups(restored):
    """Groups restored tensors by the saveable that takes them.

    Returns:
      `(groups, plain)`. A group is (set of names of tensors, list of `_Assignment`). `plain` is a
      set of names of tensors that variables get unchanged.
    """
    groups: List[Any] = []
    plain = set()
    for operation in sorted(_dependent(restored).values(), key=lambda operation: operation._id):
        if operation.type not in ASSIGN_TYPES:
            continue
        names = _restored_for(operation.inputs[1])
        variable = restore_ops.variable_of(source(operation.inputs[0]))
        if variable is None or source(operation.inputs[1]).type == "RestoreV2":
            plain |= names
            continue
        rebuilt = REBUILT.match(operation.name)
        scope = rebuilt.group(1) if rebuilt else restore_ops.SUMS_SCOPE
        assignments = [_Assignment(variable, operation.inputs[1], scope)]
        # A saveable may restore several variables from the same tensors.
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, assignments = group[0] | names, group[1] + assignments
        groups.append((names, assignments))
    return groups, plain


def _restored_for(value):
    """Returns the set of names of the restored tensors from which a tensor is computed."""
    found, seen, waiting = set(), set(), [value]
    while waiting:
        tensor = waiting.pop()
        if tensor.op.type == "RestoreV2":
            found.add(tensor.name)
        elif tensor.op.name not in seen:
            seen.add(tensor.op.name)
            waiting += tensor.op.inputs
    return found


def _conversions(tensors):
    """Returns the set of names of conversions of parameters from which tensors are computed."""
    behind = graph_walk.reachable([tensor.op for tensor in tensors], _inputs)
    return {name for name, operation in behind.items() if _CONVERSION.match(operation.type)}


def _inputs(operation):
    return [] if operation.type == "RestoreV2" else [tensor.op for tensor in operation.inputs]


def _is_ours(held):
    """Returns whether this package or the original made a saveable that saves no conversion."""
    if any(REBUILT.match(consumer.name) for consumer in _dependent(held.restored).values()):
        return True
    return bool(_conversions([assignment.value for assignment in held.assignments]))


# --- Copies ---


def _dependent(tensors):
    """Returns a dict by name of the ops, up to assignments, with inputs computed from tensors."""
    return graph_walk.reachable(
        [consumer for tensor in tensors for consumer in tensor.consumers()],
        lambda operation: [] if operation.type in ASSIGN_TYPES else graph_walk.consumers(operation),
    )


def _copied(value, restored, copies):
    """Returns a copy of a tensor that is computed from other restored tensors.

    Args:
      value: the tensor.
      restored: list of the restored tensors from which it is computed.
      copies: dict from their names to the tensors that replace them; extended.
    """
    dependent, waiting = _dependent(restored), _waiting_for_restores(value)

    def copied_before(operation):
        data = [tensor.op for tensor in operation.inputs if tensor.name not in copies]
        # Other control inputs order the restores of the imported Saver.
        control = [
            other
            for other in operation.control_inputs
            if other.name in dependent and other.type not in ASSIGN_TYPES and not _check_of(other)
        ]
        return [other for other in data if other.name in waiting] + control

    done: Dict[str, tf.Operation] = {}
    needed = graph_walk.reachable([value.op], copied_before).values()
    for operation in sorted(needed, key=lambda operation: operation._id):
        control = [done[other.name] for other in operation.control_inputs if other.name in done]
        inputs = [copies.get(tensor.name, tensor) for tensor in operation.inputs]
        with tf.control_dependencies(control):
            done[operation.name] = _copy_of_operation(operation, inputs)
        for old, new in zip(operation.outputs, done[operation.name].outputs):
            copies[old.name] = new
    return copies[value.name]


def _waiting_for_restores(value):
    """Returns a dict by name of the ops behind a tensor that run after a restore.

    Some take no restored tensor: a constant waits for the check of restored tensors.
    """
    behind = graph_walk.reachable([value.op], graph_walk.dependencies)
    users = collections.defaultdict(list)
    for operation in behind.values():
        for other in graph_walk.dependencies(operation):
            users[other.name].append(operation)
    readers = [operation for operation in behind.values() if operation.type == "RestoreV2"]
    return graph_walk.reachable(readers, lambda operation: users[operation.name])


def _check_of(operation):
    return restore_ops.CHECK_NAME.match(operation.name)


def _copy_of_operation(operation, inputs):
    """Returns a copy with other inputs, on the device of the context and not colocated."""
    attributes = dict(operation.node_def.attr.items())
    for name in "_class", "_output_shapes":
        attributes.pop(name, None)
    return tf.get_default_graph().create_op(
        operation.type,
        inputs,
        [tensor.dtype for tensor in operation.outputs],
        name=operation.name.split("/")[-1],
        attrs=attributes,
        op_def=operation.op_def,
    )
