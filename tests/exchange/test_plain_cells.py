"""BasicLSTMCell, LSTMCell and the block cells of TensorFlow 1: read, refused, trained further."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import exchange
from cudnn_rnn.cli.main import main
from cudnn_rnn.exchange import RnnWeights, checkpoint_format
from helpers import plain_cells
from helpers.exchange_models import (
    assert_refused,
    assert_same,
    configuration_of,
    make_module,
    random_rnn,
)
from helpers.golden import read_checkpoint
from helpers.layer_models import LAYERS, run_cells
from helpers.plain_cells import Case, inputs_by_scope, without_graph
from helpers.reference import run_reference
from helpers.versions import needs_tensorflow_1, needs_tensorflow_2

pytestmark = pytest.mark.ci

CASES = [name for name in plain_cells.CASES if not name.startswith("refused_")]
REFUSED = {
    "refused_peepholes": "LSTMCell or LSTMBlockCell that has peepholes (w_f_diag, w_i_diag, w_o",
    "refused_block_peepholes": "LSTMCell or LSTMBlockCell that has peepholes (w_f_diag, w_i_diag",
    "refused_clip": "LSTMCell or LSTMBlockCell that clips its cell state (cell_clip) according to",
    "refused_block_clip": "LSTMBlockCell that clips its cell state to 1.5 (cell_clip) according to",
    "refused_projection_clip": "that clips its projection (proj_clip) according to",
    "refused_activation": "a BasicLSTMCell that has an activation other than tanh according to",
    "refused_gru": "a GRUCell or GRUBlockCell, whose reset gate multiplies the state before the",
    "refused_block_gru": "a GRUCell or GRUBlockCell, whose reset gate multiplies the state before",
}
TOLERANCE = 2e-6


def inputs_of(rnn, inputs):
    """Returns the inputs of the op, by name, with states of 0."""
    rows, batch = rnn.num_layers * rnn.num_directions, inputs.shape[1]
    return {
        "input": inputs,
        "input_h": np.zeros([rows, batch, rnn.output_width], np.float32),
        "input_c": np.zeros([rows, batch, rnn.num_units], np.float32),
        "params": rnn.to_opaque(),
    }


def assert_outputs(rnn, inputs, expected):
    """Compares the outputs of the NumPy reference with those of TensorFlow's own cells."""
    found = run_reference(configuration_of(rnn), inputs_of(rnn, inputs))["output"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


# Reading


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_the_original(tmp_path, name):
    case = Case(name)
    contents = exchange.read(case.path, **case.facts)
    assert contents.format == "checkpoint with the keys of plain LSTM cells"
    assert contents.problems == []
    assert not [key for key in contents.others if "lstm" in key]
    for number, (rnn, expected) in enumerate(zip(contents.rnns, case.rnns)):
        assert (rnn.scope, rnn.num_layers) == (expected["scope"], expected["num_layers"])
        assert (rnn.layout.direction, rnn.num_proj) == (expected["direction"], expected["num_proj"])
        assert "add a forget bias in every step: " in contents.notes[number]
        exchange.convert(
            case.path, tmp_path / "rnn.npz", "npz", scope=rnn.scope, force=True, **case.facts
        )
        (converted,) = exchange.read(tmp_path / "rnn.npz").rnns
        assert_same(converted, rnn)
        assert_outputs(converted, inputs_by_scope(case)[rnn.scope], case.outputs(number))
    assert len(contents.rnns) == len(case.rnns)


@needs_tensorflow_2
@pytest.mark.parametrize("name", CASES)
def test_torch_gives_the_outputs_of_the_original(tmp_path, name):
    import torch

    case = Case(name)
    for number, rnn in enumerate(exchange.read(case.path, **case.facts).rnns):
        path = str(tmp_path / ("%d.pt" % number))
        exchange.convert(case.path, path, "torch", scope=rnn.scope, **case.facts)
        module = make_module(rnn)
        module.load_state_dict(torch.load(path))
        inputs = inputs_by_scope(case)[rnn.scope]
        with torch.no_grad():
            found = module(torch.from_numpy(np.ascontiguousarray(inputs)))[0].numpy()
        np.testing.assert_allclose(found, case.outputs(number), rtol=0, atol=TOLERANCE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in CASES if name != "projected"])
