"""What the RNN layers of a Keras model are, live or in a file, and the RNNs that they form.

`keras_format` describes a live model in these terms, `keras_files` the configuration in a file.
Layers that follow each other and fit are one RNN.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import Contents, ExchangeError, zero_bias
from cudnn_rnn.model import dialects
from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_RELU, CUDNN_RNN_TANH
from cudnn_rnn.model.weights import LayerWeights, RnnWeights, layout_mode

CLASSES = {
    CUDNN_LSTM: "LSTM",
    CUDNN_GRU: "GRU",
    CUDNN_RNN_RELU: "SimpleRNN",
    CUDNN_RNN_TANH: "SimpleRNN",
}
# What the modes are called in RNNStack.
STACK_MODES = {
    "lstm": CUDNN_LSTM,
    "gru": CUDNN_GRU,
    "relu": CUDNN_RNN_RELU,
    "tanh": CUDNN_RNN_TANH,
}
# The settings of a layer that decide what it computes.
SETTINGS = ("activation", "recurrent_activation", "reset_after", "go_backwards", "merge_mode")


class KerasLayer(NamedTuple):
    """A layer of a model. Compare layers with `is`.

    Attributes:
      kind: "LSTM", "GRU", "SimpleRNN", "Bidirectional", "RNNStack"; None for any other class.
      name: str.
      settings: dict of `SETTINGS`, a function by its name.
      weights: list of what stands for a weight: a variable, or a key in a file. RNNStack: of all
        layers and directions. Bidirectional: none.
      cells: of a Bidirectional the forward and the backward layer.
      stack: of an RNNStack its mode and its number of directions.
      weight_names: list of str, for messages.
      is_cudnn: whether it is Keras's CuDNNLSTM or CuDNNGRU, with the arrays of `KERAS_CUDNN`.
      depth: the number of TimeDistributed around it.
      mode: the mode, if that is known without `settings`.
      problem: why the layer cannot be read, if that is known.
    """

    kind: Optional[str]
    name: str
    settings: Dict[str, Any] = {}
    weights: List[Any] = []
    cells: List[Any] = []
    stack: Tuple[str, int] = ("", 0)
    weight_names: List[str] = []
    is_cudnn: bool = False
    depth: int = 0
    mode: str = ""
    problem: str = ""


class KerasModel(NamedTuple):
    """The layers of a model and of the models in it.

    Attributes:
      layers: list of `KerasLayer`.
      calls: list of (layer, layers that feed the call) for each call that is known.
    """

    layers: List[KerasLayer]
    calls: List[Tuple[KerasLayer, List[KerasLayer]]]


class Source(NamedTuple):
    """Where the arrays of a model's layers come from: its weights, or a slot of each.

    Attributes:
      arrays: returns a list of arrays for a list of `KerasLayer.weights`.
      split: returns the two biases of cuDNN for one bias.
    """

    arrays: Callable[[Any], List[np.ndarray]]
    split: Callable[[np.ndarray], Tuple[np.ndarray, np.ndarray]]


def rnns_of(model: KerasModel, source: Source) -> Contents:
    """Returns the RNNs in a model; `problems` has the layers that cuDNN's RNNs do not compute."""
    chains: List[RnnWeights] = []
    ends: Dict[int, int] = {}  # by the id of the last layer of a chain, the chain's index
    others: List[str] = []
    problems: List[str] = []
    owners: Dict[Any, str] = {}  # by the key of an array, the layer that has it
    notes: List[str] = []
    inputs_of_calls: Dict[int, List[List[int]]] = {}
    for layer, inputs in model.calls:
        inputs_of_calls.setdefault(id(layer), []).append([id(other) for other in inputs])
    by_id = {id(layer): layer for layer in model.layers}
    for layer in model.layers:
        # A file may say that one array belongs to any number of layers.
        keys = [key for cell in layer.cells or [layer] for key in cell.weights]
        keys = [key for key in keys if isinstance(key, str)]
        owner = next((owners[key] for key in keys if key in owners), None)
        if owner is not None:
            notes.append(
                "The layer %r has arrays of the layer %r, which are read once."
                % (layer.name, owner)
            )
            continue
        owners.update(dict.fromkeys(keys, layer.name))
        try:
            rnn = _read_layer(layer, source)
        except ExchangeError as error:
            problems.append(str(error))
            continue
        if rnn is None:
            others += layer.weight_names
            continue
        calls = inputs_of_calls.get(id(layer), [])
        before = calls[0][0] if len(calls) == 1 and len(calls[0]) == 1 else 0  # 0: no layer's id
        # model.layers are ordered by depth, so those of parallel chains alternate.
        index = ends.get(before)
        if index is not None and _fits(by_id[before], chains[index], layer, rnn):
            del ends[before]
            first = chains[index]
            chains[index] = RnnWeights(first.rnn_mode, first.layers + rnn.layers, first.scope)
        else:
            index = len(chains)
            chains.append(rnn)
        ends[id(layer)] = index
    # `keras_format.to_model` names its layers <scope>.layer_<i>.
    ours = [rnn.scope[: -len("layer_0")].rstrip("./") for rnn in chains]
    if all(rnn.scope.endswith("layer_0") for rnn in chains) and len(set(ours)) == len(chains):
        chains = [rnn.with_scope(scope) for rnn, scope in zip(chains, ours)]
    chains = different_scopes(chains)
    # HDF5 lists the arrays of a nested model once for each layer, so keys repeat.
    others = [key for key in dict.fromkeys(others) if key not in owners]
    return Contents("", "Keras model", chains, notes, others, problems=problems)


