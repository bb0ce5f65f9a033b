"""The layers for Keras 3 with its TensorFlow backend.

Each derives from Keras's layer of the same name and replaces only the loop over time steps.
"""

import warnings

import keras
from keras import activations
from keras import layers as keras_layers

from cudnn_rnn._compat import tf
from cudnn_rnn._core.config import DTYPES
from cudnn_rnn.keras import _fused

_PACKAGE = "cudnn_rnn"


class _FusedLayer:
    """The loop over time steps by one op, where that computes what Keras's cell does."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "cudnn_rnn.keras needs Keras's TensorFlow backend, but the backend is %r. Set the "
                "environment variable KERAS_BACKEND=tensorflow before Keras is imported."
                % keras.backend.backend()
            )
        self._has_warned = False
        if self._unsupported() is None:
            self.supports_jit = False  # XLA cannot compile the op

    def _rnn_mode(self):
        raise NotImplementedError

    def _unsupported(self):
        """Returns what the op cannot do for this layer, as text, or None."""
        if getattr(self, "use_cudnn", "auto") is False:
            return "use_cudnn=False"
        if self.recurrent_dropout:
            return "recurrent_dropout=%s" % self.recurrent_dropout
        if self.unroll:
            return "unroll=True"
        if self._rnn_mode() is None:
            return self._activations_text()
        if self.compute_dtype not in [dtype.name for dtype in DTYPES]:
            return "dtype %s" % self.compute_dtype
        return None

    def _activations_text(self):
        names = [
            "%s=%r" % (name, activations.serialize(getattr(self, name)))
            for name in ("activation", "recurrent_activation")
            if hasattr(self, name)
        ]
        return " and ".join(names)

    def inner_loop(self, sequences, initial_state, mask, training=False):
        reason = self._unsupported()
        if reason is not None:
            self._warn(reason)
            return super().inner_loop(sequences, initial_state, mask=mask, training=training)
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        sequences = tf.cast(sequences, self.compute_dtype)
        if training and self.dropout:
            # One pattern for all steps of a sequence, as in Keras.
            sequences = sequences * self.cell.get_dropout_mask(sequences[:, 0, :])[:, None]
        weights = [self.cell.kernel, self.cell.recurrent_kernel, self.cell.bias]
        kernel, recurrent_kernel, bias = [
            None if weight is None else tf.cast(tf.convert_to_tensor(weight), self.compute_dtype)
            for weight in weights
        ]
        rnn_mode = self._rnn_mode()
        last_output, outputs, states = _fused.run(
            rnn_mode,
            sequences,
            list(initial_state) if isinstance(initial_state, (list, tuple)) else [initial_state],
            _fused.opaque_params(rnn_mode, kernel, recurrent_kernel, bias),
            mask,
            self.go_backwards,
            self.zero_output_for_mask,
        )
        return last_output, outputs, states

    def _warn(self, reason):
        if reason == "use_cudnn=False" or self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            "%s: the fused op does not support %s, so this layer computes as Keras's own does, "
            "which is slower. The weights are the same." % (self.name, reason),
            stacklevel=2,
        )


def _is(activation, *names):
    return activation in [getattr(activations, name) for name in names]


def _has_lstm_activations(layer):
    return _is(layer.activation, "tanh") and _is(layer.recurrent_activation, "sigmoid")


@keras.saving.register_keras_serializable(_PACKAGE)
class LSTM(_FusedLayer, keras_layers.LSTM):
    """`keras.layers.LSTM` on the fused op: the same arguments, weights and results."""

    def _rnn_mode(self):
        return "lstm" if _has_lstm_activations(self) else None


@keras.saving.register_keras_serializable(_PACKAGE)
class GRU(_FusedLayer, keras_layers.GRU):
    """`keras.layers.GRU` on the fused op: the same arguments, weights and results.

    The op multiplies by the reset gate after the matrix product, so `reset_after=False` computes
    as in Keras.
    """

    def _rnn_mode(self):
        return "gru" if _has_lstm_activations(self) else None

    def _unsupported(self):
        return "reset_after=False" if not self.reset_after else super()._unsupported()


@keras.saving.register_keras_serializable(_PACKAGE)
class SimpleRNN(_FusedLayer, keras_layers.SimpleRNN):
    """`keras.layers.SimpleRNN` on the fused op: the same arguments, weights and results."""

    def _rnn_mode(self):
        for name in ("tanh", "relu"):
            if _is(self.activation, name):
                return "rnn_" + name
        return None
