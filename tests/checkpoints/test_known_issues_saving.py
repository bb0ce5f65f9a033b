"""Regression tests for problems that users of the original had with checkpoints and exports.

Each docstring describes the original problem. See `test_known_issues.py`.
"""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.layer_models import LAYERS, SAVEABLES, run_cells
from helpers.rnn_models import (
    CLASSES,
    DIRECTIONS,
    NUM_GATES,
    initialize,
    make_params,
    opaque_values,
    saveable_a,
    saveable_b,
)

RNN_MODES = sorted(CLASSES)
LAYER_COUNT, UNITS, WIDTH, BATCH, STEPS = 2, 4, 3, 3, 5


def make_inputs(width=WIDTH):
    return np.random.RandomState(1).uniform(-1, 1, [STEPS, BATCH, width]).astype(np.float32)


def spoil_and_restore(session, saver, path, variables):
    """Zeroes the variables, restores them, and returns their restored values."""
    session.run([variable.assign(tf.zeros_like(variable)) for variable in variables])
    saver.restore(session, path)
    return session.run(variables)


# --- Saved tensors ---


@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_9370_all_canonical_tensors_of_a_bidirectional_model(session, rnn_mode):
    """params_to_canonical returned the tensors of one direction, so half of a model was lost."""
    model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, WIDTH, direction="bidirectional")
    params = opaque_values(model.config.params_size())
    weights, biases = session.run(model.params_to_canonical(tf.constant(params)))
    assert len(weights) == len(biases) == LAYER_COUNT * 2 * 2 * NUM_GATES[rnn_mode]
    in_order = np.concatenate([tensor.ravel() for tensor in weights + biases])
    np.testing.assert_array_equal(in_order, params)
    back = session.run(model.canonical_to_params(weights, biases))
    np.testing.assert_array_equal(back, params)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_12284_16042_skip_input_runs_and_is_saved(session, tmp_path, rnn_mode, direction):
    """With skip_input, reading the canonical tensors crashed, and so did saving."""
    layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS, input_mode="skip_input", direction=direction)
    model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, UNITS, "skip_input", direction)
    inputs = make_inputs(UNITS)
    outputs, _ = layer(inputs, training=False)
    params = make_params(model)
    states = [tf.zeros(shape) for shape in layer.state_shape(BATCH)]
    of_model = model(inputs, *(states + [params]), is_training=False)[0]
    with tf.variable_scope("op_level"):
        saveable = saveable_a(model, params)
    saver = tf.train.Saver([layer.saveable, saveable])
    initialize(session)
    session.run(layer.kernel.assign(params))
    before = session.run([outputs, of_model])
    np.testing.assert_array_equal(*before)
    path = saver.save(session, str(tmp_path / "model"))
    values = session.run(params)
    restored = spoil_and_restore(session, saver, path, [params, layer.kernel])
    np.testing.assert_array_equal(restored[0], values)  # the layer halves the sum of its biases
    for found, expected in zip(session.run([outputs, of_model]), before):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_22064_relu_is_saved_and_restored(session, tmp_path, direction):
    """CudnnRNNRelu had no saveable and so could not be saved."""
    layer = LAYERS["rnn_relu"](LAYER_COUNT, UNITS, direction=direction)
    outputs, _ = layer(make_inputs())
    saver = tf.train.Saver()
    initialize(session)
    before = session.run([layer.kernel, outputs])
    path = saver.save(session, str(tmp_path / "model"))
    keys = [name for name, _ in tf.train.list_variables(path)]
    assert sum("basic_rnn_cell" in key for key in keys) == 2 * LAYER_COUNT * layer.num_dirs
    restored = spoil_and_restore(session, saver, path, [layer.kernel])
    np.testing.assert_array_equal(restored[0], before[0])
    np.testing.assert_array_equal(session.run(outputs), before[1])


# --- Two models in one saver ---


