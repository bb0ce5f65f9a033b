"""Trains an RNN under MirroredStrategy on two CPU devices, for `test_known_issues_training.py`.

This is a separate program because TensorFlow reads the number of CPU devices only at startup.
Arguments: "graph" (TensorFlow 1), "eager" (2) or "estimator", then a folder for checkpoints.
Saves after training, overwrites the parameters and restores them. Prints JSON: for "layer" and for
"op_level", the parameters of every replica before training, after training, and after restoring.
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

import cudnn_rnn  # noqa: E402
from cudnn_rnn import contrib  # noqa: E402

UNITS, WIDTH, BATCH, STEPS = 4, 3, 6, 5
TRAINING_STEPS = 3
LEARNING_RATE = 0.5
DEVICES = ["/cpu:0", "/cpu:1"]


def make_inputs():
    return np.random.RandomState(1).uniform(-1, 1, [BATCH, STEPS, WIDTH]).astype(np.float32)


class Model:
    """A layer, which creates its variable when called, or an op-level class with a variable."""

    def __init__(self, kind):
        self.layer = cudnn_rnn.layers.CudnnGRU(2, UNITS, seed=1) if kind == "layer" else None
        self._model = cudnn_rnn.CudnnGRU(2, UNITS, WIDTH)
        if not self.layer:
            initial = tf.random_uniform([self._model.params_size()], -0.5, 0.5, seed=1)
            self._params = tf.get_variable("opaque_kernel", initializer=initial)

    @property
    def params(self):
        return self.layer.kernel if self.layer else self._params

    def loss(self, features):
        """Returns the mean squared distance of the outputs from 0.3, for batch-major features."""
        inputs = tf.transpose(features, [1, 0, 2])
        if self.layer:
            outputs = self.layer(inputs)[0]
        else:
            states = tf.zeros([2, tf.shape(inputs)[1], UNITS])
            outputs = self._model(inputs, states, self.params)[0]
        return tf.reduce_mean(tf.square(outputs - 0.3))


def make_dataset():
    return tf.data.Dataset.from_tensor_slices(make_inputs()).batch(BATCH).repeat()


def in_a_graph(kind, strategy, folder):
    """Trains in a TensorFlow 1 session; every replica builds its model, as a model_fn does."""

    def step(features):
        loss = Model(kind).loss(features) / len(DEVICES)
        return tf.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss)

    tf.set_random_seed(1)
    with strategy.scope():
        iterator = strategy.make_dataset_iterator(make_dataset())
        results = strategy.experimental_run_v2(step, args=(iterator.get_next(),))
        train = strategy.unwrap(results)
        (variable,) = [v for v in tf.global_variables() if "opaque_kernel" in v.name]
        replicas = strategy.unwrap(variable)
        # For a layer, save only what its saveable writes: the cells' tensors.
        saver = tf.train.Saver(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) or None)
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": len(DEVICES)})) as session:
            session.run([iterator.initialize(), tf.global_variables_initializer()])
            initial = session.run(replicas)
            for _ in range(TRAINING_STEPS):
                session.run(train)
            trained = session.run(replicas)
            path = saver.save(session, os.path.join(folder, "model"))
            session.run(tf.global_variables_initializer())
            saver.restore(session, path)
            return initial, trained, session.run(replicas)


def in_an_estimator(kind, strategy, folder):
    """Trains with RunConfig(train_distribute=MirroredStrategy()), as in the issue report.

    The first list that it returns is read after one step, not before training.
    """

    def model(features, labels, mode):
        del labels
        model = Model(kind)
        loss = model.loss(features)
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, step)
        metrics = {"params": tf.metrics.mean_tensor(model.params)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops=metrics)

    config = tf.estimator.RunConfig(
        folder,
        tf_random_seed=1,
        train_distribute=strategy,
        session_config=tf.ConfigProto(device_count={"CPU": len(DEVICES)}),
    )
    estimator = tf.estimator.Estimator(model, config=config)
    read = []
    for steps in (1, TRAINING_STEPS):
        estimator.train(make_dataset, steps=steps)
        path = tf.train.latest_checkpoint(folder)
        (name,) = [name for name, _ in tf.train.list_variables(path) if "opaque_kernel" in name]
        read.append(tf.train.load_variable(path, name))
    restored = estimator.evaluate(make_dataset, steps=1)["params"]
    return [read[0]], [read[1]], [restored]


def in_eager_mode(kind, strategy, folder):
    """Trains in TensorFlow 2: strategy.run in a tf.function, one model for all replicas."""
    tf.set_random_seed(1)
    with strategy.scope():
        model = Model(kind)
        if model.layer:
            model.layer.build([None, None, WIDTH])
        optimizer = tf.train.GradientDescentOptimizer(LEARNING_RATE)

    def replica_step(features):
        with tf.GradientTape() as tape:
            loss = model.loss(features) / strategy.num_replicas_in_sync
        optimizer.apply_gradients([(tape.gradient(loss, model.params), model.params)])

    def values():
        return [value.numpy() for value in strategy.experimental_local_results(model.params)]

    step = tensorflow.function(lambda features: strategy.run(replica_step, (features,)))
    dataset = strategy.experimental_distribute_dataset(make_dataset())
    initial = values()
    for _, features in zip(range(TRAINING_STEPS), dataset):
        step(features)
    trained = values()
    checkpoint = tf.train.Checkpoint(rnn=model.layer or model.params)
    path = checkpoint.save(os.path.join(folder, "model"))
    model.params.assign(tf.zeros_like(model.params))
    checkpoint.restore(path)
    return initial, trained, values()


if __name__ == "__main__":
    mode, folder = sys.argv[1:]
    contrib.install()  # TensorFlow 2.16 and newer get tf.estimator
    if mode == "estimator":
        tf.disable_v2_behavior()
    if mode == "eager":
        cpu = tensorflow.config.list_physical_devices("CPU")[0]
        tensorflow.config.set_logical_device_configuration(
            cpu, [tensorflow.config.LogicalDeviceConfiguration()] * len(DEVICES)
        )
    train = {"graph": in_a_graph, "estimator": in_an_estimator, "eager": in_eager_mode}[mode]
    results = {}
    for kind in ("layer", "op_level"):
        own_folder = os.path.join(folder, kind)
        os.mkdir(own_folder)
        tf.reset_default_graph()
        found = train(kind, tf.distribute.MirroredStrategy(DEVICES), own_folder)
        results[kind] = [np.asarray(values).tolist() for values in found]
    print(json.dumps(results))
