"""ONNX Runtime, inference only: a model with one LSTM, GRU or RNN node for each layer."""

import os

import numpy as np
import onnx
import onnxruntime
from gates import reordered
from onnx import TensorProto, helper, numpy_helper
from refusal import Refused

_OPSET = 17
_IR_VERSION = 8
# The operator, and the index of the cuDNN gate for each of its gates.
_OPERATORS = {
    "lstm": ("LSTM", [0, 3, 1, 2]),
    "gru": ("GRU", [1, 0, 2]),
    "rnn_tanh": ("RNN", [0]),
    "rnn_relu": ("RNN", [0]),
}


def start(threads):
    """Returns the versions; each session sets its own number of threads."""
    return {
        "onnxruntime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "python": os.sys.version.split()[0],
    }


def _make_session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _finish(nodes, inputs, outputs, initializers):
    graph = helper.make_graph(nodes, "network", inputs, outputs, initializers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )


def matrix_product(size):
    """Returns a function that multiplies two matrices, with $OMP_NUM_THREADS threads."""
    value = np.ones((size, size), np.float32)
    model = _finish(
        [helper.make_node("MatMul", ["a", "b"], ["product"])],
        [_value("a", [size, size]), _value("b", [size, size])],
        [_value("product", [size, size])],
        [],
    )
    session = _make_session(model, int(os.environ["OMP_NUM_THREADS"]))
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name in ("a", "b")}
    return lambda: session.run_with_ort_values(None, values)


class _Model:
    """An ONNX model that contains the weights; `lengths` is an input if there are lengths."""

    def __init__(self, configuration, arrays, steps):
        self._configuration, self._arrays, self._steps = configuration, arrays, steps
        self._operator, self._order = _OPERATORS[configuration.rnn_mode]
        self._states = ["h", "c"] if configuration.has_cell_state else ["h"]
        self._inputs = [_value("x", [steps, configuration.batch, configuration.input_size])]
        self._outputs, self._nodes, self._initializers = [], [], []
        if configuration.has_lengths:
            self._inputs.append(_value("lengths", [configuration.batch], TensorProto.INT32))

    def build(self):
        """Returns the model of all layers."""
        configuration, joined = self._configuration, "x"
        for layer in range(configuration.num_layers):
            joined = self._join(layer, self._add_layer(layer, joined))
        width = configuration.num_directions * configuration.num_units
        output = _value(joined, [self._steps, configuration.batch, width])
        return _finish(self._nodes, self._inputs, [output] + self._outputs, self._initializers)

    def _constant(self, name, value):
        value = np.ascontiguousarray(value)
        self._initializers.append(numpy_helper.from_array(value, name))
        return name

    def _stacked(self, kind, layer):
        """Returns the arrays of all directions `[D, ...]`, with gates in the operator's order."""
        return np.stack(
            [
                reordered(self._arrays["%s_%d_%d" % (kind, layer, direction)], self._order)
                for direction in range(self._configuration.num_directions)
            ]
        )

    def _attributes(self):
        configuration = self._configuration
        directions = configuration.num_directions
        attributes = {
            "hidden_size": configuration.num_units,
            "direction": "bidirectional" if directions == 2 else "forward",
        }
        if self._operator == "GRU":
            attributes["linear_before_reset"] = 1
        if self._operator == "RNN":
            activation = configuration.rnn_mode[len("rnn_") :].capitalize()
            attributes["activations"] = [activation] * directions
        return attributes

    def _add_layer(self, layer, layer_input):
        """Adds the layer's node; returns the name of its output `[T, D, B, H]`."""
        configuration = self._configuration
        biases = [self._stacked(kind, layer) for kind in ("bw", "br")]
        arguments = [
            layer_input,
            self._constant("W%d" % layer, self._stacked("w", layer)),
            self._constant("R%d" % layer, self._stacked("r", layer)),
            self._constant("B%d" % layer, np.concatenate(biases, axis=1)),
            "lengths" if configuration.has_lengths else "",
        ]
        results = ["y%d" % layer]
        shape = [configuration.num_directions, configuration.batch, configuration.num_units]
        for state in self._states:
            name = "%s%d" % (state, layer)
            self._inputs.append(_value("initial_" + name, shape))
            self._outputs.append(_value("final_" + name, shape))
            arguments.append("initial_" + name)
            results.append("final_" + name)
        self._nodes.append(
            helper.make_node(self._operator, arguments, results, **self._attributes())
        )
        return results[0]

    def _join(self, layer, output):
        """Adds nodes that make the output `[T, B, D * H]`; returns its new name."""
        configuration, joined = self._configuration, "joined%d" % layer
        if configuration.num_directions == 1:
            axes = self._constant("axes%d" % layer, np.array([1], np.int64))
            self._nodes.append(helper.make_node("Squeeze", [output, axes], [joined]))
            return joined
        swapped = "swapped%d" % layer
        self._nodes.append(helper.make_node("Transpose", [output], [swapped], perm=[0, 2, 1, 3]))
        width = 2 * configuration.num_units
        shape = np.array([self._steps, configuration.batch, width], np.int64)
        shape_name = self._constant("shape%d" % layer, shape)
        self._nodes.append(helper.make_node("Reshape", [swapped, shape_name], [joined]))
        return joined


class Network:
    """A session whose inputs and outputs are OrtValues, so nothing is copied from or to NumPy."""

    def __init__(self, configuration, arrays, threads):
        if configuration.is_training:
            raise Refused("it does not support training")
        self._configuration = configuration
        steps = 1 if configuration.is_decode else configuration.steps
        model = _Model(configuration, arrays, steps).build()
        self._session = _make_session(model, threads)
        self._outputs = [output.name for output in self._session.get_outputs()]
        make = onnxruntime.OrtValue.ortvalue_from_numpy
        self._values = {}
        directions = configuration.num_directions
        for layer in range(configuration.num_layers):
            for state in ["h", "c"] if configuration.has_cell_state else ["h"]:
                rows = arrays["input_" + state][layer * directions : (layer + 1) * directions]
                self._values["initial_%s%d" % (state, layer)] = make(np.ascontiguousarray(rows))
        if configuration.has_lengths:
            self._values["lengths"] = make(np.array(configuration.lengths, np.int32))
        if configuration.is_decode:
            self._inputs = [
                make(np.ascontiguousarray(arrays["input"][time : time + 1]))
                for time in range(configuration.steps)
            ]
            self.step = self._decode
        else:
            self._values["x"] = make(arrays["input"])
            self.step = self._infer

    def _infer(self):
        return self._session.run_with_ort_values(self._outputs, self._values)

    def _decode(self, keep=lambda output: None):
        values = dict(self._values)
        # The state input that corresponds to each state output.
        names = [name.replace("final", "initial") for name in self._outputs[1:]]
        for x in self._inputs:
            values["x"] = x
            output, *states = self._session.run_with_ort_values(self._outputs, values)
            values.update(zip(names, states))
            keep(output)
        return states

    def results(self):
        """Returns the results by name."""
        if self._configuration.is_decode:
            outputs = []
            states = self._decode(outputs.append)
            output = np.concatenate([output.numpy() for output in outputs])
        else:
            first, *states = self._infer()
            output = first.numpy()
        found = {"output": output}
        for state in ["h", "c"] if self._configuration.has_cell_state else ["h"]:
            found["output_" + state] = np.concatenate(
                [
                    value.numpy()
                    for name, value in zip(self._outputs[1:], states)
                    if name.startswith("final_" + state)
                ]
            )
        return found
