"""`CuDNNLSTM` and `CuDNNGRU`, the layers of Keras 2.0 to 2.3 and of `tf.keras` up to 2.15."""

from __future__ import annotations

from typing import Any, Dict

from cudnn_rnn.keras._fused_layer import IS_KERAS_3, register
from cudnn_rnn.model.keras_classes import ADDED_ARGUMENTS

if IS_KERAS_3:
    from cudnn_rnn.keras._keras3 import GRU, LSTM
else:
    from cudnn_rnn.keras._keras2 import GRU, LSTM

# Arguments of today's layers that cuDNN does not have, and what it computes.
_NOT_TAKEN: Dict[str, Any] = {"dropout": 0.0, "recurrent_dropout": 0.0}


class _OfCudnn:
    """Mixin: arguments of the base class that the old layers do not have."""

    _fixed: Dict[str, Any] = {}

    def _arguments(self, names):
        """Returns the arguments of the base class; `names` are those in a constructor."""
        named = names["named"]
        wrong = [name for name in named if name in self._fixed]
        if wrong:
            raise TypeError(
                "%s has no argument %r, because cuDNN always computes with %r. Use "
                "cudnn_rnn.keras.%s, whose weights are the same."
                % (type(self).__name__, wrong[0], self._fixed[wrong[0]], type(self).__name__[5:])
            )
        given = {name: names[name] for name in names if name not in ("self", "named", "__class__")}
        return dict(given, **named, **self._fixed)

    def get_config(self) -> Dict[str, Any]:
        """Returns the arguments of the constructor."""
        config = super().get_config()
        return {name: value for name, value in config.items() if name not in self._fixed}


@register
class CuDNNLSTM(_OfCudnn, LSTM):
    """`LSTM` with the arguments that Keras's `CuDNNLSTM` had; the weights are those of `LSTM`."""

    _fixed = dict(ADDED_ARGUMENTS["CuDNNLSTM"], **_NOT_TAKEN)

    def __init__(
        self,
        units: int,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        **named: Any,
    ) -> None:
        """Creates the layer.

        Args:
          units: int, the width of the output and of each state.
          **named: of `keras.layers.Layer`.
          All others as in `keras.layers.LSTM`.

        Raises:
          TypeError: an argument is one that layers of cuDNN do not have, such as an activation.
        """
        super().__init__(**self._arguments(dict(locals())))


@register
class CuDNNGRU(_OfCudnn, GRU):
    """`GRU` with the arguments that Keras's `CuDNNGRU` had; the weights are those of `GRU`.

    The reset gate acts after the matrix product (`reset_after=True`), as in cuDNN.
    """

    _fixed = dict(ADDED_ARGUMENTS["CuDNNGRU"], **_NOT_TAKEN)

    def __init__(
        self,
        units: int,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        **named: Any,
    ) -> None:
        """Creates the layer; the arguments are those of `CuDNNLSTM` but `unit_forget_bias`."""
        super().__init__(**self._arguments(dict(locals())))
