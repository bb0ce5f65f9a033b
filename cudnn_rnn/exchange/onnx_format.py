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

import collections
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange import onnx_checks, onnx_stacks
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    Format,
    library,
    name_of,
    prefixes,
    replacing,
    require_activation,
    sentence,
    zero_bias,
)
from cudnn_rnn.exchange.onnx_arrays import Constants, is_of_onnx
from cudnn_rnn.model import dialects
from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_RELU, CUDNN_RNN_TANH
from cudnn_rnn.model.weights import RnnWeights

__all__ = ["from_model", "read", "to_model", "write"]

_OPSET, _IR_VERSION = 17, 8
OPERATORS = {CUDNN_LSTM: "LSTM", CUDNN_GRU: "GRU", CUDNN_RNN_RELU: "RNN", CUDNN_RNN_TANH: "RNN"}
_ACTIVATIONS = {
    CUDNN_LSTM: ["Sigmoid", "Tanh", "Tanh"],
    CUDNN_GRU: ["Sigmoid", "Tanh"],
    CUDNN_RNN_RELU: ["Relu"],
    CUDNN_RNN_TANH: ["Tanh"],
}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ORDERS = {  # what a note says of layers that are not stacked
    False: " in an order of axes that stacked layers do not have",
    None: ", but the order of its axes is not certain",
}
_ALL_STEPS = -1  # the default of sequence_lens
MOST_BYTES = 2**31 - 1  # limit of a protobuf message


def to_model(rnns: Sequence[RnnWeights]) -> Any:
    """Returns an `onnx.ModelProto`.

    Raises:
      ExchangeError: an RNN has a projection, the weights are too many for a file, or the package
        onnx is missing.
    """
    onnx = library("onnx", "onnx")
    graph = _Graph(onnx)
    for rnn in rnns:
        require_activation(rnn, "ONNX's RNN")
        if rnn.num_proj:
            raise ExchangeError(
                "%s has a projection (num_proj %d), which ONNX's LSTM does not have. PyTorch's "
                "has: --to torch." % (sentence(name_of(rnn.scope)), rnn.num_proj)
            )
    weights = [one for rnn in rnns for layer in rnn.layers for one in layer]
    _require_size(sum(array.nbytes for one in weights for array in one if array is not None))
    for rnn, prefix in zip(rnns, prefixes(rnns, "/")):
        _add_rnn(graph, rnn, prefix)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes, "cudnn_rnn", graph.inputs, graph.outputs, graph.initializers
        ),
        producer_name="cudnn_rnn",
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    _require_size(model.ByteSize())
    onnx.checker.check_model(model, full_check=True)
    return model


def _require_size(size):
    """Raises `ExchangeError` if a model with so many bytes fits into no file."""
    if size > MOST_BYTES:
        raise ExchangeError(
            "The weights take %d bytes; an ONNX file can have %d. Write each RNN to a file of its "
            "own (--scope) if there are several, or another format: --to torch or --to npz."
            % (size, MOST_BYTES)
        )


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
    operator, attributes = operator_and_attributes(rnn.rnn_mode, rnn.num_units, rnn.num_directions)
    for layer in range(rnn.num_layers):
        name = "%slayer_%d" % (prefix, layer)
        outputs = [name + "/" + output for output in ("Y",) + tuple("Y_" + s for s in states)]
        weights = [
            graph.constant("%s/%s" % (name, place), array)
            for place, array in zip("WRB", arrays_of_layer(rnn, layer))
        ]
        of_layer = [initial[state][layer] for state in states]
        inputs = [layer_input, *weights, lengths, *of_layer]
        graph.node(operator, inputs, outputs, name=name, **attributes)
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


def operator_and_attributes(
    rnn_mode: str, num_units: int, num_directions: int
) -> Tuple[str, Dict[str, Any]]:
    """Returns the operator of the nodes of an RNN's layers, and their attributes."""
    attributes = {
        "hidden_size": num_units,
        "direction": "bidirectional" if num_directions == 2 else "forward",
        "activations": _ACTIVATIONS[rnn_mode] * num_directions,
    }
    if rnn_mode == CUDNN_GRU:
        attributes["linear_before_reset"] = 1
    return OPERATORS[rnn_mode], attributes


