"""Regression tests for problems that users of the original had when training models.

Each docstring describes the original problem. See `test_known_issues.py`. Second-order gradients
(tensorflow#37091) also have a file of their own, `test_second_order.py`.
"""

import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.layer_models import BATCH, LAYERS, UNITS, WIDTH, built_layer, make_inputs
from helpers.processes import output_of
from helpers.rnn_models import CLASSES, initialize, make_params
from helpers.versions import IS_TENSORFLOW_1, needs_estimators
from programs import mirrored_training

pytestmark = pytest.mark.ci


def loss_of(kind, rnn_mode="lstm"):
    """Returns (loss, variable of the parameters) of a model built as in the issue reports."""
    if kind == "layer":
        layer = LAYERS[rnn_mode](2, UNITS, direction="bidirectional")
        outputs, params = layer(make_inputs())[0], layer.kernel
    else:
        model = CLASSES[rnn_mode](2, UNITS, WIDTH)
        initial = tf.random_uniform([model.params_size()], -0.5, 0.5, seed=1)
        params = tf.get_variable("params", initializer=initial, use_resource=kind == "resource")
        states = [tf.zeros([2, BATCH, UNITS])] * (2 if rnn_mode == "lstm" else 1)
        outputs = model(make_inputs(), *states, params)[0]
    return tf.reduce_mean(tf.square(outputs - 0.3)), params


OPTIMIZERS = {
    "adam": lambda: tf.train.AdamOptimizer(0.01),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(10.0),
    "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1),
}


@pytest.mark.parametrize("kind", ["reference", "resource", "layer"])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_6620_9422_20571_optimizers_with_slots(session, optimizer, kind):
    """Optimizers with slots failed because the parameters' variable had no static shape."""
    loss, params = loss_of(kind)
    optimizer = OPTIMIZERS[optimizer]()
    train = optimizer.minimize(loss)
    slots = [optimizer.get_slot(params, name) for name in optimizer.get_slot_names()]
    assert slots and all(slot.shape.as_list() == params.shape.as_list() for slot in slots)
    initialize(session)
    losses = [session.run([loss, train])[0] for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("kind", ["reference", "resource", "layer"])
def test_6620_a_moving_average_of_the_parameters(session, kind):
    """tf.train.ExponentialMovingAverage failed because the variable had no static shape."""
    loss, params = loss_of(kind, "gru")
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    average = tf.train.ExponentialMovingAverage(0.5)
    with tf.control_dependencies([train]):
        update = average.apply([params])
    assert average.average(params).shape.as_list() == params.shape.as_list()
    # The average's initializer reads the parameters. In one run, TensorFlow does not order it and
    # the initializer of a reference variable.
    session.run(params.initializer)
    others = [variable for variable in tf.global_variables() if variable is not params]
    session.run(tf.variables_initializer(others))
    before = session.run(params)
    session.run(update)
    expected = 0.5 * before + 0.5 * session.run(params)
    np.testing.assert_allclose(session.run(average.average(params)), expected, atol=1e-6)


@pytest.mark.parametrize("classes", [CLASSES, LAYERS], ids=["op_level", "layer"])
def test_deeppavlov_539_l2_of_the_matrices_only(session, rnn_mode, classes):
    """The opaque vector includes the biases, so an L2 penalty could not exclude them."""
    if classes is CLASSES:
        model = CLASSES[rnn_mode](2, UNITS, WIDTH, direction="bidirectional")
        params, to_canonical = make_params(model), model.params_to_canonical
    else:
        layer = built_layer(rnn_mode, 2, direction="bidirectional")
        params, to_canonical = layer.kernel, layer.saveable.format_converter._opaque_to_cu_canonical
    weights, biases = to_canonical(params)
    penalty = tf.add_n([tf.nn.l2_loss(matrix) for matrix in weights])
    train = tf.train.GradientDescentOptimizer(0.25).minimize(penalty)
    initialize(session)
    session.run(params.assign(np.random.RandomState(2).randn(*params.shape)))
    before, matrices = session.run([params, weights])
    session.run(train)
    num_biases = UNITS * len(biases)
    assert sum(matrix.size for matrix in matrices) + num_biases == len(before)
    # The gradient of half the sum of squares is the values themselves; the biases come last.
    after = session.run(params)
    np.testing.assert_allclose(after[:-num_biases], 0.75 * before[:-num_biases], rtol=1e-6)
    np.testing.assert_array_equal(after[-num_biases:], before[-num_biases:])


def test_37091_second_order_gradients(session):
    """A gradient penalty failed with a LookupError about an op unknown to the user."""
    start, along = (tf.constant(make_inputs(np.float64, seed=seed)) for seed in (1, 2))
    layer = LAYERS["lstm"](2, UNITS, dtype=tf.float64)

    def gradient_at(inputs):
        return tf.gradients(layer(inputs)[0], inputs)[0]

    second = tf.gradients(gradient_at(start) * along, start)[0]
    ends = [gradient_at(start + sign * 1e-5 * along) for sign in (1, -1)]
    initialize(session)
    found, (after, before) = session.run([second, ends])
    expected = (after - before) / 2e-5
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-8)


def classifier_loss():
    """Returns the loss of a small classifier around a layer."""
    inputs = make_inputs(batch=16)
    layer = LAYERS["lstm"](2, UNITS, direction="bidirectional", dropout=0.2)
    outputs, _ = layer(tf.constant(inputs), training=True)
    logits = tf.tensordot(outputs[-1], tf.get_variable("kernel", [2 * UNITS]), 1)
    labels = (inputs.sum((0, 2)) > 0).astype(np.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)


@pytest.mark.sampled(4)
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


MODES = [
    "graph" if IS_TENSORFLOW_1 else "eager",
    pytest.param("estimator", marks=[pytest.mark.release, needs_estimators]),
]


@pytest.fixture(scope="module", params=MODES)
def mirrored(request, tmp_path_factory):
    """Returns a mode of `mirrored_training.py` and what it prints in that mode."""
    folder = tmp_path_factory.mktemp("checkpoints")
    printed = output_of(mirrored_training.__file__, request.param, folder)
    return request.param, json.loads(printed.splitlines()[-1])


@pytest.mark.sampled(2)
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