def different_scopes(rnns: Sequence[RnnWeights]) -> List[RnnWeights]:
    """Appends a number to a scope that an earlier RNN has, of another model in the model."""
    scopes: Dict[str, int] = {rnn.scope: 0 for rnn in rnns}
    result, seen = [], set()
    for rnn in rnns:
        scope = rnn.scope
        while scope in seen or (scope != rnn.scope and scope in scopes):
            scopes[rnn.scope] += 1
            scope = "%s_%d" % (rnn.scope or "rnn", scopes[rnn.scope])
        seen.add(scope)
        result.append(rnn if scope == rnn.scope else rnn.with_scope(scope))
    return result


def _fits(last, before, layer, rnn):
    """Returns whether `layer`, which has the weights `rnn`, continues the RNN `before`.

    `last` is the last layer of `before`.
    """
    return (
        last.kind != "RNNStack"
        and last.depth == layer.depth
        and (rnn.rnn_mode, rnn.num_units, rnn.bidirectional)
        == (before.rnn_mode, before.num_units, before.bidirectional)
        and rnn.input_size == before.num_directions * before.num_units
    )


def _read_layer(layer: KerasLayer, source: Source) -> Optional[RnnWeights]:
    """Returns the weights of a layer, None if it is no RNN."""

    scope = layer.name.replace(".", "/")
    if layer.kind == "RNNStack":
        rnn_mode, ways = layer.stack
        per_cell = [layer.weights[start : start + 3] for start in range(0, len(layer.weights), 3)]
        arrays = [source.arrays(weights) for weights in per_cell]
        flat = [from_layer_weights(one, rnn_mode, source.split) for one in arrays]
        layers = [flat[start : start + ways] for start in range(0, len(flat), ways)]
        return RnnWeights(rnn_mode, layers, scope)
    is_pair = layer.kind == "Bidirectional"
    cells = layer.cells if is_pair else [layer]
    if not cells or cells[0].kind not in CLASSES.values():
        return None
    _require("merge_mode", layer, not is_pair or layer.settings.get("merge_mode") == "concat")
    for cell in cells:
        is_backward = bool(cell.settings.get("go_backwards"))
        _require("go_backwards", cell, is_backward == (is_pair and cell is cells[1]))
    modes = [_mode(cell) for cell in cells]
    rnn_mode = modes[0]
    if modes[-1] != rnn_mode:
        raise ExchangeError(
            "The layer %r computes %s forward and %s backward; cuDNN's RNNs compute the same in "
            "both directions." % (layer.name, rnn_mode, modes[-1])
        )
    return RnnWeights(rnn_mode, [[_read_cell(cell, rnn_mode, source) for cell in cells]], scope)


def _read_cell(cell, rnn_mode, source):
    """Returns the weights of one direction."""
    rnn_mode = layout_mode(rnn_mode)
    arrays = source.arrays(cell.weights)
    if not cell.is_cudnn:
        return from_layer_weights(arrays, rnn_mode, source.split)
    kernel, recurrent_kernel, bias = arrays
    width = len(dialects.CUDNN_GATES[rnn_mode]) * len(recurrent_kernel)
    expected = [(len(kernel), width), (len(recurrent_kernel), width), (2 * width,)]
    if [array.shape for array in arrays] != expected:
        raise ExchangeError(
            "The layer %r has arrays of the shapes %s; expected %s of a layer of cuDNN."
            % (cell.name, [array.shape for array in arrays], expected)
        )
    matrices = [kernel, recurrent_kernel]
    return dialects.from_dialect(dialects.KERAS_CUDNN, rnn_mode, matrices, np.split(bias, 2))


def _mode(layer):
    """Returns the mode of a layer; raises `ExchangeError` if cuDNN has none that computes it."""
    if layer.problem:
        raise ExchangeError(layer.problem)
    if layer.mode:
        return layer.mode
    activation = layer.settings.get("activation")
    if layer.kind == "SimpleRNN":
        _require("activation", layer, activation in ("relu", "tanh"))
        return CUDNN_RNN_RELU if activation == "relu" else CUDNN_RNN_TANH
    _require("activation", layer, activation == "tanh")
    recurrent = layer.settings.get("recurrent_activation")
    _require("recurrent_activation", layer, recurrent == "sigmoid")
    if layer.kind == "GRU":
        _require("reset_after", layer, layer.settings.get("reset_after"))
        return CUDNN_GRU
    return CUDNN_LSTM


def _require(setting, layer, condition):
    if not condition:
        raise ExchangeError(
            "The layer %r has %s=%r, which cuDNN's RNNs do not compute."
            % (layer.name, setting, layer.settings.get(setting))
        )


def from_layer_weights(weights: Sequence[np.ndarray], rnn_mode: str, split: Any) -> LayerWeights:
    """Returns a `LayerWeights` for kernel, recurrent kernel and bias, if any, of a Keras layer.

    `split` makes two biases of one.
    """
    matrices = [np.asarray(matrix) for matrix in weights[:2]]
    if len(weights) == 2:
        biases = [zero_bias(matrices[0].T)] * (2 if rnn_mode == CUDNN_GRU else 1)
    else:
        biases = list(np.asarray(weights[2])) if rnn_mode == CUDNN_GRU else [np.asarray(weights[2])]
    return dialects.from_dialect(dialects.KERAS, rnn_mode, matrices, biases, split)
