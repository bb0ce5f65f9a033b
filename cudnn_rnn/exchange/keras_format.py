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
from typing import Any, Dict, List, Sequence

import numpy as np

from cudnn_rnn.exchange import keras_files, keras_model, keras_optimizers, keras_weights
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    Format,
    name_of,
    prefixes,
    replacing,
    require_activation,
    sentence,
)
from cudnn_rnn.exchange.keras_model import (
    CLASSES,
    SETTINGS,
    KerasLayer,
    KerasModel,
    Source,
)
from cudnn_rnn.exchange.keras_written import set_config, settings_of
from cudnn_rnn.model import dialects
from cudnn_rnn.model.keras_classes import ADDED_ARGUMENTS, CUDNN_CLASSES, RNN_CLASSES
from cudnn_rnn.model.spec import CUDNN_GRU
from cudnn_rnn.model.weights import LayerWeights, RnnWeights

__all__ = ["from_layer_weights", "from_model", "read", "to_layer_weights", "to_model", "write"]


def to_layer_weights(weights: LayerWeights, rnn_mode: str) -> List[np.ndarray]:
    """Returns kernel, recurrent kernel and bias of a Keras layer, in one direction."""
    matrices, biases = dialects.to_dialect(dialects.KERAS, rnn_mode, weights)
    return matrices + [np.stack(biases) if rnn_mode == CUDNN_GRU else biases[0]]


def from_layer_weights(weights: Sequence[np.ndarray], rnn_mode: str) -> LayerWeights:
    """Returns the weights of a layer and direction for kernel, recurrent kernel and bias, if any.

    Args:
      weights: list of two or three arrays, as `get_weights()` of a Keras layer returns it.
      rnn_mode: "lstm", "gru", "rnn_relu" or "rnn_tanh".
    """
    return keras_model.from_layer_weights(weights, rnn_mode, dialects.halves_of)


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
        require_activation(rnn, "Keras's SimpleRNN")
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
                [array for part in directions for array in to_layer_weights(part, rnn.rnn_mode)]
            )
        outputs.append(values)
    if len(rnns) == 1:
        return keras.Model(inputs[0], outputs[0])
    return keras.Model(inputs, outputs)


def _make_layer(keras, rnn, name):
    layer_class, settings = getattr(keras.layers, CLASSES[rnn.rnn_mode]), settings_of(rnn)
    if rnn.bidirectional:
        return keras.layers.Bidirectional(layer_class(**settings), name=name, dtype=rnn.dtype.name)
    return layer_class(name=name, **settings)


def from_model(model: Any) -> Contents:
    """Returns the RNNs in a built Keras model.

    Raises:
      ExchangeError: a layer computes something that cuDNN's RNNs do not.
    """
    contents = keras_model.rnns_of(_describe(model), Source(_values, dialects.halves_of))
    if contents.problems:
        raise ExchangeError("\n".join(contents.problems))
    return contents


def _values(variables):
    return _keras().backend.batch_get_value(list(variables))


def _describe(model):
    """Returns the `KerasModel` of a live model."""
    described = {id(layer): _describe_layer(layer) for layer in _all_layers(model)}
    calls = [
        (described[id(layer)], [described.get(id(one), _NO_RNN) for one in inputs])
        for layer, inputs in _calls(model)
        if id(layer) in described
    ]
    return KerasModel(list(described.values()), calls)


_NO_RNN = KerasLayer(None, "")


def _all_layers(model):
    """Returns the layers of a model and of the models in it."""
    found: List[Any] = []
    for layer in model.layers:
        inside, _ = _unwrapped(layer)
        found += _all_layers(inside) if hasattr(inside, "layers") else [layer]
    return [layer for layer in found if type(layer).__name__ != "InputLayer"]


def _calls(model):
    """Yields (layer, layers that feed the call) for each call that the model's graph records."""
    from cudnn_rnn import _compat

    for layer in model.layers:
        inside, _ = _unwrapped(layer)
        if hasattr(inside, "layers"):
            yield from _calls(inside)
    if any(base.__name__ == "Sequential" for base in type(model).__mro__):
        # Not from a graph: Keras 3 calls all layers again whenever one is added, and TensorFlow 1
        # records no graph if the model is built late.
        yield from ((layer, [before]) for before, layer in zip(model.layers, model.layers[1:]))
        return
    for nodes in (getattr(model, "_nodes_by_depth", None) or {}).values():
        for node in nodes:
            layer = node.operation if hasattr(node, "operation") else node.outbound_layer
            inputs = _compat.tf.nest.flatten(node.input_tensors)
            yield layer, [one._keras_history[0] for one in inputs]


def _unwrapped(layer):
    """Returns the layer inside of TimeDistributed, and the number of these wrappers."""
    depth = 0
    while "TimeDistributed" in {base.__name__ for base in type(layer).__mro__}:
        layer, depth = layer.layer, depth + 1
    return layer, depth


