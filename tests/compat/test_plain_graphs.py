"""Exported graphs and SavedModels run without this package, with the results of the fused ops."""

import errno
import glob
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops
from cudnn_rnn._compat import has_projection
from cudnn_rnn._native import library
from cudnn_rnn.cli.main import main
from cudnn_rnn.model import layout
from helpers.golden import read_case
from helpers.op_harness import TOLERANCES, assert_close, relative_error
from helpers.paths import GOLDEN, ROOT
from helpers.processes import output_of
from helpers.versions import needs_projection, needs_tensorflow_2

pytestmark = pytest.mark.ci

GRAPHS = os.path.join(GOLDEN, "graphs")
LAYERS, UNITS, WIDTH, BATCH, STEPS = 2, 5, 4, 3, 6
LENGTHS = [6, 0, 4]
LIMIT = 1e-5


def rnn_nodes(graph_def):
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes += function.node_def
    return [node.name for node in nodes if node.op.startswith("CudnnRNN")]


def golden(kind):
    """Returns a decorator that runs a test for each golden graph that has this file or folder."""
    folders = sorted(os.path.dirname(path) for path in glob.glob(os.path.join(GRAPHS, "*", kind)))
    return pytest.mark.parametrize("folder", folders, ids=os.path.basename)


def read_golden(folder):
    """Returns the inputs and the list of the expected results."""
    _, arrays = read_case(folder)
    count = len([name for name in arrays if name.startswith("result_")])
    return arrays["inputs"], [arrays["result_%d" % index] for index in range(count)]


@pytest.mark.sampled(7)
@needs_projection
@golden("frozen.pb")
def test_golden_graphs(folder):
    """All versions of all ops, in graphs of TensorFlow 1.15.5; with gradients and projections."""
    with open(os.path.join(folder, "frozen.pb"), "rb") as file:
        graph_def = tf.GraphDef.FromString(file.read())
    before = graph_def.SerializeToString(deterministic=True)
    plain = cudnn_rnn.plain_graph_def(graph_def, training=True)
    assert rnn_nodes(graph_def) and not rnn_nodes(plain)
    assert graph_def.SerializeToString(deterministic=True) == before
    inputs, expected = read_golden(folder)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(plain, name="")
        names = ["result_%d:0" % index for index in range(len(expected))]
        found = session.run(names, {"inputs:0": inputs})
    limit = TOLERANCES["float32"]
    assert_close(dict(enumerate(found)), dict(enumerate(expected)), limit, folder)


# --- Models that the tests make ---


def initial_params(num_directions, rnn_mode, num_proj=0):
    gates, width = {"lstm": 4, "gru": 3}[rnn_mode], num_proj or UNITS
    columns = WIDTH + (LAYERS - 1) * num_directions * width + LAYERS * (width + 2)
    size = num_directions * UNITS * (gates * columns + LAYERS * num_proj)
    return np.random.RandomState(1).uniform(-0.5, 0.5, size).astype(np.float32)


def run_lstm(inputs, params, lengths=None, num_proj=0):
    """A bidirectional LSTM whose time and batch may be unknown; returns the output."""
    h, c = [tf.zeros([2 * LAYERS, tf.shape(inputs)[1], n]) for n in (num_proj or UNITS, UNITS)]
    named = {"direction": "bidirectional", "num_proj": num_proj or None}
    return cudnn_rnn_ops.cudnn_lstm(inputs, h, c, params, True, lengths, **named)[0]


def run_gru(inputs, params):
    state = tf.zeros([LAYERS, tf.shape(inputs)[1], UNITS])
    return cudnn_rnn_ops.cudnn_gru(inputs, state, params, is_training=True)[0]


def random_inputs(width=WIDTH):
    return np.random.RandomState(2).standard_normal((STEPS, BATCH, width)).astype(np.float32)


def results_of_plain(graph, fetches, feeds, add_shapes):
    """Returns the values of tensors of a graph, and of the same tensors of its plain copy."""
    with tf.Session(graph=graph) as session:
        expected = session.run(fetches, feeds)
    plain = cudnn_rnn.plain_graph_def(graph.as_graph_def(add_shapes=add_shapes), training=True)
    assert rnn_nodes(graph.as_graph_def()) and not rnn_nodes(plain)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(plain, name="")
        return expected, session.run(fetches, feeds)


