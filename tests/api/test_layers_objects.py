"""The layers in eager mode and in `tf.function`, and in object-based checkpoints and SavedModels.

Tests that TensorFlow 1 supports also run in graph mode; the second half needs TensorFlow 2.
"""

import functools
import inspect
import os
import types

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from cudnn_rnn._compat import WriterOfCopiedVariables, without_autograph
from cudnn_rnn.checkpoints import object_based
from helpers.golden import golden_cases, read_case
from helpers.layer_models import (
    BATCH,
    LAYERS,
    UNITS,
    WIDTH,
    assert_like_reference,
    built_layer,
    make_inputs,
)
from helpers.paths import GOLDEN
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

CASES = golden_cases("1.15.5", "object_*")
assert len(CASES) == 3


@pytest.fixture(params=["graph", "eager"])
def run(request):
    """Yields a function that returns the NumPy values of tensors and variables, in either mode."""
    if request.param == "graph":
        with tf.Graph().as_default(), tf.Session() as session:
            yield lambda values: session.run(values)
        return
    with context.eager_mode():
        yield lambda values: tf.nest.map_structure(lambda value: value.numpy(), values)


def save(checkpoint, run, path):
    if not tf.executing_eagerly():
        run(checkpoint.save_counter.initializer)
    return checkpoint.save(str(path))


def filled(layer, run):
    """Fills a built layer with values that halving the biases does not change, and returns them."""
    size = layer.kernel.shape.num_elements()
    values = np.random.RandomState(3).uniform(-1, 1, size).astype(np.float32)
    values[size - len(layer.canonical_bias_shapes) * UNITS :] = 0.25
    run(layer.kernel.assign(values))
    return values


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", ["restore_then_build", "build_then_restore"])
@pytest.mark.parametrize("name", CASES)
def test_golden_restored_and_written_back(run, tmp_path, name, order):
    case, arrays = read_case(name)
    saved = os.path.join(GOLDEN, name, case["prefix"])
    layer = LAYERS[case["rnn_mode"]](case["num_layers"], case["num_units"])
    shape = [None, None, case["input_size"]]
    checkpoint = tf.train.Checkpoint(encoder=layer)
    if order == "build_then_restore":
        layer.build(shape)
    status = checkpoint.restore(saved)
    layer.build(shape)
    status.assert_consumed()
    status.initialize_or_restore()
    num_biases = 8 * case["num_layers"] * case["num_units"]
    halved = arrays["opaque"]
    biases = halved[-num_biases:].reshape(case["num_layers"], 2, -1)
    biases[:] = biases.sum(axis=1, keepdims=True) * np.float32(0.5)
    np.testing.assert_array_equal(run(layer.kernel), halved)
    path = checkpoint.save(str(tmp_path / "model"))
    assert {key: shape for key, shape in tf.train.list_variables(path)} == case["keys"]
    for key in case["keys"]:
        if key.startswith("encoder"):
            original, written = (tf.train.load_variable(each, key) for each in (saved, path))
            np.testing.assert_array_equal(written, original)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_read_by_cells_and_back(run, tmp_path, num_layers, direction):
    """`Checkpoint(fw=MultiRNNCell, bw=MultiRNNCell)` reads and writes a bidirectional layer."""
    layer = built_layer("lstm", num_layers, direction=direction)
    values = filled(layer, run)
    checkpoint = tf.train.Checkpoint(encoder=layer)
    path = save(checkpoint, run, tmp_path / "layer")

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
    run(layer.kernel.assign(np.zeros_like(values)))
    # In a TensorFlow 1 graph, a Checkpoint that has saved cannot restore from other names.
    again = tf.train.Checkpoint(encoder=layer)  # keep it alive: TensorFlow 1.14's status does not
    status = again.restore(path)
    status.assert_existing_objects_matched()
    status.initialize_or_restore()
    np.testing.assert_array_equal(run(layer.kernel), values)


