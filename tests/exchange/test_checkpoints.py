"""Checkpoints of all generations to RNNs and back, slots and other variables included."""

import errno
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights, checkpoint_format
from cudnn_rnn.model import layout
from helpers.exchange_models import assert_same, random_inputs, random_rnn, run_op
from helpers.golden import read_checkpoint
from helpers.layer_models import LAYERS, run_cells
from helpers.networks import every_mode
from helpers.restoring import random_values
from helpers.versions import needs_projection, needs_tensorflow_2

pytestmark = pytest.mark.ci

TARGETS = ("cells", "1.1", "1.3", "1.4", "1.15")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("bidirectional", [False, True])
@every_mode
def test_every_target_reads_back(tmp_path, rnn_mode, bidirectional):
    rnns = [
        random_rnn(rnn_mode, 3, bidirectional=bidirectional, scope="a/b", equal_biases=True),
        random_rnn(rnn_mode, 1, num_units=3, scope="c", seed=4, equal_biases=True),
    ]
    for target in TARGETS:
        path = str(tmp_path / target / "model.ckpt")
        exchange.write(path, rnns, target)
        assert sorted(os.listdir(str(tmp_path / target))) == [
            "model.ckpt.data-00000-of-00001",
            "model.ckpt.index",
        ]
        found = exchange.read(path, rnn_mode=rnn_mode).rnns
        scopes = ["", "rnn_1"] if target == "1.1" else ["a/b", "c"]
        assert [one.scope for one in found] == scopes
        for one, rnn in zip(found, rnns):
            assert_same(one, rnn)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("bidirectional", [False, True])
@every_mode
def test_programs_restore_what_was_written(tmp_path, rnn_mode, bidirectional):
    """Layers restore 1.15 with exact biases; cells restore `cells`."""
    rnn = random_rnn(rnn_mode, bidirectional=bidirectional)
    inputs = random_inputs(rnn, with_states=False)
    expected = run_op(rnn, inputs)["output"]
    notes = exchange.write(tmp_path / "layers.ckpt", [rnn], "1.15")
    assert "cudnn_%s/opaque_kernel" % rnn_mode in notes[0]
    direction = rnn.config.direction
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS[rnn_mode](rnn.num_layers, rnn.num_units, direction=direction)
        layer.build([None, None, rnn.input_size])
        tf.train.Saver().restore(session, str(tmp_path / "layers.ckpt"))
        np.testing.assert_array_equal(session.run(layer.kernel), rnn.to_opaque())
    exchange.write(tmp_path / "cells.ckpt", [rnn], "cells")
    with tf.Graph().as_default(), tf.Session() as session:
        sequences = tf.constant(inputs["input"])
        output, _ = run_cells(rnn_mode, rnn.num_layers, rnn.num_units, bidirectional, sequences)
        tf.train.Saver().restore(session, str(tmp_path / "cells.ckpt"))
        np.testing.assert_allclose(session.run(output), expected, rtol=0, atol=1e-5)


