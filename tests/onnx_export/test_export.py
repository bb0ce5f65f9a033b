"""`export_onnx` and `python -m cudnn_rnn export IN OUT.onnx`: names, checks, errors."""

import importlib
import os

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import control_flow_util_v2

import cudnn_rnn
from cudnn_rnn.cli.main import main
from cudnn_rnn.onnx import _branches
from helpers.keras_layers import IS_KERAS_3
from helpers.onnx_models import needs_tf2onnx, operators, run_onnx, write_frozen_graph
from helpers.sequence_cases import LENGTHS, LSTM, arrays_for
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, needs_tf2onnx]


@pytest.fixture
def frozen(tmp_path):
    """Writes a frozen graph; returns its path and the names of its inputs and outputs."""
    arrays = arrays_for(LSTM, LENGTHS["full"], "float32")
    names = write_frozen_graph(tmp_path / "rnn.pb", LSTM, arrays, version=3, is_training=False)
    return (tmp_path / "rnn.pb", *names)


def save_module(folder, function, *shapes, signatures=None):
    """Writes a SavedModel with a signature of float32 inputs a, b, ..."""
    module = tensorflow.Module()
    specs = [tensorflow.TensorSpec(shape, name=name) for shape, name in zip(shapes, "abc")]
    module.run = tensorflow.function(function, input_signature=specs)
    tensorflow.saved_model.save(module, str(folder), signatures=signatures or module.run)


@pytest.mark.sampled(4)
@needs_tensorflow_2
def test_the_command(tmp_path, capfd, frozen):
    """With random inputs and with given ones; OUT stays unless --force is given."""
    path, inputs, outputs = frozen
    out = tmp_path / "out.onnx"
    command = ["export", str(path), str(out), "--outputs", ",".join(outputs)]
    assert main(command) == 0
    printed = capfd.readouterr().out
    assert "Inputs input, input_h, input_c, sequence_lengths" in printed
    assert "outputs output, output_h, output_c." in printed
    assert "largest difference between TensorFlow's and ONNX Runtime's outputs" in printed
    assert "2 LSTM, GRU and RNN nodes; wrote %s." % out in printed
    assert main(command) == 1
    assert "exists. Choose another path, or" in capfd.readouterr().err
    os.mkfifo(str(tmp_path / "fifo.onnx"))
    assert main(["export", str(path), str(tmp_path / "fifo.onnx"), "--force"]) == 1
    assert "fifo.onnx is a device, a FIFO, a socket or a link" in capfd.readouterr().err
    (tmp_path / "fifo.onnx").unlink()
    arrays = arrays_for(LSTM, LENGTHS["mixed"], "float32")
    np.savez(str(tmp_path / "sample.npz"), **{name: arrays[name] for name in inputs})
    command += ["--force", "--inputs", ",".join(inputs)]
    assert main(command + ["--sample", str(tmp_path / "sample.npz")]) == 0
    assert main(command + ["--no-check", "--opset", "13"]) == 0
    assert "Results were not compared: check is False" in capfd.readouterr().err
    assert sorted(os.listdir(str(tmp_path))) == ["out.onnx", "rnn.pb", "sample.npz"]


