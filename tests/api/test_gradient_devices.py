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
import tensorflow
import tensorflow.compat.v1 as tf
import cudnn_rnn

if %d:
    tf.enable_eager_execution(tf.ConfigProto(device_count={"CPU": 3}))
else:
    (cpu,) = tensorflow.config.list_physical_devices("CPU")
    three = [tensorflow.config.LogicalDeviceConfiguration()] * 3
    tensorflow.config.set_logical_device_configuration(cpu, three)
model = cudnn_rnn.CudnnLSTM(%d, %d, %d)
x, states, params = tf.ones([%d, %d, 2]), tf.ones([2, 4, 3]), tf.ones([180])
with tf.GradientTape() as tape:
    tape.watch(params)
    with tf.device("/cpu:2"):
        output, _, _ = model(x, states, states, params, is_training=True)
    with tf.device("/cpu:1"):
        loss = tf.reduce_sum(output)
print("gradient of", output.device[-5:], "on", tape.gradient(loss, params).device[-5:])
"""


def test_the_device_of_an_eager_call():
    program = EAGER % (IS_TENSORFLOW_1, LAYERS, UNITS, WIDTH, STEPS, BATCH)
    assert "gradient of CPU:2 on CPU:2" in output_of("-c", program)
