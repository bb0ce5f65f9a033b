"""This package's converters in tf2onnx: where programs call it themselves, and Keras 3."""

import importlib
import sys

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn.onnx
from cudnn_rnn._compat import gen_cudnn_rnn_ops
from cudnn_rnn.keras._fused_layer import IS_KERAS_3
from helpers.onnx_models import INPUTS, needs_tf2onnx, operators, rnn_graph, run_onnx
from helpers.op_harness import relative_error
from helpers.sequence_cases import GRU, LENGTHS, LSTM, PROJECTED, arrays_for
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, needs_tensorflow_2, needs_tf2onnx]
needs_keras_3 = pytest.mark.skipif(not IS_KERAS_3, reason="requires Keras 3")
UNITS, WIDTH = 4, 3


@pytest.fixture
def registered():
    """Registers the handlers for one test."""
    cudnn_rnn.onnx.register_handlers()
    yield
    cudnn_rnn.onnx.unregister_handlers()


@pytest.fixture
def keras_for_a_gpu(monkeypatch):
    """Lets Keras 3 build the graphs that it builds on a machine with a GPU."""
    importlib.import_module("keras.src.backend.tensorflow.rnn")
    module = sys.modules["keras.src.backend.tensorflow.rnn"]  # the attribute is a function
    monkeypatch.setattr(module, "_is_gpu_available", lambda: True)


def registry():
    """Returns a copy of tf2onnx's registry."""
    opsets = importlib.import_module("tf2onnx.handler").tf_op.get_opsets()
    return {domain: [dict(entries) for entries in found] for domain, found in opsets.items()}


def test_registering_is_reversible():
    importlib.import_module("tf2onnx.convert")
    before = registry()
    for _ in range(2):
        cudnn_rnn.onnx.register_handlers()
        cudnn_rnn.onnx.register_handlers()
        ours = [set(entries) for entries in registry()[""]]
        assert {"CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"} <= set().union(*ours)
        cudnn_rnn.onnx.unregister_handlers()
        cudnn_rnn.onnx.unregister_handlers()
        assert registry() == before


def test_an_export_leaves_the_registry_as_it_was(tmp_path):
    importlib.import_module("tf2onnx.convert")
    before = registry()
    layer = cudnn_rnn.CudnnGRU(1, UNITS, WIDTH)
    size = int(layer.params_size())
    model = tensorflow.Module()
    model.run = tensorflow.function(
        lambda x: {"y": layer(x, tf.zeros([1, 2, UNITS]), tf.ones([size]), False)[0]},
        input_signature=[tensorflow.TensorSpec([None, 2, WIDTH], name="x")],
    )
    tensorflow.saved_model.save(model, str(tmp_path / "model"), signatures=model.run)
    done = cudnn_rnn.export_onnx(tmp_path / "model", tmp_path / "model.onnx")
    assert done.nodes == 1 and done.inputs == ["x"] and done.outputs == ["y"]
    assert registry() == before