@needs_tensorflow_2
@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "arguments, text",
    [
        (["missing", "out.onnx"], "missing does not exist"),
        (
            ["rnn.pb", "out.onnx"],
            "does not say which tensors are its outputs. Name them: --outputs NAME",
        ),
        (["rnn.pb", "out.onnx"], "uses these: 'output', 'output_h', 'output_c'"),
        (["rnn.pb", "out.onnx", "--outputs", "nothing"], "outputs has 'nothing', but"),
        (["rnn.pb", "out.onnx", "--outputs", "output", "--inputs", "x"], "inputs has 'x', but"),
        (["rnn.pb", "out.onnx", "--opset", "9"], "opset must be from 13 to"),
        (["rnn.pb", "out.onnx", "--opset", "99"], "opset must be from 13 to"),
        (["rnn.pb", "out.onnx", "--opset", "21"], "opset must be from 13 to 18, the newest that"),
        (["rnn.pb", "OUT.ONNX"], "does not say which tensors are its outputs"),
        (["k.keras", "out"], "k.keras is a Keras model, not the folder of a SavedModel. Load it"),
        (["rnn.pb", "out.onnx", "--training"], "--training is not for ONNX"),
        (["rnn.pb", "out", "--no-check"], "--no-check is only for an OUT that ends with .onnx"),
        (["text", "out.onnx"], "text cannot be read as a GraphDef"),
        (["half.pb", "out.onnx"], "cannot be read as a GraphDef"),
        (["damaged", "out.onnx"], "damaged cannot be exported to ONNX: Error parsing message"),
        (
            ["other.pb", "out.onnx", "--outputs", "output"],
            "other.pb cannot be exported to ONNX: Op",
        ),
        (["rnn.pb", "rnn.pb/out.onnx", "--outputs", "output"], "cannot be created"),
    ],
)
def test_errors_of_the_command(tmp_path, monkeypatch, capfd, frozen, arguments, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("this is no graph")
    (tmp_path / "k.keras").write_text("")
    content = frozen[0].read_bytes()
    (tmp_path / "half.pb").write_bytes(content[:-100])
    (tmp_path / "other.pb").write_bytes(content.replace(b"CudnnRNNV3", b"CudnnRNNV9"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "saved_model.pb").write_bytes(b"\x0a\xff\xff")
    before = sorted(os.listdir(str(tmp_path)))
    assert main(["export"] + arguments) == 1
    assert text in capfd.readouterr().err
    assert sorted(os.listdir(str(tmp_path))) == before


@needs_tensorflow_2
def test_outputs_that_are_one_tensor_or_an_input(tmp_path):
    """Each has its name; an input that nothing uses stays, as programs may feed it."""

    def function(a, b, c):
        doubled = 2.0 * a
        return {"z": doubled, "y": doubled, "x": a, "b_again": b}

    save_module(tmp_path / "model", function, [None, 3], [2], [5])
    done = cudnn_rnn.export_onnx(tmp_path / "model", tmp_path / "model.onnx")
    assert done.inputs == ["a", "b", "c"] and done.outputs == ["b_again", "x", "y", "z"]
    a, b = np.ones([4, 3], np.float32), np.zeros([2], np.float32)
    found = run_onnx(tmp_path / "model.onnx", {"a": a, "b": b, "c": np.zeros([5])})
    for name, expected in zip("xyz", (a, 2 * a, 2 * a)):
        np.testing.assert_array_equal(found[name], expected)
    done = cudnn_rnn.export_onnx(
        tmp_path / "model", tmp_path / "model.onnx", outputs=["z"], overwrite=True
    )
    assert done.outputs == ["z"]


@needs_tensorflow_2
def test_signatures(tmp_path):
    save_module(tmp_path / "model", lambda a: {"y": a + 1.0}, [2])
    for named, text in [
        (dict(signature="other"), "has no signature 'other'.* serving_default"),
        (dict(outputs=["z"]), r"has the inputs \['a'\] and the outputs \['y'\]"),
        (dict(inputs=["a"]), "inputs must be None"),
        (dict(sample={"b": [1.0]}), "sample has no array for the input 'a'; it has"),
        (dict(sample={"a": [1.0, 2.0, 3.0]}), "TensorFlow does not run the model with the shapes"),
    ]:
        with pytest.raises(ValueError, match=text):
            cudnn_rnn.export_onnx(tmp_path / "model", tmp_path / "model.onnx", **named)
    assert os.listdir(str(tmp_path)) == ["model"]


@needs_tensorflow_2
@pytest.mark.parametrize("is_saved_model", [False, True])
def test_a_graph_of_the_program(tmp_path, frozen, is_saved_model):
    """The caller's default graph is neither used nor changed."""
    model, _, outputs = frozen
    if is_saved_model:
        model, outputs = tmp_path / "saved", None
        save_module(model, lambda a: tensorflow.tanh(a), [2, 3])
    with tf.Graph().as_default() as graph:
        done = cudnn_rnn.export_onnx(str(model), str(tmp_path / "out.onnx"), outputs=outputs)
    assert done.largest_difference is not None and not graph.get_operations()


@needs_tensorflow_2
def test_wrong_results_are_not_written(tmp_path, monkeypatch, frozen):
    onnx_format = importlib.import_module("cudnn_rnn.exchange.onnx_format")
    right = onnx_format.arrays_of_layer
    monkeypatch.setattr(
        onnx_format, "arrays_of_layer", lambda *given: [1.1 * one for one in right(*given)]
    )
    path, inputs, outputs = frozen
    names = dict(inputs=inputs, outputs=outputs)
    out = tmp_path / "out.onnx"
    with pytest.raises(ValueError, match="computes other values than the original: output differs"):
        cudnn_rnn.export_onnx(path, out, **names)
    assert not out.exists()
    done = cudnn_rnn.export_onnx(path, out, check=False, **names)
    assert done.not_compared == "check is False" and out.exists()


@needs_tensorflow_2
def test_what_is_not_compared(tmp_path, monkeypatch, frozen):
    comparison = importlib.import_module("cudnn_rnn.onnx._comparison")
    save_module(tmp_path / "model", lambda a: {"y": a + tf.random.uniform([2])}, [2])
    done = cudnn_rnn.export_onnx(tmp_path / "model", tmp_path / "random.onnx")
    assert done.not_compared == "the model draws random numbers" and done.nodes == 0
    monkeypatch.setattr(comparison, "can_compare", lambda: False)
    done = cudnn_rnn.export_onnx(frozen[0], tmp_path / "out.onnx", outputs=frozen[2])
    assert "ONNX Runtime is not installed" in done.not_compared
    assert done.largest_difference is None


@needs_tensorflow_2
def test_operations_without_a_counterpart(tmp_path):
    save_module(tmp_path / "model", lambda a: {"y": tf.math.betainc(a, a, a / 9.0)}, [2])
    with pytest.raises(ValueError, match=r"cannot convert these operations: Betainc \(node '"):
        cudnn_rnn.export_onnx(tmp_path / "model", tmp_path / "model.onnx")


@needs_tensorflow_2
def test_nothing_is_run_that_does_more_than_compute(tmp_path):
    """Neither in a signature nor in what a loader runs; nor in a checkpoint's graph."""
    written = str(tmp_path / "written")

    def function(a):
        with tf.control_dependencies([tf.io.write_file(written, "text")]):
            return {"y": a + 1.0}

    save_module(tmp_path / "model", function, [2])
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=1.0, use_resource=True)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "saved"))
        outputs = {"y": tf.saved_model.build_tensor_info(variable + 1.0)}
        signature = tf.saved_model.signature_def_utils.build_signature_def({}, outputs, "predict")
        builder = tf.saved_model.Builder(str(tmp_path / "initialized"))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            main_op=tf.io.write_file(written, ""),
        )
        builder.save()
    for name in ("model", "initialized"):
        with pytest.raises(ValueError, match=r"\(WriteFile\) has a state or effects outside"):
            cudnn_rnn.export_onnx(tmp_path / name, tmp_path / "model.onnx")
    meta = tf.MetaGraphDef()
    meta.ParseFromString((tmp_path / "saved.meta").read_bytes())
    nodes = {node.name: node for node in meta.graph_def.node}
    with tf.Graph().as_default() as graph:
        tf.identity(tf.io.write_file(written, "text").name, "x")
        added = [node for node in graph.as_graph_def().node if node.name != "x"]
    meta.graph_def.node.extend(added)
    nodes[meta.saver_def.restore_op_name].input.append("^WriteFile")
    (tmp_path / "saved.meta").write_bytes(meta.SerializeToString())
    with pytest.raises(ValueError, match=r"\(WriteFile\) has a state or effects outside"):
        cudnn_rnn.export_onnx(tmp_path / "saved", tmp_path / "x.onnx", outputs=["v"])
    assert not os.path.exists(written)


