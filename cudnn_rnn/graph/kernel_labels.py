"""Kernel labels, which select this package's kernels for a node on any device.

`gpu_choice.Choice.labels` has the ops whose nodes get the label if this package creates them, and
`labels_bfloat16` says whether training nodes in bfloat16 get it. The gradient node of a labelled
node gets the label as well, and that of a node with a device gets the device: only the same
provider's kernel on the same kind of device can read the reserve space.
"""

import contextlib
import functools

from cudnn_rnn._compat import (
    IS_TENSORFLOW_1,
    eager_context,
    gen_cudnn_rnn_ops,
    kernel_label,
    kernel_label_of,
    tf,
    wrap_gradient,
)
from cudnn_rnn._native import gpu_choice, gpu_kernels
from cudnn_rnn.graph import precision as precisions
from cudnn_rnn.model.spec import FORWARD_OPS

_V3_INPUTS = ("input", "input_h", "input_c", "params", "sequence_lengths")


def chosen():
    """Returns a context in which new nodes get the label if their op is in `Choice.labels`."""
    labels = gpu_kernels.choice().labels
    return kernel_label(gpu_kernels.KERNEL_LABEL, labels) if labels else contextlib.nullcontext()


def replaces_gradient(dtype, is_training):
    """Returns whether a node must be a `CudnnRNNV3` with the label.

    Without it, TensorFlow's own kernels would run the node, and they compute wrong gradients.
    """
    return gpu_kernels.choice().labels_bfloat16 and is_training and dtype == tf.bfloat16


def cudnn_rnnv3(precision=None, **arguments):
    """Runs the op `CudnnRNNV3` with the given inputs and attributes; returns its outputs.

    An op that is executed eagerly can have neither a label nor a precision. If one is chosen, the
    op runs in a function (in TensorFlow 2; eagerly executed ops of TensorFlow 1 run TensorFlow's
    own kernels).

    Raises:
      NotImplementedError: the model has a precision, and TensorFlow 1 executes the op eagerly.
    """
    has_label = "CudnnRNNV3" in gpu_kernels.choice().labels
    has_label = has_label or replaces_gradient(arguments["params"].dtype, arguments["is_training"])
    if not tf.executing_eagerly():
        return _v3_node(has_label, precision, arguments)
    if IS_TENSORFLOW_1 and precision is not None:
        raise NotImplementedError(
            "float32_matmul_precision is %r, but TensorFlow %s cannot execute a model of its own "
            "precision eagerly. Leave the argument out and call "
            "cudnn_rnn.set_float32_matmul_precision(%r), which is for all models."
            % (precision, tf.__version__, precision)
        )
    if IS_TENSORFLOW_1 or not (has_label or precision):
        return gen_cudnn_rnn_ops.cudnn_rnnv3(**arguments)
    tensors = [tf.convert_to_tensor(arguments.pop(name)) for name in _V3_INPUTS]
    specs = tuple((tuple(tensor.shape.as_list()), tensor.dtype) for tensor in tensors)
    # The node must have the device itself: its gradient's function is called in no device scope.
    device = eager_context().device_name
    function = _v3_function(specs, tuple(arguments.items()), device, has_label, precision)
    return function(*tensors) if arguments["is_training"] else _infer(function, tensors)


def _v3_node(has_label, precision, arguments):
    """Builds a node; returns its outputs."""
    labelled = ["CudnnRNNV3"] if has_label else []
    with kernel_label(gpu_kernels.KERNEL_LABEL, labelled):
        results = gen_cudnn_rnn_ops.cudnn_rnnv3(**arguments)
    precisions.mark(results[0], precision)
    return results


@functools.lru_cache(maxsize=256)
def _v3_function(specs, attributes, device, has_label, precision):
    """Returns a function of the inputs with one node; `specs` are shapes and dtypes.

    device: of the node; empty if TensorFlow may choose.
    """

    @tf.function(autograph=False)
    def cudnn_rnn_v3(*tensors):
        with tf.device(device):
            arguments = dict(zip(_V3_INPUTS, tensors), **dict(attributes))
            return tuple(_v3_node(has_label, precision, arguments))

    return cudnn_rnn_v3.get_concrete_function(*[tf.TensorSpec(*spec) for spec in specs])


def _infer(function, tensors):
    """Calls a function that has no gradient; like an op, raises only if the gradient is needed."""

    @tf.custom_gradient
    def infer(*tensors):
        def gradient(*upstream):
            raise ValueError(
                "is_training is False, so CudnnRNNV3 has no gradient. Pass is_training=True."
            )

        return function(*map(tf.stop_gradient, tensors)), gradient

    return infer(*tensors)


def _as_forward_node(gradient_function):
    """Wraps a gradient function so that its node gets the label and device of the forward node."""

    def gradient_of_node(op, *gradients):
        has_label = kernel_label_of(op) == gpu_kernels.KERNEL_LABEL
        labelled = gpu_choice.OPS if has_label else ()
        # A node has a device only if the program chose one; an eagerly executed op always has one.
        device = op.outputs[0].device
        same_device = tf.device(device) if device else contextlib.nullcontext()
        with same_device, kernel_label(gpu_kernels.KERNEL_LABEL, labelled):
            return gradient_function(op, *gradients)

    return gradient_of_node


for _forward_op in FORWARD_OPS:
    wrap_gradient(_forward_op, _as_forward_node)
