"""Converts between the opaque parameter buffer and its canonical tensors; checks the arguments."""

import numpy as np

from cudnn_rnn._compat import tf
from cudnn_rnn.graph import nodes
from cudnn_rnn.graph.arguments import as_tensors, checked_params
from cudnn_rnn.graph.config import dtype_of
from cudnn_rnn.graph.texts import shape_text
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import INT32_MAX


def static_params_size(config):
    """Returns the number of elements of the opaque buffer; `ValueError` above `INT32_MAX`."""
    params_size = layout.params_size(config)
    sizes = (config.num_layers, config.num_units, config.input_size)
    if params_size > INT32_MAX:
        raise ValueError(
            "An RNN with num_layers %d, num_units %d, input_size %d and rnn_mode %r has %d "
            "parameters, but the opaque buffer can hold at most %d."
            % (*sizes, config.rnn_mode, params_size, INT32_MAX)
        )
    return params_size


def params_size(config, name=None):
    """Returns the number of elements of the opaque buffer, a static scalar int32 tensor."""
    # Not the op CudnnRNNParamsSize: shape inference in Python does not know its value. The number
    # is the same, because the layout is always the dense one.
    return tf.constant(static_params_size(config), tf.int32, name=name or "params_size")


def params_to_canonical(config, dtype, params, name=None):
    """Splits the opaque buffer into its canonical tensors. Differentiable.

    Returns `(weights, biases)`, lists of tensors with the order and the shapes of
    `layout.canonical_weights(config)` and `layout.canonical_biases(config)`.

    Args:
      config: an `RnnConfig`.
      dtype: the required dtype of `params`; None for any. Another one raises `TypeError`.
      params: `[params_size]`, or another shape that `checked_params` accepts; fewer elements raise
        `ValueError`.
      name: name of the node, None for the default.
    """
    (params,) = as_tensors([("params", params)], dtype, dtype_of(config))
    params = checked_params(params, static_params_size(config))
    of_weights, of_biases = layout.canonical_weights(config), layout.canonical_biases(config)
    counts = len(of_weights), len(of_biases)
    weights, biases = nodes.params_to_canonical(config, params, counts[0], counts[1], name)
    for tensor, region in zip(weights + biases, of_weights + of_biases):
        tensor.set_shape(region.shape)
    return weights, biases


def slices_of_params(config, params, regions):
    """Returns the canonical tensors at these `layout.Region`s of the opaque buffer.

    The values are those of `params_to_canonical`, which copies the whole buffer. `params` and the
    errors are as there.
    """
    (params,) = as_tensors([("params", params)], None, dtype_of(config))
    params = checked_params(params, static_params_size(config))
    return [
        tf.reshape(params[region.offset : region.offset + region.size], region.shape)
        for region in regions
    ]


def canonical_to_params(config, dtype, weights, biases, name=None):
    """Assembles the opaque buffer; the inverse of `params_to_canonical`. Differentiable.

    A tensor may have any shape with the right number of elements, in row-major order. Raises
    `TypeError` for different or wrong dtypes, `ValueError` for a wrong length of a list or a wrong
    number of elements.
    """
    size = static_params_size(config)
    weights = _named(config, "weights", weights, layout.canonical_weights(config))
    biases = _named(config, "biases", biases, layout.canonical_biases(config))
    tensors = as_tensors(
        [(name, value) for name, value, _ in weights + biases], dtype, dtype_of(config)
    )
    for tensor, (name_of_tensor, _, shape) in zip(tensors, weights + biases):
        expected, found = int(np.prod(shape, dtype=np.int64)), tensor.shape.num_elements()
        if found not in (None, expected):
            raise ValueError(
                "%s must have %d elements (shape %s), but has %d (shape %s)."
                % (name_of_tensor, expected, shape_text(shape), found, shape_text(tensor.shape))
            )
    num_weights = len(weights)
    params = nodes.canonical_to_params(config, tensors[:num_weights], tensors[num_weights:], name)
    params.set_shape([size])
    return params


def _named(config, argument, values, regions):
    """Returns a list of (name for error messages, value, canonical shape)."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(
            "%s must be a list of %d tensors, but is a %s."
            % (argument, len(regions), type(values).__name__)
        )
    if len(values) != len(regions):
        sizes = (config.num_layers, config.num_directions)
        raise ValueError(
            "%s must be a list of %d tensors (num_layers %d * directions %d * %d), but has %d."
            % (argument, len(regions), *sizes, len(regions) // (sizes[0] * sizes[1]), len(values))
        )
    return [
        ("%s[%d] (%s)" % (argument, index, layout.region_name(config, region)), value, region.shape)
        for index, (value, region) in enumerate(zip(values, regions))
    ]


def chunks(values, size):
    """Splits `values` into lists of `size` consecutive values."""
    return [list(values[start : start + size]) for start in range(0, len(values), size)]