@needs_tensorflow_2
def test_keras_models_in_memory(tmp_path):
    """Several inputs and outputs keep the order of the model; names of a graph are refused."""
    keras = tensorflow.keras
    second, first = keras.Input([4], name="second"), keras.Input([3], name="first")
    outputs = [keras.layers.Dense(2, name=name) for name in ("z", "y")]
    model = keras.Model([second, first], [outputs[0](second), outputs[1](first)])
    done = cudnn_rnn.export_onnx(model, tmp_path / "model.onnx")
    assert done.inputs == ["second", "first"] and done.outputs == ["z", "y"]
    arrays = {"first": np.ones([2, 3], np.float32), "second": np.ones([2, 4], np.float32)}
    found = run_onnx(tmp_path / "model.onnx", arrays)
    expected = [one.numpy() for one in model([arrays["second"], arrays["first"]])]
    np.testing.assert_allclose(found["z"], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found["y"], expected[1], rtol=1e-6)
    with pytest.raises(ValueError, match="A Keras model has the inputs and outputs of its layers"):
        cudnn_rnn.export_onnx(model, tmp_path / "other.onnx", outputs=["z"])


@needs_tensorflow_2
@pytest.mark.parametrize("is_saved", [False, True])
def test_states_between_calls_are_refused(tmp_path, is_saved):
    """Of a layer with stateful=True, in memory or in a SavedModel; a seed is no such state."""
    keras = tensorflow.keras
    ours = importlib.import_module("cudnn_rnn.keras")
    for layer, text in [
        (ours.LSTM(3, stateful=True), "from one call to the next, as layers with stateful=True do"),
        (ours.LSTM(3, dropout=0.5), None),
    ][: 1 if is_saved else 2]:
        model = keras.Sequential([keras.Input(batch_shape=(2, 5, 4)), layer])
        source = model
        if is_saved:
            source = tmp_path / ("model_%s" % layer.stateful)
            run = tensorflow.function(
                lambda x, model=model: {"y": model(x, training=False)},
                input_signature=[tensorflow.TensorSpec([2, 5, 4])],
            )
            tensorflow.saved_model.save(model, str(source), signatures=run)
        if text is None:
            assert cudnn_rnn.export_onnx(source, tmp_path / "model.onnx").nodes == 1
            continue
        with pytest.raises(ValueError, match=text):
            cudnn_rnn.export_onnx(source, tmp_path / "model.onnx")
        assert not (tmp_path / "model.onnx").exists()


