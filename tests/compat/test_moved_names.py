"""`tf.contrib.layers` and `slim` of the package tf_slim itself, which TensorFlow has outlived."""

import importlib
import importlib.util

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

from cudnn_rnn import contrib
from cudnn_rnn.contrib import moved_names
from helpers.rnn_models import initialize
from helpers.versions import needs_tensorflow_2

pytestmark = [
    needs_tensorflow_2,
    pytest.mark.skipif(
        importlib.util.find_spec("tf_slim") is None, reason="requires the package tf_slim"
    ),
]


@pytest.fixture(autouse=True)
def installed(session):
    contrib.install()
    yield
    contrib.uninstall()


def test_an_rnn_between_layers(session):
    """As published programs use them: with regularizers, `optimize_loss` and `create_train_op`."""
    layers, slim = tensorflow.contrib.layers, tensorflow.contrib.slim
    is_training = tf.placeholder_with_default(True, [])
    inputs = tf.random_normal([5, 4, 6], seed=1)
    with slim.arg_scope([layers.fully_connected], weights_regularizer=layers.l2_regularizer(0.01)):
        values = layers.fully_connected(inputs, 7)
        values, _ = tensorflow.contrib.cudnn_rnn.CudnnGRU(1, 8)(values, training=True)
        values = layers.dropout(layers.layer_norm(values), is_training=is_training)
        values = layers.fully_connected(layers.flatten(values), 1, activation_fn=None)
    loss = tf.reduce_mean(tf.square(values - 0.5)) + tf.losses.get_regularization_loss()
    step = tf.train.get_or_create_global_step()
    train = layers.optimize_loss(
        loss,
        step,
        tf.constant(0.03),
        "Adam",
        gradient_noise_scale=0.01,
        clip_gradients=5.0,
        learning_rate_decay_fn=lambda rate, step: tf.train.exponential_decay(rate, step, 10, 0.9),
    )
    other = slim.learning.create_train_op(
        loss, tf.train.GradientDescentOptimizer(0.001), clip_gradient_norm=1.0
    )
    initialize(session)
    losses = [session.run([train, other])[0] for _ in range(30)]
    assert np.isfinite(losses).all() and np.mean(losses[-5:]) < np.mean(losses[:5])
    assert session.run(step) == 60
    assert len(slim.get_model_variables()) == 6  # two of layer_norm, four of the dense layers


def test_the_rest_of_slim(session):
    layers, slim = tensorflow.contrib.layers, tensorflow.contrib.slim
    parts = layers.stack(layers.one_hot_encoding([1, 2], 3), layers.fully_connected, [4, 5])
    added = slim.variable("added", [2], initializer=tf.ones_initializer())
    counted = tensorflow.contrib.slim.local_variable(3.0, name="counted")
    initialize(session)
    session.run(tf.local_variables_initializer())
    assert session.run(parts).shape == (2, 5)
    assert session.run(tf.reduce_sum(added) + counted) == 5.0


@pytest.mark.parametrize("name", sorted(moved_names._MOVED))
def test_places_of_names(name):
    module = importlib.import_module(name)
    before = set(vars(module))
    old = moved_names._WithMovedNames(module)
    for moved, new_name in moved_names._MOVED[name].items():
        if not new_name.startswith("layers."):  # these need Keras 2
            assert getattr(old, moved) is getattr(module, moved, getattr(tf, new_name))
    with pytest.raises(AttributeError, match="no_such_name"):
        old.no_such_name  # noqa: B018
    assert set(vars(module)) == before  # TensorFlow's module stays as it is
