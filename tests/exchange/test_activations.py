"""Whether a simple RNN computes tanh or ReLU is taken from what tells it, or refused."""

import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import exchange, layers
from cudnn_rnn.exchange import ExchangeError, RnnWeights
from helpers.exchange_models import assert_same, random_rnn
from helpers.processes import run_python
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci
UNKNOWN = "rnn_tanh or rnn_relu"
MODES = ["rnn_relu", "rnn_tanh"]
CLASSES = {"rnn_relu": "CudnnRNNRelu", "rnn_tanh": "CudnnRNNTanh"}


def modes_by_scope(path, **facts):
    return {rnn.scope: rnn.rnn_mode for rnn in exchange.read(path, **facts).rnns}


def save_layers(folder, session, meta=True, **names):
    """Saves layers whose scopes are the keywords, of the modes that are their values."""
    for name, rnn_mode in names.items():
        getattr(layers, CLASSES[rnn_mode])(2, 3, name=name)(tf.ones([2, 2, 4]))
    session.run(tf.global_variables_initializer())
    path = str(folder / "model")
    tf.train.Saver().save(session, path, write_meta_graph=meta)
    return path


@pytest.mark.parametrize("rnn_mode", MODES)
def test_the_default_name_of_a_layer(tmp_path, session, rnn_mode):
    for _ in range(2):
        getattr(layers, CLASSES[rnn_mode])(1, 3)(tf.ones([2, 2, 4]))
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, str(tmp_path / "model"), write_meta_graph=False)
    scopes = ["cudnn_" + rnn_mode, "cudnn_%s_1" % rnn_mode]
    assert modes_by_scope(tmp_path / "model") == dict.fromkeys(scopes, rnn_mode)


def test_the_name_of_the_opaque_variable(tmp_path, session):
    """A layer that is built by hand has the keys of its cells in the outer scope."""
    layer = layers.CudnnRNNRelu(1, 3)
    with tf.variable_scope("outer"):
        layer.build([None, None, 4])
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, str(tmp_path / "model"), write_meta_graph=False)
    contents = exchange.read(tmp_path / "model")
    assert contents.variables == {"outer": "outer/cudnn_rnn_relu/opaque_kernel"}
    assert contents.rnns[0].rnn_mode == "rnn_relu"


def test_the_meta_graph_of_layers(tmp_path, session):
    names = {"a": "rnn_relu", "b": "rnn_tanh", "cudnn_rnn_tanh": "rnn_relu"}
    path = save_layers(tmp_path, session, **names)
    assert modes_by_scope(path) == names


def test_without_a_meta_graph_other_names_tell_nothing(tmp_path, session):
    path = save_layers(tmp_path, session, meta=False, a="rnn_relu", b="rnn_tanh")
    assert modes_by_scope(path) == {"a": UNKNOWN, "b": UNKNOWN}
    assert modes_by_scope(path, rnn_mode="rnn_relu") == {"a": "rnn_relu", "b": "rnn_relu"}


@pytest.mark.parametrize("with_saveables", [False, True])
def test_the_meta_graph_of_op_level_classes(tmp_path, session, with_saveables):
    """With the keys of 1.1, which are names of nodes, and with only the variables."""
    variables = []
    for rnn_mode in MODES:
        rnn = getattr(cudnn_rnn, CLASSES[rnn_mode])(1, 3, 4)
        params = tf.get_variable(rnn_mode[-4:], initializer=tf.ones([rnn.params_size()]))
        rnn(tf.ones([2, 2, 4]), tf.zeros([1, 2, 3]), params)
        variables.append(params)
        if with_saveables:
            functions = rnn.params_to_canonical, rnn.canonical_to_params
            saveable = cudnn_rnn.RNNParamsSaveable(*functions, [params])
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    session.run(tf.global_variables_initializer())
    if not with_saveables:
        for variable, rnn_mode in zip(variables, MODES):
            scope = "cells_" + rnn_mode[-4:]
            saveable = getattr(cudnn_rnn, CLASSES[rnn_mode] + "Saveable")(
                variable, 1, 3, 4, scope=scope
            )
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    path = str(tmp_path / "model")
    tf.train.Saver().save(session, path)
    assert sorted(modes_by_scope(path).values()) == sorted(MODES)
    for scope, rnn_mode in modes_by_scope(path).items():
        if not with_saveables:
            assert scope == "cells_" + rnn_mode[-4:]


@pytest.mark.parametrize("activation", [tf.nn.relu, tf.tanh])
def test_the_meta_graph_of_cells(tmp_path, session, activation):
    cells = [cudnn_rnn.BasicRNNCell(3, activation=activation) for _ in range(2)]
    cell = cudnn_rnn.MultiRNNCell(cells)
    tf.nn.static_rnn(cell, [tf.ones([2, 4])] * 2, dtype=tf.float32)
    session.run(tf.global_variables_initializer())
    path = str(tmp_path / "model")
    tf.train.Saver().save(session, path)
    # Keys of BasicRNNCell alone do not tell the RNN from others, but the stack's do.
    found = {rnn.rnn_mode for rnn in exchange.read(path).rnns}
    assert found == {"rnn_relu" if activation is tf.nn.relu else "rnn_tanh"}


