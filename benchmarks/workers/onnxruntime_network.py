"""ONNX Runtime, inference only: a model with one LSTM, GRU or RNN node for each layer."""

import numpy as np
import onnx
import onnxruntime
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
_make_value = onnxruntime.OrtValue.ortvalue_from_numpy


def start(options):
    """Returns the versions; each session sets its own number of threads."""
    return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}


def _tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _make_session(nodes, inputs, outputs, initializers, options):
    graph = helper.make_graph(nodes, "network", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = options["threads"]
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), chosen, providers=["CPUExecutionProvider"]
    )


def matrix_product(size, options):
    """Returns a function that multiplies two matrices."""
    a, b, product = [_tensor(name, [size, size]) for name in ("a", "b", "product")]
    nodes = [helper.make_node("MatMul", ["a", "b"], ["product"])]
    session = _make_session(nodes, [a, b], [product], [], options)
    values = {name: _make_value(np.ones((size, size), np.float32)) for name in ("a", "b")}
    return lambda: session.run_with_ort_values(None, values)


class Network:
    """A session whose inputs and outputs are OrtValues, so nothing is copied from or to NumPy.

    The model contains the weights; `lengths` is an input if there are lengths. The states of each
    layer are inputs and outputs of the model.
    """

    def __init__(self, configuration, problem, options):
        if configuration.is_training:
            raise Refused("it does not support training")
        self._configuration, self._problem = configuration, problem
        steps = 1 if configuration.is_decode else configuration.steps
        shape = [steps, configuration.batch]
        self._inputs = [_tensor("x", shape + [configuration.input_size])]
        self._outputs, self._nodes, self._initializers = [], [], []
        self._values = {}
        if configuration.has_lengths:
            self._inputs.append(_tensor("lengths", shape[1:], TensorProto.INT32))
            self._values["lengths"] = _make_value(np.array(configuration.lengths, np.int32))
        joined, joined_shape = "x", shape + [configuration.num_directions * configuration.num_units]
        self._joined_shape = self._constant("joined_shape", np.array(joined_shape))
        for layer in range(configuration.num_layers):
            joined = self._join(layer, self._add_layer(layer, joined))
        outputs = [_tensor(joined, joined_shape)] + self._outputs
        parts = self._nodes, self._inputs, outputs, self._initializers
        self._session = _make_session(*parts, options)
        self._output_names = [one.name for one in outputs]
        # The state input that corresponds to each state output.
        self._state_inputs = [name.replace("final", "initial") for name in self._output_names[1:]]
        x = problem.inputs[0]
        parts = np.split(x, len(x)) if configuration.is_decode else [x]
        self._x = [_make_value(np.ascontiguousarray(part)) for part in parts]

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
            name = "%s%d" % (state, layer)
            self._inputs.append(_tensor("initial_" + name, shape))
            self._outputs.append(_tensor("final_" + name, shape))
            rows = value[layer * directions : (layer + 1) * directions]
            self._values["initial_" + name] = _make_value(np.ascontiguousarray(rows))
            arguments.append("initial_" + name)
            results.append("final_" + name)
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

    def step(self, keep=lambda output: None):
        """Runs once or, in a decode loop, for each step; returns the final states."""
        values = dict(self._values)
        for x in self._x:
            values["x"] = x
            output, *states = self._session.run_with_ort_values(self._output_names, values)
            values.update(zip(self._state_inputs, states))
            keep(output)
        return states

    def results(self):
        """Returns the results."""
        outputs, count = [], len(self._configuration.states)
        states = [state.numpy() for state in self.step(outputs.append)]
        output = np.concatenate([output.numpy() for output in outputs])
        return [output] + [np.concatenate(states[first::count]) for first in range(count)]