def arrays_of_layer(rnn: RnnWeights, layer: int) -> List[np.ndarray]:
    """Returns a layer's W, R and B, each `[directions, gates * num_units, ...]`."""
    by_direction = []
    for weights in rnn.layers[layer]:
        matrices, biases = dialects.to_dialect(dialects.ONNX, rnn.rnn_mode, weights)
        by_direction.append([*matrices, np.concatenate(biases)])
    return [np.stack(arrays) for arrays in zip(*by_direction)]


class _Node(NamedTuple):
    """An RNN node of a model."""

    node: Any
    rnn: RnnWeights  # of one layer
    source: Optional[onnx_stacks.Source]

    @property
    def output(self):
        return self.node.output[0] if self.node.output else ""


def from_model(model: Any) -> Contents:
    """Returns the RNNs in an `onnx.ModelProto`.

    A chain of nodes is one RNN of several layers if only rearranging nodes are between them, in the
    way that stacked layers need. Scopes are the names of nodes, without the part after the last
    `/`.

    Raises:
      ExchangeError: a node computes something that cuDNN's RNNs do not, its weights are not
        constants of the model, or their shapes do not fit.
    """
    contents = _contents(model, None)
    if contents.problems:
        raise ExchangeError("\n".join(contents.problems))
    return contents


def _contents(model, path):
    """Returns the RNNs in a model whose file is `path`, and the nodes that cannot be read."""
    onnx_checks.require_text(model.graph)
    constants = Constants(model, path)
    producers: Dict[str, Any] = {}
    for node in model.graph.node:
        for output in filter(None, node.output):
            if output in producers:
                raise ExchangeError("The model has two nodes with the output %r." % output)
            producers[output] = node
    nodes, weights, problems = [], {}, []
    for node in model.graph.node:
        if node.op_type in _GATES and is_of_onnx(node):
            try:
                rnn_mode = _checked_mode(node, constants)
            except ExchangeError as error:
                problems.append(str(error))
                continue
            nodes.append(node)
            weights[id(node)] = _read_node(node, rnn_mode, constants)
    if problems and not nodes:
        raise ExchangeError("\n".join(problems + onnx_checks.notes(model, _GATES)))
    onnx_checks.require_inputs(model.graph, producers, constants)

    def sizes(node):
        rnn = weights.get(id(node))
        return (1, 0) if rnn is None else (rnn.num_directions, rnn.num_units)

    stacks = onnx_stacks.Stacks(model.graph, producers, sizes, constants)
    rnn_nodes = [_Node(node, weights[id(node)], stacks.source(node)) for node in nodes]
    used = {constants.origin(name) for node in nodes for name in node.input[1:4]}
    # Numbers of the model; not sizes and axes, nor the defaults of inputs.
    inputs = {value.name for value in model.graph.input}
    others = [
        name
        for name in constants.names
        if name not in used and name not in inputs and constants.is_floating(name)
    ]
    notes = [
        "The %s node %r takes the output of another layer%s. It is read as an RNN of its own."
        % (layer.node.op_type, layer.node.name, _ORDERS[layer.source.is_stacked])
        for layer in rnn_nodes
        if layer.source is not None
        and not layer.source.is_stacked
        and id(producers[layer.source.output]) in weights
    ]
    notes += onnx_checks.notes(model, _GATES)
    return Contents("", "ONNX model", _chained(rnn_nodes), notes, others, problems=problems)


def _name_of(node):
    return "The %s node %r" % (node.op_type, node.name)


def _attributes_of(node):
    value_of = library("onnx", "onnx").helper.get_attribute_value
    return {attribute.name: value_of(attribute) for attribute in node.attribute}


def _directions_of(attributes):
    return 2 if attributes.get("direction") == b"bidirectional" else 1


def _inputs_of(node):
    """Returns the names of all 8 inputs of a node; those at the end may be left out."""
    return list(node.input) + [""] * (8 - len(node.input))


def _checked_mode(node, constants):
    """Returns the mode of a node; raises `ExchangeError` if cuDNN or its weights do not fit."""
    name, inputs, attributes = _name_of(node), _inputs_of(node), _attributes_of(node)
    rnn_mode = _mode(name, node, attributes, _directions_of(attributes))
    if inputs[7]:
        raise ExchangeError("%s has peepholes, which cuDNN's LSTM does not have." % name)
    for place, value in zip("WRB", inputs[1:4]):
        if value not in constants and (value or place != "B"):
            raise ExchangeError("%s: its input %s, %r, is no constant." % (name, place, value))
    return rnn_mode


