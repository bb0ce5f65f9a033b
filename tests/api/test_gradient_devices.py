"""A gradient runs on the device of its forward call, which alone can read the reserve space."""

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.processes import output_of
from helpers.versions import IS_TENSORFLOW_1

LAYERS, UNITS, WIDTH, BATCH, STEPS = 2, 3, 2, 4, 5


def node_devices(forward_device, gradient_device):
    """Returns the types of the devices of the forward node and its gradient's, in a graph."""
    with tf.Graph().as_default() as graph:
        model = cudnn_rnn.CudnnLSTM(LAYERS, UNITS, WIDTH)
        params = tf.zeros([180])
        states = tf.zeros([LAYERS, BATCH, UNITS])
        with tf.device(forward_device):
            output, _, _ = model(tf.zeros([STEPS, BATCH, WIDTH]), states, states, params)
        with tf.device(gradient_device):
            tf.gradients(output, params)
        nodes = {node.type: node.device for node in graph.get_operations()}
    names = [name for name in nodes if name.startswith("CudnnRNN") and "Params" not in name]
    forward, gradient = sorted(names, key=len)
    return [nodes[name] for name in (forward, gradient)]


@pytest.mark.parametrize("gradient_device", ["/cpu:0", "/gpu:1", None])
@pytest.mark.parametrize("forward_device", ["/cpu:0", "/gpu:0", "/job:worker/task:3/gpu:1"])
def test_the_device_that_a_program_chose_in_a_graph(forward_device, gradient_device):
    forward, gradient = node_devices(forward_device, gradient_device)
    assert forward and gradient == forward


def test_a_node_without_a_device_leaves_the_gradient_to_its_own_scope():
    assert node_devices(None, None) == ["", ""]
    assert node_devices(None, "/cpu:0") == ["", "/device:CPU:0"]


EAGER = """
import sys
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops
import cudnn_rnn
from cudnn_rnn._native import gpu_kernels

if %d:
    tf.enable_eager_execution(tf.ConfigProto(device_count={"CPU": 3}))
else:
    (cpu,) = tensorflow.config.list_physical_devices("CPU")
    three = [tensorflow.config.LogicalDeviceConfiguration()] * 3
    tensorflow.config.set_logical_device_configuration(cpu, three)
if "labels" in sys.argv:  # as on a GPU machine
    gpu_kernels._choice = gpu_kernels.choice()._replace(labels=("CudnnRNNV3",))
def reporting(backprop):
    def run(*arguments, **options):
        results = backprop(*arguments, **options)
        print("gradient on", results[0].device[-5:])
        return results
    return run
for name in ("cudnn_rnn_backprop", "cudnn_rnn_backprop_v3"):
    setattr(gen_cudnn_rnn_ops, name, reporting(getattr(gen_cudnn_rnn_ops, name)))
model = cudnn_rnn.CudnnLSTM(%d, %d, %d)
x, states, params = tf.ones([%d, %d, 2]), tf.ones([2, 4, 3]), tf.ones([180])
lengths = [1, 5, 4, 2] if "lengths" in sys.argv else None
for device in ("/cpu:2", "/cpu:1"):
    with tf.GradientTape() as tape:
        tape.watch(params)
        with tf.device(device):
            output, _, _ = model(
                x, states, states, params, is_training=True, sequence_lengths=lengths
            )
        print("output on", output.device[-5:])
        with tf.device("/cpu:0"):
            loss = tf.reduce_sum(output)
    tape.gradient(loss, params)
"""
# With lengths, the op is a CudnnRNNV3; if its node has a label, an eager call runs in a function.
OPTIONS = [(), ("lengths",), ("lengths", "labels")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_the_device_of_an_eager_call(options):
    program = EAGER % (IS_TENSORFLOW_1, LAYERS, UNITS, WIDTH, STEPS, BATCH)
    lines = output_of("-c", program, *options).splitlines()
    devices = ["CPU:2", "CPU:1"]
    assert [line[-5:] for line in lines if line.startswith("output on")] == devices, lines
    assert [line[-5:] for line in lines if line.startswith("gradient on")] == devices, lines
