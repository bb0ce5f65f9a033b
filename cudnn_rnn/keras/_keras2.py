"""The layers for Keras 2: tf_keras, and tf.keras up to TensorFlow 2.15."""

from __future__ import annotations

import warnings
from typing import Any, Dict, List, Optional, Sequence, Union

import tensorflow

from cudnn_rnn._compat import IS_TENSORFLOW_1, tf
from cudnn_rnn.graph.types import BoolLike, TensorLike
from cudnn_rnn.keras._fused_layer import FusedLayer, GruMode, LstmMode, SimpleMode, register

keras = tensorflow.keras

# What the attribute of Keras's layers is called in TensorFlow 2.3 and newer, and before.
_COMPUTE_WITHOUT_CELL = ("_could_use_gpu_kernel", "could_use_cudnn")


class _Layer(FusedLayer):
    _activations = keras.activations

    def get_prunable_weights(self) -> List[Any]:
        """Returns what the package tensorflow-model-optimization prunes of Keras's own layers."""
        return [self.cell.kernel, self.cell.recurrent_kernel]

    def build(self, input_shape: Any) -> None:
        """Creates the weights; files keep one shape, or those of inputs and states, as lists."""
        if isinstance(input_shape, (list, tuple)):
            is_one = all(size is None or isinstance(size, int) for size in input_shape)
            input_shape = tf.TensorShape(input_shape) if is_one else input_shape
        super().build(input_shape)

    def call(
        self,
        inputs: TensorLike,
        mask: Optional[TensorLike] = None,
        training: Optional[BoolLike] = None,
        initial_state: Optional[Sequence[TensorLike]] = None,
    ) -> Union[tf.Tensor, List[tf.Tensor]]:
        """Computes with the op, or as Keras does where the op cannot."""
        ragged = "a RaggedTensor" if isinstance(inputs, tf.RaggedTensor) else None
        if not self._computes_with_op(ragged):
            # AutoGraph of TensorFlow 1.14 cannot convert `super()`.
            compute = super(_Layer, self).call  # noqa: UP008
            return compute(inputs, mask=mask, training=training, initial_state=initial_state)
        inputs, states, _ = self._process_inputs(inputs, initial_state, None)
        if isinstance(mask, (list, tuple)):
            mask = mask[0]
        if self.time_major:
            inputs = tf.transpose(inputs, [1, 0, 2])
            mask = None if mask is None else tf.transpose(mask)
        cell = self.cell
        last_output, outputs, states = self._run(
            self._dropped_out(inputs, training),
            states,
            [cell.kernel, cell.recurrent_kernel, self._bias()],
            mask,
            training,
        )
        if self.stateful:
            self.add_update(
                [tf.assign(old, tf.cast(new, old.dtype)) for old, new in zip(self.states, states)]
            )
        output = last_output
        if self.return_sequences:
            output = tf.transpose(outputs, [1, 0, 2]) if self.time_major else outputs
        return [output] + list(states) if self.return_state else output

    def _bias(self):
        return self.cell.bias if self.use_bias else None

    def _dropped_out(self, inputs, training):
        """Returns the inputs `[batch, time, input_size]` after dropout.

        One pattern for all steps of a sequence, as in Keras's cells. Where Keras's LSTM or GRU
        computes without its cell, each step has its own.
        """
        self.cell.reset_dropout_mask()
        without_cell = any(getattr(self, name, False) for name in _COMPUTE_WITHOUT_CELL)
        dropped = inputs if without_cell else inputs[:, :1]
        pattern = self.cell.get_dropout_mask_for_cell(dropped, training, count=1)
        return inputs if pattern is None else inputs * pattern


class _Default(str):
    """The default value of an argument, which a program that gives the same value did not take."""


class _GatedLayer(_Layer):
    _defaults: Dict[str, Any] = {}
    _other_defaults = ""

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = _Default("sigmoid"),  # noqa: B008
        *arguments: Any,
        **named: Any,
    ) -> None:
        """Creates the layer; the defaults are those of TensorFlow 2 in TensorFlow 1, too.

        In TensorFlow 1, the constructor warns if `recurrent_activation` is not given, because the
        default of Keras's layer differs.
        """
        if IS_TENSORFLOW_1 and isinstance(recurrent_activation, _Default):
            warnings.warn(
                "The default of recurrent_activation is sigmoid in cudnn_rnn.keras.%s%s, but "
                "hard_sigmoid in tf.keras.layers of TensorFlow %s: the same weights give other "
                "results. Give recurrent_activation: 'sigmoid' for new models, 'hard_sigmoid', "
                "which Keras computes, for weights of such a layer."
                % (type(self).__name__, self._other_defaults, tf.__version__),
                stacklevel=2,
            )
        arguments = (units, activation, recurrent_activation, *arguments)
        super().__init__(*arguments, **dict(self._defaults, **named))


@register
class LSTM(LstmMode, _GatedLayer, keras.layers.LSTM):
    """`keras.layers.LSTM` on the fused op: the same arguments, weights and results."""


@register
class GRU(GruMode, _GatedLayer, keras.layers.GRU):
    """`keras.layers.GRU` on the fused op: the same arguments, weights and results."""

    _defaults = {"reset_after": True}
    _other_defaults = " (and that of reset_after is True, not False)"


@register
class SimpleRNN(SimpleMode, _Layer, keras.layers.SimpleRNN):
    """`keras.layers.SimpleRNN` on the fused op: the same arguments, weights and results."""