@pytest.mark.sampled(2)
def test_loops_and_branches(control_flow):
    """The nodes and their gradients are in the bodies of a loop and of both branches."""
    with tf.Graph().as_default() as graph:
        inputs = tf.placeholder(tf.float32, [None, None, UNITS], "inputs")
        upper = tf.placeholder(tf.bool, [], "upper")
        params = tf.constant(np.random.RandomState(1).uniform(-0.5, 0.5, 360).astype(np.float32))

        def step(count, values):
            shorter = tf.cond(
                upper, lambda: run_gru(values, params), lambda: run_gru(values, params * 0.5)
            )
            shorter.set_shape(values.shape)
            return count + 1, shorter

        _, outputs = tf.while_loop(lambda count, _: count < 3, step, (0, inputs))
        outputs = tf.identity(outputs, "outputs")
        tf.identity(tf.gradients(tf.square(outputs), params)[0], "gradient")
    # Without shapes, those of a gradient in a loop of TensorFlow 1 follow from its forward op.
    add_shapes = control_flow == "control_flow_v2"
    fetches = ["outputs:0", "gradient:0"]
    for value in (True, False):
        feeds = {"inputs:0": random_inputs(UNITS), "upper:0": value}
        for expected, found in zip(*results_of_plain(graph, fetches, feeds, add_shapes)):
            assert relative_error(found, expected) < LIMIT


def test_dropout_is_the_same_in_the_gradient():
    """The gradient uses the masks of the same run: the loss is linear in a scale of the inputs.

    With relu and without biases and states, the output is homogeneous: output = d_input . input.
    """
    with tf.Graph().as_default() as graph:
        inputs = tf.constant(np.abs(random_inputs()) + 0.1)
        model = cudnn_rnn.CudnnRNNRelu(3, UNITS, WIDTH, dropout=0.5)
        size = layout.params_size(model.config)
        num_biases = 3 * 2 * UNITS
        params = np.random.RandomState(1).uniform(-0.1, 0.5, size).astype(np.float32)
        params[size - num_biases :] = 0
        output = model(inputs, tf.zeros([3, BATCH, UNITS]), tf.constant(params), True)[0]
        total = tf.reduce_sum(output, name="total")
        (gradient,) = tf.gradients(total, inputs)
        tf.reduce_sum(gradient * inputs, name="from_gradient")
    plain = cudnn_rnn.plain_graph_def(graph.as_graph_def(), training=True)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(plain, name="")
        runs = [session.run(["total:0", "from_gradient:0"]) for _ in range(5)]
    for total, from_gradient in runs:
        np.testing.assert_allclose(total, from_gradient, rtol=1e-4)
    assert len({float(total) for total, _ in runs}) > 1  # a new pattern in each run


# --- SavedModels, loaded by processes without this package ---

# Loads SavedModels and checks them against the results of the fused ops. Arguments: folders, each
# with the file arrays.npz (inputs, and results by name) and the SavedModel `plain`.
STOCK_PROGRAM = """
import os, sys
import numpy as np
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

def close(found, expected):
    assert found.shape == expected.shape
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error < 1e-5, error

for folder in sys.argv[1:]:
    arrays = dict(np.load(os.path.join(folder, "arrays.npz")))
    feeds = {name: arrays.pop(name) for name in list(arrays) if name.startswith("feed_")}
    feeds = {name[len("feed_"):]: value for name, value in feeds.items()}
    path = os.path.join(folder, "plain")
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], path)
        signature = loaded.signature_def["serving_default"]
        found = session.run(
            {name: info.name for name, info in signature.outputs.items()},
            {signature.inputs[name].name: value for name, value in feeds.items()})
    for name, expected in arrays.items():
        close(found[name], expected)
    if tf.__version__.startswith("1."):
        continue
    with context.eager_mode():
        signature = tensorflow.saved_model.load(path).signatures["serving_default"]
        found = signature(**{name: tf.constant(value) for name, value in feeds.items()})
        for name, expected in arrays.items():
            close(found[name].numpy(), expected)
assert "cudnn_rnn" not in sys.modules
print("right")
"""