def test_a_variable_that_is_used_both_ways_tells_nothing(tmp_path, session):
    params = tf.get_variable(
        "v", initializer=tf.ones([cudnn_rnn.CudnnRNNTanh(1, 3, 4)._num_params()])
    )
    for name in CLASSES.values():
        getattr(cudnn_rnn, name)(1, 3, 4)(tf.ones([2, 2, 4]), tf.zeros([1, 2, 3]), params)
    kernel = tf.get_variable("s/basic_rnn_cell/kernel", initializer=tf.ones([7, 3]))
    bias = tf.get_variable("s/basic_rnn_cell/bias", initializer=tf.ones([3]))
    values = tf.nn.bias_add(tf.matmul(tf.ones([2, 7]), kernel), bias)
    tf.nn.relu(values), tf.tanh(values)
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, str(tmp_path / "model"))
    assert modes_by_scope(tmp_path / "model") == {"s": UNKNOWN}


def test_a_contradiction_is_an_error(tmp_path, session):
    path = save_layers(tmp_path, session, a="rnn_relu")
    with pytest.raises(ExchangeError) as caught:
        exchange.read(path, rnn_mode="rnn_tanh")
    for part in ("is rnn_relu according to the MetaGraph %s.meta" % path, "--rnn-mode rnn_tanh"):
        assert part in str(caught.value)


def test_a_name_is_less_certain_than_the_option(tmp_path, session):
    path = save_layers(tmp_path, session, meta=False, cudnn_rnn_tanh="rnn_relu")
    assert modes_by_scope(path) == {"cudnn_rnn_tanh": "rnn_tanh"}
    assert modes_by_scope(path, rnn_mode="rnn_relu") == {"cudnn_rnn_tanh": "rnn_relu"}


@pytest.mark.parametrize("content", [b"", b"\xff" * 50, b"\x12\xff\xff\xff\x7f"])
def test_a_damaged_meta_graph(tmp_path, session, content):
    path = save_layers(tmp_path, session, meta=False, a="rnn_relu")
    (tmp_path / "model.meta").write_bytes(content)
    contents = exchange.read(path)
    assert contents.rnns[0].rnn_mode == UNKNOWN
    assert any("cannot be read as a MetaGraph" in note for note in contents.notes) == bool(content)


@pytest.fixture
def unknown(tmp_path, session):
    """Returns the path of a checkpoint of an RNN of an unknown activation."""
    return save_layers(tmp_path, session, meta=False, a="rnn_relu")


@pytest.mark.parametrize(
    "to, name", [("keras", "x.h5")] + [("onnx", "x.onnx")] * (not tf.__version__.startswith("1."))
)
def test_formats_with_the_activation_are_refused(tmp_path, unknown, to, name):
    with pytest.raises(ExchangeError) as caught:
        exchange.convert(unknown, tmp_path / name, to)
    for part in ("The RNN 'a' is rnn_tanh or rnn_relu", "(--rnn-mode)"):
        assert part in str(caught.value)
    assert not (tmp_path / name).exists()
    exchange.convert(unknown, tmp_path / name, to, rnn_mode="rnn_relu")
    assert exchange.read(tmp_path / name).rnns[0].rnn_mode == "rnn_relu"


@pytest.mark.parametrize("to", ["cells", "1.1", "1.3", "1.4", "1.15", "npz"])
def test_formats_without_the_activation_are_written(tmp_path, unknown, to):
    (before,) = exchange.read(unknown).rnns
    exchange.convert(unknown, tmp_path / "to", to)
    (after,) = exchange.read(tmp_path / "to").rnns
    assert after.rnn_mode == UNKNOWN
    assert (
        after.layers[1][0].recurrent_weights.tolist()
        == before.layers[1][0].recurrent_weights.tolist()
    )


def test_the_default_key_of_an_opaque_variable_needs_the_mode(tmp_path):
    rnn = random_rnn("rnn_relu").with_mode(UNKNOWN)
    with pytest.raises(ExchangeError, match=r"Give rnn_mode \(--rnn-mode\) or variable"):
        exchange.write(tmp_path / "x", [rnn], "1.15")
    exchange.write(tmp_path / "x", [rnn], "1.15", variable="v")


@needs_tensorflow_2
def test_pytorch(tmp_path):
    import torch

    torch.save(torch.nn.RNN(4, 3, nonlinearity="relu").state_dict(), str(tmp_path / "x.pt"))
    assert modes_by_scope(tmp_path / "x.pt") == {"": UNKNOWN}
    assert modes_by_scope(tmp_path / "x.pt", rnn_mode="rnn_relu") == {"": "rnn_relu"}
    ours = [random_rnn("rnn_relu", scope="cudnn_rnn_relu"), random_rnn("rnn_tanh", scope="x")]
    exchange.write(tmp_path / "y.pt", ours, "torch")
    expected = {"cudnn_rnn_relu": "rnn_relu", "x": UNKNOWN}
    assert modes_by_scope(tmp_path / "y.pt") == expected


def test_weights_of_an_unknown_activation():
    rnn = random_rnn("rnn_relu", bidirectional=True)
    unknown = rnn.with_mode(UNKNOWN)
    assert unknown.gates == ("only gate",) and UNKNOWN in repr(unknown)
    assert unknown.config.params_size() == rnn.config.params_size()
    np.testing.assert_array_equal(unknown.to_opaque(), rnn.to_opaque())
    assert exchange.statistics(unknown) == exchange.statistics(rnn)
    assert_same(unknown.with_mode("rnn_relu"), rnn)
    with pytest.raises(ValueError, match="has shape"):
        random_rnn("lstm").with_mode(UNKNOWN)
    sizes = (rnn.num_layers, rnn.num_units, rnn.input_size, True)
    assert RnnWeights.from_opaque(rnn.to_opaque(), UNKNOWN, *sizes).rnn_mode == UNKNOWN


def test_inspect_says_that_it_does_not_know(unknown):
    process = run_python("-m", "cudnn_rnn", "inspect", unknown, "--json", CUDA_VISIBLE_DEVICES="")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["rnns"][0]["rnn_mode"] == UNKNOWN