def _read_node(node, rnn_mode, constants):
    """Returns the `RnnWeights` of one node."""
    name, inputs, attributes = _name_of(node), _inputs_of(node), _attributes_of(node)
    num_directions = _directions_of(attributes)
    matrices, recurrent = [constants.array(value) for value in inputs[1:3]]
    biases = constants.array(inputs[3]) if inputs[3] else None
    num_units = recurrent.shape[-1] if recurrent.ndim else 0
    rows, width = _GATES[node.op_type] * num_units, matrices.shape[-1] if matrices.ndim else 0
    _check_shapes(
        name,
        [
            ("W", matrices, [num_directions, rows, width]),
            ("R", recurrent, [num_directions, rows, num_units]),
            ("B", biases, [num_directions, 2 * rows]),
        ],
    )
    if attributes.get("hidden_size", num_units) != num_units:
        raise ExchangeError(
            "%s has hidden_size=%r; expected %d, as R has shape %s."
            % (name, attributes["hidden_size"], num_units, list(recurrent.shape))
        )
    if biases is None:
        biases = np.tile(zero_bias(recurrent[0]), [num_directions, 2])
    layer = [
        dialects.from_dialect(dialects.ONNX, rnn_mode, [w, r], np.split(both, 2))
        for w, r, both in zip(matrices, recurrent, biases)
    ]
    return RnnWeights(rnn_mode, [layer], node.name.rpartition("/")[0].strip("/"))


def _check_shapes(name, tensors):
    """Raises unless W, R and B of a node have the shapes that its direction needs."""
    for place, array, shape in tensors:
        if array is not None and (list(array.shape) != shape or not array.size):
            raise ExchangeError(
                "%s: its %s has shape %s; expected %s, with at least one element, for its "
                "direction (one unless it is bidirectional)."
                % (name, place, list(array.shape), shape)
            )


def _mode(name, node, attributes, num_directions):
    """Returns the mode of a node; raises `ExchangeError` if cuDNN has none that computes it."""
    activations = [activation.decode() for activation in attributes.get("activations", [])]
    modes = [mode for mode, operator in OPERATORS.items() if operator == node.op_type]
    default = CUDNN_RNN_TANH if node.op_type == "RNN" else modes[0]
    activations = activations or _ACTIVATIONS[default] * num_directions
    fitting = [mode for mode in modes if _ACTIVATIONS[mode] * num_directions == activations]
    directions = (b"forward", b"bidirectional")
    wrong = {
        "direction": attributes.get("direction", b"forward") not in directions,
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


def _chained(nodes: List[_Node]) -> List[RnnWeights]:
    """Returns one RNN for every chain of layers that fit."""
    chains: List[List[_Node]] = []
    by_output: Dict[str, List[_Node]] = {}  # the chain whose last node has this output
    for node in nodes:
        chain = None
        if node.source is not None and node.source.is_stacked:
            chain = by_output.get(node.source.output)
        if chain is not None and _fits(chain[-1].rnn, node.rnn):
            del by_output[chain[-1].output]
            chain.append(node)
        else:
            chain = [node]
            chains.append(chain)
        by_output[node.output] = chain
    rnns = [
        RnnWeights(
            chain[0].rnn.rnn_mode,
            [layer for node in chain for layer in node.rnn.layers],
            chain[0].rnn.scope,
        )
        for chain in chains
    ]
    counts = collections.Counter(rnn.scope for rnn in rnns)
    return [
        rnn if counts[rnn.scope] == 1 else rnn.with_scope(chain[-1].node.name or "rnn_%d" % index)
        for index, (chain, rnn) in enumerate(zip(chains, rnns))
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
    onnx = library("onnx", "onnx")
    try:
        # The format does not depend on the name: a name without .onnx is one of a textual format.
        model = onnx.load(path, format="protobuf", load_external_data=False)
        return _contents(model, path)._replace(path=path)
    except ExchangeError:
        raise
    except Exception as error:  # of protobuf and onnx, whose errors have no common class
        raise ExchangeError("%s cannot be read as an ONNX model: %s." % (path, error)) from error


def write(path: str, rnns: Sequence[RnnWeights]) -> None:
    """Writes a model; see the head of this module."""
    model = to_model(rnns)
    with replacing(path) as temporary:
        library("onnx", "onnx").save(model, temporary)


FORMAT = Format("onnx", "an ONNX model", (".onnx",), lambda path: False, read, write)