@pytest.mark.parametrize("configuration", [LSTM, GRU])
def test_from_function(tmp_path, registered, configuration):
    """A bidirectional GRU of two layers is what tf2onnx itself converts wrongly."""
    convert = importlib.import_module("tf2onnx.convert")
    arrays = arrays_for(configuration, LENGTHS["mixed"], "float32")
    arrays["input"] = np.nan_to_num(arrays["input"])
    names = [name for name in INPUTS if name in arrays]

    def call(*tensors):
        given = dict(zip(names, tensors))
        states = [given[name] for name in ("input_h", "input_c") if name in given]
        models = {"lstm": cudnn_rnn.CudnnLSTM, "gru": cudnn_rnn.CudnnGRU}
        sizes = configuration.num_layers, configuration.num_units, configuration.input_size
        model = models[configuration.rnn_mode](*sizes, direction=configuration.direction)
        lengths = given["sequence_lengths"]
        return model(
            given["input"],
            *states,
            given["params"],
            is_training=False,
            sequence_lengths=lengths,
        )

    specs = [tensorflow.TensorSpec(arrays[n].shape, arrays[n].dtype, n) for n in names]
    expected = call(*[tf.constant(arrays[name]) for name in names])
    model, _ = convert.from_function(
        tensorflow.function(call, autograph=False), input_signature=specs, opset=17
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert sum(operator in ("LSTM", "GRU") for operator in operators(model)) == 2
    found = run_onnx(tmp_path / "model.onnx", {name: arrays[name] for name in names})
    for one, other in zip(found.values(), expected):
        assert relative_error(one, other.numpy()) < 1e-5


@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_branches_that_return_all_outputs(tmp_path, registered, rnn_mode):
    """The reserved space is empty, and so is output_c of a GRU; nothing uses these."""
    convert = importlib.import_module("tf2onnx.convert")
    models = {"lstm": cudnn_rnn.CudnnLSTM, "gru": cudnn_rnn.CudnnGRU}
    size = int(models[rnn_mode](1, UNITS, WIDTH).params_size())
    params = np.random.RandomState(0).uniform(-1, 1, size).astype(np.float32)

    def call(x, chosen):
        state = tf.zeros([1, tf.shape(x)[1], UNITS])

        def branch(scale):
            tensors = dict(input=x * scale, input_h=state, input_c=state, params=params)
            options = dict(rnn_mode=rnn_mode, is_training=False)
            return tuple(gen_cudnn_rnn_ops.cudnn_rnnv2(**tensors, **options))

        return tf.cond(chosen > 0.0, lambda: branch(1.0), lambda: branch(2.0))[0]

    specs = [tensorflow.TensorSpec([None, 2, WIDTH], name="x")]
    specs.append(tensorflow.TensorSpec([], name="chosen"))
    model, _ = convert.from_function(
        tensorflow.function(call, autograph=False), input_signature=specs, opset=17
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    x = np.random.RandomState(1).uniform(-1, 1, (3, 2, WIDTH)).astype(np.float32)
    for chosen in (-1.0, 1.0):
        (found,) = run_onnx(tmp_path / "model.onnx", {"x": x, "chosen": chosen}).values()
        assert relative_error(found, call(tf.constant(x), tf.constant(chosen)).numpy()) < 1e-5


def test_what_has_no_node_is_logged(caplog, registered):
    """tf2onnx logs the errors of its converters; the text names what to do."""
    convert = importlib.import_module("tf2onnx.convert")
    arrays = arrays_for(PROJECTED, LENGTHS["full"], "float32")
    with tf.Graph().as_default() as graph:
        inputs, outputs = rnn_graph(PROJECTED, arrays, version=3, is_training=False)
        convert.from_graph_def(
            graph.as_graph_def(add_shapes=True),
            input_names=[name + ":0" for name in inputs],
            output_names=[name + ":0" for name in outputs],
        )
    assert "ONNX's LSTM has no projection (num_proj is 3)" in caplog.text
    assert "cudnn_rnn.export_onnx makes a loop of it" in caplog.text


def keras_models():
    """Returns functions that make a model with nodes of cuDNN, and the number of its RNN layers."""
    keras = tensorflow.keras
    layers = keras.layers

    def masked():
        return [layers.Masking(), layers.LSTM(UNITS, return_sequences=True), layers.LSTM(UNITS)]

    def backwards():
        return [layers.GRU(UNITS, go_backwards=True, return_sequences=True)]

    def bidirectional():
        both = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True))
        return [both, layers.Bidirectional(layers.LSTM(UNITS)), layers.Dense(2)]

    def stacked():
        return [layers.GRU(UNITS, return_sequences=True) for _ in range(3)]

    return [(masked, 2), (backwards, 1), (bidirectional, 4), (stacked, 3)]


@pytest.mark.sampled(4)
@needs_keras_3
@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("index", range(4))
def test_models_that_keras_3_exports_on_a_gpu(tmp_path, keras_for_a_gpu, index, is_saved):
    """`CudnnRNNV3` with is_training=True and parameters that are split, transposed and joined."""
    make, num_layers = keras_models()[index]
    model = tensorflow.keras.Sequential([tensorflow.keras.Input((None, WIDTH)), *make()])
    inputs = np.random.RandomState(0).standard_normal((3, 6, WIDTH)).astype(np.float32)
    inputs[1, 4:] = 0.0  # for the mask
    expected = model(inputs).numpy()
    source = model
    if is_saved:
        source = tmp_path / "model"
        model.export(str(source), verbose=False)
    done = cudnn_rnn.export_onnx(source, tmp_path / "model.onnx", sample=None)
    assert done.nodes == num_layers and done.loops == []
    (found,) = run_onnx(tmp_path / "model.onnx", {done.inputs[0]: inputs}).values()
    assert relative_error(found, expected) < 1e-5


@needs_keras_3
def test_onnx_export_of_keras(tmp_path, keras_for_a_gpu, registered):
    """`model.export(format="onnx")`."""
    import onnx

    make, num_layers = keras_models()[2]
    model = tensorflow.keras.Sequential([tensorflow.keras.Input((None, WIDTH)), *make()])
    inputs = np.random.RandomState(0).standard_normal((3, 6, WIDTH)).astype(np.float32)
    expected = model(inputs).numpy()
    model.export(str(tmp_path / "model.onnx"), format="onnx", verbose=False)
    found = operators(onnx.load(str(tmp_path / "model.onnx")))
    assert found.count("GRU") + found.count("LSTM") == num_layers and "Loop" not in found
    (name,) = [value.name for value in onnx.load(str(tmp_path / "model.onnx")).graph.input]
    (found,) = run_onnx(tmp_path / "model.onnx", {name: inputs}).values()
    assert relative_error(found, expected) < 1e-5