@pytest.mark.parametrize("rnn_mode", ["gru", "rnn_relu", "rnn_tanh"])
def test_other_modes(run, tmp_path, rnn_mode):
    """Other modes are saved too, except in TensorFlow 1, where the original refuses them."""
    layer = built_layer(rnn_mode, 2, direction="bidirectional")
    values = filled(layer, run)
    checkpoint = tf.train.Checkpoint(encoder=layer)
    if IS_TENSORFLOW_1:
        with pytest.raises(NotImplementedError, match="Use tf.train.Saver"):
            checkpoint.save(str(tmp_path / "model"))
        return
    path = save(checkpoint, run, tmp_path / "model")
    run(layer.kernel.assign(np.zeros_like(values)))
    status = checkpoint.restore(path)
    status.assert_consumed()
    status.initialize_or_restore()
    np.testing.assert_array_equal(run(layer.kernel), values)


def test_eager_names_and_saver(eager, tmp_path):
    with tf.variable_scope("eager_scope"):
        layer = LAYERS["gru"](1, UNITS)
        layer(make_inputs())
    assert layer.kernel.name == "eager_scope/cudnn_gru/opaque_kernel:0"
    assert layer.saveable not in tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
    saver = tf.train.Saver([layer.saveable])
    values = filled(layer, lambda assigned: assigned)
    path = saver.save(None, str(tmp_path / "model"))  # saves the current values
    layer.kernel.assign(np.zeros_like(values))
    saver.restore(None, path)
    np.testing.assert_array_equal(layer.kernel.numpy(), values)


def test_weights_as_arrays(eager):
    layers = [built_layer("gru") for _ in range(2)]
    values = filled(layers[0], lambda assigned: assigned)
    (found,) = layers[0].get_weights()
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, values)
    layers[1].set_weights([found])
    np.testing.assert_array_equal(layers[1].kernel.numpy(), values)


def test_autograph_leaves_decorated_functions_alone(eager):
    """AutoGraph would turn the condition into a tf.cond."""

    @without_autograph
    def absolute(value):
        return -value if value < 0 else value

    function = tensorflow.function(lambda value: absolute(value))
    with pytest.raises(TypeError, match="as a Python `bool` is not allowed"):
        function(tf.constant(-1.0))
    assert absolute(tf.constant(-1.0)).numpy() == 1.0
    if IS_TENSORFLOW_1:  # whose Keras reads these names
        assert inspect.getfullargspec(absolute).args == ["value"]


@needs_tensorflow_2
def test_built_in_a_function(eager):
    layer = LAYERS["lstm"](2, UNITS)

    @tensorflow.function
    def call(inputs, lengths):
        return layer(inputs, sequence_lengths=lengths, training=False)

    for lengths in ([5, 5, 1], [2, 0, 3]):
        outputs, states = call(make_inputs(), tf.constant(lengths))
        found = [tensor.numpy() for tensor in (outputs, *states)]
        assert_like_reference(found, layer, layer.kernel.numpy(), make_inputs(), lengths=lengths)


@needs_tensorflow_2
def test_saved_model(eager, tmp_path):
    leaves_out_parts = tuple(map(int, tf.version.VERSION.split(".")[:2])) >= (2, 8)

    class Model(tensorflow.Module):
        def __init__(self):
            super().__init__()
            layer = built_layer("gru")
            self.kernel = layer.kernel
            self.rnn = layer if leaves_out_parts else functools.partial(layer)

        @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, None, WIDTH])])
        def __call__(self, inputs):
            return self.rnn(inputs, training=False)[0]

    model = Model()
    assert [variable.name for variable in model.trainable_variables] == [model.kernel.name]
    expected = model(make_inputs()).numpy()
    tensorflow.saved_model.save(model, str(tmp_path / "model"))
    loaded = tensorflow.saved_model.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded(make_inputs()).numpy(), expected)


