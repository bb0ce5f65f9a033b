"""Whole models that older releases of Keras wrote, read without Keras."""

import json
import shutil

import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import keras_format
from helpers.exchange_models import assert_refused, assert_same, make_module
from helpers.keras_files import (
    change,
    extract_old_file,
    extract_old_model,
    layers_of,
    read_config,
)
from helpers.old_outputs import NAMES, TOLERANCE, dense_of, outputs_of

pytestmark = pytest.mark.ci
CUDNN_LSTM = "keras2.2.4/lstm"


def converted(path, tmp_path, **named):
    """Returns the RNNs of a file after its conversion to NumPy's format."""
    target = str(tmp_path / "converted.npz")
    exchange.convert(path, target, "npz", **named)
    return sorted(exchange.read(target).rnns, key=lambda rnn: ORDER.get(rnn.scope, rnn.scope))


ORDER = {"enc": "1", "dec": "2"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_models_in_hdf5(tmp_path, name):
    path, inputs, expected = extract_old_model(name, tmp_path)
    found = outputs_of(name, converted(path, tmp_path), inputs, path)
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", [name for name in NAMES if "tf2.15" in name])
def test_archives(tmp_path, name):
    path, inputs, expected = extract_old_model(name, tmp_path)
    archive = extract_old_file(name + ".keras", tmp_path)
    found = outputs_of(name, converted(archive, tmp_path), inputs, path)
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=TOLERANCE)


def test_archives_of_keras_2_13(tmp_path):
    """Their groups have another folder, and numbers with gaps."""
    names = ["archive_tf2.13.1/archive_tf2.13.1" + suffix for suffix in (".h5", ".keras")]
    model, archive = (
        exchange.read(extract_old_file(name, tmp_path, "keras_exchange")) for name in names
    )
    layers = {rnn.scope: rnn.num_layers for rnn in model.rnns}
    assert layers == {"pair": 1, "z": 1, "y": 2, "in_a": 2, "cu": 1}
    assert [rnn.scope for rnn in archive.rnns] == [rnn.scope for rnn in model.rnns]
    for one, other in zip(archive.rnns, model.rnns):
        assert_same(one, other)
    assert not [key for key in model.others + archive.others if "recurrent" in key or "cell" in key]
    weights = extract_old_file(
        "archive_tf2.13.1/archive_tf2.13.1.weights.h5", tmp_path, "keras_exchange"
    )
    stacks = {rnn.scope: rnn for rnn in exchange.read(weights).rnns}
    rnns = {rnn.scope: rnn for rnn in model.rnns}
    assert_same(stacks["bidirectional"], rnns["pair"])
    assert_same(stacks["gru"], rnns["in_a"])
    stack = exchange.RnnWeights("lstm", rnns["z"].layers + rnns["y"].layers)
    assert_same(stacks["lstm"], stack)


def test_hdf5_under_the_name_of_an_archive(tmp_path):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    moved = shutil.copy(path, str(tmp_path / "model.keras"))
    assert_same(exchange.read(moved).rnns[0], exchange.read(path).rnns[0])


@pytest.mark.parametrize("name", ["tf2.15.1/lstm", "keras2.2.4/bigru"])
def test_torch_computes_the_same(tmp_path, name):
    torch = pytest.importorskip("torch", reason="requires TensorFlow 2")
    path, inputs, expected = extract_old_model(name, tmp_path)
    values = torch.from_numpy(inputs[0])
    for rnn in exchange.read(path).rnns:
        target = str(tmp_path / (rnn.scope + ".pt"))
        exchange.convert(path, target, "torch", scope=rnn.scope)
        module = make_module(rnn)
        module.load_state_dict(torch.load(target))
        values = module(values.transpose(0, 1))[0].transpose(0, 1)
    kernel, bias = dense_of(path)
    found = values[:, -1].detach().numpy() @ kernel + bias
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "release, names",
    [
        ("keras2.0.8", ["rows/kernel:0", "rows/recurrent_kernel:0", "rows/bias:0"]),
        ("keras2.3.1", ["rows/kernel:0", "rows/recurrent_kernel:0", "rows/bias:0"]),
        (
            "keras_layers_tf2.8.4",
            ["rows/lstm_cell/" + name for name in ("kernel:0", "recurrent_kernel:0", "bias:0")],
        ),
    ],
)
def test_an_rnn_in_time_distributed(tmp_path, release, names):
    import h5py

    path, _, _ = extract_old_model(release + "/rows", tmp_path)
    (rnn,) = exchange.read(path).rnns
    assert (rnn.scope, rnn.rnn_mode, rnn.num_layers) == ("rows", "lstm", 1)
    with h5py.File(path, "r") as file:
        stored = [file["model_weights/rows"][name][()] for name in names]
    found = keras_format.to_layer_weights(rnn.layers[0][0], "lstm")
    for one, other in zip(found, stored):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name, reason",
    [
        ("keras2.2.4/plaingru", "recurrent_activation='hard_sigmoid'"),
        ("keras2.0.8/images", "reset_after=False"),
        ("keras2.3.1/images", "reset_after=False"),
        ("keras2.3.1/masked", "merge_mode='sum'"),
        ("keras2.3.1/masked", "go_backwards=True"),
    ],
)
def test_layers_that_cudnn_does_not_compute(tmp_path, name, reason):
    path, _, _ = extract_old_model(name, tmp_path)
    assert_refused(path, reason, "which cuDNN's RNNs do not compute")


