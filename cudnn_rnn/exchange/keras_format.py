"""Keras's layers LSTM, GRU and SimpleRNN, alone and in Bidirectional.

Written is a model of stacked layers: `.keras` or `.h5` with its configuration, `.weights.h5`
without. Read are the RNN layers of a `.keras` or `.h5` model, this package's `cudnn_rnn.keras`
included; layers that follow each other and fit are one RNN.

Keras's matrices are transposed, and its GRU has the update gate first. LSTM and SimpleRNN have one
bias, the sum of cuDNN's two; reading gives each of the two half of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn._compat import tf
from cudnn_rnn._core.config import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_RELU, CUDNN_RNN_TANH
from cudnn_rnn.exchange import keras_files, keras_optimizers
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    name_of,
    prefixes,
    replacing,
    sentence,
    zero_bias,
)
from cudnn_rnn.exchange.weights import LayerWeights, RnnWeights, reorder_gates, split_bias

__all__ = ["from_layer_weights", "from_model", "read", "to_layer_weights", "to_model", "write"]

_CLASSES = {
    CUDNN_LSTM: "LSTM",
    CUDNN_GRU: "GRU",
    CUDNN_RNN_RELU: "SimpleRNN",
    CUDNN_RNN_TANH: "SimpleRNN",
}
# For each gate of a Keras GRU its position in cuDNN's order, and the reverse.
_GRU_ORDER = (1, 0, 2)


def to_layer_weights(weights: LayerWeights, rnn_mode: str) -> List[np.ndarray]:
    """Returns kernel, recurrent kernel and bias of a Keras layer, in one direction."""

    def reordered(array):
        return reorder_gates(array, _GRU_ORDER) if rnn_mode == CUDNN_GRU else array

    matrices = [reordered(weights.input_weights).T, reordered(weights.recurrent_weights).T]
    if rnn_mode == CUDNN_GRU:
        biases = [reordered(weights.input_bias), reordered(weights.recurrent_bias)]
        return matrices + [np.stack(biases)]
    return matrices + [weights.input_bias + weights.recurrent_bias]


def from_layer_weights(weights: Sequence[np.ndarray], rnn_mode: str) -> LayerWeights:
    """Returns the weights of a layer and direction for kernel, recurrent kernel and bias, if any.

    Args:
      weights: list of two or three arrays, as `get_weights()` of a Keras layer returns it.
      rnn_mode: "lstm", "gru", "rnn_relu" or "rnn_tanh".
    """
    return _from_layer_weights(weights, rnn_mode, split_bias)


def _from_layer_weights(weights, rnn_mode, split):
    """Returns a `LayerWeights`; `split` makes two biases of one."""
    matrices = [np.asarray(matrix).T for matrix in weights[:2]]
    if len(weights) == 2:
        biases = (zero_bias(matrices[0]),) * 2
    elif rnn_mode == CUDNN_GRU:
        biases = tuple(np.asarray(weights[2]))
    else:
        biases = split(weights[2])
    parts = [*matrices, *biases]
    if rnn_mode == CUDNN_GRU:
        parts = [reorder_gates(part, _GRU_ORDER) for part in parts]
    return LayerWeights(*parts)


def to_model(rnns: Sequence[RnnWeights]) -> Any:
    """Returns a Keras model of stacked layers, all with `return_sequences=True`.

    The inputs are `[batch, time, input_size]`, the outputs `[batch, time, directions * num_units]`.
    A model of several RNNs has one input and one output for each, in their order.

    Raises:
      ExchangeError: an RNN has a projection.
    """
    keras = _keras()
    inputs, outputs = [], []
    for rnn, prefix in zip(rnns, prefixes(rnns, ".")):
        if rnn.num_proj:
            raise ExchangeError(
                "%s has a projection (num_proj %d), which Keras's LSTM does not have. PyTorch's "
                "has: --to torch." % (sentence(name_of(rnn.scope)), rnn.num_proj)
            )
        values = keras.Input((None, rnn.input_size), dtype=rnn.dtype.name, name=prefix + "input")
        inputs.append(values)
        for layer, directions in enumerate(rnn.layers):
            made = _make_layer(keras, rnn, "%slayer_%d" % (prefix, layer))
            values = made(values)
            made.set_weights(
                [array for one in directions for array in to_layer_weights(one, rnn.rnn_mode)]
            )
        outputs.append(values)
    if len(rnns) == 1:
        return keras.Model(inputs[0], outputs[0])
    return keras.Model(inputs, outputs)


def _make_layer(keras, rnn, name):
    arguments = dict(return_sequences=True, dtype=rnn.dtype.name)
    arguments["activation"] = "relu" if rnn.rnn_mode == CUDNN_RNN_RELU else "tanh"
    # Not the defaults of every Keras: that of TensorFlow 1 has hard_sigmoid, and no reset_after.
    if rnn.rnn_mode in (CUDNN_LSTM, CUDNN_GRU):
        arguments["recurrent_activation"] = "sigmoid"
    if rnn.rnn_mode == CUDNN_GRU:
        arguments["reset_after"] = True
    if rnn.bidirectional:
        layer_class = getattr(keras.layers, _CLASSES[rnn.rnn_mode])
        layer = layer_class(rnn.num_units, **arguments)
        return keras.layers.Bidirectional(layer, name=name, dtype=rnn.dtype.name)
    return getattr(keras.layers, _CLASSES[rnn.rnn_mode])(rnn.num_units, name=name, **arguments)


class _Source(NamedTuple):
    """Where the arrays of a model's layers come from: its weights, or a slot of each.

    Attributes:
      arrays: returns a list of arrays for a list of variables.
      split: returns the two biases of cuDNN for one bias.
    """

    arrays: Callable[[Any], List[np.ndarray]]
    split: Callable[[np.ndarray], Tuple[np.ndarray, np.ndarray]]


def _values(variables):
    return _keras().backend.batch_get_value(list(variables))


def from_model(model: Any) -> Contents:
    """Returns the RNNs in a built Keras model.

    Raises:
      ExchangeError: a layer computes something that cuDNN's RNNs do not.
    """
    return _from_model(model, _Source(_values, split_bias))


def _from_model(model, source):
    chains: List[Tuple[Any, RnnWeights]] = []  # (the last layer, weights)
    others = []
    inputs_of_calls = _inputs_of_calls(model)
    for layer in _all_layers(model):
        rnn = _read_layer(layer, source)
        if rnn is None:
            others += [variable.name for variable in layer.weights]
            continue
        # model.layers are ordered by depth, so those of parallel chains alternate.
        for index, (last, first) in enumerate(chains):
            if inputs_of_calls.get(id(layer)) == [[last]] and _fits(last, first, rnn):
                joined = RnnWeights(first.rnn_mode, first.layers + rnn.layers, first.scope)
                chains[index] = layer, joined
                break
        else:
            chains.append((layer, rnn))
    rnns = [rnn for _, rnn in chains]
    # `to_model` names its layers <scope>.layer_<i>.
    ours = [rnn.scope[: -len("layer_0")].rstrip("./") for rnn in rnns]
    if all(rnn.scope.endswith("layer_0") for rnn in rnns) and len(set(ours)) == len(rnns):
        rnns = [rnn.with_scope(scope) for rnn, scope in zip(rnns, ours)]
    return Contents("", "Keras model", rnns, others=others)


def _all_layers(model):
    """Returns the layers of a model and of the models in it."""
    found: List[Any] = []
    for layer in model.layers:
        found += _all_layers(layer) if hasattr(layer, "layers") else [layer]
    return [layer for layer in found if type(layer).__name__ != "InputLayer"]


def _inputs_of_calls(model):
    """Returns a dict by the id of a layer: for each call, the layers that feed the call."""
    found: Dict[int, List[List[Any]]] = {}
    for layer, inputs in _calls(model):
        found.setdefault(id(layer), []).append(inputs)
    return found


def _calls(model):
    """Yields (layer, layers that feed the call) for each call that the model's graph records."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from _calls(layer)
    if any(base.__name__ == "Sequential" for base in type(model).__mro__):
        # Not from a graph: Keras 3 calls all layers again whenever one is added, and TensorFlow 1
        # records no graph if the model is built late.
        yield from ((layer, [before]) for before, layer in zip(model.layers, model.layers[1:]))
        return
    for nodes in (getattr(model, "_nodes_by_depth", None) or {}).values():
        for node in nodes:
            layer = node.operation if hasattr(node, "operation") else node.outbound_layer
            inputs = tf.nest.flatten(node.input_tensors)
            yield layer, [one._keras_history[0] for one in inputs]


