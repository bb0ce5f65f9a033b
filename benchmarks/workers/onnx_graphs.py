"""The ONNX models that ONNX Runtime and OpenVINO run: one LSTM, GRU or RNN node for each layer."""

import numpy as np
from gates import weights_of
from onnx import TensorProto, helper, numpy_helper
from problem import Refused

# The operator, and the index of the cuDNN gate for each of its gates.
_OPERATORS = {
    "lstm": ("LSTM", [0, 3, 1, 2]),
    "gru": ("GRU", [1, 0, 2]),
    "rnn_tanh": ("RNN", [0]),
    "rnn_relu": ("RNN", [0]),
}
INPUT = "x"


def _tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _make_model(nodes, inputs, outputs, initializers):
    graph = helper.make_graph(nodes, "network", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product_model(size):
    """Returns a model that multiplies two matrices, and its inputs by name."""
    a, b, product = [_tensor(name, [size, size]) for name in ("a", "b", "product")]
    nodes = [helper.make_node("MatMul", ["a", "b"], ["product"])]
    values = {name: np.ones((size, size), np.float32) for name in ("a", "b")}
    return _make_model(nodes, [a, b], [product], []), values


class NetworkModel:
    """The model of a configuration, which contains the weights; only for inference.

    proto: the `ModelProto`.
    xs: the arrays of the input INPUT: one `[T, B, I]` or, in a decode loop, `[1, B, I]` per call.
    values: the other inputs by name: `lengths` if there are lengths, and each layer's states.
    output: the name of the output `[T, B, D * H]`.
    states: a dict from the name of each initial state `[D, B, H]` to that of its final state.
    """

    def __init__(self, configuration, problem):
        if configuration.is_training:
            raise Refused("it does not support training")
        self._configuration, self._problem = configuration, problem
        x = problem.inputs[0]
        self.xs = [np.ascontiguousarray(part) for part in np.split(x, len(x))]
        if not configuration.is_decode:
            self.xs = [x]
        self.values, self.states = {}, {}
        self._nodes, self._inputs, self._outputs, self._initializers = [], [], [], []
        shape = [len(self.xs[0]), configuration.batch]
        self._inputs.append(_tensor(INPUT, shape + [configuration.input_size]))
        if configuration.has_lengths:
            self._inputs.append(_tensor("lengths", shape[1:], TensorProto.INT32))
            self.values["lengths"] = np.array(configuration.lengths, np.int32)
        joined_shape = shape + [configuration.num_directions * configuration.num_units]
        self._joined_shape = self._constant("joined_shape", np.array(joined_shape))
        self.output = INPUT
        for layer in range(configuration.num_layers):
            self.output = self._join(layer, self._add_layer(layer, self.output))
        outputs = [_tensor(self.output, joined_shape)] + self._outputs
        self.proto = _make_model(self._nodes, self._inputs, outputs, self._initializers)

    def _constant(self, name, value):
        self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _add_layer(self, layer, layer_input):
        """Adds the layer's node; returns the name of its output `[T, D, B, H]`."""
        configuration, directions = self._configuration, self._configuration.num_directions
        operator, order = _OPERATORS[configuration.rnn_mode]
        # The arrays of all directions `[D, ...]`, with gates in the operator's order.
        weights = self._problem.weights
        stacks = [weights_of((layer, one), weights, order) for one in range(directions)]
        w, r, bw, br = [np.stack([one[kind] for one in stacks]) for kind in ("w", "r", "bw", "br")]
        parts = {"W%d": w, "R%d": r, "B%d": np.concatenate([bw, br], axis=1)}
        constants = [self._constant(name % layer, value) for name, value in parts.items()]
        arguments = [layer_input, *constants, "lengths" if configuration.has_lengths else ""]
        results = ["y%d" % layer]
        shape = [directions, configuration.batch, configuration.num_units]
        for state, value in zip(configuration.states, self._problem.inputs[1:]):
            initial, final = ["%s_%s%d" % (when, state, layer) for when in ("initial", "final")]
            self._inputs.append(_tensor(initial, shape))
            self._outputs.append(_tensor(final, shape))
            rows = value[layer * directions : (layer + 1) * directions]
            self.values[initial] = np.ascontiguousarray(rows)
            self.states[initial] = final
            arguments.append(initial)
            results.append(final)
        direction = "bidirectional" if directions == 2 else "forward"
        attributes = {"hidden_size": configuration.num_units, "direction": direction}
        if operator == "GRU":
            attributes["linear_before_reset"] = 1
        if operator == "RNN":
            activation = configuration.rnn_mode[len("rnn_") :].capitalize()
            attributes["activations"] = [activation] * directions
        self._nodes.append(helper.make_node(operator, arguments, results, **attributes))
        return results[0]

    def _join(self, layer, output):
        """Adds nodes that make the output `[T, B, D * H]`; returns its new name."""
        joined, swapped = "joined%d" % layer, "swapped%d" % layer
        if self._configuration.num_directions == 2:
            node = helper.make_node("Transpose", [output], [swapped], perm=[0, 2, 1, 3])
            self._nodes.append(node)
            output = swapped
        self._nodes.append(helper.make_node("Reshape", [output, self._joined_shape], [joined]))
        return joined

    def results(self, outputs, final_states):
        """Returns the network's results, given the output of each call and the last states."""
        count = len(self._configuration.states)  # the states of a layer are neighbours
        states = [np.concatenate(final_states[first::count]) for first in range(count)]
        return [np.concatenate(outputs)] + states
