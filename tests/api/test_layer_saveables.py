"""When a layer makes its saveable, of which variable, and that a failure leaves nothing behind."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

from cudnn_rnn import layers
from helpers.checkpoints import assert_all_equal, zeroed_and_restored
from helpers.golden import read_checkpoint
from helpers.layer_models import LAYERS, SAVEABLES, UNITS, WIDTH, built_layer
from helpers.restoring import random_values
from helpers.rnn_models import DIRECTIONS, initialize, keys, params_size
from helpers.versions import needs_tensorflow_2


def collected():
    return tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)


def make_variable(layer, name="mine"):
    directions = 1 + DIRECTIONS.index(layer.direction)
    size = params_size(layer.rnn_mode, layer.num_layers, UNITS, WIDTH, directions)
    values = random_values(size)
    values[-sum(shape[0] for shape in layer.canonical_bias_shapes) :] = 0.25  # exact halves of sums
    return tf.get_variable(name, initializer=values)


def replace_variable(layer):
    """Does what programs do that train another variable than the layer's own."""
    variable = make_variable(layer)
    layer._trainable_weights = [variable]
    layer.kernel = tf.identity(variable)
    tf.get_collection_ref(tf.GraphKeys.SAVEABLE_OBJECTS).remove(layer.saveable)
    layer._saveable = None
    layer._create_saveable()
    return variable


@pytest.mark.sampled(6)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_created_again_for_a_replaced_variable(session, tmp_path, rnn_mode, direction, num_layers):
    """As in the original, the saveable takes the first trainable variable, not `kernel`."""
    layer = built_layer(rnn_mode, num_layers, direction=direction, name="rnn")
    first_keys = keys(layer.saveable)
    variable = replace_variable(layer)
    assert collected() == [layer.saveable] and keys(layer.saveable) == first_keys
    initialize(session)
    own, expected = session.run([tf.global_variables()[0], variable])
    saver = tf.train.Saver()
    saved = read_checkpoint(saver.save(session, str(tmp_path / "model")))
    assert set(saved) == {"rnn/opaque_kernel", "mine"} | set(first_keys)
    kernel = saved[first_keys[0]]
    assert np.isin(kernel, expected).all() and not np.isin(kernel, own).any()
    path = str(tmp_path / "model")
    restored = zeroed_and_restored(session, saver, path, tf.global_variables())
    assert_all_equal(restored, [own, expected])


def test_created_again_with_object_based_checkpoints(session, tmp_path):
    layer = built_layer("lstm", 2)
    variable = replace_variable(layer)
    initialize(session)
    checkpoint = tf.train.Checkpoint(rnn=layer)
    session.run(checkpoint.save_counter.initializer)
    tensors = session.run([spec.tensor for spec in layer.saveable.specs])
    path = checkpoint.save(str(tmp_path / "model"))
    saved = read_checkpoint(path)
    names = ["cell-0/kernel", "cell-1/kernel", "cell-0/bias", "cell-1/bias"]
    found = [saved["rnn/%s/.ATTRIBUTES/VARIABLE_VALUE" % name] for name in names]
    assert_all_equal(found, tensors)
    session.run(variable.assign(tf.zeros_like(variable)))
    checkpoint.restore(path).assert_consumed().run_restore_ops(session)
    assert_all_equal(session.run([spec.tensor for spec in layer.saveable.specs]), tensors)


@pytest.mark.parametrize("case", ["frozen", "another", "emptied"])
def test_other_lists_of_trainable_variables(session, case):
    """Without a trainable variable that can be the buffer, the saveable takes `kernel`."""
    layer = LAYERS["gru"](1, UNITS)
    if case == "frozen":
        layer.trainable = False
    if case == "another":
        layer._trainable_weights.append(tf.Variable(tf.ones([7])))
    layer.build([None, None, WIDTH])
    if case == "emptied":
        layer._trainable_weights = []
        layer._saveable = None
        layer._create_saveable()
    assert layer.saveable._variables is layer.kernel


