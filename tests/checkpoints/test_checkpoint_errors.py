"""Checkpoints that cannot be restored: errors name the file, the key and the expected value."""

from unittest import mock

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.checkpoints import validation
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
    damage_a_key,
    key_to_spoil,
    make,
    random_values,
    restoring_fails,
    saved_models,
)
from helpers.rnn_models import initialize, keys
from helpers.versions import needs_tensorflow_2

KINDS_AND_SHARDED = [(kind, False) for kind in sorted(KINDS)] + [("opaque_lstm", True)]
# More cases of the frequent damages run than of the others.
FREQUENT = ["missing_key", "other_shape"]
DAMAGES_SAMPLED = [
    pytest.param(damage, marks=pytest.mark.sampled(4 if damage in FREQUENT else 8))
    for damage in sorted(DAMAGES)
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("damage", DAMAGES_SAMPLED)
@pytest.mark.parametrize("kind, sharded", KINDS_AND_SHARDED)
def test_saver(session, tmp_path, kind, sharded, damage):
    """Nothing is restored on an error, although a sharded Saver reads with several ops."""
    with tf.device("/cpu:0" if sharded else None):
        models, path = saved_models(session, tmp_path, kind, sharded=sharded)
    key, shape, kind_of_error = damage_a_key(models, path, damage)
    restoring_fails(models, session, path, kind_of_error, key, shape, "dtype float32")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_another_shape_of_the_same_size(session, tmp_path, kind):
    """Only a and b take other shapes: TensorFlow 1.0-1.3 wrote vectors or transposed matrices."""
    models, path = saved_models(session, tmp_path, kind)
    expected = session.run(models.variables)
    key, shape = key_to_spoil(models.saveable)
    for change in (np.ravel, lambda value: value.reshape(value.shape[::-1])):
        damaged_checkpoints.with_value(path, key, change)
        if kind in ANY_SHAPE:
            models.fill(session)
            models.saver.restore(session, path)
            assert_all_equal(session.run(models.variables), expected)
        else:
            found = "has shape %s" % list(read_checkpoint(path)[key].shape)
            parts = key, found, "expected shape %s" % shape
            restoring_fails(models, session, path, tf.errors.InvalidArgumentError, *parts)


@pytest.mark.parametrize("missing", [0, 1])
def test_all_wrong_keys_are_named(session, tmp_path, missing):
    """A missing key decides the type of the error, whatever the order of the keys."""
    models, path = saved_models(session, tmp_path, "opaque_lstm")
    lost, other = keys(models.saveable)[missing], keys(models.saveable)[1 - missing]
    damaged_checkpoints.without(path, lost)
    damaged_checkpoints.other_shape(path, other)
    parts = lost + ": missing (similar key: ", other + ": has shape ["
    restoring_fails(models, session, path, tf.errors.NotFoundError, *parts)


def test_the_error_of_hundreds_of_keys_is_short(session, tmp_path):
    models, path = saved_models(session, tmp_path, "opaque_gru")
    damaged_checkpoints.write(path, {"nothing": np.float32(1)})
    parts = keys(models.saveable)[0], "and 17 more"
    restoring_fails(models, session, path, tf.errors.NotFoundError, *parts)


def test_what_tensorflow_said_is_kept():
    assert (
        "\nTensorFlow says: a reason" in validation._error("x", [], ValueError("a reason")).message
    )
    assert "TensorFlow says" not in validation._error("x", []).message


def test_the_variable_under_its_own_name(session, tmp_path):
    """A default Saver checks the variable's own key, too, and the variable gets that value."""
    models = Models("layer")
    models.saver = tf.train.Saver()
    path = models.save(session, tmp_path / "model")
    key = models.variables[0].op.name
    damaged_checkpoints.other_shape(path, key)
    size = models.variables[0].shape.num_elements()
    parts = key, "expected shape [%d]" % size, "has shape [%d]" % (size // 2)
    restoring_fails(models, session, path, tf.errors.InvalidArgumentError, *parts)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("importer", [cudnn_rnn, tf.train], ids=["cudnn_rnn", "tensorflow"])
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_imported_meta_graph(session, tmp_path, importer, damage):
    """Without saveables, the expected shapes come from the graph."""
    models, path = saved_models(session, tmp_path, "opaque_lstm")
    key, shape, kind_of_error = damage_a_key(models, path, damage)
    variables = ["imported/%s" % variable.name for variable in models.variables]
    with tf.Graph().as_default(), tf.Session() as other:
        saver = importer.import_meta_graph(path + ".meta", import_scope="imported")
        initialize(other)
        before = other.run(variables)
        with pytest.raises(kind_of_error) as caught:
            saver.restore(other, path)
        assert_names(caught.value, path, key, shape)
        assert_all_equal(other.run(variables), before)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_without_the_python_of_the_saver(session, tmp_path, kind):
    """The graph's own ops check the shapes, for programs that run it without the Saver."""
    models, path = saved_models(session, tmp_path, kind)
    key, _, kind_of_error = damage_a_key(models, path, "other_shape")
    before = models.fill(session)
    definition = models.saver.saver_def
    with pytest.raises(kind_of_error) as caught:
        session.run(definition.restore_op_name, {definition.filename_tensor_name: path})
    assert_names(caught.value, path, key, key_to_spoil(models.saveable)[1], "have the wrong")
    np.testing.assert_array_equal(session.run(models.variables[0]), before[0])


@pytest.mark.sampled(4)
def test_any_byte_of_the_index(session, tmp_path, runs_all):
    """A changed byte of the index makes no difference or raises DataLossError; nothing aborts."""
    models, path = saved_models(session, tmp_path, "layer")
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "case, error, message",
    [
        ("no session", AttributeError, "'NoneType' object has no attribute 'run'"),
        ("session of another graph", TypeError, "Cannot interpret feed_dict key"),
        ("unbuilt Saver", AttributeError, "'NoneType' object has no attribute 'restore_op_name'"),
    ],
)
def test_what_tensorflow_refuses_is_left_to_it(session, tmp_path, recwarn, case, error, message):
    """The checks need the graph of the Saver; without that graph, they say nothing."""
    models, path = saved_models(session, tmp_path, "layer")
    saver, sessions = models.saver, {"no session": None, "unbuilt Saver": session}
    if case == "unbuilt Saver":
        saver = tf.train.Saver(defer_build=True)
    with tf.Graph().as_default(), tf.Session() as other:
        tf.constant(1.0)
        with pytest.raises(error, match=message):
            saver.restore(sessions.get(case, other), path)
    assert not [each for each in recwarn if "cudnn_rnn" in str(each.message)]


def test_a_missing_checkpoint(session, tmp_path):
    with pytest.raises(ValueError, match="not a valid checkpoint: .*nowhere"):
        Models("layer").saver.restore(session, str(tmp_path / "nowhere"))


# Other variables in the same Saver, and errors that are not about the checkpoint


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "damage, found",
    [("other_shape", "has shape [2], dtype float32; expected"), ("flipped_bit", "cannot be read")],
)
@pytest.mark.parametrize("sharded", [False, True])
def test_damage_to_another_variable(session, tmp_path, use_resource, sharded, damage, found):
    """Damage to another variable is found before anything is restored."""
    if damage == "other_shape":  # TensorFlow restores a resource variable of any shape.
        use_resource = False
    with tf.variable_scope(tf.get_variable_scope(), use_resource=use_resource):
        models, path = saved_models(session, tmp_path, "layer", sharded=sharded)
    spoil, kind_of_error = DAMAGES[damage]
    spoil(path, "bystander")
    parts = "bystander: " + found, "expected shape [3], dtype float32"
    restoring_fails(models, session, path, kind_of_error, *parts)


