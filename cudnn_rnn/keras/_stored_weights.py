"""The arrays of an HDF5 file in the layers of a model that was built from its configuration."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import tensorflow

from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.model import dialects
from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM

# The modes of layers of cuDNN by the classes of today, from which this package's are derived.
_MODES = {tensorflow.keras.layers.LSTM: CUDNN_LSTM, tensorflow.keras.layers.GRU: CUDNN_GRU}
# The numbers that the variables of a model may have beyond those in the file: states, seeds.
_MOST_OTHER_NUMBERS = 2**26


@contextlib.contextmanager
def variables_no_larger_than(path: str, arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """Refuses to create variables that are together larger than the arrays of a file.

    A configuration of a few bytes can describe layers of any size. In graphs, which create nothing
    before a session runs, nothing is refused; `set_weights` compares each shape.
    """
    left = sum(array.size for array in arrays) + _MOST_OTHER_NUMBERS

    def create(next_creator, **arguments):
        nonlocal left
        left -= _num_elements(arguments)
        if left < 0:
            raise ExchangeError(
                "%s is damaged: its configuration describes a model with more weights than the "
                "file has. Get the file from its source again." % path
            )
        return next_creator(**arguments)

    if not tensorflow.executing_eagerly():
        yield
        return
    with tensorflow.variable_creator_scope(create):
        yield


def _num_elements(arguments):
    """Returns the size of a variable, whose arguments may have only the function that makes it."""
    value, shape = arguments.get("initial_value"), arguments.get("shape")
    if shape is None:
        shape = value.shape if hasattr(value, "shape") else None
    if shape is None and callable(value):
        shape = tensorflow.function(value).get_concrete_function().output_shapes
    return int(np.prod(tuple(shape), dtype=np.float64)) if shape is not None else np.size(value)


class Slot(NamedTuple):
    """The place of an array.

    Attributes:
      layer: the layer that has the weight.
      position: the index of the weight in `layer.weights`.
    """

    layer: Any
    position: int

    @property
    def weight(self) -> Any:
        """The weight."""
        return self.layer.weights[self.position]


def set_weights(path: str, model: Any, weights: Dict[str, List[np.ndarray]]) -> None:
    """Gives the layers of a model the arrays of a file, `{name of the layer: arrays}`.

    Raises:
      ExchangeError: a number of arrays or a shape does not fit. No layer has changed then.
    """
    changes = []
    if not model.built:
        raise ExchangeError(
            "%s does not have the shape of the model's inputs: TensorFlow 1.14 does not write that "
            "of an InputLayer in a Sequential. Build the model in the program, and load its "
            "weights with cudnn_rnn.keras.load_weights." % path
        )
    for layer in model.layers:
        arrays, slots = weights.get(layer.name, []), _slots_of(layer)
        if len(arrays) != len(slots):
            raise ExchangeError(
                "%s is damaged: its layer %r must have %d arrays, but has %d."
                % (path, layer.name, len(slots), len(arrays))
            )
        changes += [(one, found) for one, _, found in by_layer(slots, arrays, dialects.sum_of)]
    for layer, arrays in changes:
        expected = [tuple(weight.shape) for weight in layer.weights]
        if expected != [array.shape for array in arrays]:
            raise ExchangeError(
                "%s is damaged: its layer %r must have arrays of the shapes %s, but has %s."
                % (path, layer.name, expected, [array.shape for array in arrays])
            )
    for layer, arrays in changes:
        layer.set_weights(arrays)


def set_weights_in_order(path: str, model: Any, weights: Dict[str, List[np.ndarray]]) -> None:
    """Like `set_weights`, for a model whose layers may have other names than in the file.

    Keras matches the layers that have weights by their order.
    """
    names = [layer.name for layer in model.layers if _slots_of(layer)]
    arrays = [of_layer for of_layer in weights.values() if of_layer]
    if len(names) != len(arrays):
        raise ExchangeError(
            "%s has the weights of %d layers, but the model has %d layers with weights."
            % (path, len(arrays), len(names))
        )
    set_weights(path, model, dict(zip(names, arrays)))


def trained_slots(model: Any) -> List[Slot]:
    """Returns the slots of the weights that an optimizer trains, in its order."""
    return [
        slot
        for layer in model.layers
        for slot in _slots_of(layer)
        if any(slot.weight is one for one in slot.layer.trainable_weights)
    ]


def by_layer(
    slots: Sequence[Slot], arrays: Sequence[np.ndarray], merge: Any
) -> List[Tuple[Any, List[Slot], List[np.ndarray]]]:
    """Returns the layers of slots, the slots of each, and its arrays as the layer has them.

    `merge` as in `of_today`.
    """
    found: Dict[int, Tuple[Any, List[Slot], List[np.ndarray]]] = {}
    for slot, array in sorted(zip(slots, arrays), key=lambda pair: pair[0].position):
        _, of_layer, values = found.setdefault(id(slot.layer), (slot.layer, [], []))
        of_layer.append(slot)
        values.append(array)
    return [
        (layer, of_layer, of_today(layer, values, merge))
        for layer, of_layer, values in found.values()
    ]


def _slots_of(layer):
    """Returns the slots of a layer in the order of Keras 2.

    That lists first what is trained in any of the layers inside, then all else.
    """
    trained: List[Slot] = []
    others: List[Slot] = []
    for inner in layers_inside(layer):
        ids = {id(weight) for weight in inner.trainable_weights}
        for index, weight in enumerate(inner.weights):
            (trained if id(weight) in ids else others).append(Slot(inner, index))
    return trained + others


def layers_inside(layer: Any) -> List[Any]:
    """Returns a layer, or those that a model or a wrapper runs, each once."""
    if hasattr(layer, "layers"):
        inside = layer.layers
    elif hasattr(layer, "forward_layer"):
        inside = [layer.forward_layer, layer.backward_layer]
    elif isinstance(layer, tensorflow.keras.layers.Wrapper):
        inside = [layer.layer]
    else:
        return [layer]
    found = {id(one): one for each in inside for one in layers_inside(each)}
    return list(found.values())


def of_today(layer: Any, arrays: List[np.ndarray], merge: Any) -> List[np.ndarray]:
    """Returns the arrays of a layer as it has them, for those of a layer of cuDNN too.

    `merge` makes one bias of the two that cuDNN adds, see `dialects.to_dialect`.
    """
    rnn_mode = next((mode for kind, mode in _MODES.items() if isinstance(layer, kind)), None)
    if rnn_mode is None or len(arrays) != 3 or arrays[0].ndim != 2 or arrays[2].ndim != 1:
        return arrays
    kernel, recurrent_kernel, bias = arrays
    if bias.size != 2 * kernel.shape[1]:
        return arrays
    weights = dialects.from_dialect(
        dialects.KERAS_CUDNN, rnn_mode, [kernel, recurrent_kernel], np.split(bias, 2)
    )
    matrices, biases = dialects.to_dialect(dialects.KERAS, rnn_mode, weights, merge)
    return [*matrices, np.stack(biases) if rnn_mode == CUDNN_GRU else biases[0]]
