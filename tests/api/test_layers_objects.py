"""The layers in eager mode and in `tf.function`, and in object-based checkpoints and SavedModels.

Tests that TensorFlow 1 supports also run in graph mode; the second half needs TensorFlow 2.
"""

import json
import os

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.golden import golden_cases
from helpers.layer_models import LAYERS, expected_results
from helpers.op_harness import TOLERANCES, assert_close
from helpers.paths import GOLDEN
from helpers.rnn_models import DIRECTIONS
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

UNITS, WIDTH, BATCH, STEPS = 4, 3, 2, 5
CASES = golden_cases("1.15.5", "object_*")


@pytest.fixture(params=["graph", "eager"])
def run(request):
    """Yields a function that returns the NumPy values of tensors and variables, in either mode."""
    if request.param == "graph":
        with tf.Graph().as_default(), tf.Session() as session:
            yield lambda values: session.run(values)
        return
    with eagerly():
        yield lambda values: tf.nest.map_structure(lambda value: value.numpy(), values)


def eagerly():
    from tensorflow.python.eager import context

    return context.eager_mode()


@pytest.fixture
def eager():
    with eagerly():
        yield


def make_inputs(width=WIDTH):
    return np.random.RandomState(1).uniform(-1, 1, [STEPS, BATCH, width]).astype(np.float32)


def filled(layer, run):
    """Fills a built layer with values that halving the biases does not change, and returns them."""
    size = layer.kernel.shape.num_elements()
    values = np.random.RandomState(3).uniform(-1, 1, size).astype(np.float32)
    values[size - len(layer.canonical_bias_shapes) * UNITS :] = 0.25
    if tf.executing_eagerly():
        layer.kernel.assign(values)
    else:
        run(tf.global_variables_initializer())
        run(layer.kernel.assign(values))
    return values


def test_all_cases_exist():
    assert len(CASES) == 3


@pytest.mark.parametrize("order", ["restore_then_build", "build_then_restore"])
@pytest.mark.parametrize("name", CASES)
def test_golden_restored_and_written_back(run, tmp_path, name, order):
    folder = os.path.join(GOLDEN, name)
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    layer = LAYERS[case["rnn_mode"]](case["num_layers"], case["num_units"])
    shape = [None, None, case["input_size"]]
    checkpoint = tf.train.Checkpoint(encoder=layer)
    if order == "build_then_restore":
        layer.build(shape)
    status = checkpoint.restore(os.path.join(folder, case["prefix"]))
    layer.build(shape)
    status.assert_consumed()
    status.initialize_or_restore()
    opaque = np.load(os.path.join(folder, "expected.npz"))["opaque"]
    num_biases = 8 * case["num_layers"] * case["num_units"]
    halved = opaque.copy()
    biases = halved[-num_biases:].reshape(case["num_layers"], 2, -1)
    biases[:] = biases.sum(axis=1, keepdims=True) * np.float32(0.5)
    np.testing.assert_array_equal(run(layer.kernel), halved)
    path = checkpoint.save(str(tmp_path / "model"))
    assert {key: shape for key, shape in tf.train.list_variables(path)} == case["keys"]
    original = tf.train.load_checkpoint(os.path.join(folder, case["prefix"]))
    written = tf.train.load_checkpoint(path)
    for key in case["keys"]:
        if key.startswith("encoder"):
            np.testing.assert_array_equal(written.get_tensor(key), original.get_tensor(key))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_read_by_cells_and_back(run, tmp_path, num_layers, direction):
    """`Checkpoint(fw=MultiRNNCell, bw=MultiRNNCell)` reads and writes a bidirectional layer."""
    layer = LAYERS["lstm"](num_layers, UNITS, direction=direction)
    layer.build([None, None, WIDTH])
    values = filled(layer, run)
    checkpoint = tf.train.Checkpoint(encoder=layer)
    if not tf.executing_eagerly():
        run(checkpoint.save_counter.initializer)
    path = checkpoint.save(str(tmp_path / "layer"))

    parts = {"": 1} if direction == "unidirectional" else {"fw": 2, "bw": 2}
    stacks, cells = {}, {}
    for part, directions in parts.items():
        own = [cudnn_rnn.CudnnCompatibleLSTMCell(UNITS) for _ in range(num_layers)]
        for index, cell in enumerate(own):
            width = WIDTH if index == 0 else directions * UNITS
            with tf.variable_scope("cells_%s/cell_%d" % (part, index)):
                cell(tf.zeros([BATCH, width]), cell.zero_state(BATCH, tf.float32))
        cells[part] = own
        stacks[part] = cudnn_rnn.MultiRNNCell(own)
    root = tf.train.Checkpoint(**{part or "encoder": stack for part, stack in stacks.items()})
    if direction == "bidirectional":
        root = tf.train.Checkpoint(encoder=root)
    root.restore(path).initialize_or_restore()
    converter = layer.saveable.format_converter
    weights, biases = run(converter.opaque_to_tf_canonical(layer.kernel))
    in_order = [cells[part][index] for index in range(num_layers) for part in parts]
    for cell, weight, bias in zip(in_order, weights, biases):
        kernel, own_bias = run(cell.variables)
        np.testing.assert_array_equal(kernel, weight)
        np.testing.assert_array_equal(own_bias, bias)

    path = root.save(str(tmp_path / "cells"))
    if not tf.executing_eagerly():
        run(layer.kernel.assign(tf.zeros_like(layer.kernel)))
    else:
        layer.kernel.assign(tf.zeros_like(layer.kernel))
    # In a TensorFlow 1 graph, a Checkpoint that has saved cannot restore from other names.
    again = tf.train.Checkpoint(encoder=layer)  # keep it alive: TensorFlow 1.14's status does not
    status = again.restore(path)
    status.assert_existing_objects_matched()
    status.initialize_or_restore()
    np.testing.assert_array_equal(run(layer.kernel), values)