def test_layers_and_cells_of_this_package_go_on(tmp_path, name):
    """They restore the new checkpoints, and compute what the original computes."""
    case = Case(name)
    for number, rnn in enumerate(exchange.read(case.path, **case.facts).rnns):
        sizes, direction = (rnn.num_layers, rnn.num_units), rnn.layout.direction
        named = dict(scope=rnn.scope, target_scope="model", force=True, **case.facts)
        found = {}
        for to in ("1.15", "cells"):
            path = str(tmp_path / to)
            exchange.convert(case.path, path, to, **named)
            with tf.Graph().as_default(), tf.Session() as session:
                inputs = tf.constant(inputs_by_scope(case)[rnn.scope])
                if to == "1.15":
                    layer = LAYERS["lstm"](*sizes, direction=direction, name="model")
                    outputs, _ = layer(inputs)
                else:
                    with tf.variable_scope("model"):
                        outputs, _ = run_cells("lstm", *sizes, rnn.bidirectional, inputs)
                tf.train.Saver().restore(session, path)
                found[to] = session.run(outputs)
        for to, outputs in found.items():
            expected = case.outputs(number)
            np.testing.assert_allclose(outputs, expected, rtol=0, atol=TOLERANCE, err_msg=to)


@pytest.mark.parametrize("to", exchange.TARGETS)
@pytest.mark.parametrize("name", ["bidirectional_stack", "static"])
def test_every_target(tmp_path, name, to):
    if to == "onnx":
        pytest.importorskip("onnx", reason="requires TensorFlow 2")
    if to == "torch":
        pytest.importorskip("torch", reason="requires TensorFlow 2")
    case = Case(name)
    path = tmp_path / {"torch": "r.pt", "keras": "r.h5", "onnx": "r.onnx"}.get(to, "rnn")
    exchange.convert(case.path, path, to, **case.facts)
    (rnn,) = exchange.read(path).rnns
    assert_outputs(rnn, case.expected["inputs"], case.outputs(0))


def test_a_projection_has_the_keys_of_1_1_only(tmp_path):
    case = Case("projected")
    exchange.convert(case.path, tmp_path / "new", "1.1")
    (rnn,) = exchange.read(tmp_path / "new").rnns
    assert_outputs(rnn, case.expected["inputs"], case.outputs(0))
    with pytest.raises(exchange.ExchangeError, match="has a projection"):
        exchange.convert(case.path, tmp_path / "other", "1.15")


@pytest.mark.parametrize(
    "kind", ["basic_lstm_cell", "lstm_cell", "lstm_fused_cell", "lstm_block_wrapper"]
)
def test_names_of_1_0_and_1_1(tmp_path, kind):
    case = Case("basic_trained")
    (new,) = exchange.read(case.path).rnns

    def renamed(key):
        key = key.replace("basic_lstm_cell", kind)
        return key.replace("/kernel", "/weights").replace("/bias", "/biases")

    path = case.copy(tmp_path / "model", renamed, graph=False)
    contents = exchange.read(path, forget_bias=1)
    assert_same(contents.rnns[0], new)
    assert contents.others == ["beta1_power", "beta2_power"]
    assert contents.slots["encoder"].keys() == {("", "Adam"), ("", "Adam_1")}


def test_a_projection_of_1_0_and_1_1(tmp_path):
    case = Case("projected")

    def renamed(key):
        return key.replace("/kernel", "/weights").replace("/bias", "/biases")

    (found,) = exchange.read(
        case.copy(tmp_path / "old", renamed, graph=False), forget_bias=0.25
    ).rnns
    (expected,) = exchange.read(case.copy(tmp_path / "new", graph=False), forget_bias=0.25).rnns
    assert_same(found, expected)


# The forget bias