def _fits(last, before, rnn):
    """Returns whether `rnn` can be the next layer of the RNN `before`, which ends with `last`."""
    return (
        type(last).__name__ != "RNNStack"
        and (rnn.rnn_mode, rnn.num_units, rnn.bidirectional)
        == (before.rnn_mode, before.num_units, before.bidirectional)
        and rnn.input_size == before.num_directions * before.num_units
    )


def _read_layer(layer: Any, source: _Source) -> Optional[RnnWeights]:
    """Returns the weights of a layer, None if it is no RNN."""

    def read_cell(variables, rnn_mode):
        return _from_layer_weights(source.arrays(variables), rnn_mode, source.split)

    if type(layer).__name__ == "RNNStack":
        rnn_mode, ways = layer._rnn_mode, len(layer._directions)
        flat = [read_cell(variables, rnn_mode) for variables in layer._weights_by_layer]
        layers = [flat[start : start + ways] for start in range(0, len(flat), ways)]
        return RnnWeights(rnn_mode, layers, layer.name.replace(".", "/"))
    is_pair = type(layer).__name__ == "Bidirectional"
    cells = [layer.forward_layer, layer.backward_layer] if is_pair else [layer]
    if not any(base.__name__ in _CLASSES.values() for base in type(cells[0]).__mro__):
        return None
    _require("merge_mode", layer, not is_pair or layer.merge_mode == "concat")
    for cell in cells:
        _require("go_backwards", cell, bool(cell.go_backwards) == (is_pair and cell is cells[1]))
    modes = [_mode(cell) for cell in cells]
    rnn_mode = modes[0]
    if modes[-1] != rnn_mode:
        raise ExchangeError(
            "The layer %r computes %s forward and %s backward; cuDNN's RNNs compute the same in "
            "both directions." % (layer.name, rnn_mode, modes[-1])
        )
    weights = [read_cell(cell.weights, rnn_mode) for cell in cells]
    return RnnWeights(rnn_mode, [weights], layer.name.replace(".", "/"))


