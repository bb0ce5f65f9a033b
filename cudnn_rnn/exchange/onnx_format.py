"""ONNX models with the operators LSTM, GRU and RNN, which ONNX Runtime runs.

A model for one RNN; with several, `<scope>/` precedes every name:

    inputs   input         [time, batch, input_size]
             sequence_lens [batch] int32, optional; default: all steps
             initial_h     [num_layers * directions, batch, num_units], optional; default: zeros
             initial_c     likewise, only of an LSTM
    outputs  output        [time, batch, directions * num_units]
             output_h      [num_layers * directions, batch, num_units]
             output_c      likewise, only of an LSTM

An optional input is a graph input with an initializer, which ONNX Runtime uses if the input is not
fed. As the batch is not known then, the initializers have a batch of 1, and `Expand` repeats them.

ONNX's orders of gates are i, o, f, c and z (cuDNN's update gate u), r, h. Its GRU is cuDNN's if
`linear_before_reset` is 1. ONNX's LSTM has no projection.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn._core.config import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_RELU, CUDNN_RNN_TANH
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    library,
    name_of,
    prefixes,
    replacing,
    require_activation,
    sentence,
    zero_bias,
)
from cudnn_rnn.exchange.weights import LayerWeights, RnnWeights, reorder_gates

__all__ = ["from_model", "read", "to_model", "write"]

_OPSET, _IR_VERSION = 17, 8
_OPERATORS = {CUDNN_LSTM: "LSTM", CUDNN_GRU: "GRU", CUDNN_RNN_RELU: "RNN", CUDNN_RNN_TANH: "RNN"}
_ACTIVATIONS = {
    CUDNN_LSTM: ["Sigmoid", "Tanh", "Tanh"],
    CUDNN_GRU: ["Sigmoid", "Tanh"],
    CUDNN_RNN_RELU: ["Relu"],
    CUDNN_RNN_TANH: ["Tanh"],
}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# For each of ONNX's gates, its position in cuDNN's order, and the reverse.
_TO_ONNX = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
_FROM_ONNX = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
# Operators between the output of a layer and the input of the next that only rearrange.
_REARRANGING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity")
_ALL_STEPS = -1  # the default of sequence_lens


def to_model(rnns: Sequence[RnnWeights]) -> Any:
    """Returns an `onnx.ModelProto`.

    Raises:
      ExchangeError: an RNN has a projection, or the package onnx is missing.
    """
    onnx = library("onnx")
    graph = _Graph(onnx)
    for rnn, prefix in zip(rnns, prefixes(rnns, "/")):
        require_activation(rnn, "ONNX's RNN")
        if rnn.num_proj:
            raise ExchangeError(
                "%s has a projection (num_proj %d), which ONNX's LSTM does not have. PyTorch's "
                "has: --to torch." % (sentence(name_of(rnn.scope)), rnn.num_proj)
            )
        _add_rnn(graph, rnn, prefix)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes, "cudnn_rnn", graph.inputs, graph.outputs, graph.initializers
        ),
        producer_name="cudnn_rnn",
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """A graph under construction. Values are names."""

    def __init__(self, onnx):
        self._onnx = onnx
        self.nodes: List[Any] = []
        self.inputs: List[Any] = []
        self.outputs: List[Any] = []
        self.initializers: List[Any] = []

    def constant(self, name, array):
        """Adds an array; returns its name."""
        self.initializers.append(self._onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def integers(self, name, *values):
        return self.constant(name, np.array(values, np.int64))

    def node(self, operator, inputs, outputs, **attributes):
        """Adds a node; returns the name of its first output."""
        name = attributes.pop("name", outputs[0])
        make_node = self._onnx.helper.make_node
        self.nodes.append(make_node(operator, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def declare(self, place, name, dtype, shape):
        """Adds an input or output to the list `place`; returns its name."""
        helper = self._onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        place.append(helper.make_tensor_value_info(name, kind, shape))
        return name


def _add_rnn(graph, rnn, prefix):
    """Adds the nodes, inputs and outputs of one RNN."""
    states = ("h", "c") if rnn.rnn_mode == CUDNN_LSTM else ("h",)
    num_rows = rnn.num_layers * rnn.num_directions
    lengths, initial = _add_inputs(graph, rnn, prefix, states, num_rows)
    flat = graph.integers(prefix + "flat_shape", 0, 0, -1)
    layer_input = prefix + "input"
    final: Dict[str, List[str]] = {state: [] for state in states}
    for layer in range(rnn.num_layers):
        name = "%slayer_%d" % (prefix, layer)
        outputs = [name + "/" + output for output in ("Y",) + tuple("Y_" + s for s in states)]
        graph.node(
            _OPERATORS[rnn.rnn_mode],
            [layer_input]
            + _add_weights(graph, rnn, layer, name)
            + [lengths]
            + [initial[state][layer] for state in states],
            outputs,
            name=name,
            hidden_size=rnn.num_units,
            direction="bidirectional" if rnn.bidirectional else "forward",
            activations=_ACTIVATIONS[rnn.rnn_mode] * rnn.num_directions,
            **({"linear_before_reset": 1} if rnn.rnn_mode == CUDNN_GRU else {}),
        )
        for state, output in zip(states, outputs[1:]):
            final[state].append(output)
        # [time, directions, batch, num_units] to [time, batch, directions * num_units]
        moved = graph.node("Transpose", outputs[:1], [name + "/moved"], perm=[0, 2, 1, 3])
        is_last = layer == rnn.num_layers - 1
        layer_input = graph.node(
            "Reshape", [moved, flat], [prefix + "output" if is_last else name + "/output"]
        )
    width = rnn.num_directions * rnn.num_units
    graph.declare(graph.outputs, prefix + "output", rnn.dtype, ["time", "batch", width])
    # ONNX Runtime's final state of a sequence of length 0 is 0; cuDNN's is the initial state.
    is_empty = graph.node("Equal", [lengths, prefix + "zero"], [prefix + "has_length_0"])
    axes = graph.integers(prefix + "axes_around_batch", 0, 2)
    is_empty = graph.node("Unsqueeze", [is_empty, axes], [prefix + "is_empty"])  # [1, batch, 1]
    for state in states:
        last = graph.node("Concat", final[state], [prefix + "last_" + state], axis=0)
        whole = prefix + "initial_%s_of_each" % state
        output = graph.node("Where", [is_empty, whole, last], [prefix + "output_" + state])
        graph.declare(graph.outputs, output, rnn.dtype, [num_rows, "batch", rnn.num_units])


def _add_inputs(graph, rnn, prefix, states, num_rows):
    """Adds the inputs; returns the lengths and, by state, the initial states of all layers."""
    sequences = graph.declare(
        graph.inputs, prefix + "input", rnn.dtype, ["time", "batch", rnn.input_size]
    )
    shape = graph.node("Shape", [sequences], [prefix + "input_shape"])
    time, batch = (
        graph.node(
            "Gather", [shape, graph.integers(prefix + name + "_axis", axis)], [prefix + name]
        )
        for axis, name in enumerate(("num_steps", "batch_size"))
    )
    lengths = graph.declare(graph.inputs, prefix + "sequence_lens", np.int32, [None])
    graph.constant(lengths, np.array([_ALL_STEPS], np.int32))
    zero = graph.constant(prefix + "zero", np.array([0], np.int32))
    time = graph.node("Cast", [time], [prefix + "num_steps_int32"], to=6)  # TensorProto.INT32
    has_default = graph.node("Less", [lengths, zero], [prefix + "has_default_length"])
    lengths = graph.node("Where", [has_default, time, lengths], [prefix + "lengths"])
    lengths = graph.node("Expand", [lengths, batch], [prefix + "length_of_each"])

    dimensions = [
        graph.integers(prefix + name, value)
        for name, value in (("num_rows", num_rows), ("num_units", rnn.num_units))
    ]
    state_shape = graph.node(
        "Concat", [dimensions[0], batch, dimensions[1]], [prefix + "state_shape"], axis=0
    )
    sizes = graph.integers(prefix + "rows_of_layers", *[rnn.num_directions] * rnn.num_layers)
    initial = {}
    for state in states:
        name = prefix + "initial_" + state
        graph.declare(graph.inputs, name, rnn.dtype, [num_rows, None, rnn.num_units])
        graph.constant(name, np.zeros([num_rows, 1, rnn.num_units], rnn.dtype))
        whole = graph.node("Expand", [name, state_shape], [name + "_of_each"])
        parts = ["%s_%d" % (name, layer) for layer in range(rnn.num_layers)]
        graph.node("Split", [whole, sizes], parts, axis=0)
        initial[state] = parts
    return lengths, initial


def _add_weights(graph, rnn, layer, name):
    """Adds W, R and B of a layer; returns their names."""
    order = _TO_ONNX[_OPERATORS[rnn.rnn_mode]]

    def stacked(*fields):
        """Returns the fields of all directions, one after the other in each."""
        return np.stack(
            [
                np.concatenate([reorder_gates(getattr(weights, field), order) for field in fields])
                for weights in rnn.layers[layer]
            ]
        )

    return [
        graph.constant(name + "/W", stacked("input_weights")),
        graph.constant(name + "/R", stacked("recurrent_weights")),
        graph.constant(name + "/B", stacked("input_bias", "recurrent_bias")),
    ]


class _Node(NamedTuple):
    """An RNN node of a model."""

    node: Any
    rnn: RnnWeights  # of one layer
    source: Optional[str]  # the name of the RNN node whose output is this one's input


def from_model(model: Any) -> Contents:
    """Returns the RNNs in an `onnx.ModelProto`.

    A chain of nodes with only rearranging nodes between them is one RNN of several layers. Scopes
    are the names of nodes, without the part after the last `/`.

    Raises:
      ExchangeError: a node computes something that cuDNN's RNNs do not, or its weights are not
        constants of the model.
    """
    onnx = library("onnx")
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    producers = {}
    for node in model.graph.node:
        producers.update({output: node for output in node.output if output})
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            arrays[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    found = [
        _Node(node, _read_node(onnx, node, arrays), _source(node, producers))
        for node in model.graph.node
        if node.op_type in _GATES
    ]
    used = {name for one in found for name in one.node.input[1:4]}
    others = [name for name in arrays if name not in used]
    return Contents("", "ONNX model", _chained(found), others=others)


def _read_node(onnx, node, arrays):
    """Returns the `RnnWeights` of one node."""
    name = "The %s node %r" % (node.op_type, node.name)
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    direction = attributes.get("direction", b"forward").decode()
    num_directions = 2 if direction == "bidirectional" else 1
    rnn_mode = _mode(name, node, attributes, num_directions)
    inputs = list(node.input) + [""] * (8 - len(node.input))
    for place, value in zip("WR", inputs[1:3]):
        if value not in arrays:
            raise ExchangeError("%s: its input %s, %r, is no constant." % (name, place, value))
    if inputs[7]:
        raise ExchangeError("%s has peepholes, which cuDNN's LSTM does not have." % name)
    matrices, recurrent = arrays[inputs[1]], arrays[inputs[2]]
    order = _FROM_ONNX[node.op_type]
    biases = np.tile(zero_bias(recurrent[0]), [num_directions, 2])
    if inputs[3]:
        if inputs[3] not in arrays:
            raise ExchangeError("%s: its input B, %r, is no constant." % (name, inputs[3]))
        biases = arrays[inputs[3]]
    layer = [
        LayerWeights(
            *[
                reorder_gates(part, order)
                for part in (matrices[way], recurrent[way], *np.split(biases[way], 2))
            ]
        )
        for way in range(num_directions)
    ]
    return RnnWeights(rnn_mode, [layer], node.name.rpartition("/")[0].strip("/"))


def _mode(name, node, attributes, num_directions):
    """Returns the mode of a node; raises `ExchangeError` if cuDNN has none that computes it."""
    activations = [one.decode() for one in attributes.get("activations", [])]
    modes = [mode for mode, operator in _OPERATORS.items() if operator == node.op_type]
    default = CUDNN_RNN_TANH if node.op_type == "RNN" else modes[0]
    activations = activations or _ACTIVATIONS[default] * num_directions
    fitting = [mode for mode in modes if _ACTIVATIONS[mode] * num_directions == activations]
    wrong = {
        "direction": attributes.get("direction") == b"reverse",
        "activations": not fitting,
        "clip": bool(attributes.get("clip")),
        "input_forget": bool(attributes.get("input_forget")),
        "layout": bool(attributes.get("layout")),
        "linear_before_reset": node.op_type == "GRU" and not attributes.get("linear_before_reset"),
    }
    for attribute in [attribute for attribute, is_wrong in wrong.items() if is_wrong]:
        raise ExchangeError(
            "%s has %s=%r, which cuDNN's RNNs do not compute."
            % (name, attribute, attributes.get(attribute, 0))
        )
    return fitting[0]


def _source(node, producers):
    """Returns the name of the RNN node whose sequences are this node's input, or None."""
    name = node.input[0]
    while name in producers and producers[name].op_type in _REARRANGING:
        name = producers[name].input[0]
    producer = producers.get(name)
    is_layer = producer is not None and producer.op_type == node.op_type
    return producer.name if is_layer and producer.output[0] == name else None


