"""Runs models on a device and on the CPU with the kernels of default; see test_tensorflow_defaults.

Variables stay on the CPU, and no matrix product of TensorFlow runs on the GPU, where its library
may be missing.
"""

import contextlib
import functools
import traceback
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from op_placement import MOCK_DEVICE, growing_config, on

import cudnn_rnn
from helpers.op_harness import TOLERANCES, assert_close

LAYERS, UNITS, WIDTH, BATCH, STEPS = 2, 33, 19, 7, 13
LENGTHS = [13, 2, 7, 1, 13, 5, 4]


def make_arrays():
    """Returns the input, both states, the parameters and a factor of the output in the loss."""
    random = np.random.RandomState(3)
    gates = 4 * UNITS
    size = gates * (WIDTH + UNITS + 2) + (LAYERS - 1) * gates * (2 * UNITS + 2)
    shapes = [(STEPS, BATCH, WIDTH)] + [(LAYERS, BATCH, UNITS)] * 2 + [(size,)]
    shapes.append((STEPS, BATCH, UNITS))
    return [random.uniform(-0.5, 0.5, shape).astype(np.float32) for shape in shapes]


def named(values):
    return {str(index): np.asarray(value) for index, value in enumerate(values)}


def loss_of(outputs, factor):
    return sum(tf.reduce_sum(one) for one in outputs[1:]) + tf.reduce_sum(outputs[0] * factor)


def run_in_a_graph(device, lengths=None):
    """Returns results and gradients of a node of this package in a graph."""
    with tf1.Graph().as_default(), tf1.device("/cpu:0"):
        model = cudnn_rnn.CudnnLSTM(LAYERS, UNITS, WIDTH)
        *inputs, factor = map(tf.constant, make_arrays())
        with on(device):
            outputs = model(*inputs, sequence_lengths=lengths, is_training=True)
        loss = loss_of(outputs, factor)
        with on(device):
            gradients = tf1.gradients(loss, inputs)
        with tf1.Session(config=growing_config()) as session:
            return named(session.run(list(outputs) + gradients))


def run_eagerly(device, lengths=None):
    """Returns results and gradients of eager calls."""
    model = cudnn_rnn.CudnnLSTM(LAYERS, UNITS, WIDTH)
    with tf.device("/cpu:0"):
        *inputs, factor = map(tf.constant, make_arrays())
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        with tf.device(device):
            outputs = model(*inputs, sequence_lengths=lengths, is_training=True)
        assert on_expected_device(outputs[0], device), outputs[0].device
        with tf.device("/cpu:0"):
            loss = loss_of(outputs, factor)
    return named(list(outputs) + tape.gradient(loss, inputs))


def on_expected_device(tensor, device):
    found, expected = map(tf.DeviceSpec.from_string, (tensor.device, device))
    return found.device_type.lower() == expected.device_type.lower()


def convert(device):
    """Returns the canonical matrices and biases of the parameters, and these parameters again."""
    with tf1.Graph().as_default(), tf1.device("/cpu:0"):
        model = cudnn_rnn.CudnnLSTM(LAYERS, UNITS, WIDTH)
        params = tf.constant(make_arrays()[3])
        with on(device):
            weights, biases = model.params_to_canonical(params)
            again = model.canonical_to_params(weights, biases)
            weights_again, biases_again = model.params_to_canonical(again)
        with tf1.Session(config=growing_config()) as session:
            # The opaque buffer of one device may have gaps that another has not.
            return named(session.run(weights + biases + weights_again + biases_again))


def make_keras_layer():
    """Returns an LSTM of Keras, built on the CPU with weights that need no solver."""
    with tf.device("/cpu:0"):
        layer = tf.keras.layers.LSTM(
            UNITS, return_sequences=True, return_state=True, recurrent_initializer="zeros"
        )
        layer.build((BATCH, STEPS, WIDTH))
        random = np.random.RandomState(5)
        layer.set_weights([random.uniform(-0.5, 0.5, one.shape) for one in layer.get_weights()])
    return layer


def run_keras(layer, device):
    """Returns results and gradients of Keras's own layer, in a function; Keras chooses the op."""
    with tf.device("/cpu:0"):
        inputs = tf.constant(np.swapaxes(make_arrays()[0], 0, 1))
    variables = [variable.value for variable in layer.trainable_variables]

    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            with tf.device(device):
                outputs = layer(inputs)
            with tf.device("/cpu:0"):
                loss = sum(tf.reduce_sum(tf.square(one)) for one in outputs)
        with tf.device("/cpu:0"):  # the RNN's gradient runs on the RNN's device nevertheless
            return list(outputs) + tape.gradient(loss, [inputs] + variables)

    concrete = tf.function(run).get_concrete_function(inputs)
    return named(concrete(inputs)), labels_of(concrete.graph.as_graph_def())


def labels_of(graph_def):
    """Returns the kernel labels of the nodes CudnnRNNV3 in a graph, and in its functions."""
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes.extend(function.node_def)
    return [node.attr["_kernel"].s.decode() for node in nodes if node.op == "CudnnRNNV3"]


def pretended_gpu():
    """Lets Keras choose CudnnRNNV3 without a GPU; on a CPU, this package's kernel runs it."""
    return mock.patch.object(tf.config, "list_logical_devices", return_value=["a GPU"])


def compare_keras(device):
    layer = make_keras_layer()
    layer.use_cudnn = False
    expected, _ = run_keras(layer, "/cpu:0")
    layer.use_cudnn = "auto"
    with pretended_gpu() if device == MOCK_DEVICE else contextlib.nullcontext():
        found, theirs = run_keras(layer, device)
    assert_close(found, expected, 2 * TOLERANCES["float32"], "keras")
    with tf1.Graph().as_default() as graph:
        *inputs, _ = map(tf.constant, make_arrays())
        cudnn_rnn.CudnnLSTM(LAYERS, UNITS, WIDTH)(*inputs, sequence_lengths=LENGTHS)
        ours = labels_of(graph.as_graph_def())
    print("RESULT labels: keras %s, ours %s" % (theirs, ours))


def compare(run, device):
    assert_close(run(device), run("/cpu:0"), 2 * TOLERANCES["float32"], str(run))


def main(device):
    """Prints for each part whether the device agrees with the CPU."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    parts = {
        "graph": run_in_a_graph,
        "graph_with_lengths": functools.partial(run_in_a_graph, lengths=LENGTHS),
        "eager": run_eagerly,
        "eager_with_lengths": functools.partial(run_eagerly, lengths=LENGTHS),
        "conversions": convert,
    }
    checks = {name: functools.partial(compare, run) for name, run in parts.items()}
    checks["keras"] = compare_keras
    for name, check in checks.items():
        try:
            check(device)
            print("RESULT %s: agrees" % name, flush=True)
        except Exception:
            lines = traceback.format_exc().strip().splitlines()[-12:]
            print("\n".join("RESULT %s: %s" % (name, line) for line in lines))