def _mode(layer):
    """Returns the mode of a layer; raises `ExchangeError` if cuDNN has none that computes it."""
    (kind,) = {base.__name__ for base in type(layer).__mro__} & set(_CLASSES.values())
    activation = getattr(layer.activation, "__name__", None)
    if kind == "SimpleRNN":
        _require("activation", layer, activation in ("relu", "tanh"))
        return CUDNN_RNN_RELU if activation == "relu" else CUDNN_RNN_TANH
    _require("activation", layer, activation == "tanh")
    recurrent = getattr(layer.recurrent_activation, "__name__", None)
    _require("recurrent_activation", layer, recurrent == "sigmoid")
    if kind == "GRU":
        _require("reset_after", layer, layer.reset_after)
        return CUDNN_GRU
    return CUDNN_LSTM


def _require(attribute, layer, condition):
    if not condition:
        raise ExchangeError(
            "The layer %r has %s=%r, which cuDNN's RNNs do not compute."
            % (layer.name, attribute, getattr(layer, attribute, None))
        )


def _keras():
    import tensorflow

    return tensorflow.keras


@contextlib.contextmanager
def _executing_eagerly():
    """Keras 2 would add ops to the program's graph; Keras 3 cannot read a graph's variables."""
    from cudnn_rnn import _compat

    with _compat.eager_mode():
        yield