def test_one_of_several_layers_that_cudnn_does_not_compute(tmp_path):
    path, _, _ = extract_old_model("keras2.0.8/nested", tmp_path)
    contents = exchange.read(path)
    assert [rnn.scope for rnn in contents.rnns] == ["simple_rnn_1"]
    (problem,) = contents.problems
    assert "'lstm_1' has recurrent_activation='hard_sigmoid'" in problem
    target = str(tmp_path / "x.npz")
    with pytest.raises(exchange.ExchangeError, match="has RNNs that cannot be read. Pick another"):
        exchange.convert(path, target, "npz")
    exchange.convert(path, target, "npz", scope="simple_rnn_1")
    assert_same(exchange.read(target).rnns[0], contents.rnns[0])


def test_files_of_keras_1(tmp_path):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    change(path, keras_version="1.2.2")
    assert_refused(path, "was written by Keras 1.2.2; expected Keras 2 or 3")


@pytest.mark.parametrize("class_name", ["LSTM", "CuDNNGRU", "GRU"])
def test_a_class_that_does_not_fit_the_arrays(tmp_path, class_name):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    config = read_config(path)
    layers_of(config)["cu_dnnlstm_1"]["class_name"] = class_name
    layers_of(config)["cu_dnnlstm_1"]["config"].update(
        activation="tanh", recurrent_activation="sigmoid", reset_after=True
    )
    change(path, config)
    assert_refused(path)


def test_arrays_of_wrong_shapes(tmp_path):
    import h5py

    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    with h5py.File(path, "r+") as file:
        group = file["model_weights/cu_dnnlstm_1/cu_dnnlstm_1"]
        del group["bias:0"]
        group["bias:0"] = np.zeros(16, np.float32)
    assert_refused(path, "'cu_dnnlstm_1' has arrays of the shapes", "(32,)")


@pytest.mark.parametrize("depth", [1, 3, 3000])
def test_damaged_wrappers(tmp_path, depth):
    path, _, _ = extract_old_model("keras2.3.1/rows", tmp_path)
    config = read_config(path)
    text = '{"class_name": "TimeDistributed", "config": {"name": "rows", "layer": ' * depth
    layers = config["config"]["layers"]
    layers[:] = ["rows" if one["config"]["name"] == "rows" else one for one in layers]
    change(path, json.dumps(config).replace('"rows"', text + "7" + "}}" * depth, 1))
    assert_refused(path, "its configuration is damaged")


def test_layers_of_a_time_distributed_are_no_stack_with_those_after_it(tmp_path):
    keras = tensorflow.keras
    inputs = keras.Input((2, 3, 4))
    values = inputs
    for name in "ab":
        layer = keras.layers.SimpleRNN(4, return_sequences=name == "a", name="in_" + name)
        values = keras.layers.TimeDistributed(layer, name=name)(values)
    values = keras.layers.SimpleRNN(4, name="c")(values)
    model = keras.Model(inputs, values)
    path = str(tmp_path / "model.h5")
    model.save(path)
    expected = keras_format.from_model(model).rnns
    found = exchange.read(path).rnns
    assert [(rnn.scope, rnn.num_layers) for rnn in found] == [("a", 2), ("c", 1)]
    for one, other in zip(found, expected):
        assert_same(one, other)
