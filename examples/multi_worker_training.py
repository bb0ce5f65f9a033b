"""Trains on several machines with `tf.distribute.MultiWorkerMirroredStrategy`.

Start one process on each machine, with the same addresses and its own index:

    hosts="--workers host1:2222,host2:2222"
    python examples/multi_worker_training.py $hosts --task 0 --folder checkpoints
    python examples/multi_worker_training.py $hosts --task 1 --folder checkpoints

Every worker computes the gradients of its share of the batch, and all add them up. If a worker
fails, the others end with an error; start all of them again, and they continue after the last
checkpoint. Worker 0 writes the checkpoints to a folder that every worker can read.

The losses do not depend on the number of workers. Needs TensorFlow 2.11 or newer.
"""

import argparse
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from demo_options import number  # noqa: E402
from noisy_waves import TIME, WIDTH, make_batch  # noqa: E402
from tensorflow import keras  # noqa: E402

import cudnn_rnn.keras  # noqa: E402


def own_rows(array, context):
    """Returns a replica's rows of the global batch; the replicas' shares differ by at most one row.

    A share may be empty: its loss and gradients are zeros (tested on a CPU).
    """
    replica, replicas = context.replica_id_in_sync_group, context.num_replicas_in_sync
    return array[len(array) * replica // replicas : len(array) * (replica + 1) // replicas]


class Training:
    """A model, its optimizer and the number of steps done, which are saved together."""

    def __init__(self, strategy, options):
        self._strategy = strategy
        self._options = options
        keras.utils.set_random_seed(1)
        with strategy.scope():
            layers = [
                keras.Input((TIME, WIDTH)),
                cudnn_rnn.keras.LSTM(16, return_sequences=True),
                keras.layers.Dense(1),
            ]
            self._model = keras.Sequential(layers)
            self._optimizer = keras.optimizers.Adam(0.01)
            self._optimizer.build(self._model.trainable_variables)
            self._steps_done = tf.Variable(0, dtype=tf.int64, trainable=False)
        checkpoint = tf.train.Checkpoint(
            model=self._model, optimizer=self._optimizer, steps_done=self._steps_done
        )
        # All workers take part in saving, but only worker 0 writes files that are kept.
        is_chief = options.task == 0
        folder = options.folder if is_chief else "%s/worker%d" % (options.folder, options.task)
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
        path = tf.train.latest_checkpoint(options.folder)
        if path:
            checkpoint.restore(path)

    def run(self, after_step):
        for step in range(int(self._steps_done.numpy()), self._options.steps):
            inputs, targets = make_batch(step, self._options.batch)
            print("step %d loss %.8f" % (step, self._step(*self._own_share(inputs, targets))))
            self._steps_done.assign(step + 1)
            if (step + 1) % self._options.save_steps == 0:
                self._manager.save(step + 1)
            sys.stdout.flush()
            after_step(step)

    def _own_share(self, *arrays):
        """Yields this worker's part of each array, as one value for each of its devices."""
        for array in arrays:
            yield self._strategy.experimental_distribute_values_from_function(
                lambda context, array=array: tf.constant(own_rows(array, context))
            )

    @tf.function
    def _step(self, inputs, targets):
        losses = self._strategy.run(self._replica_step, (inputs, targets))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _replica_step(self, inputs, targets):
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape:
            errors = self._model(inputs, training=True) - targets
            loss = tf.reduce_sum(tf.reduce_mean(tf.square(errors), [1, 2])) / self._options.batch
        self._optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add, whole = parser.add_argument, number(int, 1)
    add("--workers", required=True, help="addresses: host1:2222,host2:2222")
    add("--task", type=number(int, 0), required=True, help="index of this worker")
    add("--folder", required=True, help="for checkpoints")
    add("--steps", type=whole, default=200)
    add("--save-steps", type=whole, default=50, help="steps between checkpoints")
    add("--batch", type=whole, default=16, help="size of the global batch")
    options = parser.parse_args(arguments)
    if not hasattr(keras.optimizers.Adam, "build"):
        parser.error("requires TensorFlow 2.11 or newer; this is TensorFlow %s" % tf.__version__)
    return options


def main(arguments=None, after_step=lambda number: None):
    options = parse_arguments(arguments)
    task = {"type": "worker", "index": options.task}
    cluster = {"worker": options.workers.split(",")}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    Training(strategy, options).run(after_step)


if __name__ == "__main__":
    main()
