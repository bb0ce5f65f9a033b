"""Orders the assignments of a Saver, so that a variable gets the value saved under its own key.

A `tf.train.Saver` runs the assignments of its variables and saveables in no fixed order. If a Saver
restores an opaque variable both directly and from the tensors of a saveable, two assignments
compete. The saveable knows neither the variable's key nor the ops of another device, so
`order_assignments` inspects the finished graph. It adds control edges between the assignments of
one variable: those of the saveables run first, and the direct one runs last. The edges are part of
the graph, so imported MetaGraphs and SavedModels keep them.
"""

import collections
import re

from cudnn_rnn._compat import tf
from cudnn_rnn.checkpoints import graph_walk, restore_ops
from cudnn_rnn.checkpoints.graph_walk import SAME_VALUES, source

ASSIGN_TYPES = ("Assign", "AssignVariableOp")

# Ops whose attribute `shape` is that of the variable. A placeholder has the shape of the handle.
_VARIABLE_TYPES = ("Variable", "VariableV2", "TemporaryVariable", "VarHandleOp")

_SCOPES = (restore_ops.SUMS_SCOPE, restore_ops.EXACT_SCOPE)  # in the order in which they run
REBUILT = re.compile(r"(?:.*/)?(%s)(?:_\d+)?/" % "|".join(_SCOPES))


def order_assignments(path):
    """Makes the value under a variable's own key win over values that saveables rebuild.

    Without such a value, values rebuilt from both biases win over those rebuilt from their sums,
    and among equals the later assignment wins.

    Args:
      path: the string tensor from which a Saver's ops take the path of the checkpoint.

    Raises:
      SaverRefusal: the value under a variable's own key cannot be identified, or the Saver has
        already fixed another order.
    """
    by_variable: dict = collections.OrderedDict()
    reached = graph_walk.reachable(path.consumers(), graph_walk.consumers).values()
    for operation in sorted(reached, key=lambda operation: operation._id):
        if operation.type in ASSIGN_TYPES:
            variable = source(operation.inputs[0]).name
            by_variable.setdefault(variable, []).append(operation)
    for variable, assignments in by_variable.items():
        rebuilt = [operation for operation in assignments if REBUILT.match(operation.name)]
        direct = [operation for operation in assignments if operation not in rebuilt]
        if rebuilt and direct:
            _require_one_own_value(variable, direct)
        if rebuilt:
            _chain(variable, sorted(rebuilt, key=_precedence) + direct)


def refuse_shared_keys(path):
    """Raises `SaverRefusal` if two saveables of this package in one Saver share a key."""
    keys = collections.Counter(
        entry.key for entry in restore_ops.read_from(path) if not entry.slice_spec
    )
    saveables = restore_ops.saveables_of_graph()
    for key in sorted(key for key, count in keys.items() if count > 1):
        owners = sorted(one.name for one in saveables if key in [spec.name for spec in one.specs])
        if len(owners) > 1:
            raise restore_ops.SaverRefusal(
                "The saveables %r and %r in one Saver would both write the key %r. Give each "
                "a scope of its own: to layers a tf.variable_scope in which they are built, to "
                "saveables base_variable_scope= or scope=, or other name scopes. Or use two Savers."
                % (owners[0], owners[1], key)
            )


def assigned_shape(tensor):
    """Returns the static shape that a tensor must have to be assigned to its variable.

    Returns:
      `(shape, any_shape)`: list of int, or None if unknown; and whether any shape with the same
      number of elements is accepted.
    """
    assignment, reshapes = _assignment_of_known_shape(tensor)
    return (None, True) if assignment is None else (_static_shape(assignment), reshapes)


def refuses_other_shapes(tensor):
    """Returns whether a tensor without the shape `assigned_shape` must be refused.

    It must if the variable is that of a saveable of this package, or if TensorFlow certainly
    refuses the tensor. A resource variable takes any shape. An `Assign` op compares with the shape
    that the variable has when the op runs, which another `Assign` op without `validate_shape` may
    have changed.
    """
    assignment, reshapes = _assignment_of_known_shape(tensor)
    if assignment is None:
        return False
    found = graph_walk.reachable([source(assignment.inputs[0])], _consumers_of_variable).values()
    if any(REBUILT.match(operation.name) for operation in found):
        return True
    return (assignment.type == "Assign" and not reshapes) and all(
        operation.get_attr("validate_shape") for operation in found if operation.type == "Assign"
    )


def _consumers_of_variable(operation):
    """Returns a list of the operations that take a variable, not its value, from this one."""
    outputs = operation.outputs
    variables = [each for each in outputs if each.dtype._is_ref_dtype or each.dtype == tf.resource]
    return [consumer for variable in variables for consumer in variable.consumers()]


def _assignment_of_known_shape(tensor):
    """Returns the operation that assigns a tensor, and whether the tensor is reshaped before.

    The operation is None if there is none, or if the variable's shape is unknown or not enforced.
    """
    waiting = [(consumer, False) for consumer in tensor.consumers()]
    while waiting:
        operation, reshapes = waiting.pop()
        if operation.type in SAME_VALUES:
            reshapes = reshapes or operation.type == "Reshape"
            waiting += [(consumer, reshapes) for consumer in operation.outputs[0].consumers()]
        elif operation.type in ASSIGN_TYPES and _static_shape(operation) is not None:
            return operation, reshapes
    return None, True


def _static_shape(assignment):
    """Returns the variable's shape as a list of int; None if it is unknown or not enforced."""
    if assignment.type == "Assign" and not assignment.get_attr("validate_shape"):
        return None
    variable = source(assignment.inputs[0])
    if variable.type not in _VARIABLE_TYPES:
        return None
    shape = tf.TensorShape(variable.get_attr("shape"))
    return shape.as_list() if shape.is_fully_defined() else None


def _precedence(assignment):
    scope = REBUILT.match(assignment.name).group(1)  # type: ignore[union-attr]
    return _SCOPES.index(scope), assignment._id


def _require_one_own_value(variable, direct):
    """Raises unless there is exactly one assignment, of an unchanged tensor of the checkpoint."""
    if len(direct) == 1 and source(direct[0].inputs[1]).type == "RestoreV2":
        return
    raise restore_ops.SaverRefusal(
        "This Saver restores the variable %s from a saveable of cudnn_rnn and also by %s, so the "
        "restored value is undefined; expected at most one other assignment, of a tensor read from "
        "the checkpoint. Use two Savers, or leave one of them out of var_list."
        % (variable, ", ".join("%s (%s)" % (one.name, one.type) for one in direct))
    )


def _chain(variable, assignments):
    """Makes each assignment wait for the one before it."""
    for earlier, later in zip(assignments, assignments[1:]):
        if later.name in graph_walk.reachable([earlier], graph_walk.dependencies):
            raise restore_ops.SaverRefusal(
                "This Saver's builder makes %s, which restores the variable %s, run before %s, "
                "which would overwrite the value. Leave out the arguments builder= and "
                "restore_sequentially= of tf.train.Saver, or use two Savers."
                % (later.name, variable, earlier.name)
            )
        later._add_control_inputs([earlier])