def test_nothing_tells_the_forget_bias(tmp_path):
    path = without_graph(tmp_path)
    expected = (
        "The cells encoder are those of a BasicLSTMCell, which adds its forget_bias in every step.",
        "there is no graph (.meta) beside the checkpoint. Give forget_bias= (--forget-bias)",
    )
    assert_refused(path, *expected)
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.convert(path, tmp_path / "new", "1.15")
    assert expected[1] in str(caught.value)
    (found,) = exchange.read(path, forget_bias=1).rnns
    assert_same(found, exchange.read(Case("basic_trained").path).rnns[0])
    (other,) = exchange.read(path, forget_bias=0.0).rnns
    difference = found.layers[1][0].input_bias - other.layers[1][0].input_bias
    np.testing.assert_allclose(difference, np.repeat([0, 0.5, 0, 0], 4), atol=1e-7)


def test_the_graph_has_other_cells(tmp_path):
    path = Case("basic_trained").copy(tmp_path / "model", graph=False)
    shutil.copy(Case("static").path + ".meta", path + ".meta")
    assert_refused(path, "it was not found in the graph in %s.meta. Give forget_bias=" % path)


def test_an_option_that_contradicts_the_graph():
    case = Case("one_bidirectional_layer")
    exchange.read(case.path, forget_bias=2)
    assert_refused(
        case.path,
        "have the forget bias 2 in the graph in %s.meta, but forget_bias (--forget-bias) is 1. "
        "Leave the option out." % case.path,
        forget_bias=1.0,
    )


