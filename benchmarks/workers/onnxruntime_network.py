"""ONNX Runtime, inference only; for a peer of int8, with dynamic quantization.

Then the weights are quantized beforehand, and x and h in each call.
"""

import os
import tempfile

import onnx
import onnxruntime
from onnx_graphs import INPUT, NetworkModel, product_model
from onnxruntime.quantization import quantize_dynamic
from problem import Refused

_make_value = onnxruntime.OrtValue.ortvalue_from_numpy


def start(options):
    """Returns the versions; each session sets its own number of threads."""
    return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}


def _make_session(model, options):
    """Returns the session of a serialized model."""
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = options["threads"]
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    return onnxruntime.InferenceSession(model, chosen, providers=["CPUExecutionProvider"])


def _quantized(proto):
    """Returns the serialized model with weights of 7 bits.

    Processors without VNNI add two products of a weight and an unsigned byte in 16 bits; with
    weights of 8 bits, such sums overflow and results are wrong by a third.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "quantized.onnx")
        quantize_dynamic(proto, path, op_types_to_quantize=["LSTM"], reduce_range=True)
        with open(path, "rb") as file:
            return file.read()


def matrix_product(size, options):
    """Returns a function that multiplies two matrices."""
    model, values = product_model(size)
    session = _make_session(model.SerializeToString(), options)
    values = {name: _make_value(value) for name, value in values.items()}
    return lambda: session.run_with_ort_values(None, values)


class Network:
    """A session whose inputs and outputs are OrtValues, so nothing is copied from or to NumPy."""

    def __init__(self, configuration, problem, options):
        self._model = model = NetworkModel(configuration, problem)
        is_quantized = options["arithmetic"] == "int8"
        if is_quantized and configuration.rnn_mode != "lstm":
            raise Refused("it has no quantized operator but DynamicQuantizeLSTM")
        serialized = _quantized(model.proto) if is_quantized else model.proto.SerializeToString()
        self._session = _make_session(serialized, options)
        self._output_names = [model.output, *model.states.values()]
        self._values = {name: _make_value(value) for name, value in model.values.items()}
        self._xs = [_make_value(x) for x in model.xs]

    def step(self, keep=lambda output: None):
        """Runs once or, in a decode loop, for each step; returns the final states."""
        values = dict(self._values)
        for x in self._xs:
            values[INPUT] = x
            output, *states = self._session.run_with_ort_values(self._output_names, values)
            values.update(zip(self._model.states, states))
            keep(output)
        return states

    def results(self):
        """Returns the results."""
        outputs = []
        states = [state.numpy() for state in self.step(outputs.append)]
        return self._model.results([output.numpy() for output in outputs], states)
