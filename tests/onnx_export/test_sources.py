"""Whole models of all kinds in ONNX: results are those that the originals recorded."""

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.keras._fused_layer import IS_KERAS_3
from cudnn_rnn.model import layout
from helpers.golden import read_case
from helpers.keras_files import extract_old_model, names_of_old_models
from helpers.onnx_models import needs_tf2onnx, run_onnx
from helpers.op_harness import assert_close, relative_error
from helpers.paths import GOLDEN
from helpers.random_graphs import random_graph, random_inputs
from helpers.saved_models import extract_saved_model
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, needs_tensorflow_2, needs_tf2onnx]

GRAPHS = os.path.join(GOLDEN, "graphs")
KINDS = {"frozen": "frozen.pb", "meta": "model.meta", "saved_model": "saved_model"}


def golden_graphs():
    """Yields (folder, kind of file) of all graphs of TensorFlow 1.15.5."""
    for name in sorted(os.listdir(GRAPHS)):
        folder = os.path.join(GRAPHS, name)
        if os.path.isdir(folder):
            for kind in read_case(folder)[0]["kinds"]:
                yield pytest.param(folder, kind, id=name + "-" + kind)


@pytest.mark.parametrize("folder, kind", list(golden_graphs()))
def test_graphs_of_tensorflow_1(tmp_path, folder, kind):
    """Frozen, with a checkpoint, and as a SavedModel; some train, and are on a GPU."""
    case, arrays = read_case(folder)
    count = len(arrays) - 2 - 2 * case["training"]  # without inputs, params and gradients
    outputs = ["result_%d" % index for index in range(count)]
    names = dict(outputs=outputs, sample={"inputs": arrays["inputs"]})
    if kind != "saved_model":
        names["inputs"] = ["inputs"]
    path = tmp_path / "model.onnx"
    done = cudnn_rnn.export_onnx(os.path.join(folder, KINDS[kind]), path, **names)
    found = run_onnx(path, {name: arrays["inputs"] for name in done.inputs})
    expected = {name: arrays[name] for name in done.outputs}
    assert_close(found, expected, 1e-5, folder)
    has_loop = bool(case["num_proj"])
    assert done.nodes == (0 if has_loop else case["num_layers"]) and bool(done.loops) == has_loop
    assert done.largest_difference < 1e-5 and done.not_compared is None


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(24))
def test_random_graphs(tmp_path, seed):
    graph, outputs = random_graph(100 + seed)
    path = tmp_path / "frozen.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    named = dict(outputs=outputs, sample={"inputs": random_inputs(seed)})
    done = cudnn_rnn.export_onnx(path, tmp_path / "model.onnx", **named)
    assert done.nodes + len(done.loops) >= 2 and done.largest_difference < 1e-5


def graph_with_loops():
    """Returns a graph with an RNN in a loop, and one that takes a state from another loop."""
    with tf.Graph().as_default() as graph:
        inputs = tf.placeholder(tf.float32, [None, 2, 3], "inputs")
        gru = cudnn_rnn.CudnnGRU(1, 3, 3)
        size = layout.params_size(gru.config)
        params = tf.constant(np.random.RandomState(0).uniform(-0.5, 0.5, size).astype(np.float32))
        _, state = tf.while_loop(
            lambda count, _: count < 3,
            lambda count, state: (count + 1, gru(inputs, state, params, is_training=False)[1]),
            (0, tf.zeros([1, 2, 3])),
        )
        _, other = tf.while_loop(
            lambda count, _: count < 3,
            lambda count, state: (count + 1, state * 2.0),
            (0, tf.ones([1, 2, 3])),
        )
        outputs, _ = gru(inputs, other, params, is_training=False)
        tf.identity(state, "state")
        tf.identity(outputs, "outputs")
    return graph


