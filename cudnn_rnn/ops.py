"""One function per op, and the gradients of the conversions of parameters.

The ops are TensorFlow's own; this project's library gives them kernels. The functions here take
checked arguments (see `models.py` for the checks) and build one node each, so that names of nodes,
and with them the checkpoint keys of early releases, come out as they always did.
"""

import contextlib

from cudnn_rnn import gpu
from cudnn_rnn._tf import (
    gen_cudnn_rnn_ops,
    kernel_label,
    register_gradient,
    registered_gradient,
    tf,
)
from cudnn_rnn.config import RnnConfig

_ATTRIBUTES = ("rnn_mode", "input_mode", "direction", "dropout", "seed", "seed2")


def _attributes_of(source):
    """Returns the attributes that all ops share, from an `RnnConfig` or from an operation."""
    if isinstance(source, RnnConfig):
        return {name: getattr(source, name) for name in _ATTRIBUTES}
    return {name: source.get_attr(name) for name in _ATTRIBUTES}


def _sizes_of(source):
    """Returns the sizes that all parameter ops take, from an `RnnConfig` or from such an op."""
    names = ("num_layers", "num_units", "input_size")
    if isinstance(source, RnnConfig):
        return {name: getattr(source, name) for name in names}
    return dict(zip(names, source.inputs))


# Forward ops; the gradients of nodes with a kernel label are registered with this suffix.
_FORWARD_OPS = ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")
_WITH_LABEL = "WithKernelLabel"
_OPS = _FORWARD_OPS + (
    "CudnnRNNBackprop",
    "CudnnRNNBackpropV2",
    "CudnnRNNBackpropV3",
    "CudnnRNNCanonicalToParams",
    "CudnnRNNCanonicalToParamsV2",
    "CudnnRNNParamsSize",
    "CudnnRNNParamsToCanonical",
    "CudnnRNNParamsToCanonicalV2",
)


def _labelled_kernels():
    """Returns a context in which the ops made get this package's kernels."""
    gradients = {op_type: op_type + _WITH_LABEL for op_type in _FORWARD_OPS}
    return kernel_label(gpu.KERNEL_LABEL, _OPS, gradients)


def _chosen_kernels():
    """Returns a context in which the ops made get the kernels that `gpu.py` says."""
    return _labelled_kernels() if gpu.labels_nodes() else contextlib.nullcontext()


def rnn(config, input_data, input_h, input_c, params, is_training):
    """Runs the RNN: op `CudnnRNN`.

    Args:
      config: an `RnnConfig`.
      input_data: `[time, batch, input_size]`.
      input_h: `[num_layers * num_directions, batch, num_units]`.
      input_c: like `input_h` for an LSTM, else an empty vector.
      params: `[params_size]`, the opaque buffer.
      is_training: a Python bool.

    Returns:
      `(output, output_h, output_c)`: `[time, batch, num_directions * num_units]` and twice the
      shape of `input_h`. Without an LSTM `output_c` means nothing.
    """
    with _chosen_kernels():
        output, output_h, output_c, _ = gen_cudnn_rnn_ops.cudnn_rnn(
            input=input_data,
            input_h=input_h,
            input_c=input_c,
            params=params,
            is_training=is_training,
            **_attributes_of(config),
        )
    return output, output_h, output_c


def params_to_canonical(source, params, num_params):
    """Takes the opaque buffer apart: op `CudnnRNNParamsToCanonical`.

    Args:
      source: an `RnnConfig`, or an operation that has its sizes as inputs and the rest as
        attributes.
      params: `[params_size]`, the opaque buffer.
      num_params: how many weights, and as many biases.

    Returns:
      Two lists of `num_params` tensors: weights `[num_units, width]` and biases `[num_units]`.
    """
    with _chosen_kernels():
        weights, biases = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical(
            params=params, num_params=num_params, **_sizes_of(source), **_attributes_of(source)
        )
    return list(weights), list(biases)


def canonical_to_params(source, weights, biases):
    """Puts the opaque buffer together: op `CudnnRNNCanonicalToParams`, the inverse of the above.

    The tensors may have any shape with the right number of elements, in row-major order.
    """
    with _chosen_kernels():
        return gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params(
            weights=weights, biases=biases, **_sizes_of(source), **_attributes_of(source)
        )


# Both conversions only move numbers, so each is the other's transpose, and so its gradient.


@register_gradient("CudnnRNNParamsToCanonical")
def _params_to_canonical_gradient(op, *gradients):
    gradients = [
        tf.zeros_like(output) if gradient is None else gradient
        for gradient, output in zip(gradients, op.outputs)
    ]
    num_params = op.get_attr("num_params")
    params_gradient = canonical_to_params(op, gradients[:num_params], gradients[num_params:])
    return [None, None, None, tf.reshape(params_gradient, tf.shape(op.inputs[3]))]


@register_gradient("CudnnRNNCanonicalToParams")
def _canonical_to_params_gradient(op, gradient):
    weights, biases = params_to_canonical(op, gradient, op.get_attr("num_params"))
    return [None, None, None] + [
        tf.reshape(part, tf.shape(canonical))
        for part, canonical in zip(weights + biases, op.inputs[3:])
    ]


@register_gradient("CudnnRNNBackprop")
def _second_order_gradient(op, *_):
    raise LookupError(
        "CudnnRNN has no second-order gradient: its gradient op %r cannot be differentiated "
        "itself. If a first-order gradient will do, put tf.stop_gradient around that one." % op.name
    )


def _register_gradient_with_label(forward_op):
    """Of a forward node with the kernel label: TensorFlow's gradient, its node labelled as well."""

    @register_gradient(forward_op + _WITH_LABEL)
    def gradient_with_label(op, *gradients):
        with _labelled_kernels():
            return registered_gradient(forward_op)(op, *gradients)


for _forward_op in _FORWARD_OPS:
    _register_gradient_with_label(_forward_op)
