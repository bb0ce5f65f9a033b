"""The layers for Keras 3. Each replaces only the loop over time steps of Keras's layer."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import keras
from keras import layers as keras_layers

from cudnn_rnn._compat import tf
from cudnn_rnn.graph import plain_rnn
from cudnn_rnn.graph.types import TensorLike
from cudnn_rnn.keras._fused_layer import FusedLayer, GruMode, LstmMode, SimpleMode, register

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "cudnn_rnn.keras needs Keras's TensorFlow backend, but the backend is %r. Set the "
        "environment variable KERAS_BACKEND=tensorflow before Keras is imported."
        % keras.backend.backend()
    )


class _Layer(FusedLayer):
    _activations = keras.activations

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        computes_with_op = self._wanted and self._unsupported() is None
        if computes_with_op and not plain_rnn.builds_plain_ops():
            self.supports_jit = False  # XLA cannot compile the op

    @property
    def _wanted(self):
        return getattr(self, "use_cudnn", "auto")  # a SimpleRNN has no such argument

    def get_config(self) -> Dict[str, Any]:
        """Returns the arguments of the constructor, with `use_cudnn`, which Keras leaves out."""
        config = super().get_config()
        # Not the default, so that most configs are Keras's.
        return config if self._wanted == "auto" else dict(config, use_cudnn=self._wanted)

    def inner_loop(
        self,
        sequences: tf.Tensor,
        initial_state: Union[TensorLike, Sequence[TensorLike]],
        mask: Optional[TensorLike],
        training: Optional[bool] = False,
    ) -> Tuple[tf.Tensor, tf.Tensor, List[tf.Tensor]]:
        """Computes with the op, or as Keras does where the op cannot."""
        if self._wanted is True and self._unsupported():
            raise ValueError(
                "%s: use_cudnn is True, but the fused op does not support %s. Pass "
                "use_cudnn='auto' to compute as Keras's own layer does."
                % (self.name, self._unsupported())
            )
        if not self._wanted or not self._computes_with_op():
            return super().inner_loop(sequences, initial_state, mask=mask, training=training)
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        if training and self.dropout:
            # One pattern for all steps of a sequence, as in Keras.
            sequences = sequences * self.cell.get_dropout_mask(sequences[:, 0, :])[:, None]
        weights = [self.cell.kernel, self.cell.recurrent_kernel, self.cell.bias]
        weights = [weight if weight is None else tf.convert_to_tensor(weight) for weight in weights]
        if not isinstance(initial_state, (list, tuple)):
            initial_state = [initial_state]
        return self._run(sequences, initial_state, weights, mask, training)


@register
class LSTM(LstmMode, _Layer, keras_layers.LSTM):
    """`keras.layers.LSTM` on the fused op: the same arguments, weights and results."""


@register
class GRU(GruMode, _Layer, keras_layers.GRU):
    """`keras.layers.GRU` on the fused op: the same arguments, weights and results."""


@register
class SimpleRNN(SimpleMode, _Layer, keras_layers.SimpleRNN):
    """`keras.layers.SimpleRNN` on the fused op: the same arguments, weights and results."""