def run_stock(program, *arguments, **options):
    printed = output_of("-W", "ignore", "-c", program, *arguments, **options)
    assert printed.splitlines()[-1] == "right"


def write_arrays(folder, feeds, results):
    feeds = {"feed_" + name: value for name, value in feeds.items()}
    np.savez(os.path.join(str(folder), "arrays.npz"), **feeds, **results)


def save_model_of_tensorflow_1(folder, training=True):
    """Writes a trained graph of TensorFlow 1: two RNNs, variables, gradients and a layer."""
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, None, WIDTH])
        lengths = tf.placeholder(tf.int32, [None])
        params = tf.get_variable("params", initializer=initial_params(2, "lstm"))
        lstm = run_lstm(inputs, params, lengths)
        layer = cudnn_rnn.layers.CudnnGRU(1, 3)
        outputs, (state,) = layer(lstm)
        loss = tf.reduce_mean(tf.square(outputs))
        session.run(tf.global_variables_initializer())
        feeds = {inputs: random_inputs(), lengths: LENGTHS}
        results = {"outputs": outputs, "state": state}
        if training:
            session.run(tf.train.GradientDescentOptimizer(0.1).minimize(loss), feeds)
            (results["gradient"],) = tf.gradients(loss, [params])
        signature = ({"inputs": inputs, "lengths": lengths}, results)
        tf.saved_model.simple_save(session, str(folder / "fused"), *signature)
        values = session.run(results, feeds)
        feeds = {"inputs": random_inputs(), "lengths": np.array(LENGTHS, np.int32)}
        write_arrays(folder, feeds, values)


@pytest.mark.sampled(2)
def test_saved_models_of_tensorflow_1(tmp_path, runs_all):
    """One that this TensorFlow writes, and those of 1.15.5, loaded by TensorFlow 1 and 2."""
    folders = []
    if has_projection():
        of_release = sorted(glob.glob(os.path.join(GRAPHS, "*", "saved_model")))
        for folder in of_release if runs_all else of_release[:2]:
            target = tmp_path / os.path.basename(os.path.dirname(folder))
            target.mkdir()
            inputs, results = read_golden(os.path.dirname(folder))
            named = {"result_%d" % index: value for index, value in enumerate(results)}
            write_arrays(target, {"inputs": inputs}, named)
            cudnn_rnn.export_plain(folder, target / "plain", training=True)
            folders.append(target)
    target = tmp_path / "this"
    target.mkdir()
    save_model_of_tensorflow_1(target)
    assert cudnn_rnn.export_plain(target / "fused", target / "plain", training=True) > 4
    run_stock(STOCK_PROGRAM, *folders, target)


STOCK_PROGRAM_OF_TENSORFLOW_2 = """
import sys
import numpy as np
import tensorflow as tf

def close(found, expected):
    assert found.shape == expected.shape
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error < 1e-5, error

folder = sys.argv[1]
arrays = np.load(folder + "/arrays.npz")
inputs, lengths = tf.constant(arrays["inputs"]), tf.constant(arrays["lengths"])
model = tf.saved_model.load(folder + "/plain")
with tf.GradientTape() as tape:
    tape.watch(inputs)
    outputs = model.run(inputs, lengths)
    loss = tf.reduce_sum(outputs ** 2)
gradients = tape.gradient(loss, [inputs, model.params])
close(outputs.numpy(), arrays["outputs"])
close(gradients[0].numpy(), arrays["d_inputs"])
close(gradients[1].numpy(), arrays["d_params"])
compiled = tf.function(model.run, jit_compile=True)
close(compiled(inputs, lengths).numpy(), arrays["outputs"])

# TFLite, with an unknown or fixed number of time steps, an unknown batch size, and with
# SELECT_TF_OPS allowed.
def in_tflite(name, ops, *given):
    converter = tf.lite.TFLiteConverter.from_saved_model(folder + "/" + name)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS] + ops
    runner = tf.lite.Interpreter(model_content=converter.convert()).get_signature_runner()
    names = sorted(runner.get_input_details())
    return runner(**dict(zip(names, given)))["output_0"]

for ops in ([], [tf.lite.OpsSet.SELECT_TF_OPS]):
    found = in_tflite("plain", ops, arrays["inputs"], arrays["lengths"])
    close(found, arrays["outputs"])
    for name in ("plain_keras", "plain_keras_fixed"):
        close(in_tflite(name, ops, arrays["keras_inputs"]), arrays["keras_outputs"])

keras_model = tf.saved_model.load(folder + "/plain_keras")
close(keras_model.serve(tf.constant(arrays["keras_inputs"])).numpy(), arrays["keras_outputs"])
assert "cudnn_rnn" not in sys.modules
print("right")
"""


