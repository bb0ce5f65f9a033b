"""Regression tests for problems that users of the original had when training models.

Each docstring describes the original problem. See `test_known_issues.py`.
"""

import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.arrays import assert_equal
from helpers.layer_models import LAYERS
from helpers.processes import output_of
from helpers.rnn_models import CLASSES, initialize, make_params
from helpers.versions import IS_TENSORFLOW_1
from programs import mirrored_training

UNITS, WIDTH, BATCH, STEPS = 4, 3, 4, 5


def random_inputs(batch=BATCH, seed=1):
    return np.random.RandomState(seed).uniform(-1, 1, [STEPS, batch, WIDTH]).astype(np.float32)


def op_level_loss(rnn_mode="lstm", use_resource=None):
    """Returns (loss, params variable) of an op-level model built as in the issue reports."""
    model = CLASSES[rnn_mode](2, UNITS, WIDTH)
    initial = tf.random_uniform([model.params_size()], -0.5, 0.5, seed=1)
    params = tf.get_variable("params", initializer=initial, use_resource=use_resource)
    states = [tf.zeros([2, BATCH, UNITS])] * (2 if rnn_mode == "lstm" else 1)
    outputs = model(random_inputs(), *(states + [params]))[0]
    return tf.reduce_mean(tf.square(outputs - 0.3)), params


# --- Optimizers ---

OPTIMIZERS = {
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(10.0),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1),
}


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_6620_9422_20571_optimizers_with_slots(session, optimizer, use_resource):
    """Optimizers with slots failed because the parameters' variable had no static shape."""
    loss, params = op_level_loss(use_resource=use_resource)
    optimizer = OPTIMIZERS[optimizer]()
    train = optimizer.minimize(loss)
    slots = [optimizer.get_slot(params, name) for name in optimizer.get_slot_names()]
    assert slots and all(slot.shape.as_list() == params.shape.as_list() for slot in slots)
    initialize(session)
    losses = [session.run([loss, train])[0] for _ in range(20)]
    assert losses[-1] < losses[0]


def test_6620_a_moving_average_of_the_parameters(session):
    """tf.train.ExponentialMovingAverage failed because the variable had no static shape."""
    loss, params = op_level_loss("gru")
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([train]):
        update = average.apply([params])
    initialize(session)
    before = session.run(params)
    session.run(update)
    expected = 0.5 * before + 0.5 * session.run(params)
    np.testing.assert_allclose(session.run(average.average(params)), expected, atol=1e-6)


# --- Regularization ---


def test_deeppavlov_539_l2_of_the_matrices_only(session, rnn_mode):
    """The opaque vector includes the biases, so an L2 penalty could not exclude them."""
    model = CLASSES[rnn_mode](2, UNITS, WIDTH, direction="bidirectional")
    params = make_params(model)
    weights, biases = model.params_to_canonical(params)
    penalty = tf.add_n([tf.nn.l2_loss(matrix) for matrix in weights])
    of_penalty = tf.gradients(penalty, params)[0]
    initialize(session)
    found, values, matrices = session.run([of_penalty, params, weights])
    num_biases = UNITS * len(biases)
    assert sum(matrix.size for matrix in matrices) + num_biases == len(values)
    # The gradient of half the sum of squares is the values themselves; the biases come last.
    expected = np.concatenate([values[:-num_biases], np.zeros(num_biases)])
    np.testing.assert_array_equal(found, expected)


def test_deeppavlov_539_l2_of_a_layer_in_training(session):
    """An L2 penalty on a layer's matrices must shrink the matrices and keep the biases."""
    layer = LAYERS["gru"](2, UNITS)
    layer(tf.constant(random_inputs()))
    weights, biases = layer.saveable.format_converter._opaque_to_cu_canonical(layer.kernel)
    penalty = tf.add_n([tf.nn.l2_loss(matrix) for matrix in weights])
    train = tf.train.GradientDescentOptimizer(0.25).minimize(penalty)
    initialize(session)
    session.run(layer.kernel.assign(np.random.RandomState(2).randn(*layer.kernel.shape)))
    before = session.run([weights, biases])
    session.run(train)
    after = session.run([weights, biases])
    for old, new in zip(before[0], after[0]):
        np.testing.assert_allclose(new, 0.75 * old, rtol=1e-6)
    assert_equal(after[1], before[1])


# --- MonitoredTrainingSession ---


def classifier_loss():
    """Returns the loss of a small classifier around a layer."""
    inputs = random_inputs(16)
    layer = LAYERS["lstm"](2, UNITS, direction="bidirectional", dropout=0.2)
    outputs, _ = layer(tf.constant(inputs), training=True)
    logits = tf.tensordot(outputs[-1], tf.get_variable("kernel", [2 * UNITS]), 1)
    labels = (inputs.sum((0, 2)) > 0).astype(np.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)