def test_errors_name_other_partitioned_variables(session, tmp_path):
    saveable, variable = make("layer")
    with tf.variable_scope("parts", partitioner=tf.fixed_size_partitioner(2)):
        parts = tf.get_variable("v", initializer=tf.zeros_initializer(), shape=[5, 2])
    saver = tf.train.Saver([saveable, variable] + list(parts))
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    saver.restore(session, path)
    damaged_checkpoints.with_value(path, "parts/v", lambda value: value[:4])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"parts/v: has shape \[4, 2\]"):
        saver.restore(session, path)


def test_errors_name_other_variables_of_unknown_shape(session, tmp_path, use_resource):
    saveable, _ = make("layer")
    value = tf.placeholder_with_default(np.ones(3, np.float32), [None])
    variable = tf.Variable(value, name="v", validate_shape=False, use_resource=use_resource)
    saver = tf.train.Saver([saveable, variable])
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    damaged_checkpoints.with_value(path, "v", lambda value: value[:2])
    saver.restore(session, path)
    assert session.run(variable).shape == (2,)


def assert_error_passes(models, session, path, error):
    """Checks that restoring raises this error if the session does, as with a failing server."""
    failing = mock.Mock(spec=["graph", "run"], graph=session.graph)
    failing.run.side_effect = error
    with pytest.raises(type(error)) as caught:
        models.saver.restore(failing, path)
    assert caught.value is error


PASSING_ERRORS = [
    tf.errors.AbortedError,
    tf.errors.UnavailableError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
]