@needs_tensorflow_2
def test_nodes_in_loops_and_branches(tmp_path):
    """A decoder that feeds its outputs back, and a model that may be left out."""
    import onnx

    layer = cudnn_rnn.CudnnLSTM(1, 4, 4)
    module = tensorflow.Module()
    module.params = tensorflow.Variable(tf.ones([int(layer.params_size())]) / 9.0)

    def call(x, h, c):
        return layer(x, h, c, module.params, is_training=False)

    def decode(x):
        state = tf.zeros([1, tf.shape(x)[1], 4])
        step = lambda i, *state: (i + 1, *call(*state))  # noqa: E731
        found = tf.while_loop(lambda i, *_: i < 5, step, (0, x, state, state))
        return {"y": found[1]}

    def choose(x):
        state = tf.zeros([1, tf.shape(x)[1], 4])
        return {"y": tf.cond(tf.reduce_sum(x) > 0.0, lambda: call(x, state, state)[0], lambda: x)}

    for function, operator in ((decode, "Loop"), (choose, "If")):
        module.run = tensorflow.function(
            function, input_signature=[tensorflow.TensorSpec([1, None, 4], name="x")]
        )
        tensorflow.saved_model.save(module, str(tmp_path / operator), signatures=module.run)
        path = tmp_path / ("%s.onnx" % operator)
        done = cudnn_rnn.export_onnx(tmp_path / operator, path)
        assert done.nodes == 1 and operator in operators(onnx.load(str(path)))
        inputs = np.random.RandomState(0).uniform(0.1, 1.0, (1, 3, 4)).astype(np.float32)
        for x in (inputs, -inputs):
            expected = function(tf.constant(x))["y"].numpy()
            found = run_onnx(path, {"x": x})["y"]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@needs_tensorflow_2
