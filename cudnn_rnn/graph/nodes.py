"""One function per op, and the gradients of the parameter conversions.

The ops are TensorFlow's own; this project's library provides kernels for them. Each function takes
arguments that `calls.py` or `canonical.py` has checked, and builds one node. This preserves the
names of nodes, and with them the checkpoint keys of early releases.

Each op has several versions. The functions use the first version that supports the arguments, so
that graphs also run in a TensorFlow without the later ones. Sequence lengths, batch-major tensors
and a projection need a later version.
"""

import contextlib
import functools
import os

from cudnn_rnn._compat import (
    gen_cudnn_rnn_ops,
    is_compiled_by_xla,
    kernel_label,
    kernel_label_of,
    projection_of,
    register_gradient,
    tf,
)
from cudnn_rnn._native import gpu_choice, gpu_kernels
from cudnn_rnn.graph import kept_weights, kernel_labels, model_sizes, plain_rnn, precision

_ATTRIBUTES = ("rnn_mode", "input_mode", "direction", "dropout", "seed", "seed2")

# The environment variable of TensorFlow 1.10 to 1.15 that selects CudnnRNNV2 if it is "1". On a
# GPU, TensorFlow's own V2 kernel tries cuDNN's algorithms and picks the fastest.
_USE_V2_VARIABLE = "TF_CUDNN_RNN_USE_V2"


def _is_operation(source):
    return hasattr(source, "get_attr")


def _attributes_of(source):
    """Returns the attributes that all ops share, from a config or from an operation."""
    read = source.get_attr if _is_operation(source) else functools.partial(getattr, source)
    return {name: read(name) for name in _ATTRIBUTES}


def _sizes_of(source):
    """Returns the sizes that all parameter ops take, from a config or from a parameter op."""
    names = ("num_layers", "num_units", "input_size")
    if _is_operation(source):
        return dict(zip(names, source.inputs))
    return {name: getattr(source, name) for name in names}


def sizes_and_attributes_of(source):
    """Returns what all parameter ops take, from a config or from a parameter op."""
    return dict(_sizes_of(source), **_attributes_of(source))


def _projection_of(source):
    """Returns num_proj of a config or an operation."""
    return projection_of(source) if _is_operation(source) else source.num_proj


@contextlib.contextmanager
def _kernels_of_conversions(source):
    """Context for a conversion: its kernel label, and the CPU if TensorFlow's own kernels fail.

    The gradient of an operation gets the label of the operation, `source`.
    """
    label = kernel_label_of(source) if _is_operation(source) else ""
    labels = kernel_label(label, gpu_choice.CONVERSION_OPS) if label else kernel_labels.chosen()
    on_cpu = gpu_kernels.choice().avoids_defects
    with labels, tf.device("/cpu:0") if on_cpu else contextlib.nullcontext():
        yield


def device_of_specs():
    """Returns the device that the specs of a saveable name; None if each names its tensor's own.

    A Saver restores together what is on one device, so a saveable must be on its variable's. Where
    conversions are placed on the CPU (`avoids_defects`), their tensors do not tell that device; a
    new op in this scope does.
    """
    if tf.executing_eagerly() or not gpu_kernels.choice().avoids_defects:
        return None
    return tf.no_op().device


def rnn(
    config,
    input_data,
    input_h,
    input_c,
    params,
    is_training,
    sequence_lengths=None,
    time_major=True,
    name=None,
):
    """Runs the RNN with op `CudnnRNN`, or with `CudnnRNNV3` if the arguments need it.

    Args:
      config: an `RnnConfig`; its sizes and dtype may be None.
      input_data: `[time, batch, input_size]`.
      input_h: `[num_layers * num_directions, batch, num_units]`; with a projection, the last
        dimension is `num_proj`.
      input_c: `[num_layers * num_directions, batch, num_units]` for an LSTM, else an empty vector.
      params: `[params_size]`, the opaque buffer.
      is_training: a Python bool.
      sequence_lengths: `[batch]`, int32, each from 0 to `time`; None if every sequence has `time`
        steps.
      time_major: if False, the first two dimensions of `input_data`, the states and the results are
        swapped.
      name: name of the node, None for the default.

    Returns:
      `(output, output_h, output_c)`: `[time, batch, num_directions * num_units]` (`num_proj` with a
      projection), and the shapes of `input_h` and `input_c`. `output_c` is meaningful only for an
      LSTM.

    Raises:
      ValueError: `plain_ops` is active, and a size of the model is unknown.
      NotImplementedError: XLA compiles the function that is being built.
    """
    if plain_rnn.builds_plain_ops():
        values = (input_data, input_h, input_c, params)
        return plain_model(config, values, is_training, sequence_lengths, time_major, name)[0]
    if is_compiled_by_xla():
        raise NotImplementedError(
            "XLA cannot compile the op %s. Leave out jit_compile=True, or create the model in "
            "`with cudnn_rnn.plain_ops():`, which builds standard ops (docs/plain_graphs.md)."
            % ("CudnnRNNV3" if sequence_lengths is not None else "CudnnRNN")
        )
    tensors = dict(input=input_data, input_h=input_h, input_c=input_c, params=params)
    arguments = dict(tensors, is_training=is_training, name=name, **_attributes_of(config))
    needs_v3 = sequence_lengths is not None or not time_major or config.num_proj
    needs_v3 = needs_v3 or gpu_kernels.choice().avoids_defects
    needs_v3 = needs_v3 or kernel_labels.replaces_gradient(params.dtype, is_training)
    own_precision = config.float32_matmul_precision
    needs_v3 = needs_v3 or (own_precision is not None and tf.executing_eagerly())
    with kernel_labels.chosen():
        if needs_v3:
            if sequence_lengths is None:
                shape = tf.shape(input_data)
                time, batch = (shape[0], shape[1]) if time_major else (shape[1], shape[0])
                sequence_lengths = tf.fill([batch], time)
            if config.num_proj:  # TensorFlow 1.14 has no such attribute; the default is 0.
                arguments["num_proj"] = config.num_proj
            results = kernel_labels.cudnn_rnnv3(
                own_precision, sequence_lengths=sequence_lengths, time_major=time_major, **arguments
            )
        elif os.environ.get(_USE_V2_VARIABLE) == "1":
            results = gen_cudnn_rnn_ops.cudnn_rnnv2(**arguments)
        else:
            results = gen_cudnn_rnn_ops.cudnn_rnn(**arguments)
    if not needs_v3:
        precision.mark(results[0], own_precision)
    if not is_training:
        kept_weights.mark(results[0])
    return tuple(results)[:3]