@pytest.mark.parametrize("damage", [None, "no_data", "cut_index"])
def test_errors_not_about_the_contents_are_not_changed(session, tmp_path, damage):
    """Errors unrelated to the contents pass unchanged: a MonitoredSession recovers from some."""
    models, path = saved_models(session, tmp_path, "layer")
    if damage is not None:
        DAMAGES[damage][0](path, "bystander")
    for kind_of_error in PASSING_ERRORS:
        assert_error_passes(models, session, path, kind_of_error(None, None, "the server fails"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind_of_reader_error", [tf.errors.NotFoundError] + PASSING_ERRORS[:2])
def test_a_path_that_only_the_server_can_open(session, tmp_path, monkeypatch, kind_of_reader_error):
    models, path = saved_models(session, tmp_path, "layer")
    expected = session.run(models.variables)
    models.fill(session)
    error = kind_of_reader_error(None, None, "the client cannot open the file")
    monkeypatch.setattr(tf.train, "NewCheckpointReader", mock.Mock(side_effect=error))
    models.saver.restore(session, path)
    assert_all_equal(session.run(models.variables), expected)
    error = tf.errors.DataLossError(None, None, "the server's own error")
    assert_error_passes(models, session, path, error)


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

    def restore(self, path):
        self.checkpoint.restore(path).initialize_or_restore()

    def restoring_fails(self, run, path, kind_of_error, *parts):
        """Checks that restoring changes no variable and raises an error with path and parts."""
        before = self.fill(run, -1.0)
        with pytest.raises(kind_of_error) as caught:
            self.restore(path)
        assert_names(caught.value, path, *parts)
        assert_all_equal(run(self.variables), before)


KERNEL_KEY = "first/cell-1/kernel/.ATTRIBUTES/VARIABLE_VALUE"
KERNEL_PARTS = KERNEL_KEY, "expected shape [%d, %d]" % (2 * UNITS, 4 * UNITS), "float32"


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


def spoil_object(path, damage):
    """Damages the kernel of a cell in the checkpoint; returns the error that restoring raises."""
    spoil, kind_of_error = OBJECT_DAMAGES[damage]
    spoil(path, KERNEL_KEY)
    return kind_of_error


@pytest.mark.sampled(6)
@pytest.mark.parametrize("damage", sorted(OBJECT_DAMAGES))
def test_checkpoint(run, tmp_path, damage):
    objects = Objects()
    path = objects.save(run, tmp_path / "model")
    objects.restoring_fails(run, path, spoil_object(path, damage), *KERNEL_PARTS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", sorted(OBJECT_DAMAGES))
def test_checkpoint_of_layers_built_later(run, tmp_path, damage):
    path = Objects().save(run, tmp_path / "model")
    kind_of_error = spoil_object(path, damage)
    with tf.variable_scope("anew"):
        objects = Objects(build=False)
        with pytest.raises(kind_of_error) as caught:
            objects.checkpoint.restore(path)
            objects.build()
    assert path in str(caught.value)
    # If the object names cannot be read, the error comes before the layers' sizes are known.
    if damage not in ("cut_data", "no_data", "cut_index", "empty_index"):
        assert_names(caught.value, *KERNEL_PARTS)


def test_checkpoint_of_fewer_layers(run, tmp_path):
    with tf.variable_scope("small"):
        path = Objects(num_layers=2).save(run, tmp_path / "model")
    objects = Objects(num_layers=3)
    missing = [
        "first/cell-2/%s/.ATTRIBUTES/VARIABLE_VALUE: missing" % s for s in ("kernel", "bias")
    ]
    objects.restoring_fails(run, path, tf.errors.NotFoundError, *missing)


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
    objects.restore(path)
    objects.restoring_fails(session.run, path, spoil_object(path, "other_shape"), *KERNEL_PARTS)


@needs_tensorflow_2
@pytest.mark.parametrize("run", ["eager"], indirect=True)
@pytest.mark.parametrize("damage", ["missing_object", "other_shape", "flipped_bit"])
def test_checkpoint_read(run, tmp_path, damage):
    """`read` of TensorFlow 2's own Checkpoint reports damage to what `write` wrote."""
    objects = Objects()
    checkpoint = tensorflow.train.Checkpoint(**objects.layers)
    objects.fill(run, 1.0)
    path = checkpoint.write(str(tmp_path / "model"))
    objects.restore = checkpoint.read
    objects.restoring_fails(run, path, spoil_object(path, damage), *KERNEL_PARTS)


SAVED_AS = {"list": lambda saveable: [saveable], "dict": lambda saveable: {"rnn": saveable}}
EAGER_SAVERS = [("list", damage) for damage in sorted(DAMAGES)] + [("dict", "other_shape")]


@pytest.mark.parametrize("run", ["eager"], indirect=True)
@pytest.mark.parametrize("saved_as, damage", EAGER_SAVERS)
def test_eager_saver(run, tmp_path, saved_as, damage):
    layer = built_layer("gru")
    layer.kernel.assign(random_values(layer.kernel.shape.num_elements()))
    saver = tf.train.Saver(SAVED_AS[saved_as](layer.saveable))
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