def make_masked_model(steps):
    """Returns a Keras model for inputs `[batch, steps, WIDTH]`."""
    from cudnn_rnn.keras import LSTM

    keras = tensorflow.keras
    layers = [
        keras.Input((steps, WIDTH)),
        keras.layers.Masking(),
        keras.layers.Bidirectional(LSTM(UNITS, return_sequences=True)),
        LSTM(UNITS, return_sequences=True),
        LSTM(UNITS),
    ]
    return keras.Sequential(layers)


@needs_tensorflow_2
@pytest.mark.sampled(4)
def test_saved_models_of_tensorflow_2(tmp_path):
    """Functions and a Keras model: results, gradients, XLA and TFLite without this package.

    One of the LSTMs has a projection.
    """
    module = tensorflow.Module()
    module.params = tensorflow.Variable(initial_params(2, "lstm"))
    module.projected = tensorflow.Variable(initial_params(2, "lstm", num_proj=2))
    module.run = tensorflow.function(
        lambda inputs, lengths: tf.concat(
            [
                run_lstm(inputs, module.params, lengths),
                run_lstm(inputs, module.projected, lengths, num_proj=2),
            ],
            axis=-1,
        ),
        input_signature=[
            tensorflow.TensorSpec([None, None, WIDTH], name="inputs"),
            tensorflow.TensorSpec([None], tf.int32, name="lengths"),
        ],
    )
    inputs, lengths = tf.constant(random_inputs()), tf.constant(LENGTHS)
    with tensorflow.GradientTape() as tape:
        tape.watch(inputs)
        outputs = module.run(inputs, lengths)
        loss = tf.reduce_sum(outputs**2)
    gradients = tape.gradient(loss, [inputs, module.params])
    tensorflow.saved_model.save(module, str(tmp_path / "fused"), signatures=module.run)
    keras_inputs = np.swapaxes(random_inputs(), 0, 1).copy()
    keras_inputs[0, 1:3] = 0  # masked steps before others
    keras_inputs[1, 4:] = 0
    models = [make_masked_model(steps) for steps in (None, keras_inputs.shape[1])]
    models[1].set_weights(models[0].get_weights())
    for model, name in zip(models, ("keras", "keras_fixed")):
        model.export(str(tmp_path / name), verbose=False)
        assert cudnn_rnn.export_plain(tmp_path / name, tmp_path / ("plain_" + name)) >= 2
    np.savez(
        str(tmp_path / "arrays.npz"),
        inputs=inputs.numpy(),
        lengths=lengths.numpy(),
        outputs=outputs.numpy(),
        d_inputs=gradients[0].numpy(),
        d_params=tf.convert_to_tensor(gradients[1]).numpy(),
        keras_inputs=keras_inputs,
        keras_outputs=models[0](keras_inputs).numpy(),
    )
    assert cudnn_rnn.export_plain(tmp_path / "fused", tmp_path / "plain") == 2
    run_stock(STOCK_PROGRAM_OF_TENSORFLOW_2, tmp_path)