def plain_model(config, tensors, is_training, sequence_lengths, time_major, name=None):
    """Runs the RNN in TensorFlow's standard ops.

    Args:
      config: as in `rnn`.
      tensors: input_data, input_h, input_c and params.
      is_training, sequence_lengths, time_major: as in `rnn`.
      name: name of the scope of the ops, None for the default.

    Returns:
      The outputs that `rnn` returns, and the dropout masks, None without dropout.
    """
    config = model_sizes.checked(model_sizes.with_sizes(config, tensors, time_major))
    with tf.name_scope(name or "CudnnRNN"):
        masks = plain_rnn.dropout_masks(config, tensors[0], time_major) if is_training else None
        return plain_rnn.rnn(config, tensors, sequence_lengths, time_major, masks), masks


def params_to_canonical(source, params, num_weights, num_biases=None, name=None):
    """Splits the opaque buffer: op `CudnnRNNParamsToCanonical`, or its V2 with a projection.

    Args:
      source: an `RnnConfig` or similar object, or an operation with the sizes as inputs and the
        rest as attributes.
      params: `[params_size]`, the opaque buffer.
      num_weights: number of weights.
      num_biases: number of biases, None for `num_weights`; differs only with a projection.
      name: name of the node, None for the default.

    Returns:
      `(weights, biases)`, two lists of tensors; `model/layout.py` describes them.
    """
    if plain_rnn.builds_plain_ops() and not _is_operation(source):
        with tf.name_scope(name or "CudnnRNNParamsToCanonical"):
            return plain_rnn.params_to_canonical(source, params)
    arguments = dict(sizes_and_attributes_of(source), params=params, name=name)
    num_proj = _projection_of(source)
    with _kernels_of_conversions(source):
        if num_proj:
            num_biases = num_weights if num_biases is None else num_biases
            arguments.update(num_params_biases=num_biases, num_proj=num_proj)
            weights, biases = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical_v2(
                num_params_weights=num_weights, **arguments
            )
        else:
            weights, biases = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical(
                num_params=num_weights, **arguments
            )
    return list(weights), list(biases)


def canonical_to_params(source, weights, biases, name=None):
    """Assembles the opaque buffer: op `CudnnRNNCanonicalToParams`, or its V2 with a projection.

    The inverse of `params_to_canonical`. The tensors may have any shape with the right number of
    elements, in row-major order.
    """
    if plain_rnn.builds_plain_ops() and not _is_operation(source):
        with tf.name_scope(name or "CudnnRNNCanonicalToParams"):
            return plain_rnn.canonical_to_params(weights, biases)
    arguments = dict(sizes_and_attributes_of(source), weights=weights, biases=biases, name=name)
    num_proj = _projection_of(source)
    with _kernels_of_conversions(source):
        if num_proj:
            arguments["num_proj"] = num_proj
            return gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params_v2(**arguments)
        return gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params(**arguments)


# Both conversions are permutations, each the inverse and thus the transpose of the other. So the
# gradient of each is the other conversion. Parameters that the model does not need have gradient 0.


@register_gradient("CudnnRNNParamsToCanonical")
@register_gradient("CudnnRNNParamsToCanonicalV2")
def _params_to_canonical_gradient(op, *gradients):
    known = [
        tf.zeros_like(output) if gradient is None else gradient
        for gradient, output in zip(gradients, op.outputs)
    ]
    num_weights = op.get_attr("num_params_weights" if op.type.endswith("V2") else "num_params")
    params_gradient = canonical_to_params(op, known[:num_weights], known[num_weights:])
    return [None, None, None, _like_params(params_gradient, op)]


def _like_params(gradient, op):
    """Returns the gradient of a conversion's params, given that of those that the model needs."""
    params = op.inputs[3]
    sizes = [output.shape.num_elements() for output in op.outputs]
    if None in sizes or sum(sizes) != params.shape.num_elements():
        gradient = tf.pad(gradient, [[0, tf.size(params) - tf.size(gradient)]])
    return tf.reshape(gradient, tf.shape(params))


@register_gradient("CudnnRNNCanonicalToParams")
@register_gradient("CudnnRNNCanonicalToParamsV2")
def _canonical_to_params_gradient(op, gradient):
    is_v2 = op.type.endswith("V2")
    counts = ("num_params_weights", "num_params_biases") if is_v2 else ("num_params",)
    weights, biases = params_to_canonical(op, gradient, *map(op.get_attr, counts))
    return [None, None, None] + [
        tf.reshape(part, tf.shape(canonical))
        for part, canonical in zip(weights + biases, op.inputs[3:])
    ]
