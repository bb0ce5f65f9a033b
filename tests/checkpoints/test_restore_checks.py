"""Checks of restored tensors, called directly for cases that whole restores rarely reach."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import io_ops

from cudnn_rnn.checkpoints import restore_ops, restore_order, validation
from helpers import damaged_checkpoints
from helpers.checkpoints import assert_all_equal
from helpers.restoring import assert_names, make
from helpers.rnn_models import initialize, keys

CHECKS = [restore_ops.with_checked_sizes, restore_ops.with_checked_shapes]


def read_from(path, key="a"):
    """Returns the tensor of a key, as a Saver of a graph reads it."""
    (tensor,) = io_ops.restore_v2(path, [key], [""], [tf.float32])
    return tensor


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("num_identities", [0, 1, 2])
def test_errors_name_the_checkpoint_of_a_tensor_that_was_copied(
    session, tmp_path, check, num_identities
):
    """A Saver may copy a tensor to another device before the saveable gets it."""
    path = str(tmp_path / "model")
    damaged_checkpoints.write(path, {"a": np.zeros([2], np.float32)})
    tensor = read_from(path)
    for _ in range(num_identities):
        tensor = tf.identity(tensor)
    (checked,) = check([tensor], ["a"], [tf.TensorShape([3])])
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        session.run(checked)
    for part in (path, "Keys:", "[a]", "[3]", "[2]"):
        assert part in caught.value.message, part


@pytest.mark.parametrize("check", CHECKS)
def test_tensors_of_unknown_shape_are_not_checked(session, check):
    """The program's own conversion may give such shapes, which any checkpoint fits."""
    tensors = [tf.zeros([2]), tf.zeros([3])]
    shapes = [tf.TensorShape([2]), tf.TensorShape([None])]
    assert check(tensors, ["a", "b"], shapes) is tensors


def test_the_shape_of_a_tensor_follows_from_its_variable(session, use_resource):
    variable = tf.get_variable("v", [2, 3], use_resource=use_resource)
    tensor = read_from("model")
    tf.assign(variable, tf.reshape(tensor, [2, 3]))
    assert restore_order.assigned_shape(tensor) == ([2, 3], True)
    tensor = read_from("model")
    tf.assign(variable, tf.identity(tensor))
    assert restore_order.assigned_shape(tensor) == ([2, 3], False)


def test_an_assignment_of_any_shape_says_nothing_about_the_tensor(session):
    variable = tf.get_variable("v", [2, 3], use_resource=False)
    tensor = read_from("model")
    tf.assign(variable, tensor, validate_shape=False)
    assert restore_order.assigned_shape(tensor) == (None, True)


def test_an_assignment_to_an_unknown_variable_says_nothing_about_the_tensor(session):
    """The graph chooses the variable when it runs."""
    variable = tf.get_variable("v", [2, 3], use_resource=True)
    chosen = tf.raw_ops.Switch(data=variable.handle, pred=tf.placeholder(tf.bool, []))
    tensor = read_from("model")
    tf.raw_ops.AssignVariableOp(resource=chosen.output_true, value=tensor)
    assert restore_order.assigned_shape(tensor) == (None, True)


def test_an_assignment_in_a_function_says_nothing_about_the_tensor(session):
    """In the function, the variable is a scalar handle."""
    variable = tf.get_variable("v", [2, 3], use_resource=True)

    @tensorflow.function(autograph=False)
    def restore():
        tensor = read_from("model")
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tensor)
        found.append(restore_order.assigned_shape(tensor))

    found = []
    restore.get_concrete_function()
    assert found == [(None, True)]


# Variables besides those of RNNs: what TensorFlow restores is not refused


class Grown:
    """A Saver of an RNN and a variable `state` whose shape in the checkpoint is not declared."""

    def __init__(self, use_resource):
        self.saveable, self.kernel = make("layer")
        shape = [1, 1, 4]
        self.state = tf.get_variable("state", shape, use_resource=use_resource)
        if use_resource:
            value = tf.placeholder_with_default(np.ones([1, 2, 4], np.float32), None)
            self.grow = tf.raw_ops.AssignVariableOp(resource=self.state.handle, value=value)
        else:
            self.grow = tf.assign(self.state, tf.ones([1, 2, 4]), validate_shape=False).op
        self.saver = tf.train.Saver([self.saveable, self.kernel, self.state])

    def save(self, session, path):
        initialize(session)
        session.run(self.grow)
        return self.saver.save(session, str(path))


FOUND = "state: has shape [1, 2, 4], dtype float32; expected shape [1, 1, 4]"