def test_nothing_is_registered_if_an_object_has_a_name_of_a_part(session):
    layer = LAYERS["lstm"](2, UNITS, name="rnn")
    other = tf.train.Checkpoint()
    layer._track_trackable(other, "cell-1")
    other._track_trackable(tf.train.Checkpoint(), "bias")
    with pytest.raises(ValueError, match="CudnnLSTM needs the name 'cell-1/bias' .* another name"):
        layer.build([None, None, WIDTH])
    assert_unbuilt(layer)
    assert not collected()
    assert layer._lookup_dependency("cell-0") is None
    assert other._lookup_dependency("kernel") is None
    assert tf.train.Saver()._var_list == tf.global_variables()


def test_nothing_is_registered_if_a_restored_checkpoint_lacks_parts(session, tmp_path):
    """The values arrive when the layer is built, after `restore`."""
    path = incomplete_checkpoint(session, tmp_path)
    with tf.Graph().as_default():
        layer = LAYERS["lstm"](1, UNITS)
        status = tf.train.Checkpoint(rnn=layer).restore(path)
        with pytest.raises(tf.errors.NotFoundError, match="bias"):
            layer.build([None, None, WIDTH])
        assert status is not None and not collected()
        assert_unbuilt(layer)


def incomplete_checkpoint(session, tmp_path):
    cell = tf.train.Checkpoint(kernel=tf.Variable(tf.ones([UNITS + WIDTH, 4 * UNITS])))
    session.run(cell.kernel.initializer)
    checkpoint = tf.train.Checkpoint(rnn=cell)
    session.run(checkpoint.save_counter.initializer)
    return checkpoint.save(str(tmp_path / "incomplete"))


class FailingSaveable(SAVEABLES["gru"]):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        raise RuntimeError("the program's own")


def failing_initializer(*arguments, **named):
    raise RuntimeError("the program's own")


def assert_unbuilt(layer):
    assert not layer.built and layer.saveable is None and not hasattr(layer, "kernel")
    assert layer.trainable_variables == layer.variables == []
    with pytest.raises(ValueError, match="input_size of Cudnn.* is unknown"):
        layer.input_size  # noqa: B018


@pytest.mark.parametrize("case", ["initializer", "saveable", "size"])
def test_a_failed_build_leaves_the_layer_unbuilt(session, case):
    if case == "size":
        with tf.variable_scope("main"):
            built_layer("gru", 1, UNITS + 1, name="rnn")
    before = len(collected())
    with tf.variable_scope("main", reuse=True if case == "size" else None):
        layer = LAYERS["gru"](1, UNITS, name="rnn")
        if case == "initializer":
            layer._kernel_initializer = failing_initializer
        if case == "saveable":
            layer._saveable_cls = FailingSaveable
        message = "must have 108 elements" if case == "size" else "the program's own"
        with pytest.raises(Exception, match=message):
            layer.build([None, None, WIDTH])
    assert_unbuilt(layer)
    assert len(collected()) == before
    if case == "initializer":  # no variable was created
        layer._kernel_initializer = tf.ones_initializer()
        layer.build([None, None, WIDTH + 1])
        assert layer.input_size == WIDTH + 1 and collected() == [layer.saveable]


def test_a_failed_build_in_eager_execution():
    with context.eager_mode():
        layer = layers.CudnnGRU(1, UNITS)
        layer._saveable_cls = FailingSaveable
        with pytest.raises(RuntimeError, match="the program's own"):
            layer.build([None, None, WIDTH])
        assert_unbuilt(layer)
        layer._saveable_cls = SAVEABLES["gru"]
        layer.build([None, None, WIDTH])
        assert layer.variables == [layer.kernel]


@needs_tensorflow_2
def test_the_new_parts_replace_those_of_all_modes(session):
    for rnn_mode in sorted(LAYERS):
        with tf.variable_scope(rnn_mode):
            layer = built_layer(rnn_mode, 1, direction="bidirectional")
            before = layer._lookup_dependency("bw")._lookup_dependency("cell-0")
            parts = dict(before._trackable_children())
            replace_variable(layer)
            assert set(before._trackable_children()) == set(parts)
            assert all(before._lookup_dependency(name) is not parts[name] for name in parts)
