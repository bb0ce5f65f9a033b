"""The masks that Keras passes to layers by itself, in models of the other Keras.

To a recurrent layer that is called with states, Keras 2 passes the mask of its inputs. Keras 3 does
not: there a program has to pass `mask`, or the layer computes without. The two also differ in the
mask of a layer that merges inputs with different masks, such as `Add`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow

from cudnn_rnn._compat import tf
from cudnn_rnn.exchange.keras_configs import class_name_of, dicts_in, entries_of, is_container
from cudnn_rnn.graph.types import ShapeLike, TensorLike
from cudnn_rnn.keras._fused_layer import IS_KERAS_3, register
from cudnn_rnn.keras._new_nodes import MASK_OPERATIONS
from cudnn_rnn.keras._old_nodes import TAKE_STATES
from cudnn_rnn.model.keras_classes import RNN_CLASSES

keras = tensorflow.keras


@register
class InputMask(keras.layers.Layer):
    """Returns the mask of its input `[batch, time, ...]`: bool `[batch, time]`.

    All elements are True if the input has no mask.
    """

    def __init__(self, **named: Any) -> None:
        """Takes the arguments of `keras.layers.Layer`."""
        super().__init__(**named)
        self.supports_masking = True

    def call(self, inputs: TensorLike, mask: Optional[TensorLike] = None) -> tf.Tensor:
        """Returns the mask."""
        return tf.ones(tf.shape(inputs)[:2], tf.bool) if mask is None else mask

    def compute_mask(self, inputs: TensorLike, mask: Optional[TensorLike] = None) -> None:
        """Returns None: the output has no mask."""

    def compute_output_shape(self, input_shape: ShapeLike) -> Any:
        """Returns the shape of the mask."""
        return input_shape[:2]


class _MasksOfKeras2:
    """Mixin of layers that merge their inputs: a step counts if it does in each masked input.

    Keras 3 takes the steps that count in any input, and all of them if an input has no mask.
    """

    def compute_mask(self, inputs: Sequence[Any], mask: Optional[Sequence[Any]] = None) -> Any:
        """Returns the mask of the output, from a list of masks, None for inputs without."""
        given = mask or ()
        masks = [one for one in given if one is not None]
        if not masks:
            return None
        if getattr(self, "axis", -1) in (-1, len(inputs[0].shape) - 1):
            return functools.reduce(keras.ops.logical_and, masks)
        # Along time. The operation `concatenate` could get the name of a layer of the file.
        steps = [
            keras.ops.ones_like(one[..., 0], dtype="bool") if own is None else own
            for one, own in zip(inputs, given)
        ]
        return keras.ops.hstack(steps)


# Maps the names of Keras's classes that merge inputs to those of the classes below.
MERGING = {
    name: name + "WithMasksOfKeras2"
    for name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
}
if IS_KERAS_3:
    for _name, _new_name in MERGING.items():
        register(
            type(
                _new_name,
                (_MasksOfKeras2, getattr(keras.layers, _name)),
                {"__doc__": "`keras.layers.%s` with the masks of Keras 2." % _name},
            )
        )


class MaskFlow:
    """Tells which tensors of a functional model may have masks."""

    def __init__(
        self, entries: List[Any], parents: Callable[[Any], List[str]], inputs_may_have_masks: bool
    ):
        """Takes the entries of the model's layers.

        Args:
          entries: list of dicts, as in the file.
          parents: function of an entry that returns the names of the layers whose outputs it takes,
            as far as Keras passes their masks on.
          inputs_may_have_masks: whether the inputs of the model may have masks.
        """
        self._entries = {entry["name"]: entry for entry in entries}
        self._parents = parents
        self._inputs_may_have_masks = inputs_may_have_masks
        self._origins: Dict[str, Optional[str]] = {}

    def may_leave(self, name: str) -> bool:
        """Returns whether the outputs of a layer may have a mask."""
        return self._origin(name) is not None

    def may_meet(self, entry: Any) -> bool:
        """Returns whether a merging layer may have inputs with different masks, or none.

        True for a `Concatenate` with any mask: Keras 3 makes an operation for it, whose name may be
        that of the layer.
        """
        origins = {self._origin(parent) for parent in self._parents(entry)}
        if class_name_of(entry) == "Concatenate":
            return origins != {None}
        return len(origins) > 1

    def _origin(self, name):
        """Returns the name of the layer that a layer's outputs have their mask from, or None."""
        waiting, open_names = [name], set()
        while waiting:
            name = waiting[-1]
            entry = self._entries.get(name)
            parents = self._parents(entry) if entry and name not in self._origins else []
            missing = [one for one in parents if one not in self._origins and one not in open_names]
            open_names.add(name)
            if entry is not None and _passes_masks(entry) and missing:
                waiting += missing
                continue
            waiting.pop()
            if name not in self._origins:
                self._origins[name] = entry and self._origin_from(entry, parents)
        return self._origins[name]

    def _origin_from(self, entry, parents):
        if entry["class_name"] == "InputLayer":
            return entry["name"] if self._inputs_may_have_masks else None
        if not _passes_masks(entry):
            return entry["name"] if makes_masks(entry) else None
        origins = {self._origins.get(parent) for parent in parents}
        if len(origins) > 1:
            return entry["name"]
        return origins.pop() if origins else None


def makes_masks(entry: Any) -> bool:
    """Returns whether a layer or model, an entry of a file, may make masks: also if unknown."""
    if is_container(entry):
        return any(map(makes_masks, entries_of(entry)))
    configs = list(dicts_in(entry["config"]))
    if any(config.get("mask_zero") or config.get("class_name") == "Masking" for config in configs):
        return True
    class_name = class_name_of(entry)
    if class_name in ("Masking", "Lambda"):
        return class_name == "Masking" or entry["config"].get("mask") is not None
    is_of_keras = isinstance(getattr(keras.layers, class_name, None), type)
    return not is_of_keras and class_name not in _WITHOUT_MASKS_OF_THEIR_OWN


def leaves_own_mask(entry: Any) -> bool:
    """Returns whether the output of a layer or model has a mask that it certainly makes itself."""
    if not is_container(entry):
        return class_name_of(entry) == "Masking" or bool(entry["config"].get("mask_zero"))
    for layer in reversed(entries_of(entry)):
        if leaves_own_mask(layer):
            return True
        if _ends_masks(layer):
            return False
    return False


_RECURRENT = (*TAKE_STATES, *RNN_CLASSES, "RNNStack")
# Layers that not every Keras exports.
_WITHOUT_MASKS_OF_THEIR_OWN = (
    *_RECURRENT,
    *MASK_OPERATIONS,
    *MERGING.values(),
    *("InputMask", "TensorFlowFunction", "TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer"),
    *("BatchNormalizationV1", "BatchNormalizationV2"),
)


def _passes_masks(entry):
    """Returns whether a layer's outputs may have the masks of its inputs, and no others."""
    return not makes_masks(entry) and not _ends_masks(entry)


def _ends_masks(entry):
    """Returns whether a layer is recurrent and returns the last step, which has no mask."""
    return class_name_of(entry) in _RECURRENT and not any(
        config.get("return_sequences") for config in dicts_in(entry["config"])
    )