def test_20972_a_monitored_session_saves_and_resumes(tmp_path):
    """A MonitoredTrainingSession, as in an Estimator, initializes or restores, trains and saves."""

    def train(num_steps):
        with tf.Graph().as_default():
            loss = classifier_loss()
            step = tf.train.get_or_create_global_step()
            train_op = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=step)
            hooks = [tf.train.StopAtStepHook(num_steps=num_steps)]
            losses = []
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=5
            ) as session:
                while not session.should_stop():
                    losses.append(session.run([loss, train_op])[0])
            return losses

    first, second = train(15), train(15)
    assert tf.train.load_variable(str(tmp_path), "global_step") == 30
    assert max(second[0], second[-1]) < first[0]
    keys = [name for name, _ in tf.train.list_variables(str(tmp_path))]
    assert any(key.endswith("cudnn_compatible_lstm_cell/kernel") for key in keys)


# --- MirroredStrategy ---


def trained_on_one_device(session, params):
    """Returns the params that `mirrored_training.py` must reach, trained without a strategy."""
    model = cudnn_rnn.CudnnGRU(2, mirrored_training.UNITS, mirrored_training.WIDTH)
    variable = tf.Variable(params, dtype=tf.float32)
    inputs = mirrored_training.make_inputs().transpose(1, 0, 2)
    states = tf.zeros([2, mirrored_training.BATCH, mirrored_training.UNITS])
    loss = tf.reduce_mean(tf.square(model(inputs, states, variable)[0] - 0.3))
    train = tf.train.GradientDescentOptimizer(mirrored_training.LEARNING_RATE).minimize(loss)
    initialize(session)
    for _ in range(mirrored_training.TRAINING_STEPS):
        session.run(train)
    return session.run(variable)


TENSORFLOW_1_MODES = ["graph", pytest.param("estimator", marks=pytest.mark.release)]


@pytest.fixture(scope="module", params=TENSORFLOW_1_MODES if IS_TENSORFLOW_1 else ["eager"])
def mirrored(request, tmp_path_factory):
    """Returns a mode of `mirrored_training.py` and what it prints in that mode."""
    folder = tmp_path_factory.mktemp("checkpoints")
    printed = output_of(mirrored_training.__file__, request.param, folder)
    return request.param, json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("kind", ["layer", "op_level"])
def test_29730_mirrored_strategy(session, mirrored, kind):
    """Training on two devices failed: the variable was read before it was initialized."""
    mode, results = mirrored
    initial, trained, restored = (np.float32(values) for values in results[kind])
    assert len(trained) == (1 if mode == "estimator" else 2)  # estimator mode reads a checkpoint
    for replica in range(len(trained)):
        np.testing.assert_array_equal(initial[replica], initial[0])
        np.testing.assert_array_equal(trained[replica], trained[0])
        np.testing.assert_array_equal(restored[replica], trained[0])
    expected = trained_on_one_device(session, initial[0])
    assert np.abs(expected - initial[0]).max() > 0.01
    np.testing.assert_allclose(trained[0], expected, rtol=1e-4, atol=1e-6)


# --- Second-order gradients ---


@pytest.mark.parametrize("classes", [CLASSES, LAYERS], ids=["op_level", "layer"])
def test_37091_second_order_gradients(session, classes):
    """A gradient penalty failed with a LookupError about an op unknown to the user."""
    start = tf.Variable(random_inputs().astype(np.float64))
    direction = tf.constant(random_inputs(seed=2).astype(np.float64))
    if classes is CLASSES:
        model = cudnn_rnn.CudnnLSTM(2, UNITS, WIDTH, dtype=tf.float64)
        states = [tf.zeros([2, BATCH, UNITS], tf.float64)] * 2
        params = tf.random_uniform([model.params_size()], -1, 1, tf.float64, seed=1)
        arguments = states + [tf.Variable(params)]
    else:
        model, arguments = LAYERS["lstm"](2, UNITS, dtype=tf.float64), []

    def gradient_at(inputs):
        return tf.gradients(tf.reduce_sum(model(inputs, *arguments)[0]), inputs)[0]

    first = gradient_at(tf.identity(start))
    along = tf.reduce_sum(first * direction)
    second = tf.gradients(along, start)[0]
    ends = [gradient_at(start + sign * 1e-5 * direction) for sign in (1, -1)]
    initialize(session)
    found, (after, before) = session.run([second, ends])
    expected = (after - before) / 2e-5
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-8)