def test_13254_two_layers_in_a_default_saver(session, tmp_path):
    """The second RNN of a program overwrote the first in the checkpoint, or could not be saved."""
    layers = [LAYERS["lstm"](1, UNITS), LAYERS["lstm"](1, UNITS), LAYERS["gru"](1, UNITS)]
    for layer in layers:
        layer(make_inputs())
    saver = tf.train.Saver([layer.saveable for layer in layers])
    initialize(session)
    variables = [layer.kernel for layer in layers]
    before = session.run(variables)
    assert np.abs(before[0] - before[1]).max() > 0.01
    path = saver.save(session, str(tmp_path / "model"))
    after = spoil_and_restore(session, saver, path, variables)
    for one, other in zip(before, after):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make_saveable", [saveable_a, saveable_b])
def test_22723_an_encoder_and_a_decoder_of_op_level_models(session, tmp_path, make_saveable):
    """With op-level models too, the second RNN overwrote the first or could not be saved."""
    variables, saveables = [], []
    for index, scope in enumerate(("encoder", "decoder")):
        model = CLASSES["lstm"](1, UNITS, WIDTH)
        with tf.variable_scope(scope):
            values = index + opaque_values(model.config.params_size())
            variables.append(make_params(model, values))
            scopes = [scope] if make_saveable is saveable_b else []
            saveables.append(make_saveable(model, variables[-1], *scopes, name=scope))
    saver = tf.train.Saver(saveables)
    initialize(session)
    before = session.run(variables)
    path = saver.save(session, str(tmp_path / "model"))
    after = spoil_and_restore(session, saver, path, variables)
    for one, other in zip(before, after):
        np.testing.assert_array_equal(one, other)


def test_13254_22723_equal_keys_are_an_error_that_names_both(session):
    """If two saveables write the same keys, the error names both and says what to do."""
    for name in ("encoder", "decoder"):
        layer = LAYERS["lstm"](1, UNITS, name=name)
        layer.build([None, None, WIDTH])  # both use the graph's root scope
    with pytest.raises(ValueError) as caught:
        tf.train.Saver(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS))
    for part in ("encoder/opaque_kernel_saveable", "decoder/opaque_kernel_saveable", "scope"):
        assert part in str(caught.value), part


# --- Imported graphs ---


def test_23898_import_meta_graph_in_one_line(session, tmp_path):
    """import_meta_graph failed: the saveable's name matched no operation of the graph."""
    layer = LAYERS["gru"](1, UNITS)
    outputs = tf.identity(layer(make_inputs(), training=False)[0], name="outputs")
    initialize(session)
    expected = session.run(outputs)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as other:
        saver = cudnn_rnn.import_meta_graph(path + ".meta")
        saver.restore(other, path)
        np.testing.assert_array_equal(other.run("outputs:0"), expected)


# A server that has only the SavedModel, without the program that wrote it.
SERVER = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
import cudnn_rnn

config = tf.ConfigProto(allow_soft_placement=sys.argv[2] == "soft", device_count={"GPU": 0})
with tf.Graph().as_default(), tf.Session(config=config) as session:
    meta_graph = tf.saved_model.load(
        session, ["serve"], sys.argv[1], clear_devices=sys.argv[2] == "cleared"
    )
    signature = meta_graph.signature_def["serving_default"]
    inputs = np.load(sys.argv[1] + "/inputs.npy")
    outputs = session.run(
        signature.outputs["outputs"].name, {signature.inputs["inputs"].name: inputs}
    )
    np.save(sys.argv[1] + "/outputs.npy", outputs)