def test_results_of_branches_that_are_outputs():
    """No node uses the first result of the If, but the graph returns it; nothing uses the other."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [2, 3], "x")
        wanted = tf.reduce_sum(x) > 0.0
        found = tf.cond(wanted, lambda: (tf.tanh(x), x), lambda: (tf.sigmoid(x), -x))
        output = found[0].op.inputs[0]
        assert output.op.type in ("If", "StatelessIf")
    graph_def = graph.as_graph_def()
    for node in list(graph_def.node):  # the Identity nodes that tf.cond returns
        if node.op == "Identity" and node.input[0].startswith("cond"):
            graph_def.node.remove(node)
    _branches.replace_unused_results(graph_def, [output.name])
    for function in graph_def.library.function:
        returned = [function.ret[result.name] for result in function.signature.output_arg]
        assert ["unused" in result for result in returned] == [False, True]


@needs_tensorflow_2
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_unused_results_of_branches(tmp_path, rnn_mode):
    """In a graph of TensorFlow 1, branches also return what gradients need, as optionals."""
    layer = {"lstm": cudnn_rnn.CudnnLSTM, "gru": cudnn_rnn.CudnnGRU}[rnn_mode](2, 3, 4)
    random = np.random.RandomState(0)
    params = random.uniform(-1, 1, int(layer.params_size())).astype(np.float32)
    folder = str(tmp_path / "model")
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, [5, None, 4], "x")
        chosen = tf.placeholder(tf.float32, [], "chosen")
        states = [tf.zeros([2, tf.shape(x)[1], 3])] * (2 if rnn_mode == "lstm" else 1)
        variable = tf.get_variable("params", initializer=params, use_resource=True).read_value()

        def branch(scale):
            return tf.nn.tanh(layer(scale * x, *states, variable, is_training=False)[0])

        control_flow_util_v2.set_output_all_intermediates(True)
        try:
            y = tf.cond(chosen > 0.0, lambda: branch(2.0), lambda: branch(1.0))
        finally:
            control_flow_util_v2.set_output_all_intermediates(None)
        functions = graph.as_graph_def().library.function
        assert any(node.op == "OptionalFromValue" for one in functions for node in one.node_def)
        session.run(tf.global_variables_initializer())
        inputs = {"x": x, "chosen": chosen}
        tf.saved_model.simple_save(session, folder, inputs, {"y": y})
        data = random.uniform(-1, 1, (5, 2, 4)).astype(np.float32)
        expected = {value: session.run(y, {x: data, chosen: value}) for value in (-1.0, 1.0)}
    done = cudnn_rnn.export_onnx(folder, tmp_path / "model.onnx")
    assert done.nodes == 4 and done.largest_difference < 1e-5
    for value, array in expected.items():
        found = run_onnx(tmp_path / "model.onnx", {"x": data, "chosen": value})["y"]
        np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(4)
@needs_tensorflow_2
@pytest.mark.skipif(not IS_KERAS_3, reason="requires Keras 3")
@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "SimpleRNN"])
def test_exported_keras_models_with_dropout(tmp_path, is_ours, name):
    """Their seeds change in a function that the signature's calls; no output depends on these."""
    keras = tensorflow.keras
    layers = importlib.import_module("cudnn_rnn.keras") if is_ours else keras.layers
    options = dict(return_sequences=True, dropout=0.5)
    first = getattr(layers, name)(3, **options)
    second = getattr(layers, name)(3, recurrent_dropout=0.5)
    model = keras.Sequential([keras.Input((5, 4)), first, second])
    model.export(str(tmp_path / "model"), verbose=False)
    done = cudnn_rnn.export_onnx(tmp_path / "model", tmp_path / "model.onnx")
    x = np.random.RandomState(0).uniform(-1, 1, (2, 5, 4)).astype(np.float32)
    (found,) = run_onnx(tmp_path / "model.onnx", {done.inputs[0]: x}).values()
    np.testing.assert_allclose(found, model(x).numpy(), rtol=1e-5, atol=1e-6)


@needs_tensorflow_2
@pytest.mark.skipif(not IS_KERAS_3, reason="requires Keras 3")
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_exported_keras_models_with_states_are_refused(tmp_path, dropout):
    keras = tensorflow.keras
    layer = keras.layers.LSTM(3, stateful=True, dropout=dropout)
    model = keras.Sequential([keras.Input(batch_shape=(2, 5, 4)), layer])
    model.export(str(tmp_path / "model"), verbose=False)
    with pytest.raises(ValueError, match="from one call to the next, as layers with stateful=True"):
        cudnn_rnn.export_onnx(tmp_path / "model", tmp_path / "model.onnx")
