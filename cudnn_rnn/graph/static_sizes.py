"""Evaluates sizes that a graph computes from static shapes, such as `tf.shape(inputs)[2]`.

TensorFlow's constant folding gives up if only some dimensions of a shape are known. This module
represents unknown dimensions as NaN, which propagates through arithmetic, so sizes that depend
only on known dimensions can be evaluated. Sizes are below 2**53, so float64 is exact.
"""

import numpy as np

from cudnn_rnn._compat import static_value


def static_size(tensor):
    """Returns the int value of a scalar integer tensor, None if it is known only at run time."""
    try:
        value = _values(tensor)
    except (_CannotEvaluateError, IndexError, ValueError):
        return None  # The last two errors: an index or axis is out of range.
    return int(value) if value.size == 1 and np.isfinite(value).all() else None


class _CannotEvaluateError(Exception):
    """The rank of a shape or an operand such as an axis is unknown, or an op is not supported."""


def _values(tensor):
    """Returns the elements of a tensor as a float64 array, with NaN for unknown elements."""
    known = static_value(tensor)
    if known is not None:
        return np.asarray(known, np.float64)
    evaluate = _EVALUATE.get(tensor.op.type)
    if evaluate is None:
        raise _CannotEvaluateError
    # NumPy may warn about the NaN of unknown operands.
    with np.errstate(all="ignore"):
        return np.asarray(evaluate(tensor), np.float64)


def _inputs(tensor):
    return [_values(value) for value in tensor.op.inputs]


def _integers(tensor):
    """Returns a constant operand, such as an axis or a begin, as an int or a list of int."""
    value = static_value(tensor)
    if value is None:
        raise _CannotEvaluateError
    return np.asarray(value).tolist()


def _shape(tensor):
    shape = tensor.op.inputs[0].shape
    if shape.rank is None:
        raise _CannotEvaluateError
    return [np.nan if size is None else size for size in shape.as_list()]


def _strided_slice(tensor):
    operation = tensor.op
    masks = {
        name: operation.get_attr(name + "_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if masks["ellipsis"] or masks["new_axis"]:
        raise _CannotEvaluateError
    places = []
    bounds = [_integers(bound) for bound in operation.inputs[1:]]
    for axis, (begin, end, stride) in enumerate(zip(*bounds)):
        is_set = {name: bool(mask & (1 << axis)) for name, mask in masks.items()}
        if is_set["shrink_axis"]:
            places.append(begin)
        else:
            begin = None if is_set["begin"] else begin
            places.append(slice(begin, None if is_set["end"] else end, stride))
    return _values(operation.inputs[0])[tuple(places)]


def _slice(tensor):
    values, begins, sizes = tensor.op.inputs
    places = [
        slice(begin, None if size == -1 else begin + size)
        for begin, size in zip(_integers(begins), _integers(sizes))
    ]
    return _values(values)[tuple(places)]


def _split(tensor):
    axis, values = tensor.op.inputs
    parts = np.split(_values(values), tensor.op.get_attr("num_split"), _integers(axis))
    return parts[tensor.value_index]


def _split_by_sizes(tensor):
    values, sizes, axis = tensor.op.inputs
    ends = np.cumsum(_integers(sizes))[:-1]
    return np.split(_values(values), ends, _integers(axis))[tensor.value_index]


def _concat(tensor):
    *parts, axis = tensor.op.inputs
    return np.concatenate([_values(part) for part in parts], _integers(axis))


def _gather(tensor):
    values, indices, axis = tensor.op.inputs
    return np.take(_values(values), _integers(indices), _integers(axis))


def _cast(tensor):
    (values,) = _inputs(tensor)
    return np.trunc(values) if tensor.dtype.is_integer else values


def _squeeze(tensor):
    (values,) = _inputs(tensor)
    return np.squeeze(values, tuple(tensor.op.get_attr("squeeze_dims")) or None)


def _second_is_constant(function):
    return lambda tensor: function(_values(tensor.op.inputs[0]), _integers(tensor.op.inputs[1]))


def _of_inputs(function):
    return lambda tensor: function(*_inputs(tensor))


# Evaluators by op type: functions of an output tensor of the op.
_EVALUATE = {
    "Add": _of_inputs(np.add),
    "AddV2": _of_inputs(np.add),
    "Cast": _cast,
    "ConcatV2": _concat,
    "ExpandDims": _second_is_constant(np.expand_dims),
    "FloorDiv": _of_inputs(np.floor_divide),
    "GatherV2": _gather,
    "Identity": _of_inputs(np.asarray),
    "Maximum": _of_inputs(np.maximum),
    "Minimum": _of_inputs(np.minimum),
    "Mul": _of_inputs(np.multiply),
    "Pack": lambda tensor: np.stack(_inputs(tensor), tensor.op.get_attr("axis")),
    "Prod": _second_is_constant(lambda values, axes: np.prod(values, axis=tuple(np.ravel(axes)))),
    "Reshape": _second_is_constant(np.reshape),
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "SplitV": _split_by_sizes,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Sub": _of_inputs(np.subtract),
    "Unpack": lambda tensor: np.take(
        _inputs(tensor)[0], tensor.value_index, tensor.op.get_attr("axis")
    ),
}
