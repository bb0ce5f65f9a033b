"""Other variables in the Saver of an RNN, and errors that are not about the checkpoint."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers.checkpoints import assert_all_equal
from helpers.damaged_checkpoints import DAMAGES, with_value
from helpers.restoring import Models, assert_names, make, restoring_fails
from helpers.rnn_models import initialize


@pytest.mark.parametrize("sharded", [False, True])
def test_a_wrong_shape_of_another_variable_is_named(session, tmp_path, use_resource, sharded):
    """A wrong shape of another variable is found before anything is restored."""
    with tf.variable_scope(tf.get_variable_scope(), use_resource=use_resource):
        models = Models("layer", sharded)
    path = models.save(session, tmp_path / "model")
    with_value(path, "bystander", lambda value: value[:2])
    error = restoring_fails(models, session, path, tf.errors.InvalidArgumentError)
    assert_names(error, path, "bystander: has shape [2], dtype float32; expected shape [3]")


def test_errors_name_other_partitioned_variables(session, tmp_path):
    saveable, variable = make("layer", "first")
    with tf.variable_scope("parts", partitioner=tf.fixed_size_partitioner(2)):
        parts = tf.get_variable("v", initializer=tf.zeros_initializer(), shape=[5, 2])
    saver = tf.train.Saver([saveable, variable] + list(parts))
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    saver.restore(session, path)
    with_value(path, "parts/v", lambda value: value[:4])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"parts/v: has shape \[4, 2\]"):
        saver.restore(session, path)


def test_errors_name_other_variables_of_unknown_shape(session, tmp_path, use_resource):
    saveable, _ = make("layer", "first")
    value = tf.placeholder_with_default(np.ones(3, np.float32), [None])
    variable = tf.Variable(value, name="v", validate_shape=False, use_resource=use_resource)
    saver = tf.train.Saver([saveable, variable])
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    with_value(path, "v", lambda value: value[:2])
    saver.restore(session, path)
    assert session.run(variable).shape == (2,)


class FailingSession:
    """A session whose `run` raises the given error, as a failing server does."""

    def __init__(self, session, error):
        self.graph, self._error = session.graph, error

    def run(self, *arguments, **named):
        raise self._error


def assert_error_passes(models, session, path, error):
    with pytest.raises(type(error)) as caught:
        models.saver.restore(FailingSession(session, error), path)
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
    models = Models("layer")
    path = models.save(session, tmp_path / "model")
    if damage is not None:
        DAMAGES[damage][0](path, "bystander")
    for kind_of_error in PASSING_ERRORS:
        assert_error_passes(models, session, path, kind_of_error(None, None, "the server fails"))


@pytest.mark.parametrize("kind_of_reader_error", [tf.errors.NotFoundError] + PASSING_ERRORS[:2])
def test_a_path_that_only_the_server_can_open(session, tmp_path, monkeypatch, kind_of_reader_error):
    models = Models("layer")
    path = models.save(session, tmp_path / "model")
    expected = session.run(models.variables)
    models.fill(session)

    def reader(path):
        raise kind_of_reader_error(None, None, "the client cannot open %s" % path)

    monkeypatch.setattr(tf.train, "NewCheckpointReader", reader)
    models.saver.restore(session, path)
    assert_all_equal(session.run(models.variables), expected)
    error = tf.errors.DataLossError(None, None, "the server's own error")
    assert_error_passes(models, session, path, error)