def _describe_layer(layer):
    """Returns the `KerasLayer` of a live layer."""
    inside, depth = _unwrapped(layer)
    if depth:
        return _describe_layer(inside)._replace(name=layer.name, depth=depth)
    kinds = {base.__name__ for base in type(layer).__mro__}
    names = [variable.name for variable in layer.weights]
    if "RNNStack" in kinds:
        weights = [variable for of_cell in layer._weights_by_layer for variable in of_cell]
        stack = layer._rnn_mode, len(layer._directions)
        return KerasLayer("RNNStack", layer.name, weights=weights, stack=stack, weight_names=names)
    own = kinds & set(RNN_CLASSES)
    is_cudnn = bool(own & set(CUDNN_CLASSES))
    (kind,) = {RNN_CLASSES[name] for name in own} or (None,)
    defaults = ADDED_ARGUMENTS["CuDNN%s" % kind] if is_cudnn else {}
    settings = {}
    for setting in SETTINGS:
        value = getattr(layer, setting, defaults.get(setting))
        settings[setting] = getattr(value, "__name__", value)
    if "Bidirectional" in kinds:
        cells = [_describe_layer(layer.forward_layer), _describe_layer(layer.backward_layer)]
        return KerasLayer("Bidirectional", layer.name, settings, cells=cells, weight_names=names)
    weights = list(layer.weights)
    return KerasLayer(kind, layer.name, settings, weights, weight_names=names, is_cudnn=is_cudnn)


def _keras():
    import tensorflow

    return tensorflow.keras


@contextlib.contextmanager
def _executing_eagerly():
    """Keras 2 would add ops to the program's graph; Keras 3 cannot read a graph's variables."""
    from cudnn_rnn import _compat

    with _compat.eager_mode():
        yield


def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads a `.keras` or `.h5` model, or its weights alone, without Keras.

    Nothing that the file names is imported or built; layers of unknown classes are left out.

    Args:
      path: str.
      facts: what a file of weights alone does not tell; a model is complete.
    """
    file = keras_files.read(path, facts)
    try:
        contents = keras_model.rnns_of(file.model, Source(file.values, dialects.halves_of))
    except ValueError as error:
        raise ExchangeError("%s: %s" % (path, error)) from error
    if contents.problems and not contents.rnns:
        raise ExchangeError("%s: %s" % (path, "\n".join(contents.problems)))
    contents = contents._replace(others=contents.others + keras_files.of_no_layer(file))
    if not file.is_whole:
        notes = keras_weights.notes_on(file.assumptions, contents.rnns)
        contents = contents._replace(format="Keras weights", notes=notes + contents.notes)
    keys, adam = keras_optimizers.read(file)
    of_rnns = [key for layer in file.model.layers for key in keras_files.weights_of_rnn(layer)]
    if adam is None or not of_rnns or not set(of_rnns) <= set(adam.keys):  # some are frozen
        return contents._replace(path=path, others=contents.others + keys)
    slots: Dict[str, Any] = {rnn.scope: {} for rnn in contents.rnns}
    for slot, arrays in adam.slots.items():
        # Both of cuDNN's biases get the slot of a bias: see `checkpoints/optimizer_slots.py`.
        of_slot = Source(lambda weights: [arrays[key] for key in weights], dialects.copies_of)  # noqa: B023
        for rnn in keras_model.rnns_of(file.model, of_slot).rnns:
            slots[rnn.scope]["", slot] = rnn.to_opaque()
    carried = {adam.step}.union(*[adam.keys[key] for key in of_rnns])
    others = contents.others + [key for key in keys if key not in carried]
    return contents._replace(path=path, slots=slots, optimizer=adam.powers, others=others)


@_executing_eagerly()
def write(path: str, rnns: Sequence[RnnWeights]) -> None:
    """Writes a model (`.keras`, `.h5`) or its weights (`.weights.h5`).

    Keras 2 and 3 load a model in `.h5`, whichever has written it, and Keras 2.12 and newer one in
    `.keras`. Weights alone are for the Keras that has written them.
    """
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
            _check_format(path, made)
        if not _has_weights(made, model, rnns, weights):
            raise OSError("the file %s does not have the weights that were written to it" % made)
        shutil.copyfile(made, temporary)


def _check_format(path, made):
    """Raises if Keras wrote another format than the suffix means; before 2.12, all is HDF5."""
    if path.endswith(".keras") and keras_files.is_hdf5(made):
        raise ExchangeError(
            "%s cannot be written: Keras %s does not write .keras, but HDF5. Give a name that ends "
            "with .h5; Keras 2 and 3 load such a file." % (path, _keras().__version__)
        )


def _has_weights(path, model, rnns, weights):
    """Returns whether a file of the model has these weights; overwrites those of the model.

    A whole model gets the configuration that all releases load.
    """
    try:
        if path.endswith(".weights.h5"):
            model.load_weights(path)
        else:
            set_config(path, rnns, [layer.name for layer in model.layers])
            model = _keras().models.load_model(path, compile=False)
    except (TypeError, ValueError, OSError, KeyError, AttributeError):
        return False
    loaded = model.get_weights()
    return [array.tobytes() for array in loaded] == [array.tobytes() for array in weights]


FORMAT = Format("keras", "a Keras model", (".keras", ".h5"), keras_files.is_keras, read, write)