def _chained(found: List[_Node]) -> List[RnnWeights]:
    """Returns one RNN for every chain of layers that fit."""
    chains: List[Tuple[str, RnnWeights]] = []  # (name of the last node, weights)
    for one in found:
        for index, (last, rnn) in enumerate(chains):
            if one.source == last and _fits(rnn, one.rnn):
                joined = RnnWeights(rnn.rnn_mode, rnn.layers + one.rnn.layers, rnn.scope)
                chains[index] = one.node.name, joined
                break
        else:
            chains.append((one.node.name, one.rnn))
    scopes = [rnn.scope for _, rnn in chains]
    return [
        rnn if scopes.count(rnn.scope) == 1 else rnn.with_scope(last or "rnn_%d" % index)
        for index, (last, rnn) in enumerate(chains)
    ]


def _fits(rnn, following):
    return (rnn.rnn_mode, rnn.num_units, rnn.bidirectional) == (
        following.rnn_mode,
        following.num_units,
        following.bidirectional,
    ) and following.input_size == rnn.num_directions * rnn.num_units


def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads a model. `facts` has no use here: a model is complete."""
    del facts
    onnx = library("onnx")
    try:
        model = onnx.load(path, load_external_data=False)
        _require_files_beside(path, model)
        onnx.load_external_data_for_model(model, os.path.dirname(os.path.abspath(path)))
        return from_model(model)._replace(path=path)
    except ExchangeError:
        raise
    except Exception as error:  # of protobuf and onnx, whose errors have no common class
        raise ExchangeError("%s cannot be read as an ONNX model: %s." % (path, error)) from error


def _require_files_beside(path, model):
    """Refuses a model that reads other files than those in its own folder."""
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location" and os.path.basename(entry.value) != entry.value:
                raise ExchangeError(
                    "%s has the data of %s in the file %r; expected one in its own folder."
                    % (path, tensor.name, entry.value)
                )


def write(path: str, rnns: Sequence[RnnWeights]) -> None:
    """Writes a model; see the head of this module."""
    model = to_model(rnns)
    with replacing(path) as temporary:
        library("onnx").save(model, temporary)
