"""`time_major=True`, which the recurrent layers of Keras 2 have and those of Keras 3 do not."""

from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.types import BoolLike, ShapeLike, TensorLike
from cudnn_rnn.keras._layer import register

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


def without_time_major(config: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the arguments of a recurrent layer or a Bidirectional without `time_major=True`.

    They are the same object if they have none.
    """
    changed = dict(config)
    for key in ("layer", "backward_layer"):
        if isinstance(config.get(key), dict) and isinstance(config[key].get("config"), dict):
            inner = without_time_major(config[key]["config"])
            if inner is not config[key]["config"]:
                changed[key] = dict(config[key], config=inner)
    if changed.get("time_major") is True:
        del changed["time_major"]
    return config if changed == config else changed
