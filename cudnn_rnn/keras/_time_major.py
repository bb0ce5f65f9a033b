"""`time_major=True`, which the recurrent layers of Keras 2 have and those of Keras 3 do not."""

from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow

from cudnn_rnn._compat import tf
from cudnn_rnn.exchange import keras_configs
from cudnn_rnn.graph.types import BoolLike, ShapeLike, TensorLike
from cudnn_rnn.keras._fused_layer import register

keras = tensorflow.keras


@register
class TimeMajor(keras.layers.Wrapper):
    """Runs a recurrent layer or a Bidirectional on inputs `[time, batch, input_size]`, in Keras 3.

    Outputs of all steps are `[time, batch, units]`, and a mask is `[time, batch]`.
    """

    def __init__(self, layer: Any, **named: Any) -> None:
        """Takes the layer, whose inputs are `[batch, time, input_size]`."""
        super().__init__(layer, **named)
        self.supports_masking = True

    def build(self, sequences_shape: ShapeLike, initial_state_shape: Any = None) -> None:
        """Builds the layer."""
        self.layer.build(_swapped(sequences_shape))
        self.built = True

    def call(
        self,
        sequences: TensorLike,
        initial_state: Any = None,
        mask: Optional[TensorLike] = None,
        training: Optional[BoolLike] = None,
    ) -> Any:
        """Runs the layer."""
        found = self.layer(
            tf.transpose(sequences, [1, 0, 2]),
            initial_state=initial_state,
            mask=None if mask is None else tf.transpose(mask),
            training=training,
        )
        if not self.layer.return_sequences:
            return found
        outputs, *states = found if isinstance(found, (list, tuple)) else [found]
        outputs = tf.transpose(outputs, [1, 0, 2])
        return (outputs, *states) if states else outputs

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        """Returns the shape of the outputs, or of the outputs and the states."""
        found = self.layer.compute_output_shape(_swapped(sequences_shape))
        if not self.layer.return_sequences:
            return found
        return (_swapped(found[0]), *found[1:]) if self.layer.return_state else _swapped(found)

    def compute_mask(self, inputs: TensorLike, mask: Optional[TensorLike] = None) -> Any:
        """Returns the mask of the outputs; states have none."""
        return self.layer.compute_mask(inputs, mask)

    def reset_states(self) -> None:
        """Sets the states of a stateful layer to zero."""
        self.layer.reset_states()


def _swapped(shape):
    return (shape[1], shape[0], *shape[2:])


def is_time_major(config: Dict[str, Any]) -> bool:
    """Returns whether the arguments of a recurrent layer or a Bidirectional have `time_major`."""
    return any(one.get("time_major") is True for one in keras_configs.dicts_in(config))


def with_time_major(config: Dict[str, Any], value: bool) -> Dict[str, Any]:
    """Returns the arguments of a recurrent layer or a Bidirectional with another `time_major`."""
    if "layer" not in config:
        return dict(config, time_major=value)
    inside = {key: config[key] for key in ("layer", "backward_layer") if config.get(key)}
    return dict(
        config,
        **{
            key: dict(entry, config=with_time_major(entry["config"], value))
            for key, entry in inside.items()
        },
    )