@pytest.mark.parametrize("rnn_mode", ["gru", "rnn_relu", "rnn_tanh"])
def test_other_modes(run, tmp_path, rnn_mode):
    """Other modes are saved too, except in TensorFlow 1, where the original refuses them."""
    layer = LAYERS[rnn_mode](2, UNITS, direction="bidirectional")
    layer.build([None, None, WIDTH])
    values = filled(layer, run)
    checkpoint = tf.train.Checkpoint(encoder=layer)
    if IS_TENSORFLOW_1:
        with pytest.raises(NotImplementedError, match="Use tf.train.Saver"):
            checkpoint.save(str(tmp_path / "model"))
        return
    if not tf.executing_eagerly():
        run(checkpoint.save_counter.initializer)
    path = checkpoint.save(str(tmp_path / "model"))
    zero = layer.kernel.assign(tf.zeros_like(layer.kernel))
    if not tf.executing_eagerly():
        run(zero)
    status = checkpoint.restore(path)
    status.assert_consumed()
    status.initialize_or_restore()
    np.testing.assert_array_equal(run(layer.kernel), values)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_eager_outputs_and_gradient(eager, rnn_mode, direction):
    layer = LAYERS[rnn_mode](2, UNITS, direction=direction)
    inputs = make_inputs()
    with tensorflow.GradientTape() as tape:
        outputs, states = layer(inputs)
        loss = tf.reduce_sum(outputs)
    assert isinstance(states, tuple)
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    assert gradient.shape == layer.kernel.shape and np.abs(gradient.numpy()).max() > 0
    expected = expected_results(layer, layer.kernel.numpy(), inputs)
    found = [outputs.numpy()] + [state.numpy() for state in states]
    assert_close(dict(enumerate(found)), dict(enumerate(expected)), TOLERANCES["float32"], "eager")
    again, _ = layer(inputs)
    np.testing.assert_array_equal(again.numpy(), found[0])


def test_differing_sizes_in_eager_mode(eager):
    """tensorflow#15752: sizes may differ between calls."""
    for width in (3, 8, 3):
        for batch in (1, 4):
            outputs, _ = LAYERS["gru"](1, UNITS)(np.zeros([STEPS, batch, width], np.float32))
            assert outputs.shape == (STEPS, batch, UNITS)


def test_changing_lengths_in_eager_mode(eager):
    """tensorflow#33148, #36139, #41630: lengths may change between calls and may be 0."""
    layer = LAYERS["lstm"](2, UNITS, direction="bidirectional")
    inputs = make_inputs()
    for lengths in ([5, 5], [1, 3], [0, 2], [0, 0], [5, 0]):
        outputs, states = layer(inputs, sequence_lengths=lengths)
        expected = expected_results(layer, layer.kernel.numpy(), inputs, lengths=lengths)
        found = [outputs.numpy()] + [state.numpy() for state in states]
        assert_close(
            dict(enumerate(found)), dict(enumerate(expected)), TOLERANCES["float32"], lengths
        )


