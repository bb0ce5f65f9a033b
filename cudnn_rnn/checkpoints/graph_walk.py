"""Follows the edges of a graph."""

# Ops that keep every value of their first input.
SAME_VALUES = ("Identity", "RefIdentity", "Reshape", "EnsureShape", "Snapshot")


def source(tensor, op_types=SAME_VALUES):
    """Returns the operation behind a tensor, looking through ops of these types.

    Output number `n` of such an op has the values of its input number `n`.
    """
    while tensor.op.type in op_types:
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor.op


def reachable(operations, neighbors):
    """Returns a dict by name of the operations, and of all that `neighbors` leads to."""
    found, waiting = {}, list(operations)
    while waiting:
        operation = waiting.pop()
        if operation.name not in found:
            found[operation.name] = operation
            waiting += neighbors(operation)
    return found


def consumers(operation):
    """Returns a list of the operations that take an output of this one as an input."""
    return [consumer for output in operation.outputs for consumer in output.consumers()]


def dependencies(operation):
    """Returns a list of the operations that this one waits for."""
    return [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
