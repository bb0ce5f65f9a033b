"""Plain graphs with the conditionals and loops of TensorFlow 1, whose parts are nodes."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.model import layout
from helpers.op_harness import relative_error
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.usefixtures("control_flow_of_tensorflow_1")

LIMIT = 1e-5
STEPS, BATCH, WIDTH = 4, 2, 3
MODEL = cudnn_rnn.CudnnGRU(1, WIDTH, WIDTH)
RANDOM = np.random.RandomState(0)
INPUTS = RANDOM.standard_normal([STEPS, BATCH, WIDTH]).astype(np.float32)
PARAMS = RANDOM.uniform(-0.6, 0.6, layout.params_size(MODEL.config)).astype(np.float32)


def run_gru(inputs, state, factor=1.0):
    """Returns the output and the final state."""
    return MODEL(inputs, state, tf.constant(PARAMS * factor), is_training=False)


def graph_with_a_branch():
    with tf.Graph().as_default() as graph:
        inputs = tf.placeholder(tf.float32, [STEPS, BATCH, WIDTH], "inputs")
        is_first = tf.placeholder_with_default(True, [], "is_first")
        state = tf.zeros([1, BATCH, WIDTH])
        outputs = tf.cond(
            is_first, lambda: run_gru(inputs, state)[0], lambda: run_gru(inputs, state, 0.5)[0]
        )
        tf.identity(outputs, "outputs")
    assert any(node.op == "Switch" for node in graph.as_graph_def().node)
    return graph


@needs_tensorflow_2
def test_tflite_takes_branches():
    plain = cudnn_rnn.plain_graph_def(graph_with_a_branch().as_graph_def())
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.import_graph_def(plain, name="")
        inputs, is_first, outputs = [
            graph.get_tensor_by_name(name + ":0") for name in ("inputs", "is_first", "outputs")
        ]
        converter = tf.lite.TFLiteConverter.from_session(session, [inputs, is_first], [outputs])
        converter.target_spec.supported_ops = [tensorflow.lite.OpsSet.TFLITE_BUILTINS]
        interpreter = tensorflow.lite.Interpreter(model_content=converter.convert())
        interpreter.allocate_tensors()
        for value in (True, False):
            places = {one["name"]: one["index"] for one in interpreter.get_input_details()}
            interpreter.set_tensor(places["inputs"], INPUTS)
            interpreter.set_tensor(places["is_first"], np.array(value))
            interpreter.invoke()
            found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
            expected = session.run(outputs, {inputs: INPUTS, is_first: value})
            assert relative_error(found, expected) < LIMIT, value


def test_loops_over_the_same_inputs():
    """The input of the op is the same in all steps of the loop; only its state changes."""
    with tf.Graph().as_default() as graph:
        inputs, first = tf.constant(INPUTS), tf.zeros([1, BATCH, WIDTH])
        _, state = tf.while_loop(
            lambda count, _: count < 3,
            lambda count, state: (count + 1, run_gru(inputs, state)[1]),
            (0, first),
        )
        tf.identity(state, "state")
    with tf.Session(graph=graph) as session:
        expected = session.run("state:0")
    plain = cudnn_rnn.plain_graph_def(graph.as_graph_def(add_shapes=True))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(plain, name="")
        assert relative_error(session.run("state:0"), expected) < LIMIT
