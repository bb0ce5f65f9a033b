"""Exports without this package's ops: SavedModels in text form, and what an export refuses."""

import os
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from google.protobuf import text_format
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import cudnn_rnn
from helpers.op_harness import relative_error

pytestmark = pytest.mark.ci

UNITS, WIDTH = 5, 4


def save_text_model(folder, with_rnn=True):
    """Writes the SavedModel of a GRU, or of a product, with one variable; returns its outputs."""
    values = np.random.RandomState(1).uniform(-0.5, 0.5, 3 * UNITS * (WIDTH + UNITS + 2))
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.ones([3, 2, WIDTH])
        params = tf.get_variable("params", initializer=values.astype(np.float32))
        outputs = params * 2.0
        if with_rnn:
            model = cudnn_rnn.CudnnGRU(1, UNITS, WIDTH)
            outputs = model(inputs, tf.zeros([1, 2, UNITS]), params, is_training=False)[0]
        outputs = tf.identity(outputs, "outputs")
        session.run(tf.global_variables_initializer())
        builder = tf.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"])
        builder.save(as_text=True)
        return session.run(outputs)


def test_a_saved_model_in_text_form(tmp_path):
    """The copy is in text form too, with the same variables and results."""
    expected = save_text_model(tmp_path / "fused")
    assert cudnn_rnn.export_plain(tmp_path / "fused", tmp_path / "plain") == 1
    assert sorted(os.listdir(str(tmp_path / "plain"))) == ["saved_model.pbtxt", "variables"]
    model = text_format.Parse((tmp_path / "plain" / "saved_model.pbtxt").read_text(), SavedModel())
    types = {node.op for node in model.meta_graphs[0].graph_def.node}
    assert "IdentityN" in types and not [name for name in types if name.startswith("CudnnRNN")]
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.loader.load(session, ["serve"], str(tmp_path / "plain"))
        assert relative_error(session.run("outputs:0"), expected) < 1e-5


def test_a_saved_model_without_nodes_is_refused(tmp_path):
    save_text_model(tmp_path / "model", with_rnn=False)
    with pytest.raises(ValueError, match="model has no CudnnRNN nodes: it runs without cudnn_rnn"):
        cudnn_rnn.export_plain(tmp_path / "model", tmp_path / "plain")
    assert os.listdir(str(tmp_path)) == ["model"]


@pytest.mark.parametrize("damage", ["no folder", "no index", "no data", "truncated", "changed"])
def test_damaged_variables_are_refused(tmp_path, damage):
    save_text_model(tmp_path / "model")
    variables = tmp_path / "model" / "variables"
    data = variables / "variables.data-00000-of-00001"
    content = data.read_bytes()
    if damage == "no folder":
        shutil.rmtree(str(variables))
    elif damage == "no index":
        (variables / "variables.index").unlink()
    elif damage == "no data":
        data.unlink()
    else:
        data.write_bytes(content[:100] if damage == "truncated" else b"\0\1" + content[2:])
    with pytest.raises(ValueError, match="model (has no file|cannot be read: its variable).*again"):
        cudnn_rnn.export_plain(tmp_path / "model", tmp_path / "plain")
    assert os.listdir(str(tmp_path)) == ["model"]


def test_missing_assets_are_refused(tmp_path):
    save_text_model(tmp_path / "model")
    path = tmp_path / "model" / "saved_model.pbtxt"
    model = text_format.Parse(path.read_text(), SavedModel())
    model.meta_graphs[0].asset_file_def.add(filename="words.txt")
    path.write_text(text_format.MessageToString(model))
    with pytest.raises(ValueError, match="has no file .*model/assets/words.txt, which its graph"):
        cudnn_rnn.export_plain(tmp_path / "model", tmp_path / "plain")
    (tmp_path / "model" / "assets").mkdir()
    (tmp_path / "model" / "assets" / "words.txt").write_text("a")
    assert cudnn_rnn.export_plain(tmp_path / "model", tmp_path / "plain") == 1


def test_a_function_that_returns_many_outputs_of_a_node():
    """All of them are renamed, whatever the order of protobuf's map."""
    graph_def = tf.GraphDef()
    function = graph_def.library.function.add()
    function.signature.name = "caller"
    with tf.Graph().as_default() as graph:
        one, none = tf.ones([1, 1, 1]), tf.ones([0])
        tf.raw_ops.CudnnRNN(
            input=one, input_h=one, input_c=none, params=tf.ones([4]), rnn_mode="rnn_relu"
        )
    graph_def.node.add(name="call", op="caller")
    function.node_def.extend(graph.as_graph_def().node)
    for node in function.node_def:
        node.input[:] = [name + ":output:0" for name in node.input]
    for number in range(64):
        name = "result_%d" % number
        function.signature.output_arg.add(name=name, type=tf.float32.as_datatype_enum)
        function.ret[name] = "CudnnRNN:output_h:0"
    plain = cudnn_rnn.plain_graph_def(graph_def)
    assert set(plain.library.function[0].ret.values()) == {"CudnnRNN:output:1"}


@pytest.mark.parametrize("name", ["num_layers", "num_units", "input_size"])
def test_a_size_that_is_computed_is_refused(name):
    """The ops that convert parameters have the sizes as inputs."""
    sizes = dict(num_layers=1, num_units=UNITS, input_size=WIDTH)
    with tf.Graph().as_default() as graph:
        sizes[name] = tf.placeholder(tf.int32, [], "computed")
        tf.raw_ops.CudnnRNNParamsSize(T=tf.float32, S=tf.int32, name="size", **sizes)
    message = (
        r"node 'size' \(CudnnRNNParamsSize\) in the graph cannot be rewritten: the input %s is "
        r"computed:0; expected a constant" % name
    )
    with pytest.raises(ValueError, match=message):
        cudnn_rnn.plain_graph_def(graph.as_graph_def())
