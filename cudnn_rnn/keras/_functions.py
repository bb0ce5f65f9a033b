"""Calls of TensorFlow's functions in a functional model, as Keras 2.4 to 2.15 stores them.

Keras 2 makes a layer of each call. A file names the function; only those listed here are called.
They compute tensors of tensors, and neither read nor write anything else.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Callable, Dict, List, Sequence, Tuple

import tensorflow

from cudnn_rnn._compat import IS_TENSORFLOW_1, tf
from cudnn_rnn.exchange import keras_configs
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.keras._fused_layer import register

keras = tensorflow.keras

# The classes of Keras 2 for these layers.
CLASSES = ("SlicingOpLambda", "TFOpLambda")
_ELLIPSIS = "__ellipsis__"
_BY_MODULE = {
    "": "broadcast_to cast clip_by_value concat expand_dims fill identity one_hot ones "
    "ones_like range rank repeat reshape reverse slice split stack stop_gradient strided_slice "
    "tensordot tile unstack where zeros zeros_like",
    "math.": "abs add add_n argmax argmin ceil cos cumsum divide_no_nan equal exp floor floormod "
    "greater greater_equal l2_normalize less less_equal log log1p logical_and "
    "logical_not logical_or maximum minimum multiply negative not_equal pow reciprocal reduce_all "
    "reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod reduce_std "
    "reduce_sum reduce_variance round rsqrt sigmoid sign sin softplus sqrt square "
    "squared_difference subtract tanh top_k truediv",
    "nn.": "elu gelu leaky_relu log_softmax relu relu6 selu silu softmax softsign",
    "linalg.": "band_part matmul",
    "compat.v1.": "floor_div gather norm ones_like pad shape size squeeze transpose zeros_like",
    "compat.v1.math.": "scalar_mul",
    "compat.v1.nn.": "softmax",
}


def _slice(tensor, slice_spec):
    return tensor[tuple(slice_spec) if isinstance(slice_spec, list) else slice_spec]


_WAY_OUT = "Build the model in the program, and load its weights with cudnn_rnn.keras.load_weights."
# Arguments for which TensorFlow allocates outputs before a model runs, and their limit.
_NUMBERS_OF_OUTPUTS = ("num", "num_or_size_splits")
_MOST_OUTPUTS = 2**12
_OPERATORS: Dict[str, Callable] = {
    "__operators__.add": tf.add,
    "__operators__.getitem": _slice,
}
# The functions that a file may name.
NAMES = {
    *_OPERATORS,
    *(module + name for module, names in _BY_MODULE.items() for name in names.split()),
}


def check(layer: Any, function: Any, arguments: Any) -> None:
    """Raises an `ExchangeError` unless a layer of a file may call a function with arguments.

    The arguments are in nested lists and dicts, those that the program passed by name in a dict.
    """
    if function not in NAMES:
        raise ExchangeError(
            "The layer %r calls %r of TensorFlow, which is not among the functions that a file may "
            "call. %s" % (layer, function, _WAY_OUT)
        )
    for named in keras_configs.dicts_in(arguments):
        for key in _NUMBERS_OF_OUTPUTS:
            if isinstance(named.get(key), int) and named[key] > _MOST_OUTPUTS:
                raise ExchangeError(
                    "The layer %r calls %r with %s=%d; expected at most %d outputs. %s"
                    % (layer, function, key, named[key], _MOST_OUTPUTS, _WAY_OUT)
                )


@register
class TensorFlowFunction(keras.layers.Layer):
    """A call of a function of TensorFlow with tensors of the model."""

    def __init__(self, function: str, arguments: str, **named: Any) -> None:
        """Creates the layer.

        Args:
          function: one of `NAMES`.
          arguments: a JSON list of the first argument and a dict of the named ones, in which
            `{"tensor": i}` is input number i.
          **named: of `keras.layers.Layer`.

        Raises:
          ExchangeError: the function is another one.
        """
        # Layers of TensorFlow 1 do not cast their inputs.
        super().__init__(**(named if IS_TENSORFLOW_1 else dict(named, autocast=False)))
        check(self.name, function, json.loads(arguments))
        self.function, self.arguments = function, arguments
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        """Calls the function."""
        inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        first, named = _with_tensors(json.loads(self.arguments), inputs)
        function = _OPERATORS.get(self.function)
        if function is None:
            function = functools.reduce(getattr, self.function.split("."), tensorflow)
        return function(first, **named)

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:
        """Returns None: as in Keras 2, the outputs have no mask."""

    def get_config(self) -> Dict[str, Any]:
        """Returns the arguments of the constructor."""
        return dict(super().get_config(), function=self.function, arguments=self.arguments)


def _with_tensors(value: Any, inputs: Sequence[Any]) -> Any:
    """Returns arguments with the inputs, and with the slices that Keras 2 stores as dicts."""
    if isinstance(value, list):
        return [_with_tensors(one, inputs) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"tensor"}:
        return inputs[value["tensor"]]
    if value.get("class_name") == _ELLIPSIS:
        return Ellipsis
    filled = {key: _with_tensors(one, inputs) for key, one in value.items()}
    return slice(*map(filled.get, ("start", "stop", "step"))) if "start" in value else filled


def with_ellipsis(nodes: Any) -> Any:
    """Returns calls in the form of Keras 2, which replaces the dict of an Ellipsis in its JSON."""
    if isinstance(nodes, dict):
        is_ellipsis = nodes.get("class_name") == _ELLIPSIS
        return Ellipsis if is_ellipsis else {key: with_ellipsis(nodes[key]) for key in nodes}
    return [with_ellipsis(one) for one in nodes] if isinstance(nodes, list) else nodes


def call_of(layer: str, config: Any, nodes: List[Any], calls: Any) -> Tuple[Dict[str, Any], Any]:
    """Returns the arguments of `TensorFlowFunction`, and the node of its only call, for Keras 3.

    Args:
      layer: the name of the layer.
      config: its configuration in a file of Keras 2.
      nodes: its calls there.
      calls: `_old_nodes.Calls` of the model.
    """
    if len(nodes) != 1:
        raise ExchangeError(
            "The layer %r has %d calls of the function %r; expected one. %s"
            % (layer, len(nodes), config["function"], _WAY_OUT)
        )
    arguments, tensors = calls.arguments(nodes[0])
    if not tensors:
        raise ExchangeError(
            "The layer %r calls the function %r, but takes no tensor of the model. %s"
            % (layer, config["function"], _WAY_OUT)
        )
    changed = {"name": layer, "function": config["function"], "arguments": json.dumps(arguments)}
    return changed, {"args": [tensors[0] if len(tensors) == 1 else tensors], "kwargs": {}}
