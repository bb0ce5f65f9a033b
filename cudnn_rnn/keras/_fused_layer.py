"""What the layers for Keras 2 and 3 share: which layers the op can compute, and how."""

import warnings
from typing import Any, Dict, Optional

import tensorflow

from cudnn_rnn._compat import tf, without_autograph
from cudnn_rnn.graph.config import DTYPES
from cudnn_rnn.keras import _fused_call, _inputs, _old_arguments
from cudnn_rnn.model.spec import checked_precision

IS_KERAS_3 = hasattr(tensorflow.keras.layers.RNN, "inner_loop")
_PACKAGE = "cudnn_rnn"
# Begins the names under which Keras's registry has classes and functions of this package.
OUR_PREFIX = _PACKAGE + ">"


def register(decorated):
    """Decorator: registers a class or function, to load models. TensorFlow 1 has no registry."""
    utilities = getattr(tensorflow.keras, "saving", tensorflow.keras.utils)
    decorator = getattr(utilities, "register_keras_serializable", None)
    return decorator(_PACKAGE)(decorated) if decorator else decorated


def registered(name: Any, custom_objects: Dict[str, Any]) -> Any:
    """Returns the class or function that the program has under a name, or None."""
    if not isinstance(name, str):
        return None
    utilities = tensorflow.keras.utils
    if not hasattr(utilities, "get_registered_object"):  # TensorFlow 1
        return custom_objects.get(name) or utilities.get_custom_objects().get(name)
    return utilities.get_registered_object(name, custom_objects)


@register
def hard_sigmoid_of_keras_2(inputs):
    """The activation that Keras 2 calls hard_sigmoid; that of Keras 3 has the slope 1/6."""
    return tf.clip_by_value(0.2 * inputs + 0.5, 0.0, 1.0)


OLD_HARD_SIGMOID = OUR_PREFIX + hard_sigmoid_of_keras_2.__name__


def compute_dtype_of(layer):
    """Returns the name of the dtype that a Keras layer computes in."""
    # Up to TensorFlow 2.3, the attribute is private; `dtype` is that of the variables. In
    # TensorFlow 1, both are None before the layer is built.
    names = ("compute_dtype", "_compute_dtype", "dtype")
    found = (getattr(layer, name, None) for name in names)
    return tf.as_dtype(next(filter(None, found), "float32")).name


def with_precision(config: Dict[str, Any], layer: Any) -> Dict[str, Any]:
    """Adds a layer's own precision, if it has one, so that most configurations are Keras's."""
    precision = layer.float32_matmul_precision
    return config if precision is None else dict(config, float32_matmul_precision=precision)


