"""`RNNStack`: several recurrent layers in one op, as a layer of Keras 2 or 3."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

import tensorflow

from cudnn_rnn._compat import tf, without_autograph
from cudnn_rnn.graph import plain_rnn
from cudnn_rnn.graph.arguments import static_bool
from cudnn_rnn.graph.config import checked_seed, checked_size
from cudnn_rnn.graph.types import BoolLike, Initializer, ShapeLike, SizeLike, TensorLike
from cudnn_rnn.keras import _fused_call, _inputs
from cudnn_rnn.keras._dropout_seeds import DropoutSeeds
from cudnn_rnn.keras._fused_layer import (
    IS_KERAS_3,
    compute_dtype_of,
    register,
    with_precision,
)
from cudnn_rnn.model.spec import GATES, checked_dropout, checked_precision

keras = tensorflow.keras
_STATE_SHAPE = "[batch, num_layers * directions, units]"
_MODES = {"lstm": "lstm", "gru": "gru", "relu": "rnn_relu", "tanh": "rnn_tanh"}


@register
class RNNStack(keras.layers.Layer):
    """Several recurrent layers in one op, with dropout between them.

    The weights are those of Keras's layers, for every layer and direction: `kernel`, `[width, gates
    * units]`, `recurrent_kernel`, `[units, gates * units]`, and `bias`, `[gates * units]`, or
    `[2, gates * units]` for a GRU. The results are those of stacked Keras layers (`Bidirectional`
    ones with `merge_mode="concat"`), each but the last with `return_sequences=True`.

    A masked step leaves the states as they are, and its outputs are 0.
    """

    def __init__(
        self,
        cell: str = "lstm",
        num_layers: SizeLike = 1,
        units: Optional[SizeLike] = None,
        bidirectional: bool = False,
        dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        kernel_initializer: Union[str, Initializer] = "glorot_uniform",
        recurrent_initializer: Union[str, Initializer] = "orthogonal",
        bias_initializer: Union[str, Initializer] = "zeros",
        unit_forget_bias: bool = True,
        float32_matmul_precision: Optional[str] = None,
        seed: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """Creates the layer.

        Args:
          cell: "lstm", "gru", "relu" or "tanh".
          num_layers: int.
          units: int, the width of one direction's output and state.
          bidirectional: whether each layer runs in both directions.
          dropout: fraction of the outputs of every layer but the last that is dropped in training.
          return_sequences: whether to return the outputs of all steps, `[batch, time, directions *
            units]`. If not, the layer returns the last state h of the last layer, forward and
            backward concatenated, `[batch, directions * units]`.
          return_state: whether to return the final states, too: h and, for an LSTM, c, each
            `[batch, num_layers * directions, units]`.
          kernel_initializer, recurrent_initializer, bias_initializer: as in `keras.layers.LSTM`.
          unit_forget_bias: whether the forget gate's bias of an LSTM starts with 1.
          float32_matmul_precision: as in `cudnn_rnn.keras.LSTM`.
          seed: int, of the dropout; if None, each layer draws one when it is built.
          **kwargs: of `keras.layers.Layer`.

        Raises:
          TypeError: seed is no int.
          ValueError: an argument is out of range.
        """
        super().__init__(**kwargs)
        if cell not in _MODES:
            raise ValueError("cell must be one of %s, but is %r." % (sorted(_MODES), cell))
        self.cell = cell
        self.num_layers = checked_size("num_layers", num_layers)
        self.units = checked_size("units", units)
        self.bidirectional = bool(bidirectional)
        self.dropout = checked_dropout(dropout)
        self.return_sequences = bool(return_sequences)
        self.return_state = bool(return_state)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.unit_forget_bias = bool(unit_forget_bias)
        self.float32_matmul_precision = checked_precision(float32_matmul_precision)
        self.seed = checked_seed("seed", seed)
        self._seeds = DropoutSeeds(self.seed)
        self.supports_masking = True
        self.supports_jit = plain_rnn.builds_plain_ops()  # XLA cannot compile the op

    @property
    def _rnn_mode(self):
        return _MODES[self.cell]

    @property
    def _num_states(self):
        return 2 if self.cell == "lstm" else 1

    @property
    def _directions(self):
        return ["forward", "backward"] if self.bidirectional else ["forward"]

    def build(self, input_shape: ShapeLike) -> None:
        """Creates the weights for inputs `[batch, time, input_size]`."""
        gates = len(GATES[self._rnn_mode]) * self.units
        width = tf.TensorShape(input_shape).as_list()[-1]
        self._weights_by_layer = []
        for layer in range(self.num_layers):
            for direction in self._directions:
                self._weights_by_layer.append(
                    self._add_weights("%s_%d" % (direction, layer), width, gates)
                )
            width = len(self._directions) * self.units
        if self.dropout:
            self._seeds.draw()
        self.built = True

    def _add_weights(self, prefix, width, gates):
        """Returns kernel, recurrent kernel and bias of one layer and direction."""
        bias_shape = (2, gates) if self.cell == "gru" else (gates,)
        return [
            self.add_weight(name=prefix + "_" + name, shape=shape, initializer=initializer)
            for name, shape, initializer in (
                ("kernel", (width, gates), self.kernel_initializer),
                ("recurrent_kernel", (self.units, gates), self.recurrent_initializer),
                ("bias", bias_shape, self._initial_bias),
            )
        ]

    def _initial_bias(self, shape, dtype=None):
        bias = self.bias_initializer(shape, dtype=dtype)
        if self.cell != "lstm" or not self.unit_forget_bias:
            return bias
        parts = tf.split(tf.convert_to_tensor(bias), 4)
        return tf.concat([parts[0], tf.ones_like(parts[1]), parts[2], parts[3]], axis=0)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the layer as Keras does, after a check of the arguments that are tensors."""
        if arguments:
            _inputs.refuse_inputs(arguments[0], takes_lists=False, takes_ragged=False)
        states = arguments[1] if len(arguments) > 1 else named.get("initial_state")
        _inputs.refuse_other_keras(self, inputs=arguments[:1], initial_state=states)
        _inputs.refuse_states(states, self._num_states, _STATE_SHAPE)
        _inputs.refuse_mask(named.get("mask"))
        if IS_KERAS_3 and states is not None and len(arguments) == 1 and named.get("mask") is None:
            # Keras 3 passes masks by itself to calls with one tensor only, Keras 2 to all.
            named["mask"] = getattr(arguments[0], "_keras_mask", None)
        return super().__call__(*arguments, **named)

    def call(
        self,
        inputs: TensorLike,
        initial_state: Optional[Sequence[TensorLike]] = None,
        mask: Optional[TensorLike] = None,
        training: Optional[BoolLike] = None,
    ) -> Union[tf.Tensor, List[tf.Tensor]]:
        """Runs the stack.

        Args:
          inputs: `[batch, time, input_size]`.
          initial_state: None for zeros, or a list of h and, for an LSTM, c, each
            `[batch, num_layers * directions, units]`.
          mask: bool `[batch, time]`, or None.
          training: whether to drop outputs between the layers; None for no.
        """
        dtype = compute_dtype_of(self)
        shape = [None, None, int(self._weights_by_layer[0][0].shape[0])]
        inputs = _inputs.converted("inputs", inputs, dtype, shape, "[batch, time, input_size]")
        shape = [self.num_layers * len(self._directions), self.units]
        if initial_state is None:
            zeros = tf.zeros([tf.shape(inputs)[0]] + shape, dtype)
            initial_state = [zeros] * self._num_states
        states = [
            _inputs.converted(
                "initial_state[%d]" % index, state, dtype, [None] + shape, _STATE_SHAPE
            )
            for index, state in enumerate(initial_state)
        ]

        def run(is_training):  # AutoGraph ignores without_autograph inside a functools.partial.
            return self._run(inputs, states, mask, is_training)

        known = static_bool("training", False if training is None else training)
        if known is None and self.dropout:
            outputs, *states = tf.cond(training, lambda: run(True), lambda: run(False))
        else:
            outputs, *states = run(known)
        if not self.return_sequences:
            last = states[0][:, -len(self._directions) :]
            outputs = tf.reshape(last, [-1, len(self._directions) * self.units])
        return [outputs] + states if self.return_state else outputs

    @without_autograph  # TensorFlow 1's cannot convert the functions that this calls
    def _run(self, inputs, states, mask, training):
        """Returns a list of the outputs of all steps and the final states."""
        dtype, dropout = compute_dtype_of(self), self.dropout if training else 0.0
        seeds = self._seeds.of_next_node() if dropout else (0, 0)
        outputs, states, _ = _fused_call.run(
            _fused_call.config_of(
                self._rnn_mode,
                self._weights_by_layer[0][0].shape[0],
                self.units,
                dtype,
                self.float32_matmul_precision,
                self.num_layers,
                self.bidirectional,
                dropout,
                seeds,
            ),
            inputs,
            states,
            [
                [tf.cast(tf.convert_to_tensor(weight), dtype) for weight in weights]
                for weights in self._weights_by_layer
            ],
            mask,
            zero_output_for_mask=True,
            training=training,
        )
        return [outputs] + states

    def compute_output_shape(self, inputs_shape: Any, initial_state_shape: Any = None) -> Any:
        """Returns the shape of the outputs, or a list of those of the outputs and the states."""
        batch, time = list(inputs_shape)[:2]
        directions = len(self._directions)
        steps = [time] if self.return_sequences else []
        shapes = [(batch, *steps, directions * self.units)]
        if self.return_state:
            shapes += [(batch, self.num_layers * directions, self.units)] * self._num_states
        if not IS_KERAS_3:
            shapes = [tf.TensorShape(shape) for shape in shapes]
        return shapes if self.return_state else shapes[0]

    def compute_mask(
        self, inputs: TensorLike, mask: Optional[TensorLike] = None
    ) -> Union[None, tf.Tensor, List[Optional[tf.Tensor]]]:
        """Returns the mask of the outputs; states have none."""
        output_mask = mask if self.return_sequences else None
        if not self.return_state:
            return output_mask
        return [output_mask] + [None] * self._num_states

    def get_config(self) -> Dict[str, Any]:
        """Returns the arguments of the constructor."""
        names = "cell num_layers units bidirectional dropout return_sequences return_state"
        config = {name: getattr(self, name) for name in names.split()}
        for name in ("kernel_initializer", "recurrent_initializer", "bias_initializer"):
            config[name] = keras.initializers.serialize(getattr(self, name))
        config.update(unit_forget_bias=self.unit_forget_bias, seed=self.seed)
        return with_precision(dict(super().get_config(), **config), self)