def trained_layer(rnn_mode, path):
    """Saves a layer with Adam's slots, a moving average and another variable; returns values."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS[rnn_mode](2, 4)
        with tf.variable_scope("model"):
            layer.build([None, None, 3])
        tf.Variable([1.5], name="dense/bias")
        slots = []
        for after in ("Adam", "Adam_1", "ExponentialMovingAverage"):
            size = layer.kernel.shape.as_list()[0]
            slot = tf.Variable(random_values(size, len(after)), name="x")
            slots.append((after, slot))
        session.run(tf.global_variables_initializer())
        name = layer.kernel.op.name
        saved = {name + "/" + after: slot for after, slot in slots}
        saved.update({"dense/bias": tf.global_variables("dense/bias")[0], name: layer.kernel})
        saved["saveable"] = layer.saveable
        tf.train.Saver(saved).save(session, path, write_meta_graph=False)
        return session.run({after: slot for after, slot in slots})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_tanh"])
def test_slots_and_other_variables(tmp_path, rnn_mode):
    """Layers to cells and back: see `checkpoints/optimizer_slots.py` for the arithmetic."""
    paths = [str(tmp_path / name) for name in ("layer", "cells", "again")]
    slots = trained_layer(rnn_mode, paths[0])
    exchange.convert(paths[0], paths[1], "cells")
    cells = read_checkpoint(paths[1])
    assert cells["dense/bias"].tolist() == [1.5]
    assert not [key for key in cells if "opaque_kernel" in key]
    contents = exchange.read(paths[1])
    variables = [key for key in cells if key.endswith(("kernel", "bias")) and key[0] == "m"]
    for after in slots:
        assert all(cells[key + "/" + after].shape == cells[key].shape for key in variables)
    assert set(contents.slots["model"]) == {("", after) for after in slots}
    done = exchange.convert(paths[1], paths[2], "1.15")
    assert not [note for note in done.notes if "Left out" in note]
    again, before = read_checkpoint(paths[2]), read_checkpoint(paths[0])
    variable = "model/opaque_kernel"
    assert {key for key in again if "opaque" in key} == {
        key.replace(before_name(before), variable) for key in before if "opaque" in key
    }
    # Slots of biases become means, moving averages keep their sums.
    for after, slot in slots.items():
        (rnn,) = exchange.read(paths[0]).rnns
        sizes = (rnn_mode, 2, 4, 3)
        old = RnnWeights.from_opaque(slot, *sizes)
        new = RnnWeights.from_opaque(again[variable + "/" + after], *sizes)
        for (_, _, one), (_, _, other) in zip(old.places(), new.places()):
            np.testing.assert_array_equal(one.recurrent_weights, other.recurrent_weights)
            total = one.input_bias + one.recurrent_bias
            # A GRU's candidate, the last gate, keeps both.
            merged = slice(0, 8) if rnn_mode == "gru" else slice(None)
            np.testing.assert_allclose(other.input_bias[merged], total[merged] / 2, atol=1e-7)
            assert_unmerged = slice(8, None) if rnn_mode == "gru" else slice(0, 0)
            np.testing.assert_array_equal(
                other.input_bias[assert_unmerged], one.input_bias[assert_unmerged]
            )


def before_name(arrays):
    """Returns the key of the opaque variable."""
    return min((key for key in arrays if "opaque_kernel" in key), key=len)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(tmp_path, dtype):
    rnn = random_rnn("lstm", bidirectional=True, dtype=dtype, equal_biases=True)
    for target in ("1.1", "1.15", "npz"):
        exchange.write(tmp_path / target, [rnn], target)
        (found,) = exchange.read(tmp_path / target).rnns
        assert_same(found, rnn)


@pytest.mark.parametrize("scope", ["", "a/b", "a_1", "0.1-b", "_a", "a b", "a:b", "/a", "\u00e9"])
def test_scopes_that_tensorflow_refuses_are_told(tmp_path, scope):
    """Such as the `_rnn` of a private attribute in PyTorch."""
    exchange.write(tmp_path / "rnn.npz", [random_rnn("lstm", scope=scope)], "npz")
    is_refused = False
    try:
        with tf.Graph().as_default(), tf.name_scope(scope):
            pass
    except ValueError:
        is_refused = True
    done = exchange.convert(tmp_path / "rnn.npz", tmp_path / "rnn", "cells")
    assert (
        any(repr(scope) in note and "--target-scope" in note for note in done.notes) == is_refused
    )


def test_bfloat16_is_refused(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        kernel = tf.Variable(tf.cast(tf.ones([9, 20]), tf.bfloat16))
        bias = tf.Variable(tf.cast(tf.ones([20]), tf.bfloat16))
        session.run(tf.global_variables_initializer())
        scope = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/"
        saver = tf.train.Saver({scope + "kernel": kernel, scope + "bias": bias})
        saver.save(session, str(tmp_path / "cells"))
        saver = tf.train.Saver({"cudnn_lstm/opaque_kernel": bias})
        saver.save(session, str(tmp_path / "opaque"))
    expected = r"dtypes bfloat16; expected one of float16, float32, float64 .* tf\.cast"
    for name in ("cells", "opaque"):
        with pytest.raises(ValueError, match=expected):
            exchange.read(tmp_path / name)


@pytest.mark.sampled(4)
@every_mode
def test_a_trained_layer_becomes_what_saved_as_cells_saves(tmp_path, rnn_mode):
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS[rnn_mode](2, 4, direction="bidirectional")
        layer.build([None, None, 3])
        optimizer = tf.train.AdamOptimizer(0.1)
        train = optimizer.minimize(tf.reduce_sum(layer.kernel * tf.sin(7.0 * layer.kernel)))
        session.run(tf.global_variables_initializer())
        layer.kernel.load(random_values(layer.kernel.shape.as_list()[0]), session)
        for _ in range(2):
            session.run(train)
        tf.train.Saver().save(session, str(tmp_path / "layer"))
        saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))
        saver.save(session, str(tmp_path / "expected"))
    exchange.convert(tmp_path / "layer", tmp_path / "cells", "cells", rnn_mode=rnn_mode)
    expected = read_checkpoint(str(tmp_path / "expected"))
    found = read_checkpoint(str(tmp_path / "cells"))
    assert "beta1_power" in found and any(key.endswith("kernel/Adam_1") for key in found)
    assert set(found) == set(expected)
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


@pytest.mark.once
def test_other_targets_name_what_they_leave_out(tmp_path):
    trained_layer("lstm", str(tmp_path / "layer"))
    done = exchange.convert(tmp_path / "layer", tmp_path / "rnn.npz", "npz")
    assert done.notes == [
        "Left out: the slots Adam of the RNN 'model', Adam_1 of the RNN 'model', "
        "ExponentialMovingAverage of the RNN 'model'.",
        "Left out, as no part of an RNN: dense/bias.",
    ]
    exchange.convert(tmp_path / "layer", tmp_path / "cells", "cells")
    done = exchange.convert(tmp_path / "cells", tmp_path / "old", "1.4")
    assert "has no opaque variable. Give its key: variable=" in done.notes[0]
    exchange.convert(tmp_path / "cells", tmp_path / "old2", "1.4", variable="model/opaque")
    assert "model/opaque/Adam_1" in read_checkpoint(str(tmp_path / "old2"))


def test_a_saved_model(tmp_path):
    """The variables of a SavedModel of TensorFlow 1 are a checkpoint."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["gru"](1, 4)
        with tf.variable_scope("model"):
            layer.build([None, None, 3])
        session.run(tf.global_variables_initializer())
        inputs = {"x": tf.placeholder(tf.float32, [])}
        folder = str(tmp_path / "exported")
        tf.saved_model.simple_save(session, folder, inputs, {"y": tf.identity(inputs["x"])})
        params = session.run(layer.kernel)
    (rnn,) = exchange.read(folder).rnns
    assert rnn.scope == "model"
    np.testing.assert_array_equal(rnn.to_opaque(), params)


