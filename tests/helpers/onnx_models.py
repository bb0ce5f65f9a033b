"""Graphs with one `CudnnRNN*` node, exported to ONNX and run by ONNX Runtime."""

import importlib.util

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from helpers.op_harness import FORWARD_OPS, model_attributes, projection_attribute

needs_tf2onnx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tf2onnx", "onnxruntime"))),
    reason="tf2onnx or onnxruntime is not installed",
)
_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int32)": np.int32,
}
INPUTS = ("input", "input_h", "input_c", "params", "sequence_lengths")


def write_frozen_graph(path, configuration, arrays, **options):
    """Writes a frozen graph as `rnn_graph` makes it; returns (inputs, outputs), lists of names."""
    with tf.Graph().as_default() as graph:
        names = rnn_graph(configuration, arrays, **options)
        path.write_bytes(graph.as_graph_def().SerializeToString())
    return names


def rnn_graph(
    configuration, arrays, version=1, time_major=True, has_constant_params=True, **attributes
):
    """Adds a node whose inputs are placeholders, with unknown batch and time.

    Returns lists of the names of inputs and outputs, as ONNX has them.
    """
    tensors, dtype = {}, tf.as_dtype(arrays["input"].dtype)
    for name in INPUTS:
        if name == "params" and has_constant_params:
            tensors[name] = tf.constant(arrays[name])
        elif name in arrays:
            kind = tf.int32 if name == "sequence_lengths" else dtype
            shape = shape_with_unknown(name, arrays[name].shape, time_major)
            tensors[name] = tf.placeholder(kind, shape, name)
    given = [name for name in tensors if not (name == "params" and has_constant_params)]
    if "input_c" not in tensors:
        tensors["input_c"] = tf.constant([], dtype)
    if version == 3:
        attributes.update(projection_attribute(configuration), time_major=time_major)
        if "sequence_lengths" not in tensors:  # as Keras 3 does
            shape = tf.shape(tensors["input"])
            axes = (1, 0) if time_major else (0, 1)
            tensors["sequence_lengths"] = tf.fill([shape[axes[0]]], shape[axes[1]])
    attributes.update(model_attributes(configuration))
    node = getattr(gen_cudnn_rnn_ops, FORWARD_OPS[version])(**tensors, **attributes)
    outputs = ["output", "output_h", "output_c"][: 3 if configuration.rnn_mode == "lstm" else 2]
    for name, tensor in zip(outputs, node):
        tf.identity(tensor, name)
    return given, outputs


def shape_with_unknown(name, shape, time_major):
    """Returns a shape without the batch and the number of time steps."""
    if len(shape) == 1:
        return list(shape) if name == "params" else [None]
    if name == "input":
        return [None, None, shape[2]]
    return [shape[0], None, shape[2]] if time_major else [None, shape[1], shape[2]]


def export_and_run(folder, configuration, arrays, **options):
    """Exports a graph; returns (`OnnxExport`, results by name, the `onnx.ModelProto`)."""
    import onnx

    inputs, outputs = write_frozen_graph(folder / "rnn.pb", configuration, arrays, **options)
    path = folder / "rnn.onnx"
    names = dict(inputs=inputs, outputs=outputs)
    done = cudnn_rnn.export_onnx(folder / "rnn.pb", path, overwrite=True, check=False, **names)
    return done, run_onnx(path, {name: arrays[name] for name in inputs}), onnx.load(str(path))


def run_onnx(path, feeds):
    """Returns the outputs of a model by name; inputs that it does not have are ignored.

    Arrays are converted to the dtypes that it takes.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    fed = {
        value.name: np.asarray(feeds[value.name]).astype(_DTYPES[value.type])
        for value in session.get_inputs()
    }
    return dict(zip(names, session.run(names, fed)))


def operators(model):
    """Returns the operators of the nodes of a model."""
    return [node.op_type for node in model.graph.node]
