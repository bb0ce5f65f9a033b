"""Keras's weights as the opaque parameter buffer, whose layout `model/layout.py` describes.

Keras's weights of one layer and direction are `kernel`, `[input_size, gates * units]`,
`recurrent_kernel`, `[units, gates * units]`, and `bias`: `[gates * units]`, for a GRU `[2, gates *
units]` (input and recurrent bias), or None. The buffer has the transposed matrices, and a GRU's
gates in another order.

TensorFlow's own ops rearrange them, or, several times as fast, one node with a kernel of this
package: `CudnnRNNCanonicalToParams` with a kernel label, which takes Keras's tensors in place of
the canonical ones. Its gradient is `CudnnRNNParamsToCanonical` with the same label (`nodes.py`).
Only CPUs have these kernels, and only in processes that import this package. So a node is made only
for training, in a graph, and where no GPU is visible.
"""

from cudnn_rnn._compat import gen_cudnn_rnn_ops, kernel_label, kernel_label_of, tf
from cudnn_rnn._native import gpu_choice
from cudnn_rnn.graph import nodes, plain_rnn
from cudnn_rnn.model import dialects, layout

KERNEL_LABEL = "cudnn_rnn_keras"  # as in cc/tf/keras_params_kernels.cc


def keras_to_params(config, weights, is_training):
    """Returns the opaque buffer, `[params_size]`.

    An LSTM or simple RNN of Keras has one bias for each gate; it becomes the op's input bias, and
    the recurrent bias is 0.

    Args:
      config: an `RnnConfig`, without a projection or a skipped input.
      weights: for every layer and direction, `(kernel, recurrent_kernel, bias)`.
      is_training: False if gradients are unlikely to be needed.
    """
    matrices, biases = [], []
    for kernel, recurrent_kernel, bias in weights:
        matrices += [kernel, recurrent_kernel]
        biases += _input_and_recurrent_bias(config, kernel, bias)
    if is_training and _has_kernel(matrices[0].dtype):
        with kernel_label(KERNEL_LABEL, gpu_choice.CONVERSION_OPS):
            params = gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params(
                weights=matrices, biases=biases, **nodes.sizes_and_attributes_of(config)
            )
        params.set_shape([layout.params_size(config)])
        return params
    return with_standard_ops(config, matrices, biases)


def with_standard_ops(config, matrices, biases):
    """Returns the opaque buffer.

    Args:
      config: as in `keras_to_params`.
      matrices: for every layer and direction, kernel and recurrent kernel.
      biases: for every layer and direction, input and recurrent bias, each `[gates * units]`.
    """
    parts = [tf.transpose(matrix) for matrix in matrices] + list(biases)
    if config.rnn_mode in dialects.KERAS.gates:
        gates, units = dialects.KERAS.order_from(config.rnn_mode), config.num_units
        parts = [part[gate * units : (gate + 1) * units] for part in parts for gate in gates]
    return plain_rnn.canonical_to_params(parts, [])


def params_to_keras(config, params):
    """Returns lists of matrices and biases, like the arguments of `with_standard_ops`."""
    width = len(config.gates) * config.num_units
    matrices, biases = [], []
    for layer in range(config.num_layers):
        for rows in (config.input_weights_width(layer), config.num_units) * config.num_directions:
            matrices.append(tf.zeros([rows, width], params.dtype))
            biases.append(tf.zeros([width], params.dtype))
    # A permutation is the transpose, and so the gradient, of its inverse.
    together = with_standard_ops(config, matrices, biases)
    found = tf.gradients(together, matrices + biases, params)
    return found[: len(matrices)], found[len(matrices) :]


def _input_and_recurrent_bias(config, kernel, bias):
    if bias is None:
        bias = tf.zeros([len(config.gates) * config.num_units], kernel.dtype)
        return [bias, bias]
    if config.rnn_mode not in dialects.KERAS.keeps_sums:
        return [bias[0], bias[1]]
    return [bias, tf.zeros_like(bias)]


def _has_kernel(dtype):
    """Returns whether a node can rearrange tensors of this dtype where they are."""
    return (
        not tf.executing_eagerly()  # eagerly executed ops have no kernel labels
        and not plain_rnn.builds_plain_ops()
        and dtype in (tf.float32, tf.float64)
        and not tf.config.experimental.get_visible_devices("GPU")
    )


def has_label(op):
    """Returns whether a parameter op takes or returns Keras's tensors."""
    return kernel_label_of(op) == KERNEL_LABEL
