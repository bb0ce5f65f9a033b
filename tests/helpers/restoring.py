"""Models of every kind of saveable, for the tests of checkpoints that cannot be restored."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn.model import layout
from helpers.checkpoints import assert_all_equal
from helpers.damaged_checkpoints import DAMAGES
from helpers.layer_models import LAYER_COUNT, SAVEABLES, UNITS, WIDTH, built_layer
from helpers.rnn_models import CLASSES, GENERATIONS, initialize

# Kinds of saveables -> (RNN mode, direction).
KINDS = {
    "a": ("rnn_tanh", "bidirectional"),
    "b": ("lstm", "unidirectional"),
    "b_gru": ("gru", "unidirectional"),
    "opaque_lstm": ("lstm", "bidirectional"),
    "opaque_gru": ("gru", "unidirectional"),
    "opaque_rnn_relu": ("rnn_relu", "unidirectional"),
    "opaque_rnn_tanh": ("rnn_tanh", "bidirectional"),
    "layer": ("lstm", "unidirectional"),
}
ANY_SHAPE = ("a", "b", "b_gru")


def random_values(size, seed=0):
    """Returns random values without duplicates."""
    return np.random.RandomState([size, seed]).uniform(-1, 1, size).astype(np.float32)


def make(kind, use_resource=None, device="", saveable_device="", scope="scope"):
    """Creates a saveable and its variable in the default graph; returns both."""
    rnn_mode, direction = KINDS[kind]
    with tf.device(device), tf.variable_scope(scope, use_resource=use_resource):
        if kind == "layer":
            layer = built_layer(rnn_mode, LAYER_COUNT, direction=direction)
            return layer.saveable, layer.kernel
        model = CLASSES[rnn_mode](LAYER_COUNT, UNITS, WIDTH, direction=direction)
        value = random_values(layout.params_size(model.config), len(scope))
        variable = tf.get_variable("opaque", initializer=value)
    with tf.device(saveable_device), tf.name_scope(scope):
        if kind.startswith("opaque"):
            sizes = LAYER_COUNT, UNITS, WIDTH
            saveable = SAVEABLES[rnn_mode](variable, *sizes, direction=direction, scope=scope)
        else:
            saveable = GENERATIONS[kind[0]](model, variable, *([] if kind == "a" else [scope]))
    return saveable, variable


class Models:
    """The saveable under test, a second saveable and a variable, in one Saver."""

    def __init__(self, kind, sharded=False):
        self.any_shape = kind in ANY_SHAPE
        self.saveable, variable = make(kind, scope="first")
        other_saveable, other_variable = make(kind, scope="second")
        bystander = tf.get_variable("bystander", initializer=np.float32([1, 2, 3]))
        self.variables = [variable, other_variable, bystander]
        self.saver = tf.train.Saver([self.saveable, other_saveable, bystander], sharded=sharded)

    def fill(self, session):
        """Sets all variables to values that are in no checkpoint; returns the values."""
        initialize(session)
        session.run([tf.assign(v, v * 3.0 + 0.5) for v in self.variables])
        return session.run(self.variables)

    def save(self, session, path):
        initialize(session)
        return self.saver.save(session, str(path))


def key_to_spoil(saveable):
    """Returns a key that holds a matrix, and its shape as text."""
    matrices = [spec for spec in saveable.specs if spec.tensor.shape.rank == 2]
    spec = [spec for spec in matrices if len(set(spec.tensor.shape.as_list())) == 2][0]
    return spec.name, str(spec.tensor.shape.as_list())


def saved_models(session, tmp_path, kind, **named):
    """Saves models; returns them and the checkpoint's path."""
    models = Models(kind, **named)
    return models, models.save(session, tmp_path / "model")


def damage_a_key(models, path, damage):
    """Damages a key in the checkpoint; returns the key, the text on its shape, and the error."""
    key, shape = key_to_spoil(models.saveable)
    spoil, kind_of_error = DAMAGES[damage]
    spoil(path, key)
    words = "expected shape " + shape
    if models.any_shape:
        words += " or any shape with as many elements"
    return key, words, kind_of_error


def assert_names(error, *parts):
    for part in parts:
        assert part in str(error), (part, str(error))


def restoring_fails(models, session, path, kind_of_error, *parts):
    """Checks that restoring changes no variable and raises an error with the path and `parts`."""
    before = models.fill(session)
    with pytest.raises(kind_of_error) as caught:
        models.saver.restore(session, path)
    assert_names(caught.value, path, *parts)
    assert_all_equal(session.run(models.variables), before)