def test_skip_input(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["lstm"](2, 4, input_mode="skip_input")
        layer.build([None, None, 4])
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "model"))
        params = session.run(layer.kernel)
    contents = exchange.read(tmp_path / "model")
    (rnn,) = contents.rnns
    assert "has input_mode skip_input. It becomes linear_input" in contents.notes[0]
    assert_same(rnn, RnnWeights.from_opaque(params, "lstm", 2, 4, 4, skip_input=True))


def test_skip_input_of_1_1(tmp_path):
    """The matrices of its first layer have no elements."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = cudnn_rnn.CudnnLSTM(2, 4, 4, input_mode="skip_input")
        params = tf.Variable(random_values(session.run(model.params_size())), name="opaque")
        saveable = cudnn_rnn.RNNParamsSaveable(
            model.params_to_canonical, model.canonical_to_params, params
        )
        session.run(params.initializer)
        tf.train.Saver([saveable]).save(session, str(tmp_path / "model"))
        values = session.run(params)
    (rnn,) = exchange.read(tmp_path / "model", rnn_mode="lstm").rnns
    assert_same(rnn, RnnWeights.from_opaque(values, "lstm", 2, 4, 4, skip_input=True))


def opaque_only(tmp_path, size, name="decoder/opaque_kernel"):
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.Variable(random_values(size), name=name)
        session.run(variable.initializer)
        return tf.train.Saver({name: variable}).save(session, str(tmp_path / "opaque"))


@pytest.mark.once
def test_an_opaque_vector_alone_needs_facts(tmp_path):
    rnn = random_rnn("lstm", 2, num_units=5, input_size=4)
    path = opaque_only(tmp_path, layout.params_size(rnn.config))
    contents = exchange.read(path)
    assert contents.rnns == [] and "--rnn-mode, --num-units" in contents.notes[0]
    with pytest.raises(exchange.ExchangeError, match="has no RNN.*does not describe"):
        exchange.convert(path, tmp_path / "x.npz", "npz")
    with pytest.raises(exchange.ExchangeError, match="may be any of these RNNs:\n.*num_layers 1"):
        exchange.read(path, rnn_mode="lstm", num_units=5)
    facts = dict(rnn_mode="lstm", num_units=5, direction="unidirectional")
    (found,) = exchange.read(path, num_layers=2, **facts).rnns
    assert (found.scope, found.input_size) == ("decoder", 4)
    np.testing.assert_array_equal(found.to_opaque(), random_values(layout.params_size(rnn.config)))
    for wrong in (dict(num_layers=9), dict(num_layers=2**31 - 1), dict(num_units=2**31 - 1)):
        with pytest.raises(exchange.ExchangeError, match="is not the opaque vector of an RNN with"):
            exchange.read(path, **{**facts, **wrong})
    for wrong in (dict(num_layers=0), dict(num_units=2**31)):
        with pytest.raises(ValueError, match=list(wrong)[0] + " must be between 1 and 2147483647"):
            exchange.read(path, **{**facts, **wrong})


def test_ambiguous_canonical_tensors(tmp_path):
    """With equal sizes, 3 layers of an LSTM have as many tensors as 4 of a GRU."""
    rnn = random_rnn("lstm", 3, num_units=4, input_size=4)
    path = str(tmp_path / "model")
    exchange.write(path, [rnn], "1.1")
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.read(path)
    for line in ("lstm, num_layers 3", "gru, num_layers 4", "rnn_tanh or rnn_relu, num_layers 12"):
        assert line in str(caught.value)
    assert "48 tensors with [16, 16, " in str(caught.value)
    assert ", 4, 4... elements, may be" in str(caught.value)  # the first 40 of them
    assert_same(exchange.read(path, rnn_mode="lstm").rnns[0], rnn)
    with pytest.raises(exchange.ExchangeError, match="No RNN in .* has rnn_mode 'gru'"):
        exchange.write(path, [random_rnn("lstm")], "1.1", force=True)
        exchange.read(path, rnn_mode="gru")


def test_canonical_tensors_of_one_of_two_rnns(tmp_path):
    """An LSTM of 1 layer and a simple RNN of 4 layers, and no other RNNs, have 16 tensors."""
    rnn = random_rnn("lstm", 1, num_units=4, input_size=4)
    exchange.write(tmp_path / "model", [rnn], "1.1")
    assert_same(exchange.read(tmp_path / "model", rnn_mode="lstm").rnns[0], rnn)


@pytest.mark.once
@needs_projection
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_projection_has_keys_in_1_1_only(tmp_path, bidirectional):
    rnn = random_rnn("lstm", bidirectional=bidirectional, num_proj=3)
    exchange.write(tmp_path / "model", [rnn], "1.1")
    assert_same(exchange.read(tmp_path / "model").rnns[0], rnn)
    for target in ("cells", "1.3", "1.4", "1.15"):
        with pytest.raises(exchange.ExchangeError, match="has a projection"):
            exchange.write(tmp_path / target, [rnn], target)


@needs_tensorflow_2
@pytest.mark.sampled(2)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_object_based_checkpoints_of_tensorflow_2(tmp_path, rnn_mode, bidirectional):
    rnn = random_rnn(rnn_mode, bidirectional=bidirectional, equal_biases=True)
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS[rnn_mode](2, 5, direction=rnn.config.direction)
        layer.build([None, None, 4])
        layer.kernel.load(rnn.to_opaque(), session)
        path = tf.train.Checkpoint(model=layer).save(str(tmp_path / "model"), session=session)
    contents = exchange.read(path)
    (found,) = contents.rnns
    assert found.scope == "model"
    assert_same(found, rnn)
    done = exchange.convert(path, tmp_path / "named", "1.4")
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" in done.notes[-1]
    (found,) = exchange.read(tmp_path / "named").rnns
    assert_same(found, rnn)


def test_object_based_cells_that_may_be_either(tmp_path):
    """[20, 16] is the kernel of an LSTM of 4 units, and of a simple RNN of 16."""
    rnn = random_rnn("lstm", 1, num_units=4, input_size=16, equal_biases=True)
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["lstm"](1, 4)
        layer.build([None, None, 16])
        layer.kernel.load(rnn.to_opaque(), session)
        path = tf.train.Checkpoint(model=layer).save(str(tmp_path / "model"), session=session)
    with pytest.raises(exchange.ExchangeError, match="may be an LSTM or a simple RNN. Give"):
        exchange.read(path)
    assert_same(exchange.read(path, rnn_mode="lstm").rnns[0], rnn)


def test_cells_without_a_stack_and_incomplete_ones(tmp_path):
    rnn = random_rnn("gru", 1, scope="model", equal_biases=True)
    arrays = checkpoint_format.plan([rnn], "cells").arrays
    single = {key.replace("multi_rnn_cell/cell_0/", ""): arrays[key] for key in arrays}
    checkpoint_format.save(str(tmp_path / "single"), single)
    assert "model/rnn/cudnn_compatible_gru_cell/gates/kernel" in single
    (found,) = exchange.read(tmp_path / "single").rnns
    assert found.scope == "model"
    assert_same(found, rnn)
    arrays = checkpoint_format.plan([random_rnn("lstm", 2)], "cells").arrays
    lost = {key: array for key, array in arrays.items() if "cell_0" not in key}
    checkpoint_format.save(str(tmp_path / "lost"), lost)
    with pytest.raises(exchange.ExchangeError, match="are incomplete"):
        exchange.read(tmp_path / "lost")
    key = next(key for key in arrays if "cell_1" in key and key.endswith("kernel"))
    arrays[key] = arrays[key][:-1]
    checkpoint_format.save(str(tmp_path / "short"), arrays)
    with pytest.raises(exchange.ExchangeError):
        exchange.read(tmp_path / "short")


@pytest.mark.once
def test_two_rnns_of_equal_size_and_a_foreign_vector(tmp_path):
    """A vector belongs to the RNN with the same values; one of none is not silently ignored."""
    rnns = [random_rnn("gru", scope=scope, seed=seed) for seed, scope in enumerate("ab")]
    arrays = checkpoint_format.plan(rnns, "1.15").arrays
    first, second = arrays["a/opaque_kernel"], arrays["b/opaque_kernel"]
    arrays.update({"a/opaque_kernel": second, "b/opaque_kernel": first})
    checkpoint_format.save(str(tmp_path / "swapped"), arrays)
    contents = exchange.read(tmp_path / "swapped")
    assert contents.variables == {"a": "b/opaque_kernel", "b": "a/opaque_kernel"}
    for found, expected in zip(contents.rnns, rnns):
        assert_same(found, expected)
    arrays.update({"a/opaque_kernel": second + 1, "b/opaque_kernel": first})
    checkpoint_format.save(str(tmp_path / "foreign"), arrays)
    contents = exchange.read(tmp_path / "foreign")
    assert contents.variables == {"a": "b/opaque_kernel"}
    assert [note for note in contents.notes if "a/opaque_kernel has the size" in note]
    assert contents.others == ["a/opaque_kernel"]


def test_an_rnn_that_cannot_be_read_beside_one_that_can(tmp_path):
    """The cells of tf.nn.rnn_cell may differ in size from layer to layer; cuDNN's layers do not."""
    good = random_rnn("gru", 1, scope="good", equal_biases=True)
    arrays = checkpoint_format.plan([good, random_rnn("lstm", 2, scope="bad")], "cells").arrays
    cell = "bad/rnn/multi_rnn_cell/cell_1/cudnn_compatible_lstm_cell/"
    arrays[cell + "kernel"] = np.zeros([8, 12], np.float32)
    arrays[cell + "bias"] = np.zeros([12], np.float32)
    path = str(tmp_path / "model")
    checkpoint_format.save(path, arrays)
    contents = exchange.read(path)
    assert [rnn.scope for rnn in contents.rnns] == ["good"]
    assert "The cells bad with shapes" in contents.problems[0]
    with pytest.raises(exchange.ExchangeError, match="has RNNs that cannot be read.*\n.*cells bad"):
        exchange.convert(path, tmp_path / "x.npz", "npz")
    done = exchange.convert(path, tmp_path / "x.npz", "npz", scope="good")
    assert contents.problems[0] in done.notes
    assert_same(exchange.read(tmp_path / "x.npz").rnns[0], good)


