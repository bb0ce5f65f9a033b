"""Trains with parameter servers, `tf.train.Server` and `MonitoredTrainingSession`.

Start one process for each task of the cluster, such as

    hosts="--ps host1:2222 --workers host2:2222,host3:2222"
    python examples/parameter_server_training.py $hosts --job ps --task 0
    python examples/parameter_server_training.py $hosts --job worker --task 1
    python examples/parameter_server_training.py $hosts --job worker --task 0 --folder checkpoints

Variables are on the parameter servers. Worker 0 is the chief: it runs a session in which every
worker computes the gradients of its share of the batch, and writes checkpoints. A parameter server
or a worker that fails may be started again with the same command: the chief waits for it, restores
the last checkpoint and continues. So does a chief that is started again. The chief ends after the
last step. The others wait for it to be started again: stop them with Ctrl-C or kill.

The program runs in TensorFlow 1.15 and 2. Every process imports cudnn_rnn, which registers the ops.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow.compat.v1 as tf  # noqa: E402
from noisy_waves import TIME, WIDTH, make_batch  # noqa: E402

import cudnn_rnn  # noqa: E402

UNITS = 16


def make_loss(inputs, targets):
    """Returns the sum over the sequences of their mean squared errors.

    inputs: [batch, TIME, WIDTH]; targets: [batch, TIME, 1].
    """
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        rnn = cudnn_rnn.CudnnLSTM(1, UNITS, WIDTH)
        initial_value = tf.random_uniform([rnn.params_size()], -0.2, 0.2, seed=1)
        params = tf.get_variable("rnn_params", initializer=initial_value)
        initial_value = tf.random_uniform([UNITS, 1], -0.2, 0.2, seed=2)
        kernel = tf.get_variable("kernel", initializer=initial_value)
    if not tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS):  # the first worker's share
        saveable = cudnn_rnn.RNNParamsSaveable(
            rnn, rnn.params_to_canonical, rnn.canonical_to_params, [params], "model/rnn"
        )
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    state = tf.zeros([1, tf.shape(inputs)[0], UNITS])
    outputs = rnn(tf.transpose(inputs, [1, 0, 2]), state, state, params, is_training=True)[0]
    predictions = tf.tensordot(tf.transpose(outputs, [1, 0, 2]), kernel, 1)
    return tf.reduce_sum(tf.reduce_mean(tf.square(predictions - targets), [1, 2]))


def make_training(cluster, options):
    """Builds the graph: a copy of the model for each worker; returns step, loss and train op."""
    num_workers = cluster.num_tasks("worker")
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")
    with tf.device(setter):
        step = tf.train.get_or_create_global_step()
    with tf.device("/job:worker/task:0/cpu:0"):
        number = step + 0  # a copy, read before the step is incremented
        types = (tf.float32, tf.float32)
        inputs, targets = tf.numpy_function(lambda n: make_batch(n, options.batch), [number], types)
        inputs.set_shape([options.batch, TIME, WIDTH])
        targets.set_shape([options.batch, TIME, 1])
    optimizer = tf.train.AdamOptimizer(0.01)
    losses, gradients = [], []
    shares = zip(tf.split(inputs, num_workers), tf.split(targets, num_workers))
    for task, (inputs, targets) in enumerate(shares):
        worker = "/job:worker/task:%d" % task
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
            losses.append(make_loss(inputs, targets) / options.batch)
            gradients.append(optimizer.compute_gradients(losses[-1]))
    sums = []
    for pairs in zip(*gradients):
        variable = pairs[0][1]
        with tf.device(variable.device):  # on its parameter server
            sums.append((tf.add_n([gradient for gradient, _ in pairs]), variable))
    with tf.device(setter):
        loss = tf.add_n(losses)
        train = optimizer.apply_gradients(sums, step)
    return number, loss, train


def train_as_chief(server_target, cluster, options, after_step):
    """Runs the steps that the checkpoint in `options.folder` lacks; prints their losses."""
    with tf.Graph().as_default():
        run_each_step = make_training(cluster, options)
        saver = tf.train.Saver(sharded=True)  # every parameter server writes its own part
        with tf.train.MonitoredTrainingSession(
            master=server_target,
            is_chief=True,
            checkpoint_dir=options.folder,
            scaffold=tf.train.Scaffold(saver=saver),
            save_checkpoint_steps=options.save_steps,
            log_step_count_steps=None,
            hooks=[tf.train.StopAtStepHook(last_step=options.steps)],
        ) as session:
            while not session.should_stop():
                number, loss, _ = session.run(run_each_step)
                print("step %d loss %.8f" % (number, loss), flush=True)
                after_step(number)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps", required=True, help="addresses of the parameter servers: a:1,b:2")
    parser.add_argument("--workers", required=True, help="addresses of the workers")
    parser.add_argument("--job", choices=["ps", "worker"], required=True)
    parser.add_argument("--task", type=int, required=True)
    parser.add_argument("--folder", help="for checkpoints; all parameter servers can write there")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-steps", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--batch", type=int, default=16, help="size of the global batch")
    options = parser.parse_args(arguments)
    num_workers = len(options.workers.split(","))
    if options.batch < 1 or options.batch % num_workers:
        text = "--batch is %d; expected a multiple of %d, the number of workers"
        parser.error(text % (options.batch, num_workers))
    return options


def main(arguments=None, after_step=lambda number: None):
    options = parse_arguments(arguments)
    tf.disable_v2_behavior()
    hosts = {"ps": options.ps.split(","), "worker": options.workers.split(",")}
    cluster = tf.train.ClusterSpec(hosts)
    server = tf.train.Server(cluster, options.job, options.task)
    if (options.job, options.task) == ("worker", 0):
        train_as_chief(server.target, cluster, options, after_step)
    else:
        print("serving until it is stopped: kill %d" % os.getpid(), flush=True)
        server.join()  # never returns


if __name__ == "__main__":
    main()