"""


@pytest.mark.parametrize("placement", ["soft", "cleared"])
def test_serving_823_a_saved_model_of_a_gpu_runs_on_a_cpu(session, tmp_path, placement):
    """A model exported after training on a GPU could not be served from a CPU."""
    layer = LAYERS["lstm"](LAYER_COUNT, UNITS, direction="bidirectional")
    folder = str(tmp_path / "exported")
    with tf.device("/device:GPU:0"):
        inputs = tf.placeholder(tf.float32, [None, None, WIDTH])
        outputs, _ = layer(inputs, sequence_lengths=[5, 0, 3], training=False)
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as trainer:
        initialize(trainer)
        tf.saved_model.simple_save(trainer, folder, {"inputs": inputs}, {"outputs": outputs})
        expected = trainer.run(outputs, {inputs: make_inputs()})
    np.save(folder + "/inputs.npy", make_inputs())
    subprocess.check_call([sys.executable, "-c", SERVER, folder, placement])
    np.testing.assert_array_equal(np.load(folder + "/outputs.npy"), expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("into", ["layer", "op_level", "cells"])
@pytest.mark.parametrize("rnn_mode", RNN_MODES)
def test_rnet_17_a_checkpoint_of_a_gpu_is_used_on_a_cpu(session, tmp_path, rnn_mode, into):
    """A checkpoint of a model pinned to a GPU could not be used on a machine without one."""
    inputs = make_inputs()
    with tf.device("/device:GPU:0"), tf.variable_scope("model"):
        layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS)
        layer.build(inputs.shape)
        outputs, _ = layer(inputs, training=True)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(outputs))
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as trainer:
        initialize(trainer)
        trainer.run(train)
        path = tf.train.Saver().save(trainer, str(tmp_path / "model"))
        expected = trainer.run(outputs)
    with tf.Graph().as_default(), tf.Session() as user, tf.variable_scope("model"):
        if into == "cells":
            found, _ = run_cells(rnn_mode, LAYER_COUNT, UNITS, False, tf.constant(inputs))
            saver = tf.train.Saver()
        elif into == "layer":
            layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS)
            layer.build(inputs.shape)
            found, _ = layer(inputs, training=False)
            saver = tf.train.Saver()
        else:
            model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, WIDTH)
            params = tf.Variable(tf.zeros([model.params_size()]))
            sizes = LAYER_COUNT, UNITS, WIDTH
            saver = tf.train.Saver([SAVEABLES[rnn_mode](params, *sizes, scope="model")])
            states = [tf.zeros(shape) for shape in layer.state_shape(BATCH)]
            found = model(inputs, *(states + [params]), is_training=False)[0]
        saver.restore(user, path)
        np.testing.assert_allclose(user.run(found), expected, rtol=1e-5, atol=1e-6)


# --- Optimizer slots ---


def test_deepspeech_2264_a_fused_checkpoint_trains_on_as_cells(session, tmp_path):
    """A CudnnLSTM checkpoint had no Adam moments for cells, so training could not continue."""
    inputs = make_inputs()
    with tf.variable_scope("model"):
        layer = LAYERS["lstm"](1, UNITS)
        layer.build(inputs.shape)
    outputs, _ = layer(inputs)
    optimizer = tf.train.AdamOptimizer(0.01)
    train = optimizer.minimize(tf.reduce_mean(tf.square(outputs - 0.3)))
    saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))
    initialize(session)
    for _ in range(3):
        session.run(train)
    path = saver.save(session, str(tmp_path / "model"))
    session.run(train)
    weights, _ = layer.saveable.format_converter.opaque_to_tf_canonical(layer.kernel)
    expected = session.run(weights[0])
    with tf.Graph().as_default(), tf.Session() as other:
        with tf.variable_scope("model"):
            outputs, _ = run_cells("lstm", 1, UNITS, False, tf.constant(inputs))
        train = tf.train.AdamOptimizer(0.01).minimize(tf.reduce_mean(tf.square(outputs - 0.3)))
        kernel, _ = tf.trainable_variables()
        tf.train.Saver().restore(other, path)  # all keys exist, including Adam's slots
        before = other.run(kernel)
        other.run(train)
        found = other.run(kernel)
    assert np.abs(found - before).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
