"""Checkpoints that cannot be restored: errors name the file, the key and the expected value."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers import damaged_checkpoints
from helpers.checkpoints import assert_all_equal
from helpers.damaged_checkpoints import DAMAGES
from helpers.golden import read_checkpoint
from helpers.layer_models import LAYER_COUNT, LAYERS, UNITS, WIDTH, built_layer
from helpers.restoring import (
    ANY_SHAPE,
    KINDS,
    Models,
    assert_names,
    key_to_spoil,
    random_values,
    restoring_fails,
    saved_and_damaged,
)
from helpers.rnn_models import initialize, keys
from helpers.versions import needs_tensorflow_2

KINDS_AND_SHARDED = [(kind, False) for kind in sorted(KINDS)] + [("opaque_lstm", True)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("damage", sorted(DAMAGES))
@pytest.mark.parametrize("kind, sharded", KINDS_AND_SHARDED)
def test_saver(session, tmp_path, kind, sharded, damage):
    """Nothing is restored on an error, although a sharded Saver reads with several ops."""
    with tf.device("/cpu:0" if sharded else None):
        models = Models(kind, sharded)
    path, key, shape, kind_of_error = saved_and_damaged(session, tmp_path, models, damage)
    error = restoring_fails(models, session, path, kind_of_error)
    assert_names(error, path, key, shape, "dtype float32")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_another_shape_of_the_same_size(session, tmp_path, kind):
    """Only a and b take other shapes: TensorFlow 1.0-1.3 wrote vectors or transposed matrices."""
    models = Models(kind)
    path = models.save(session, tmp_path / "model")
    expected = session.run(models.variables)
    key, shape = key_to_spoil(models.saveable)
    for change in (np.ravel, lambda value: value.reshape(value.shape[::-1])):
        damaged_checkpoints.with_value(path, key, change)
        if kind in ANY_SHAPE:
            models.fill(session)
            models.saver.restore(session, path)
            assert_all_equal(session.run(models.variables), expected)
        else:
            error = restoring_fails(models, session, path, tf.errors.InvalidArgumentError)
            wrong = str(list(read_checkpoint(path)[key].shape))
            assert_names(error, path, key, "expected shape %s" % shape, "has shape %s" % wrong)


def test_all_wrong_keys_are_named(session, tmp_path):
    models = Models("opaque_lstm")
    path = models.save(session, tmp_path / "model")
    first, second = keys(models.saveable)[:2]
    damaged_checkpoints.without(path, first)
    damaged_checkpoints.other_shape(path, second)
    error = restoring_fails(models, session, path, tf.errors.NotFoundError)
    assert_names(error, first + ": missing (similar key: ", second + ": has shape [")


def test_the_error_of_hundreds_of_keys_is_short(session, tmp_path):
    models = Models("opaque_gru")
    path = models.save(session, tmp_path / "model")
    damaged_checkpoints.write(path, {"nothing": np.float32(1)})
    error = restoring_fails(models, session, path, tf.errors.NotFoundError)
    assert_names(error, path, keys(models.saveable)[0], "and 17 more")


def test_the_variable_under_its_own_name(session, tmp_path):
    """A default Saver checks the variable's own key, too, and the variable gets that value."""
    models = Models("layer")
    models.saver = tf.train.Saver()
    path = models.save(session, tmp_path / "model")
    key = models.variables[0].op.name
    damaged_checkpoints.other_shape(path, key)
    error = restoring_fails(models, session, path, tf.errors.InvalidArgumentError)
    size = models.variables[0].shape.num_elements()
    assert_names(error, path, key, "expected shape [%d]" % size, "has shape [%d]" % (size // 2))


def test_damage_in_another_variable_is_named(session, tmp_path):
    models = Models("layer")
    path = models.save(session, tmp_path / "model")
    damaged_checkpoints.flip_a_bit(path, "bystander")
    error = restoring_fails(models, session, path, tf.errors.DataLossError)
    assert_names(error, path, "bystander: cannot be read", "dtype float32")


@pytest.mark.parametrize("importer", [cudnn_rnn, tf.train], ids=["cudnn_rnn", "tensorflow"])
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_imported_meta_graph(session, tmp_path, importer, damage):
    """Without saveables, the expected shapes come from the graph."""
    models = Models("opaque_lstm")
    path, key, shape, kind_of_error = saved_and_damaged(session, tmp_path, models, damage)
    variables = ["imported/%s" % variable.name for variable in models.variables]
    with tf.Graph().as_default(), tf.Session() as other:
        saver = importer.import_meta_graph(path + ".meta", import_scope="imported")
        initialize(other)
        before = other.run(variables)
        with pytest.raises(kind_of_error) as caught:
            saver.restore(other, path)
        assert_names(caught.value, path, key, shape)
        assert_all_equal(other.run(variables), before)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_the_python_of_the_saver(session, tmp_path, kind):
    """The graph's own ops check the shapes, for programs that run it without the Saver."""
    models = Models(kind)
    path, key, _, kind_of_error = saved_and_damaged(session, tmp_path, models, "other_shape")
    before = models.fill(session)
    definition = models.saver.saver_def
    with pytest.raises(kind_of_error) as caught:
        session.run(definition.restore_op_name, {definition.filename_tensor_name: path})
    assert_names(caught.value, path, key, key_to_spoil(models.saveable)[1], "have the wrong")
    np.testing.assert_array_equal(session.run(models.variables[0]), before[0])


def test_any_byte_of_the_index(session, tmp_path, runs_all):
    """A changed byte of the index makes no difference or raises DataLossError; nothing aborts."""
    models = Models("layer")
    path = models.save(session, tmp_path / "model")
    index = tmp_path / "model.index"
    expected, found, intact = session.run(models.variables), 0, index.read_bytes()
    places = range(0, len(intact), 3 if runs_all else 29)
    for place in places:
        spoilt = bytearray(intact)
        spoilt[place] ^= 0x81
        index.write_bytes(bytes(spoilt))
        before = models.fill(session)
        try:
            models.saver.restore(session, path)
            before = expected
        except tf.errors.DataLossError as error:
            assert_names(error, path, "expected shape")
            found += 1
        assert_all_equal(session.run(models.variables), before)
    assert found > len(places) / 2


def test_unrelated_savers_are_not_affected(session, tmp_path):
    variable = tf.get_variable("variable", initializer=np.ones([3], np.float32))
    initialize(session)
    path = tf.train.Saver({"saved": variable}).save(session, str(tmp_path / "model"))
    with pytest.raises(tf.errors.NotFoundError) as caught:
        tf.train.Saver({"lost": variable}).restore(session, path)
    assert "Restoring from checkpoint failed" in str(caught.value)
    assert "expected" not in caught.value.message.replace("graph expected based", "")


def test_a_missing_checkpoint(session, tmp_path):
    with pytest.raises(ValueError, match="not a valid checkpoint: .*nowhere"):
        Models("layer").saver.restore(session, str(tmp_path / "nowhere"))


def test_installed_once():
    cudnn_rnn._patches.install()
    before = tf.train.Saver.restore
    cudnn_rnn._patches.install()
    assert tf.train.Saver.restore is before
    assert not hasattr(before.__wrapped__, "__wrapped__")


# Object-based checkpoints


class Objects:
    """Two layers and a variable in one `tf.train.Checkpoint`."""

    def __init__(self, num_layers=LAYER_COUNT, build=True):
        self.layers = {
            name: LAYERS["lstm"](num_layers, UNITS, name=name) for name in ("first", "second")
        }
        self.bystander = tf.Variable(np.float32([1, 2, 3]), name="bystander", use_resource=True)
        self.checkpoint = tf.train.Checkpoint(bystander=self.bystander, **self.layers)
        if build:
            self.build()

    def build(self):
        for layer in self.layers.values():
            layer.build([None, None, WIDTH])

    @property
    def variables(self):
        return [layer.kernel for layer in self.layers.values() if layer.built] + [self.bystander]

    def fill(self, run, factor):
        """Sets all variables to random values times `factor`; returns the values."""
        if not tf.executing_eagerly():
            run(tf.global_variables_initializer())
        values = [
            factor * random_values(variable.shape.num_elements(), seed)
            for seed, variable in enumerate(self.variables)
        ]
        run([variable.assign(value) for variable, value in zip(self.variables, values)])
        return values

    def save(self, run, path):
        self.fill(run, 1.0)
        if not tf.executing_eagerly():
            run(self.checkpoint.save_counter.initializer)
        return self.checkpoint.save(str(path))

    def restoring_fails(self, run, restore, kind_of_error, *parts):
        """Checks that `restore()` raises an error with these parts and changes no variable."""
        before = self.fill(run, -1.0)
        with pytest.raises(kind_of_error) as caught:
            restore()
        assert_names(caught.value, *parts)
        assert_all_equal(run(self.variables), before)


KERNEL_KEY = "first/cell-1/kernel/.ATTRIBUTES/VARIABLE_VALUE"
KERNEL_SHAPE = str([2 * UNITS, 4 * UNITS])


def without_object(path, key):
    """Rewrites the checkpoint as that of an object without the part that this key names."""
    tensors = read_checkpoint(path)
    with tf.Graph().as_default(), tf.Session() as session:
        root = tf.train.Checkpoint()
        for other, value in sorted(tensors.items()):
            names = other.split("/")[:-2]
            if other == key or names[-1:] in ([], ["save_counter"]):
                continue
            owner = root
            for name in names[:-1]:
                if not hasattr(owner, name):
                    setattr(owner, name, tf.train.Checkpoint())
                owner = getattr(owner, name)
            setattr(owner, names[-1], tf.Variable(value, use_resource=True))
        initialize(session)
        root.write(path, session=session)


OBJECT_DAMAGES = dict(DAMAGES, missing_object=(without_object, tf.errors.NotFoundError))


@pytest.mark.parametrize("damage", sorted(OBJECT_DAMAGES))
def test_checkpoint(run, tmp_path, damage):
    objects = Objects()
    path = objects.save(run, tmp_path / "model")
    spoil, kind_of_error = OBJECT_DAMAGES[damage]
    spoil(path, KERNEL_KEY)

    def restore():
        objects.checkpoint.restore(path).initialize_or_restore()

    parts = path, KERNEL_KEY, "expected shape " + KERNEL_SHAPE, "float32"
    objects.restoring_fails(run, restore, kind_of_error, *parts)


@pytest.mark.parametrize("damage", sorted(OBJECT_DAMAGES))
def test_checkpoint_of_layers_built_later(run, tmp_path, damage):
    path = Objects().save(run, tmp_path / "model")
    spoil, kind_of_error = OBJECT_DAMAGES[damage]
    spoil(path, KERNEL_KEY)
    with tf.variable_scope("anew"):
        objects = Objects(build=False)
        with pytest.raises(kind_of_error) as caught:
            objects.checkpoint.restore(path)
            objects.build()
    assert path in str(caught.value)
    # If the object names cannot be read, the error comes before the layers' sizes are known.
    if damage not in ("cut_data", "no_data", "cut_index", "empty_index"):
        assert_names(caught.value, KERNEL_KEY, "expected shape " + KERNEL_SHAPE, "float32")


def test_checkpoint_of_fewer_layers(run, tmp_path):
    with tf.variable_scope("small"):
        path = Objects(num_layers=2).save(run, tmp_path / "model")
    objects = Objects(num_layers=3)

    def restore():
        objects.checkpoint.restore(path).initialize_or_restore()

    missing = [
        "first/cell-2/%s/.ATTRIBUTES/VARIABLE_VALUE: missing" % s for s in ("kernel", "bias")
    ]
    objects.restoring_fails(run, restore, tf.errors.NotFoundError, path, *missing)


def test_checkpoint_without_the_layer(run, tmp_path):
    """A checkpoint without the layer is an error only if the program asserts a match."""
    with tf.variable_scope("other"):
        variable = tf.Variable(np.float32([4, 5, 6]), name="v", use_resource=True)
    checkpoint = tf.train.Checkpoint(bystander=variable)
    run([variable.initializer, checkpoint.save_counter.initializer])
    path = checkpoint.save(str(tmp_path / "model"))
    objects = Objects()
    before = objects.fill(run, -1.0)
    status = objects.checkpoint.restore(path)
    with pytest.raises(AssertionError) as caught:
        status.assert_existing_objects_matched()
    assert_names(caught.value, "cell-1/kernel/.ATTRIBUTES/VARIABLE_VALUE, shape [8, 16]")
    np.testing.assert_array_equal(run(objects.variables[0]), before[0])


def test_second_checkpoint_in_the_same_graph(session, tmp_path):
    """The restore ops of the first checkpoint check the shapes of the second, too."""
    objects = Objects()
    path = objects.save(session.run, tmp_path / "model")

    def restore():
        objects.checkpoint.restore(path).run_restore_ops()

    restore()
    damaged_checkpoints.other_shape(path, KERNEL_KEY)
    parts = path, KERNEL_KEY, KERNEL_SHAPE
    objects.restoring_fails(session.run, restore, tf.errors.InvalidArgumentError, *parts)


@needs_tensorflow_2
@pytest.mark.parametrize("run", ["eager"], indirect=True)
@pytest.mark.parametrize("damage", ["missing_object", "other_shape", "flipped_bit"])
def test_checkpoint_read(run, tmp_path, damage):
    """`read` of TensorFlow 2's own Checkpoint reports damage to what `write` wrote."""
    objects = Objects()
    checkpoint = tensorflow.train.Checkpoint(**objects.layers)
    objects.fill(run, 1.0)
    path = checkpoint.write(str(tmp_path / "model"))
    spoil, kind_of_error = OBJECT_DAMAGES[damage]
    spoil(path, KERNEL_KEY)
    parts = path, KERNEL_KEY, KERNEL_SHAPE
    objects.restoring_fails(run, lambda: checkpoint.read(path), kind_of_error, *parts)


@pytest.mark.parametrize("run", ["eager"], indirect=True)
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_eager_saver(run, tmp_path, damage):
    layer = built_layer("gru")
    layer.kernel.assign(random_values(layer.kernel.shape.num_elements()))
    saver = tf.train.Saver([layer.saveable])
    path = saver.save(None, str(tmp_path / "model"))
    key = keys(layer.saveable)[0]
    spoil, kind_of_error = DAMAGES[damage]
    spoil(path, key)
    layer.kernel.assign(tf.zeros_like(layer.kernel))
    with pytest.raises(kind_of_error) as caught:
        saver.restore(None, path)
    assert_names(caught.value, path, key, "expected shape [%d, %d]" % (WIDTH + UNITS, 2 * UNITS))
    assert not run(layer.kernel).any()


@pytest.mark.parametrize("units", [UNITS, UNITS + 1])
def test_object_based_checkpoint_read_by_a_saver(session, tmp_path, units):
    """A Saver finds the keys of an object-based checkpoint by the names of its variables."""
    with tf.Graph().as_default(), tf.Session() as other:
        cell = cudnn_rnn.CudnnCompatibleLSTMCell(UNITS)
        with tf.variable_scope("rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell") as scope:
            cell(tf.zeros([2, WIDTH]), cell.zero_state(2, tf.float32), scope=scope)
        checkpoint = tf.train.Checkpoint(cell=cell)
        initialize(other)
        other.run(checkpoint.save_counter.initializer)
        path = checkpoint.save(str(tmp_path / "model"))
    layer = built_layer("lstm", num_units=units)
    saver = tf.train.Saver([layer.saveable])
    initialize(session)
    key = "cell/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    if units == UNITS:
        saver.restore(session, path)
        found = session.run(layer.kernel)[: WIDTH * UNITS]
        np.testing.assert_array_equal(found, read_checkpoint(path)[key][:WIDTH, :UNITS].T.ravel())
    else:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            saver.restore(session, path)
        assert_names(caught.value, path, key, "expected shape [8, 20]")