def test_loops_of_frozen_graphs(tmp_path, control_flow):
    path = tmp_path / "frozen.pb"
    path.write_bytes(graph_with_loops().as_graph_def(add_shapes=True).SerializeToString())
    named = dict(outputs=["state", "outputs"], inputs=["inputs"])
    sample = np.random.RandomState(1).standard_normal([5, 2, 3]).astype(np.float32)
    named["sample"] = {"inputs": sample}
    done = cudnn_rnn.export_onnx(path, tmp_path / "model.onnx", **named)
    assert done.nodes == 2 and done.largest_difference < 1e-5


def test_shapes_that_the_file_does_not_have(tmp_path, control_flow_of_tensorflow_1):
    path = tmp_path / "frozen.pb"
    path.write_bytes(graph_with_loops().as_graph_def().SerializeToString())
    with pytest.raises(ValueError, match="sizes must be known.*graph.as_graph_def.add_shapes=True"):
        cudnn_rnn.export_onnx(path, tmp_path / "model.onnx", outputs=["state"])


def test_inputs_are_the_placeholders_of_the_outputs(tmp_path):
    """Not those of the Saver, two placeholders with defaults, nor those of other outputs."""
    with tf.Graph().as_default(), tf.Session() as session:
        first = tf.placeholder(tf.float32, [None, 2], "first")
        tf.placeholder(tf.float32, [None, 2], "unused")
        scale = tf.placeholder_with_default(tf.constant(2.0), [], "scale")
        tf.identity(first * scale * tf.get_variable("v", [2]), "y")
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "model"))
    path = tmp_path / "model.onnx"
    done = cudnn_rnn.export_onnx(tmp_path / "model.meta", path, outputs=["y"])
    assert done.inputs == ["first", "scale"] and done.largest_difference < 1e-6


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    ["tf1.15.5_cudnn_lstm", "tf2.4.4_bidirectional_gru", "tf2.8.4_masked_lstm"],
)
def test_saved_models_of_tf_keras(tmp_path, name):
    """Compiled models. But for CuDNNLSTM, their signatures call standard ops: tf2onnx's part."""
    path, arrays = extract_saved_model(name, tmp_path)
    done = cudnn_rnn.export_onnx(path, tmp_path / "model.onnx")
    found = run_onnx(tmp_path / "model.onnx", {done.inputs[0]: arrays["inputs"]})
    assert_close(found, {done.outputs[0]: arrays["outputs"][0]}, 1e-5, name)
    assert "cudnn_lstm" not in name or done.nodes == 1


def test_a_signature_that_trains_is_refused(tmp_path):
    path, _ = extract_saved_model("tf2.4.4_training_step", tmp_path)
    with pytest.raises(ValueError, match="has a state or effects outside the graph"):
        cudnn_rnn.export_onnx(path, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", names_of_old_models())
def test_models_of_older_keras(tmp_path, name):
    """With layers of cuDNN and others, nested, shared, masked, with states; of all releases."""
    path, inputs, outputs = extract_old_model(name, tmp_path)
    if "stateful" in name:
        with pytest.raises(ValueError, match="from one call to the next, as layers with stateful"):
            cudnn_rnn.export_onnx(path, tmp_path / "model.onnx")
        return
    if IS_KERAS_3 and name.endswith("mixed_cells"):
        # In a graph, TimeDistributed of Keras 3.15 takes the batch for an unknown number of steps.
        with pytest.raises(ValueError, match="computes other values than the original"):
            cudnn_rnn.export_onnx(path, tmp_path / "model.onnx")
        assert not (tmp_path / "model.onnx").exists()
        return
    done = cudnn_rnn.export_onnx(path, tmp_path / "model.onnx")
    found = run_onnx(tmp_path / "model.onnx", dict(zip(done.inputs, inputs)))
    for result, expected in zip(map(found.get, done.outputs), outputs):
        assert relative_error(result, expected) < 1e-5
    assert len(found) == len(outputs) and done.largest_difference < 1e-5