@needs_tensorflow_2
@pytest.mark.sampled(4)
def test_onnx(tmp_path):
    """tf2onnx converts LSTMs with lengths, one projected, and a GRU; ONNX Runtime runs them."""
    for module in ("tf2onnx", "onnxruntime"):
        pytest.importorskip(module)
    model = tensorflow.Module()
    kinds = (2, "lstm"), (1, "gru"), (2, "lstm", 2)
    model.params = [tensorflow.Variable(initial_params(*kind)) for kind in kinds]
    model.run = tensorflow.function(
        lambda inputs, lengths: {
            "lstm": run_lstm(inputs, model.params[0], lengths),
            "gru": run_gru(inputs, model.params[1]),
            "projected": run_lstm(inputs, model.params[2], lengths, num_proj=2),
        },
        input_signature=[
            tensorflow.TensorSpec([None, None, WIDTH], name="inputs"),
            tensorflow.TensorSpec([None], tf.int32, name="lengths"),
        ],
    )
    feeds = {"inputs": random_inputs(), "lengths": np.array(LENGTHS, np.int32)}
    expected = model.run(*map(tf.constant, feeds.values()))
    tensorflow.saved_model.save(model, str(tmp_path / "fused"), signatures=model.run)
    cudnn_rnn.export_plain(tmp_path / "fused", tmp_path / "plain")
    folders = ["--saved-model", str(tmp_path / "plain"), "--output", str(tmp_path / "model.onnx")]
    output_of("-m", "tf2onnx.convert", *folders, "--opset", "17")
    found = onnx_results(tmp_path / "model.onnx", feeds)
    for name, value in expected.items():
        assert relative_error(found[name], value.numpy()) < LIMIT, name