def test_an_option_for_other_rnns(tmp_path):
    exchange.write(tmp_path / "model", [random_rnn("lstm")], "cells")
    assert_refused(tmp_path / "model", "forget_bias (--forget-bias) is 1, but", forget_bias=1.0)
    for wrong, error in ((float("nan"), ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(error, match="forget_bias must be"):
            exchange.read(tmp_path / "model", forget_bias=wrong)


def test_the_command(tmp_path, capsys):
    path = without_graph(tmp_path)
    arguments = ["convert", path, str(tmp_path / "new"), "--to", "1.15"]
    assert main(arguments) == 1
    assert "--forget-bias" in capsys.readouterr().err
    assert main([*arguments, "--forget-bias", "1.0"]) == 0
    printed = capsys.readouterr()
    assert "The RNN 'encoder': lstm, 2 layers of 4 units" in printed.out
    assert "add a forget bias in every step: 1 (forget_bias)." in printed.err
    assert main(["inspect", path, "--forget-bias", "1.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rnns"][0]["slots"] == ["Adam", "Adam_1"]
    for command in ("convert", "inspect"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "without the .meta file, --forget-bias 1.0" in " ".join(
            capsys.readouterr().out.split()
        )


def save_objects(path, **stacks):
    """Saves stacks of cells with tf.train.Checkpoint; returns the prefix."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name, stack in stacks.items():
            tf.nn.dynamic_rnn(stack, tf.zeros([3, 2, 3]), dtype=tf.float32, scope=name)
        session.run(tf.global_variables_initializer())
        return tf.train.Checkpoint(**stacks).save(str(path), session=session)


@needs_tensorflow_1
@pytest.mark.parametrize("cell_class", ["BasicLSTMCell", "LSTMCell"])
def test_object_based_checkpoints(tmp_path, cell_class):
    """Their objects have the names and shapes of a CudnnCompatibleLSTMCell."""
    make = getattr(tf.nn.rnn_cell, cell_class)
    path = save_objects(
        tmp_path / "model",
        other=tf.nn.rnn_cell.MultiRNNCell([make(4) for _ in range(2)]),
        ours=tf.nn.rnn_cell.MultiRNNCell([cudnn_rnn.CudnnCompatibleLSTMCell(4)]),
    )
    contents = exchange.read(path)
    assert [rnn.scope for rnn in contents.rnns] == ["ours"]
    expected = "The cells other are those of a.? %s.*Give forget_bias=" % cell_class
    assert re.match(expected, contents.problems[0])
    ours, other = exchange.read(path, forget_bias=3.0).rnns[::-1]
    assert (ours.scope, other.scope) == ("ours", "other")
    for rnn, total in ((ours, [0, 0, 0, 0]), (other, [0, 3, 0, 0])):
        for _, _, weights in rnn.places():
            found = weights.input_bias + weights.recurrent_bias
            np.testing.assert_array_equal(found, np.repeat(total, 4))


@needs_tensorflow_1
def test_objects_that_compute_something_else(tmp_path):
    lstm, stack = tf.nn.rnn_cell.LSTMCell, tf.nn.rnn_cell.MultiRNNCell
    path = save_objects(
        tmp_path / "model",
        peepholes=stack([lstm(4, use_peepholes=True)]),
        gru=stack([tf.nn.rnn_cell.GRUCell(4)]),
        projected=stack([lstm(4, num_proj=2)]),
    )
    contents = exchange.read(path, forget_bias=1.0)
    assert [(rnn.scope, rnn.num_proj) for rnn in contents.rnns] == [("projected", 2)]
    assert "gru are those of a GRUCell" in contents.problems[0]
    assert "LSTMCell or LSTMBlockCell that has peepholes" in contents.problems[1]


# Training


def rows(columns):
    """Returns columns in the cells' order of gates as rows in cuDNN's."""
    i, j, f, o = np.split(columns, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1).T


@pytest.mark.parametrize("name", ["basic_trained", "momentum"])
def test_training_goes_on(tmp_path, name):
    """Another step of the layer is the step of the original; its biases make it twice."""
    case = Case(name)
    exchange.convert(case.path, tmp_path / "new", "1.15", target_scope="model")
    size = case.rnns[0]["num_layers"]
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["lstm"](size, 4, name="model")
        outputs, _ = layer(tf.constant(case.expected["inputs"]))
        optimizer = {
            "basic_trained": tf.train.AdamOptimizer(0.01),
            "momentum": tf.train.MomentumOptimizer(0.01, 0.9),
        }[name]
        train = optimizer.minimize(tf.reduce_sum(tf.square(outputs)))
        tf.train.Saver().restore(session, str(tmp_path / "new"))
        session.run(train)
        after = RnnWeights.from_opaque(session.run(layer.kernel), "lstm", size, 4, 3)
    before = read_checkpoint(case.path)
    kernels = sorted(key for key in case.keys if key.endswith("kernel"))
    for (_, _, weights), key in zip(after.places(), kernels):
        bias = key.replace("kernel", "bias")
        kernel = rows(case.expected["after/" + key])
        found = np.concatenate([weights.input_weights, weights.recurrent_weights], axis=1)
        np.testing.assert_allclose(found, kernel, rtol=0, atol=TOLERANCE)
        assert np.abs(kernel - rows(before[key])).max() > 1e-3
        step = case.expected["after/" + bias] - before[bias]
        expected = rows(before[bias] + 2 * step) + np.repeat([0, 1, 0, 0], 4)
        total = weights.input_bias + weights.recurrent_bias
        np.testing.assert_allclose(total, expected, rtol=0, atol=TOLERANCE)


def test_slots_are_permuted_as_the_weights(tmp_path):
    """A moment has no forget bias; a moving average of the bias lacks it as the bias does."""
    case = Case("basic_trained")
    average = "/ExponentialMovingAverage"
    averages = {
        key + average: np.random.RandomState(len(key)).uniform(-1, 1, shape).astype(np.float32)
        for key, shape in case.keys.items()
    }
    path = case.copy(tmp_path / "model", **averages)
    contents, arrays = exchange.read(path), read_checkpoint(path)
    assert contents.others == ["beta1_power", "beta2_power"]
    assert len(contents.slots["encoder"]) == 3
    for (before, after), vector in contents.slots["encoder"].items():
        assert before == ""
        slot = RnnWeights.from_opaque(vector, "lstm", 2, 4, 3)
        for layer, _, weights in slot.places():
            cell = "encoder/rnn/multi_rnn_cell/cell_%d/basic_lstm_cell/" % layer
            kernel = rows(arrays[cell + "kernel/" + after])
            np.testing.assert_array_equal(weights.input_weights, kernel[:, :-4])
            np.testing.assert_array_equal(weights.recurrent_weights, kernel[:, -4:])
            bias = rows(arrays[cell + "bias/" + after])
            if after == average[1:]:
                bias = (bias + np.repeat(np.float32([0, 1, 0, 0]), 4)) / 2
            np.testing.assert_array_equal(weights.input_bias, bias)
            np.testing.assert_array_equal(weights.recurrent_bias, bias)


# What is refused, and what is left as it is


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_cells_that_compute_something_else(name):
    assert set(REFUSED) | set(CASES) == set(plain_cells.CASES)
    case = Case(name)
    assert_refused(case.path, "The cells encoder are those of ", REFUSED[name])


@pytest.mark.parametrize("name", ["refused_gru", "refused_peepholes"])
def test_no_option_makes_them_readable(tmp_path, name):
    path = without_graph(tmp_path, name)
    assert_refused(path, REFUSED[name], forget_bias=1.0)


def test_a_wide_projection(tmp_path):
    cell = "rnn/lstm_cell/"
    arrays = {"kernel": [8, 16], "bias": [16], "projection/kernel": [4, 5]}
    arrays = {cell + name: np.ones(shape, np.float32) for name, shape in arrays.items()}
    checkpoint_format.save(str(tmp_path / "model"), arrays)
    expected = "%sprojection/kernel of shape [4, 5]; cuDNN's are [num_units, num_proj]" % cell
    assert_refused(tmp_path / "model", expected, forget_bias=1.0)


def test_cells_of_other_scopes_stay_as_they_are(tmp_path):
    """A decoder with attention needs its cells; the encoder gets cuDNN's."""
    case = Case("basic_trained")
    decoder = {
        key.replace("encoder", "decoder/attention"): array
        for key, array in read_checkpoint(case.path).items()
        if key.startswith("encoder")
    }
    path = case.copy(tmp_path / "model", graph=False, **decoder)
    done = exchange.convert(path, tmp_path / "new", "1.15", scope="encoder", forget_bias=1.0)
    assert not [note for note in done.notes if "Left out" in note]
    new = read_checkpoint(str(tmp_path / "new"))
    assert {key for key in new if key.startswith("decoder")} == set(decoder)
    for key, array in decoder.items():
        np.testing.assert_array_equal(new[key], array)
    assert "encoder/opaque_kernel/Adam_1" in new
    assert not [key for key in new if key.startswith("encoder") and "basic_lstm_cell" in key]


def test_cells_of_keras_are_no_plain_cells(tmp_path):
    """Their scope is lstm_cell or gru_cell, too."""
    arrays = {"kernel": [3, 16], "recurrent_kernel": [4, 16], "bias": [16]}
    arrays = {"lstm/lstm_cell/" + name: np.ones(shape, "f4") for name, shape in arrays.items()}
    arrays.update({key.replace("lstm", "gru"): array for key, array in arrays.items()})
    checkpoint_format.save(str(tmp_path / "model"), arrays)
    contents = exchange.read(tmp_path / "model")
    assert (contents.rnns, contents.problems, contents.others) == ([], [], sorted(arrays))


def test_ways_of_different_sizes_are_two_rnns(tmp_path):
    case = Case("own_scope_of_ways")
    other = {
        key: np.ones([len(array), 8] if array.ndim == 2 else [8], np.float32)
        for key, array in read_checkpoint(case.path).items()
        if "/bw/" in key
    }
    other["reader/bw/lstm_cell/kernel"] = np.ones([5, 8], np.float32)
    path = case.copy(tmp_path / "model", graph=False, **other)
    contents = exchange.read(path, forget_bias=1.0)
    assert [rnn.scope for rnn in contents.rnns] == ["reader/bw", "reader/fw"]
