"""Regression tests for problems that users of the original had with checkpoints and exports.

Each docstring describes the original problem. See `test_known_issues.py`.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers.checkpoints import assert_round_trip
from helpers.layer_models import (
    BATCH,
    LAYER_COUNT,
    LAYERS,
    SAVEABLES,
    UNITS,
    WIDTH,
    built_layer,
    make_inputs,
    run_cells,
)
from helpers.processes import output_of
from helpers.rnn_models import CLASSES, initialize, make_params

RNN_MODES = sorted(CLASSES)


# --- Two models in one saver ---


def test_13254_two_layers_in_a_default_saver(session, tmp_path):
    """The second RNN of a program overwrote the first in the checkpoint, or could not be saved."""
    layers = [LAYERS[rnn_mode](1, UNITS) for rnn_mode in ("lstm", "lstm", "gru")]
    for layer in layers:
        layer(make_inputs())
    saver = tf.train.Saver([layer.saveable for layer in layers])
    initialize(session)
    variables = [layer.kernel for layer in layers]
    first, second, _ = session.run(variables)
    assert np.abs(first - second).max() > 0.01
    assert_round_trip(session, saver, variables, tmp_path)


def test_13254_22723_equal_keys_are_an_error_that_names_both(session):
    """If two saveables write the same keys, the error names both and says what to do."""
    for name in ("encoder", "decoder"):
        built_layer("lstm", name=name)  # both use the graph's root scope
    message = "'decoder/opaque_kernel_saveable' and 'encoder/opaque_kernel_saveable' .* both write "
    message += "the key 'rnn/multi_rnn_cell.*scope"
    for saved in (None, tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)):
        with pytest.raises(ValueError, match=message):
            tf.train.Saver(saved)


# --- Checkpoints and models of a GPU ---

# A server that has only the SavedModel, without the program that wrote it.
SERVER = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
import cudnn_rnn

folder = sys.argv[1]
for placement in ("soft", "cleared"):
    config = tf.ConfigProto(allow_soft_placement=placement == "soft", device_count={"GPU": 0})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        meta_graph = tf.saved_model.load(
            session, ["serve"], folder, clear_devices=placement == "cleared"
        )
        signature = meta_graph.signature_def["serving_default"]
        inputs = {signature.inputs["inputs"].name: np.load(folder + "/inputs.npy")}
        outputs = session.run(signature.outputs["outputs"].name, inputs)
        np.save(folder + "/" + placement + ".npy", outputs)
"""


@pytest.mark.sampled(4)
@pytest.mark.ci
def test_serving_823_a_saved_model_of_a_gpu_runs_on_a_cpu(session, tmp_path):
    """A model exported after training on a GPU could not be served from a CPU."""
    folder = str(tmp_path / "exported")
    with tf.device("/device:GPU:0"):
        layer = LAYERS["lstm"](LAYER_COUNT, UNITS, direction="bidirectional")
        inputs = tf.placeholder(tf.float32, [None, None, WIDTH])
        outputs, _ = layer(inputs, sequence_lengths=[5, 0, 3], training=False)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as trainer:
        initialize(trainer)
        tf.saved_model.simple_save(trainer, folder, {"inputs": inputs}, {"outputs": outputs})
        expected = trainer.run(outputs, {inputs: make_inputs()})
    np.save(folder + "/inputs.npy", make_inputs())
    output_of("-c", SERVER, folder)
    for placement in ("soft", "cleared"):
        found = np.load("%s/%s.npy" % (folder, placement))
        np.testing.assert_array_equal(found, expected, err_msg=placement)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("into", ["layer", "op_level", "cells"])
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_rnet_17_a_checkpoint_of_a_gpu_is_used_on_a_cpu(session, tmp_path, rnn_mode, into):
    """A checkpoint of a model pinned to a GPU could not be used on a machine without one."""
    inputs = make_inputs()
    with tf.device("/device:GPU:0"), tf.variable_scope("model"):
        layer = built_layer(rnn_mode, LAYER_COUNT)
        outputs, _ = layer(inputs, training=True)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(outputs))
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as trainer:
        initialize(trainer)
        trainer.run(train)
        path = tf.train.Saver().save(trainer, str(tmp_path / "model"))
        expected = trainer.run(outputs)
    with tf.Graph().as_default(), tf.Session() as user, tf.variable_scope("model"):
        sizes, saved = (LAYER_COUNT, UNITS, WIDTH), None
        if into == "cells":
            found, _ = run_cells(rnn_mode, LAYER_COUNT, UNITS, False, tf.constant(inputs))
        elif into == "layer":
            found, _ = built_layer(rnn_mode, LAYER_COUNT)(inputs, training=False)
        else:
            model = CLASSES[rnn_mode](*sizes)
            params = make_params(model)
            saved = [SAVEABLES[rnn_mode](params, *sizes, scope="model")]
            states = [tf.zeros(shape) for shape in layer.state_shape(BATCH)]
            found = model(inputs, *(states + [params]), is_training=False)[0]
        tf.train.Saver(saved).restore(user, path)
        np.testing.assert_allclose(user.run(found), expected, rtol=1e-5, atol=1e-6)
