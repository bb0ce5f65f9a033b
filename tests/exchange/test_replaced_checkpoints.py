"""New checkpoints in the place of others: the old one's graph does not tell of the new one."""

import os

import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import exchange
from helpers.exchange_models import random_rnn
from helpers.layer_models import LAYERS

pytestmark = [pytest.mark.ci, pytest.mark.once]

UNKNOWN = "rnn_tanh or rnn_relu"


def in_session_with_relu(save):
    """Calls `save(session, inputs, outputs)` with a layer "relu/layer", whose mode no key tells."""
    with tf.Graph().as_default(), tf.Session() as session, tf.variable_scope("relu"):
        inputs = tf.placeholder(tf.float32, [3, 2, 3])
        outputs, _ = LAYERS["rnn_relu"](1, 4, name="layer")(inputs)
        session.run(tf.global_variables_initializer())
        save(session, inputs, outputs)


def save_relu(path):
    """Saves the model with its graph."""
    in_session_with_relu(lambda session, *_: tf.train.Saver().save(session, str(path)))
    assert mode(path) == "rnn_relu"


def mode(path):
    (rnn,) = exchange.read(path).rnns
    return rnn.rnn_mode


def tanh():
    return random_rnn("rnn_tanh", scope="relu/layer", num_units=4, input_size=3)


@pytest.mark.parametrize("target", ["cells", "1.15"])
def test_the_graph_of_the_old_checkpoint_is_set_aside(tmp_path, target):
    path = tmp_path / "model"
    for names in (["model.meta.old"], ["model.meta.old", "model.meta.old.old"]):
        save_relu(path)
        graph = (tmp_path / "model.meta").read_bytes()
        note = exchange.write(path, [tanh()], target, force=True)[-1]
        assert "model.meta has the graph of another checkpoint" in note and names[-1] in note
        assert mode(path) == UNKNOWN
        assert sorted(name for name in os.listdir(str(tmp_path)) if "meta" in name) == names
        assert (tmp_path / names[-1]).read_bytes() == graph
    done = exchange.convert(path, tmp_path / "rnn.npz", "npz", rnn_mode="rnn_tanh")
    assert done.source.rnns[0].rnn_mode == mode(tmp_path / "rnn.npz") == "rnn_tanh"


def test_a_graph_that_lost_its_checkpoint(tmp_path):
    save_relu(tmp_path / "old")
    os.rename(str(tmp_path / "old.meta"), str(tmp_path / "model.meta"))
    source = tmp_path / "tanh.npz"
    exchange.write(source, [tanh()], "npz")
    notes = exchange.convert(source, tmp_path / "model", "1.15", variable="w").notes
    assert any("is now" in note and "model.meta.old" in note for note in notes)
    assert not (tmp_path / "model.meta").exists()


def test_the_graph_stays_if_the_checkpoint_cannot_be_replaced(tmp_path, monkeypatch):
    path = tmp_path / "model"
    save_relu(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    rename = os.replace

    def fail(source, target):
        if target.endswith(".index"):
            raise OSError("no such luck")
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(exchange.ExchangeError, match="no such luck"):
        exchange.write(path, [tanh()], "1.15", force=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_variables_of_a_saved_model_are_not_replaced(tmp_path):
    folder = tmp_path / "saved_model"

    def save(session, inputs, outputs):
        tf.saved_model.simple_save(session, str(folder), {"x": inputs}, {"y": outputs})

    in_session_with_relu(save)
    path = folder / "variables" / "variables"
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(exchange.ExchangeError, match="of the SavedModel .*saved_model.pb"):
        exchange.write(path, [tanh()], "1.15", force=True)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    assert mode(folder) == "rnn_relu"