def test_another_variable_may_change_its_shape(session, tmp_path, use_resource):
    models = Grown(use_resource)
    path = models.save(session, tmp_path / "model")
    expected = session.run([models.kernel, models.state])
    session.run([tf.assign(models.kernel, tf.zeros_like(models.kernel)), models.grow])
    models.saver.restore(session, path)
    assert_all_equal(session.run([models.kernel, models.state]), expected)
    with tf.Session() as other:  # where the variable still has the declared shape
        if use_resource:
            models.saver.restore(other, path)
            assert_all_equal(other.run([models.kernel, models.state]), expected)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                models.saver.restore(other, path)
            assert_names(caught.value, path, FOUND, "TensorFlow says", "Assign requires shapes")


def test_a_changed_shape_is_named_beside_other_errors(session, tmp_path, use_resource):
    models = Grown(use_resource)
    path = models.save(session, tmp_path / "model")
    lost = keys(models.saveable)[0]
    damaged_checkpoints.without(path, lost)
    with pytest.raises(tf.errors.NotFoundError) as caught:
        models.saver.restore(session, path)
    assert_names(caught.value, path, lost + ": missing", FOUND)


def test_a_changed_shape_does_not_hide_damage(session, tmp_path, use_resource):
    models = Grown(use_resource)
    path = models.save(session, tmp_path / "model")
    lost = keys(models.saveable)[0]
    damaged_checkpoints.flip_a_bit(path, lost)
    with pytest.raises(tf.errors.DataLossError) as caught:
        models.saver.restore(session, path)
    assert_names(caught.value, path, lost + ": cannot be read")


def test_the_variable_of_a_saveable_under_another_key(session, tmp_path, use_resource):
    """TensorFlow would give a resource variable the wrong shape."""
    saveable, kernel = make("layer", use_resource)
    saver = tf.train.Saver({"rnn": saveable, "old_name": kernel})
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    damaged_checkpoints.other_shape(path, "old_name")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        saver.restore(session, path)
    assert_names(caught.value, path, "old_name: has shape")
    assert "TensorFlow says" not in str(caught.value)


def test_assignments_that_refuse_other_shapes(session):
    def refuses(variable, change=lambda tensor: tensor):
        tensor = read_from("model")
        tf.assign(variable, change(tensor))
        return restore_order.refuses_other_shapes(tensor)

    reference = tf.get_variable("reference", [2, 3], use_resource=False)
    assert refuses(reference)
    assert not refuses(reference, lambda tensor: tf.reshape(tensor, [2, 3]))
    assert not refuses(tf.get_variable("resource", [2, 3], use_resource=True))
    switch = tf.raw_ops.RefSwitch(data=reference._ref(), pred=tf.placeholder(tf.bool, []))
    tf.raw_ops.Assign(ref=switch.output_true, value=tf.zeros([2, 3]), validate_shape=True)
    assert refuses(reference)
    tf.raw_ops.Assign(ref=switch.output_true, value=tf.zeros([5]), validate_shape=False)
    assert not refuses(reference)


class FailingReader:
    """A checkpoint whose keys can be listed, but no value can be read."""

    def __init__(self, error):
        self._error = error

    def get_variable_to_shape_map(self):
        return {"there": [3]}

    def get_variable_to_dtype_map(self):
        return {"there": tf.float32}

    def get_tensor(self, key):
        raise self._error


def expecting(key):
    return [restore_ops.Expected(key, None, False, tf.float32)]


@pytest.mark.parametrize("kind_of_error", validation._NOT_ABOUT_CONTENTS)
@pytest.mark.parametrize("key", ["there", "lost"])
def test_a_failure_of_the_disk_is_no_problem_of_the_checkpoint(monkeypatch, key, kind_of_error):
    """The reader's error passes; TensorFlow's own error is not explained."""
    failure = kind_of_error(None, None, "the disk fails")
    monkeypatch.setattr(tf.train, "NewCheckpointReader", lambda path: FailingReader(failure))
    with pytest.raises(kind_of_error) as caught:
        validation.check("model", expecting(key), with_data=True)
    assert caught.value is failure
    error = tf.errors.DataLossError(None, None, "TensorFlow's own error")
    assert validation.explained(error, "model", expecting(key)) is error


@pytest.mark.parametrize(
    "key, found", [("there", "cannot be read (a broken block)"), ("lost", "a broken block")]
)
@pytest.mark.parametrize(
    "failure",
    [
        tf.errors.DataLossError(None, None, "a broken block"),
        RuntimeError("a broken block"),
        ValueError("a broken block"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_value_that_cannot_be_read_is_a_problem_of_the_checkpoint(
    monkeypatch, failure, key, found
):
    """A key of a damaged list of keys cannot be looked up either; that does not mean it is lost."""
    monkeypatch.setattr(tf.train, "NewCheckpointReader", lambda path: FailingReader(failure))
    with pytest.raises(tf.errors.DataLossError) as caught:
        validation.check("model", expecting(key), with_data=True)
    lines = ["The checkpoint model cannot be restored:"]
    lines.append("  %s: %s; expected dtype float32" % (key, found))
    assert caught.value.message == "\n".join(lines)