def test_slots_made_by_hand_are_checked(tmp_path):
    rnn = random_rnn("gru", scope="a")
    vector = rnn.to_opaque()
    for wrong, words in ((vector.astype(np.float64), "float64"), (vector[1:], "float32")):
        contents = exchange.Contents("", "", [rnn], slots={"a": {("", "Adam"): wrong}})
        found = "but is %s of shape .%d." % (words, wrong.size)
        with pytest.raises(exchange.ExchangeError, match="slot Adam of the RNN 'a' must.*" + found):
            exchange.write(tmp_path / "model", contents, "cells")
    assert os.listdir(str(tmp_path)) == []


def test_damaged_data(tmp_path):
    exchange.write(tmp_path / "model", [random_rnn("lstm")], "1.4")
    data = tmp_path / "model.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-40] + b"x" * 40)
    with pytest.raises(exchange.ExchangeError, match="cannot be read as a checkpoint: rnn/multi"):
        exchange.read(tmp_path / "model")
    data.unlink()
    with pytest.raises(exchange.ExchangeError, match="cannot be read as a checkpoint"):
        exchange.read(tmp_path / "model")


def test_new_data_files_never_replace_those_that_the_old_index_needs(tmp_path):
    path = str(tmp_path / "model")
    arrays = {"a": np.ones(3, np.float32), "b": np.zeros(2, np.float32)}
    names = []
    for _ in range(3):
        checkpoint_format.save(path, arrays)
        names.append({file for file in os.listdir(str(tmp_path)) if ".data-" in file})
    assert names[0] == names[2] == {"model.data-00000-of-00001"}
    assert names[1] == {"model.data-00000-of-00002", "model.data-00001-of-00002"}


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    old, new = random_rnn("lstm"), random_rnn("lstm", seed=9)
    path = str(tmp_path / "model")
    exchange.write(path, [old], "1.4")
    with pytest.raises(exchange.ExchangeError, match="exists.*--force"):
        exchange.write(path, [new], "1.4")

    def full_disk(*arguments, **named):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with monkeypatch.context() as patches:
        patches.setattr(tf.raw_ops, "SaveV2", full_disk)
        with pytest.raises(exchange.ExchangeError, match="cannot be written: No space left"):
            exchange.write(path, [new], "1.4", force=True)
    assert sorted(os.listdir(str(tmp_path))) == ["model.data-00000-of-00001", "model.index"]
    halves = [one.input_bias + one.recurrent_bias for _, _, one in old.places()]
    found = exchange.read(path).rnns[0]
    np.testing.assert_array_equal(2 * found.layers[0][0].input_bias, halves[0])
    exchange.write(path, [new], "1.4", force=True)
    found = exchange.read(path).rnns[0]
    np.testing.assert_array_equal(found.layers[1][0].input_weights, new.layers[1][0].input_weights)


@pytest.mark.once
def test_a_failed_rename_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    """Also if only the index cannot be renamed, after the data."""
    old, new = random_rnn("lstm"), random_rnn("lstm", seed=9)
    path = str(tmp_path / "model")
    exchange.write(path, [old], "1.15")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    rename, calls = os.replace, []

    def fail(source, target):
        calls.append(target)
        if len(calls) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    for failing in (1, 2, 3):
        del calls[:]
        with monkeypatch.context() as patches:
            patches.setattr(os, "replace", fail)
            with pytest.raises(exchange.ExchangeError, match="model cannot be written: .*error"):
                exchange.write(path, [new], "1.15", force=True)
        assert len(calls) == failing
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    exchange.write(path, [new], "1.15", force=True)
    assert_same(exchange.read(path).rnns[0], new)
    assert len(os.listdir(str(tmp_path))) == 3  # two data files: the old index named another
    exchange.write(path, [old], "1.15", force=True)
    assert_same(exchange.read(path).rnns[0], old)
    assert {file.name for file in tmp_path.iterdir()} == set(before)