def onnx_results(path, feeds):
    """Returns the outputs of an ONNX model by name."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


@needs_tensorflow_2
def test_function():
    """A concrete function keeps its arguments, variables and the structure of its results."""
    params = tensorflow.Variable(initial_params(2, "lstm"))

    @tensorflow.function
    def fused(inputs, scale=2.0):
        return {"outputs": scale * run_lstm(inputs, params), "sizes": [tf.shape(inputs)]}

    inputs = tf.constant(random_inputs())
    concrete = fused.get_concrete_function(tensorflow.TensorSpec([None, None, WIDTH]))
    plain = cudnn_rnn.plain_function(concrete)
    assert not rnn_nodes(plain.graph.as_graph_def())
    found = []
    for function in (concrete, plain):
        with tensorflow.GradientTape() as tape:
            results = function(inputs)
            loss = tf.reduce_sum(results["outputs"] ** 2)
        gradient = tape.gradient(loss, params)
        found.append([results["outputs"].numpy(), tf.convert_to_tensor(gradient).numpy()])
        assert results["sizes"][0].numpy().tolist() == [STEPS, BATCH, WIDTH]
    for expected, value in zip(*found):
        assert relative_error(value, expected) < LIMIT
    params.assign(params * 0.5)
    assert relative_error(plain(inputs)["outputs"], concrete(inputs)["outputs"]) < LIMIT


# --- Sizes, errors and the command ---


def graph_of_a_gru(width, states, training=False):
    """Returns the `GraphDef` of a node with static `[.., .., width]` and `[states, .., UNITS]`."""
    with tf.Graph().as_default() as graph:
        inputs = tf.placeholder(tf.float32, [None, None, width], "inputs")
        state = tf.placeholder(tf.float32, [states, None, UNITS], "state")
        params = tf.constant(initial_params(1, "gru"))
        output = cudnn_rnn_ops.cudnn_gru(inputs, state, params, training)[0]
        if training:
            tf.gradients(output, params)
    return graph.as_graph_def()


@pytest.mark.parametrize("width, states", [(None, LAYERS), (WIDTH, None)])
def test_one_unknown_size_follows_from_the_parameters(width, states):
    assert not rnn_nodes(cudnn_rnn.plain_graph_def(graph_of_a_gru(width, states)))


def test_unknown_sizes_are_refused():
    message = r"node 'CudnnRNN' \(CudnnRNN\) in the graph .* num_layers .* and input_size"
    with pytest.raises(ValueError, match=message):
        cudnn_rnn.plain_graph_def(graph_of_a_gru(None, None))


def test_gradients_are_refused_without_training():
    with pytest.raises(ValueError, match=r"CudnnRNNBackprop.* pass training=True \(--training\)"):
        cudnn_rnn.plain_graph_def(graph_of_a_gru(WIDTH, LAYERS, training=True))


def test_graphs_without_nodes_are_refused():
    with pytest.raises(ValueError, match="no CudnnRNN nodes"):
        cudnn_rnn.plain_graph_def(tf.GraphDef())


@pytest.mark.sampled(4)
def test_command(tmp_path, capfd):
    model = os.path.join(GRAPHS, "layer_v1_lstm", "saved_model")
    output = tmp_path / "folder" / "plain"
    assert main(["export", model, str(output)]) == 1
    assert "pass --training to rewrite" in capfd.readouterr().err
    assert not output.parent.exists()
    assert main(["export", model, str(output), "--training"]) == 0
    assert "Replaced 5 CudnnRNN* nodes; wrote" in capfd.readouterr().out
    assert os.listdir(str(output.parent)) == ["plain"]
    assert sorted(os.listdir(str(output))) == ["saved_model.pb", "variables"]
    assert main(["export", model, str(output), "--training"]) == 1
    assert main(["export", model, str(output), "--training", "--force"]) == 0


@needs_projection
def test_files_that_are_missing_or_in_the_way(tmp_path):
    model = os.path.join(GRAPHS, "layer_v1_lstm", "saved_model")
    with pytest.raises(FileNotFoundError, match=r"is not a SavedModel: .* saved_model\.pb"):
        cudnn_rnn.export_plain(tmp_path / "missing", tmp_path / "plain")
    with pytest.raises(ValueError, match="inside the SavedModel"):
        cudnn_rnn.export_plain(model, os.path.join(model, "plain"))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "mine").write_text("")
    with pytest.raises(FileExistsError, match=r"plain exists\. .*overwrite=True \(--force\)"):
        cudnn_rnn.export_plain(model, tmp_path / "plain", training=True)
    assert os.listdir(str(tmp_path / "plain")) == ["mine"]
    cudnn_rnn.export_plain(model, tmp_path / "plain", training=True, overwrite=True)
    assert os.listdir(str(tmp_path)) == ["plain"]
    assert not (tmp_path / "plain" / "mine").exists()
    (tmp_path / "file").write_text("mine")
    os.mkfifo(str(tmp_path / "fifo"))
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "fifo", "link"):
        with pytest.raises(FileExistsError, match=name + " exists and is no folder. Choose"):
            cudnn_rnn.export_plain(model, tmp_path / name, training=True, overwrite=True)
    assert sorted(os.listdir(str(tmp_path))) == ["fifo", "file", "link", "plain"]


@pytest.mark.sampled(2)
@needs_projection
@pytest.mark.parametrize("is_for_ever", [False, True])
def test_a_failed_rename_leaves_the_old_folder(tmp_path, monkeypatch, is_for_ever):
    """It keeps its name if the server recovers; otherwise the error says where it is."""
    model = os.path.join(GRAPHS, "layer_v1_lstm", "saved_model")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "mine").write_text("old")
    rename, calls = os.rename, []

    def fail(source, target):
        calls.append(source)
        if len(calls) == 2 or (is_for_ever and len(calls) > 2):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    with monkeypatch.context() as patches:
        patches.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="plain cannot be written: .*Free space") as caught:
            cudnn_rnn.export_plain(model, tmp_path / "plain", training=True, overwrite=True)
    (folder,) = tmp_path.iterdir()
    if is_for_ever:
        folder = folder / "old"
        assert "the old folder is now %s" % folder in str(caught.value)
    assert (folder / "mine").read_text() == "old"


def blocks(page):
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)


@pytest.mark.sampled(4)
@needs_tensorflow_2
def test_the_library_alone_serves_a_saved_model(tmp_path):
    """The block of docs/serving.md, in a process without this package; the same bits."""
    save_model_of_tensorflow_1(tmp_path, training=False)
    (tmp_path / "fused").rename(tmp_path / "saved_model_folder")
    (block,) = [block for block in blocks("serving.md") if "load_op_library" in block]
    adapter = library.library_path()
    shutil.copy(adapter, str(tmp_path / "ops.so"))
    shutil.copy(os.path.join(os.path.dirname(adapter), library.ENGINE_NAME), str(tmp_path))
    run_stock("%s\n%s" % (block, STOCK_CHECK), tmp_path, folder=tmp_path)


STOCK_CHECK = """
import sys
import numpy as np
arrays = np.load(sys.argv[1] + "/arrays.npz")
feeds = {name: tf.constant(arrays["feed_" + name]) for name in ("inputs", "lengths")}
found = model.signatures["serving_default"](**feeds)
assert (found["outputs"].numpy() == arrays["outputs"]).all()
assert "cudnn_rnn" not in sys.modules
print("right")
"""