def test_eager_names_and_collections(eager):
    with tf.variable_scope("eager_scope"):
        layer = LAYERS["gru"](1, UNITS)
        layer(make_inputs())
    assert layer.kernel.name == "eager_scope/cudnn_gru/opaque_kernel:0"
    assert layer.saveable not in tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)


def test_eager_saver(eager, tmp_path):
    layer = LAYERS["gru"](1, UNITS)
    layer.build([None, None, WIDTH])
    values = filled(layer, None)
    saver = tf.train.Saver([layer.saveable])
    filled(layer, None)
    path = saver.save(None, str(tmp_path / "model"))  # saves the current values
    layer.kernel.assign(tf.zeros_like(layer.kernel))
    saver.restore(None, path)
    np.testing.assert_array_equal(layer.kernel.numpy(), values)


@needs_tensorflow_2
def test_built_in_a_function(eager):
    layer = LAYERS["lstm"](2, UNITS)

    @tensorflow.function
    def call(inputs, lengths):
        return layer(inputs, sequence_lengths=lengths, training=False)

    inputs = make_inputs()
    for lengths in ([5, 5], [2, 0]):
        outputs, states = call(inputs, tf.constant(lengths))
        expected = expected_results(layer, layer.kernel.numpy(), inputs, lengths=lengths)
        found = [outputs.numpy()] + [state.numpy() for state in states]
        assert_close(
            dict(enumerate(found)), dict(enumerate(expected)), TOLERANCES["float32"], "function"
        )


@needs_tensorflow_2
def test_saved_model(eager, tmp_path):
    if tuple(map(int, tf.version.VERSION.split(".")[:2])) < (2, 9):
        pytest.skip("this TensorFlow cannot leave a layer's canonical parts out of a SavedModel")

    class Model(tensorflow.Module):
        def __init__(self):
            super().__init__()
            self.rnn = LAYERS["gru"](1, UNITS)
            self.rnn.build([None, None, WIDTH])

        @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, None, WIDTH])])
        def __call__(self, inputs):
            return self.rnn(inputs, training=False)[0]

    model = Model()
    assert [variable.name for variable in model.trainable_variables] == [model.rnn.kernel.name]
    expected = model(make_inputs()).numpy()
    tensorflow.saved_model.save(model, str(tmp_path / "model"))
    loaded = tensorflow.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded(make_inputs()).numpy(), expected)


@needs_tensorflow_2
def test_mirrored_strategy(eager):
    """tensorflow#29730: a layer runs in a MirroredStrategy."""
    strategy = tensorflow.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        layer = LAYERS["gru"](1, UNITS)
        layer.build([None, None, WIDTH])

    @tensorflow.function
    def step(inputs):
        return strategy.run(lambda values: layer(values)[0], args=(inputs,))

    assert step(tf.constant(make_inputs())).shape == (STEPS, BATCH, UNITS)


def test_deferred_restoration_of_several_layers(run, tmp_path):
    """Two layers in one checkpoint restore even if built after `restore`."""
    layers = {name: LAYERS["lstm"](2, UNITS, name=name) for name in ("encoder", "decoder")}
    for layer in layers.values():
        layer.build([None, None, WIDTH])
    values = {name: filled(layer, run) for name, layer in layers.items()}
    if not tf.executing_eagerly():
        initialize_values = [layers[name].kernel.assign(value) for name, value in values.items()]
        run(initialize_values)
    checkpoint = tf.train.Checkpoint(**layers)
    if not tf.executing_eagerly():
        run(checkpoint.save_counter.initializer)
    path = checkpoint.save(str(tmp_path / "model"))
    others = {name: LAYERS["lstm"](2, UNITS, name=name + "_2") for name in layers}
    again = tf.train.Checkpoint(**others)  # keep it alive: TensorFlow 1.14's status does not
    status = again.restore(path)
    for other in others.values():
        other.build([None, None, WIDTH])
    status.initialize_or_restore()
    for name, other in others.items():
        np.testing.assert_array_equal(run(other.kernel), values[name])