class FusedLayer:
    """Mixin for a recurrent layer of Keras that computes with the op where it can.

    A class derives from this, then from Keras's layer, and has `_activations`, Keras's module
    `activations`.
    """

    _activations = None
    _has_warned = False

    def __init__(
        self, *arguments: Any, float32_matmul_precision: Optional[str] = None, **named: Any
    ) -> None:
        """Creates the layer.

        Args:
          arguments, named: those of Keras's layer.
          float32_matmul_precision: "highest", "high" or "medium", the precision of this layer's
            matrix products in float32; None for that of the process
            (`cudnn_rnn.set_float32_matmul_precision`).
        """
        super().__init__(*arguments, **named)
        self.float32_matmul_precision = checked_precision(float32_matmul_precision)

    def get_config(self) -> Dict[str, Any]:
        """Returns the arguments of the constructor."""
        return with_precision(super().get_config(), self)

    @classmethod
    def from_config(cls, config: Dict[str, Any]) -> Any:
        """Makes the layer of a configuration that this or an older Keras wrote."""
        return super().from_config(_old_arguments.of_today(config))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the layer as Keras does, after a check of the arguments that are tensors."""
        if arguments:
            takes = not IS_KERAS_3
            _inputs.refuse_inputs(arguments[0], takes_lists=takes, takes_ragged=takes)
        states = arguments[1] if len(arguments) > 1 else named.get("initial_state")
        _inputs.refuse_other_keras(self, inputs=arguments[:1], initial_state=states)
        sizes = self.cell.state_size
        num_states = len(sizes) if isinstance(sizes, (list, tuple)) else 1
        # Keras takes a single state without a list.
        if num_states > 1 or isinstance(states, (list, tuple)):
            _inputs.refuse_states(states, num_states, "[batch, units]")
        _inputs.refuse_mask(named.get("mask"))
        return super().__call__(*arguments, **named)

    def _rnn_mode(self):
        """Returns the op's mode for the layer's activations, or None if it has none."""
        raise NotImplementedError

    def _unsupported(self):
        """Returns what the op cannot do for this layer, as text, or None."""
        if self.recurrent_dropout:
            return "recurrent_dropout=%s" % self.recurrent_dropout
        if self.unroll:
            return "unroll=True"
        if self._rnn_mode() is None:
            return self._activation_arguments()
        if compute_dtype_of(self) not in [dtype.name for dtype in DTYPES]:
            return "dtype %s" % compute_dtype_of(self)
        return None

    def _activation_arguments(self):
        return " and ".join(
            "%s=%r" % (name, self._activations.serialize(getattr(self, name)))
            for name in ("activation", "recurrent_activation")
            if hasattr(self, name)
        )

    def _has_activation(self, argument, name):
        return getattr(self, argument) in (
            getattr(self._activations, name),
            getattr(tf, name, None),
        )

    def _computes_with_op(self, reason=None):
        """Returns whether the op computes this layer; if not, warns once of the reason.

        Args:
          reason: what the op cannot do in this call, as text, or None.
        """
        reason = self._unsupported() or reason
        if reason is not None and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "%s: the fused op does not support %s, so this layer computes as Keras's own does, "
                "which is slower. The weights are the same." % (self.name, reason),
                stacklevel=3,
            )
        return reason is None

    @without_autograph  # TensorFlow 1's cannot convert the functions that this calls
    def _run(self, sequences, states, weights, mask, training):
        """Runs the op; returns `(last_output, outputs, states)`.

        Args:
          sequences: `[batch, time, input_size]`.
          states: a list of h and, for an LSTM, c: `[batch, units]`.
          weights: kernel, recurrent kernel and bias; the bias may be None.
          mask: bool `[batch, time]`, or None.
          training: as in Keras.
        """
        dtype = compute_dtype_of(self)
        shape = [None, None, int(weights[0].shape[0])]
        sequences = _inputs.converted(
            "inputs", sequences, dtype, shape, "[batch, time, input_size]"
        )
        states = [
            _inputs.converted(
                "initial_state[%d]" % index, state, dtype, [None, self.units], "[batch, units]"
            )
            for index, state in enumerate(states)
        ]
        outputs, states, has_last_output = _fused_call.run(
            _fused_call.config_of(
                self._rnn_mode(),
                weights[0].shape[0],
                self.units,
                dtype,
                self.float32_matmul_precision,
            ),
            sequences,
            [state[:, None] for state in states],
            [[weight if weight is None else tf.cast(weight, dtype) for weight in weights]],
            mask,
            self.go_backwards,
            bool(getattr(self, "zero_output_for_mask", False)),
            training,
        )
        states = [state[:, 0] for state in states]
        last_output = states[0]
        if has_last_output is not None:
            last_output *= tf.cast(has_last_output, dtype)[:, None]
        return last_output, outputs, states


class LstmMode:
    """The mode of an LSTM."""

    _op_mode = "lstm"

    def _rnn_mode(self):
        has_activations = self._has_activation("activation", "tanh") and self._has_activation(
            "recurrent_activation", "sigmoid"
        )
        return self._op_mode if has_activations else None


class GruMode(LstmMode):
    """The mode of a GRU. The op multiplies by the reset gate after the matrix product."""

    _op_mode = "gru"

    def _unsupported(self):
        # AutoGraph of TensorFlow 1.14 cannot convert super() without arguments.
        unsupported = super(GruMode, self)._unsupported()  # noqa: UP008
        return unsupported if self.reset_after else "reset_after=False"


class SimpleMode:
    """The mode of a simple RNN."""

    def _rnn_mode(self):
        for name in ("tanh", "relu"):
            if self._has_activation("activation", name):
                return "rnn_" + name
        return None