@_executing_eagerly()
def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads a `.keras` or `.h5` model. `facts` has no use here: a model is complete."""
    del facts
    if path.endswith(".weights.h5"):
        raise ExchangeError(
            "%s has weights without the layers that they belong to. Load it into its model "
            "(model.load_weights) and save that: model.save('model.keras')." % path
        )
    import cudnn_rnn.keras  # noqa: F401  (registers the layers of this package)

    try:
        keras_files.check(path, _keras().utils.get_custom_objects())
        model = _keras().models.load_model(path, compile=False)
    except ExchangeError:
        raise
    except (TypeError, ValueError, OSError, KeyError, AttributeError) as error:
        raise ExchangeError(
            "%s cannot be loaded as a Keras model: %s. If it has layers of your own, load it in "
            "your program and call cudnn_rnn.exchange.keras_format.from_model." % (path, error)
        ) from error
    return _with_slots(path, model)


def _source_of_slots(arrays):
    """Returns a `_Source` of the slots by the `id` of their variable.

    Both of cuDNN's biases get the slot of a bias: see `checkpoints/optimizer_slots.py`.
    """

    def of_variables(variables):
        return [arrays[id(variable)] for variable in variables]

    return _Source(of_variables, lambda slot: (slot, slot))


def _with_slots(path, model):
    """Returns the contents of a file and of the model in it, with Adam's slots if it has them."""
    of_rnns: List[int] = []

    def values(variables):
        of_rnns.extend(map(id, variables))
        return _values(variables)

    contents = _from_model(model, _Source(values, split_bias))._replace(path=path)
    keys, adam = keras_optimizers.read(path, model.trainable_variables)
    if adam is None or not of_rnns or not set(of_rnns) <= set(adam.keys):  # some are frozen
        return contents._replace(others=contents.others + keys)
    slots: Dict[str, Any] = {rnn.scope: {} for rnn in contents.rnns}
    for slot, arrays in adam.slots.items():
        for rnn in _from_model(model, _source_of_slots(arrays)).rnns:
            slots[rnn.scope]["", slot] = rnn.to_opaque()
    carried = {adam.step}.union(*[adam.keys[one] for one in of_rnns])
    others = contents.others + [key for key in keys if key not in carried]
    return contents._replace(slots=slots, optimizer=adam.powers, others=others)


@_executing_eagerly()
def write(path: str, rnns: Sequence[RnnWeights]) -> None:
    """Writes a model (`.keras`, `.h5`) or its weights (`.weights.h5`)."""
    if not path.endswith((".keras", ".h5")):
        raise ExchangeError(
            "The name of a file of Keras ends with .keras, .h5 or .weights.h5, but is %s." % path
        )
    model = to_model(rnns)
    weights = model.get_weights()
    # HDF5 may hide errors of a disk, or end the process after them, so it does not write to `path`.
    with replacing(path) as temporary, tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, os.path.basename(path))
        if path.endswith(".weights.h5"):
            model.save_weights(made)
        else:
            model.save(made)
        if not _has_weights(made, model, weights):
            raise OSError("the file %s does not have the weights that were written to it" % made)
        shutil.copyfile(made, temporary)


def _has_weights(path, model, weights):
    """Returns whether a file of the model has these weights; overwrites those of the model."""
    try:
        if path.endswith(".weights.h5"):
            model.load_weights(path)
        else:
            model = _keras().models.load_model(path, compile=False)
    except (TypeError, ValueError, OSError, KeyError, AttributeError):
        return False
    found = model.get_weights()
    return [one.tobytes() for one in found] == [one.tobytes() for one in weights]
