"""The computation of a `CudnnRNN*` operation in standard ops."""

import re
from typing import Any

from cudnn_rnn._compat import projection_of, static_value, tf
from cudnn_rnn.graph import keras_params, model_sizes, nodes, plain_rnn
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import CUDNN_LSTM, RnnConfig

_SIZES = ("num_layers", "num_units", "input_size")

GRADIENT_OPS = "CudnnRNNBackprop"  # the beginning of their names

# The control flow of TensorFlow 1 whose output is its first input.
_UNCHANGED = ("Identity", "Enter", "RefEnter", "Exit", "RefExit", "Switch", "RefSwitch")


def computation_of(op):
    """Returns a function from a list of the op's inputs to a list of all its outputs.

    The reserve space of an RNN with dropout holds the masks that its gradient needs; it and
    `host_reserved` are empty otherwise.

    Args:
      op: an operation of a graph with static shapes.

    Raises:
      ValueError: a size of the model is unknown.
    """
    computations = {
        GRADIENT_OPS: _gradient,
        "CudnnRNNParamsSize": _params_size,
        "CudnnRNNParamsToCanonical": _params_to_canonical,
        "CudnnRNNCanonicalToParams": _canonical_to_params,
    }
    return computations.get(re.sub(r"V\d$", "", op.type), _forward)(op)


def _forward(op):
    model = _Model(op)
    num_outputs = len(op.outputs)

    def compute(inputs):
        results, masks = nodes.plain_model(
            model.config,
            inputs[:4],
            op.get_attr("is_training"),
            model.lengths(inputs),
            model.time_major,
        )
        reserved = tf.zeros([0], model.config.dtype) if masks is None else masks
        return [*results, reserved, tf.zeros([0], tf.int8)][:num_outputs]

    return compute


def _gradient(op):
    model = _Model(op)
    is_lstm = model.config.rnn_mode == CUDNN_LSTM
    names = [argument.name for argument in op.op_def.input_arg]

    def compute(inputs):
        by_name = dict(zip(names, inputs))
        masks: Any = None
        if model.config.dropout and model.config.num_layers > 1:
            masks = by_name["reserve_space"]
            masks.set_shape([model.config.num_layers - 1, None, None, None])
        results = plain_rnn.rnn(
            model.config, inputs[:4], model.lengths(inputs), model.time_major, masks
        )
        outputs = ["output", "output_h", "output_c"][: 3 if is_lstm else 2]
        sources = inputs[:4] if is_lstm else [*inputs[:2], inputs[3]]
        found = tf.gradients(
            list(results[: len(outputs)]),
            list(sources),
            [by_name[name + "_backprop"] for name in outputs],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return found if is_lstm else [*found[:2], tf.zeros_like(inputs[2]), found[2]]

    return compute


class _Model:
    """The model of a forward or gradient op."""

    def __init__(self, op):
        config, self.time_major = model_sizes.model_of_operation(op)
        if op.type.startswith(GRADIENT_OPS):
            config = _with_sizes_of_forward_op(config, op)
        self.config = model_sizes.checked(config)
        self._has_lengths = op.type.endswith("V3")

    def lengths(self, inputs):
        return inputs[4] if self._has_lengths else None


def _with_sizes_of_forward_op(config, op):
    """Returns the config of a gradient op, with sizes of its forward op where its own are unknown.

    In a loop of TensorFlow 1, the gradient op reads tensors from stacks, without static shapes.
    """
    names = [argument.name for argument in op.op_def.input_arg]
    forward = _origin(op.inputs[names.index("output")]).op
    if forward.type != op.type.replace("Backprop", ""):
        return config
    found, _ = model_sizes.model_of_operation(forward)
    return config._replace(
        **{name: getattr(config, name) or getattr(found, name) for name in _SIZES}
    )


def _origin(tensor):
    """Follows a tensor back through the control flow of TensorFlow 1; returns where it starts."""
    passed = set()
    while tensor.op not in passed:
        op = tensor.op
        passed.add(op)
        if op.type.startswith("StackPop"):
            pushed = [
                push.inputs[1]
                for push in op.graph.get_operations()
                if push.type.startswith("StackPush") and _stack_of(push) is _stack_of(op)
            ]
            tensor = pushed[0] if len(pushed) == 1 else tensor
        elif op.type in _UNCHANGED:
            tensor = op.inputs[0]
    return tensor


def _stack_of(op):
    """Returns the op that made the stack of a StackPush or StackPop."""
    handle = op.inputs[0].op
    while handle.type in _UNCHANGED:
        handle = handle.inputs[0].op
    return handle


def _config_of_params_op(op):
    """Returns the `RnnConfig` of an op that has the sizes as inputs."""
    sizes = {}
    for name, tensor in zip(_SIZES, op.inputs):
        sizes[name] = static_value(tensor)
        if sizes[name] is None:
            raise ValueError(
                "the input %s is %s; expected a constant. Pass an int when the graph is made."
                % (name, tensor.name)
            )
        sizes[name] = int(sizes[name])
    modes = {
        name: tf.compat.as_str(op.get_attr(name))
        for name in ("rnn_mode", "input_mode", "direction")
    }
    others = dict(dropout=0.0, seed=0, seed2=0, num_proj=projection_of(op))
    return RnnConfig(**sizes, **modes, **others, dtype=tf.as_dtype(op.get_attr("T")).name)


def _params_size(op):
    config = _config_of_params_op(op)
    return lambda inputs: [tf.constant([layout.params_size(config)], tf.as_dtype(op.get_attr("S")))]


def _params_to_canonical(op):
    config = _config_of_params_op(op)

    split = (
        keras_params.params_to_keras
        if keras_params.has_label(op)
        else plain_rnn.params_to_canonical
    )

    def compute(inputs):
        weights, biases = split(config, inputs[3])
        return weights + biases

    return compute


def _canonical_to_params(op):
    if not keras_params.has_label(op):
        return lambda inputs: [plain_rnn.canonical_to_params(inputs[3:], [])]
    config, end = _config_of_params_op(op), 3 + op.get_attr("num_params")
    return lambda inputs: [
        keras_params.with_standard_ops(config, inputs[3:end], inputs[end:]),
    ]