def test_deferred_restoration_of_several_layers(run, tmp_path):
    """Two layers in one checkpoint restore even if built after `restore`."""
    layers = {name: built_layer("lstm", 2, name=name) for name in ("encoder", "decoder")}
    values = {name: filled(layer, run) for name, layer in layers.items()}
    path = save(tf.train.Checkpoint(**layers), run, tmp_path / "model")
    others = {name: LAYERS["lstm"](2, UNITS, name=name + "_2") for name in layers}
    again = tf.train.Checkpoint(**others)  # keep it alive: TensorFlow 1.14's status does not
    status = again.restore(path)
    for other in others.values():
        other.build([None, None, WIDTH])
    status.initialize_or_restore()
    for name, other in others.items():
        np.testing.assert_array_equal(run(other.kernel), values[name])


def test_place_of_a_key_among_the_paths_to_a_part():
    part = object_based._Part(None, "kernel")
    part.keys = ["cell/kernel", "0/cell/kernel"]
    assert part.split_key("model/cell/kernel") == ("model/", 0)
    assert part.split_key("model/0/cell/kernel") == ("model/", 1)
    assert part.split_key("cell/kernel") == ("", 0)
    assert part.split_key("model/cell/weights") == ("", 0)


def test_parts_left_over_from_an_incomplete_checkpoint_are_dropped(session):
    """A second checkpoint restores all parts; none of the first checkpoint's is mixed in."""
    written = []
    saveable = types.SimpleNamespace(write_parts=lambda *arguments: written.append(arguments))
    parts = object_based.BufferParts(saveable, "abc", tf.float32, "")
    for checkpoint, names in (("first", "ab"), ("second", "acb")):
        for name in names:
            assert not written
            parts.restore(name, "key of " + name, "%s of %s" % (name, checkpoint))
    tensors, expected_keys = zip(*[(n + " of second", "key of " + n) for n in "abc"])
    assert written == [(list(tensors), list(expected_keys))]


def tensors_of_layer(path):
    reader = tf.train.load_checkpoint(path)
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names if name.startswith("layer/")}


@pytest.mark.skipif(
    not hasattr(tensorflow.train.Checkpoint, "sync") or WriterOfCopiedVariables is not None,
    reason="requires TensorFlow 2 with asynchronous checkpoints of all objects",
)
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_asynchronous_checkpoints_have_the_values_of_the_call(eager, tmp_path, rnn_mode):
    """Even if the program assigns others before they are written, in each of several calls."""
    options = tensorflow.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    layer = built_layer(rnn_mode, num_units=200)
    checkpoint = tensorflow.train.Checkpoint(layer=layer)
    later = tensorflow.train.Checkpoint(layer=layer)
    for number in range(1, 4):
        layer.kernel.assign(tf.fill(layer.kernel.shape, float(number)))
        expected = tensors_of_layer(checkpoint.write(str(tmp_path / "at_once")))
        path = later.save(str(tmp_path / "later"), options=options)
        layer.kernel.assign(tf.fill(layer.kernel.shape, -1.0))
        later.sync()
        found = tensors_of_layer(path)
        assert set(found) == set(expected)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
    new = built_layer(rnn_mode, num_units=200)
    tensorflow.train.Checkpoint(layer=new).restore(path).expect_partial()
    np.testing.assert_array_equal(new.kernel.numpy(), np.full(new.kernel.shape, 3.0))


@pytest.mark.skipif(
    WriterOfCopiedVariables is None,
    reason="only TensorFlow 2.12 to 2.14 cannot copy layers",
)
def test_asynchronous_checkpoints_that_would_have_later_values_are_refused(eager, tmp_path):
    options = tensorflow.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    layer = built_layer("lstm")
    checkpoint = tensorflow.train.Checkpoint(layer=layer)
    manager = tensorflow.train.CheckpointManager(checkpoint, str(tmp_path), 3)
    for save in (
        functools.partial(checkpoint.save, str(tmp_path / "saved")),
        functools.partial(checkpoint.write, str(tmp_path / "written")),
        manager.save,
    ):
        with pytest.raises(ValueError, match="Save without experimental_enable_async_checkpoint"):
            save(options=options)
    assert not os.listdir(str(tmp_path))
    checkpoint.save(str(tmp_path / "at_once"))
    other = tensorflow.train.Checkpoint(variable=tf.Variable(1.0))
    other.save(str(tmp_path / "other"), options=options)
