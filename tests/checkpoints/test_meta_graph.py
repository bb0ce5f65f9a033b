"""MetaGraphDefs and SavedModels of graphs whose Savers hold saveables, ours or the original's."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from helpers.layer_models import LAYERS, UNITS, WIDTH
from helpers.rnn_models import CLASSES, initialize, make_params, save, saveable_b
from helpers.versions import needs_tensorflow_2

INPUTS = np.linspace(-1, 1, 5 * 2 * WIDTH, dtype=np.float32).reshape(5, 2, WIDTH)


def build(kind):
    """Builds a model with a saveable in the collection; returns (inputs, outputs)."""
    inputs = tf.placeholder(tf.float32, [None, 2, WIDTH], name="inputs")
    if kind == "layers":
        outputs, _ = LAYERS["lstm"](2, UNITS, seed=1)(inputs, training=False)
        outputs, _ = LAYERS["gru"](1, UNITS, direction="bidirectional", seed=2)(outputs)
    else:
        model = CLASSES["gru"](1, UNITS, WIDTH)
        params = make_params(model)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable_b(model, params, "scope"))
        outputs, _ = model(inputs, tf.zeros([1, 2, UNITS]), params)
    return inputs, tf.identity(outputs, name="outputs")


@pytest.fixture(params=["layers", "op_level"])
def written(request, session, tmp_path):
    """Returns (path of a checkpoint with its MetaGraphDef, folder of a SavedModel, outputs)."""
    inputs, outputs = build(request.param)
    initialize(session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    folder = str(tmp_path / "saved_model")
    tf.saved_model.simple_save(session, folder, {"inputs": inputs}, {"outputs": outputs})
    return path, folder, session.run(outputs, {inputs: INPUTS})


def assert_outputs(session, expected, scope=""):
    found = session.run(scope + "outputs:0", {scope + "inputs:0": INPUTS})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("module", [tf.train, cudnn_rnn], ids=["tensorflow", "cudnn_rnn"])
def test_import(written, module):
    """tensorflow#23898: a saveable in the collection had a name that no node has."""
    path, _, expected = written
    with tf.Graph().as_default(), tf.Session() as session:
        saver = module.import_meta_graph(path + ".meta")
        saver.restore(session, path)
        assert_outputs(session, expected)
        # The saver still saves the same tensors.
        again = saver.save(session, path + "_again")
    assert tf.train.list_variables(again) == tf.train.list_variables(path)


@pytest.mark.sampled(2)
def test_an_imported_graph_can_get_a_new_saver(written):
    """`test_imported_saveables.py` has what such a Saver saves and restores."""
    path, _, expected = written
    with tf.Graph().as_default(), tf.Session() as session:
        cudnn_rnn.import_meta_graph(path + ".meta")
        saver = tf.train.Saver()
        saver.restore(session, path)
        assert_outputs(session, expected)
        again = saver.save(session, path + "_again")
    assert tf.train.list_variables(again) == tf.train.list_variables(path)


def test_saved_model(written):
    _, folder, expected = written
    with tf.Graph().as_default(), tf.Session() as session:
        meta_graph = tf.saved_model.load(session, ["serve"], folder)
        signature = meta_graph.signature_def["serving_default"]
        assert_outputs(session, expected)
        assert signature.outputs["outputs"].name == "outputs:0"


@pytest.mark.sampled(2)
@needs_tensorflow_2
def test_saved_model_of_tensorflow_1_in_tensorflow_2(written):
    _, folder, expected = written
    with context.eager_mode():
        loaded = tensorflow.saved_model.load(folder)
        found = loaded.signatures["serving_default"](inputs=tf.constant(INPUTS))["outputs"]
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("name", ["params:0_saveable", "_private", "with space", "folder/"])
def test_names_that_are_not_valid_node_names(session, tmp_path, name):
    model = CLASSES["lstm"](1, UNITS, WIDTH)
    saveable = saveable_b(model, make_params(model), "scope", name=name)
    assert saveable.name == name
    path = save([saveable], tmp_path)
    assert len(tf.train.list_variables(path)) == len(saveable.specs)


def test_a_name_that_a_node_of_the_program_has(session):
    tf.constant(1.0, name="mine")
    model = CLASSES["lstm"](1, UNITS, WIDTH)
    saveable = saveable_b(model, make_params(model), "scope", name="mine")
    assert saveable.name == "mine" and saveable.op.op.name == "mine_1"
