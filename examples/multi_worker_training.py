"""Trains on several machines with `tf.distribute.MultiWorkerMirroredStrategy`.

Start one process on each machine, with the same addresses and its own index:

    hosts="--workers host1:2222,host2:2222"
    python examples/multi_worker_training.py $hosts --task 0 --folder checkpoints
    python examples/multi_worker_training.py $hosts --task 1 --folder checkpoints

Every worker computes the gradients of its share of the batch, and all add them up. If a worker
fails, the others end with an error; start all of them again, and they continue after the last
checkpoint. Worker 0 writes the checkpoints to a folder that every worker can read.

The losses do not depend on the number of workers. Needs TensorFlow 2.
"""

import argparse
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
from noisy_waves import TIME, WIDTH, make_batch  # noqa: E402
from tensorflow import keras  # noqa: E402

import cudnn_rnn.keras  # noqa: E402


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
        for number in range(int(self._steps_done.numpy()), self._options.steps):
            inputs, targets = make_batch(number, self._options.batch)
            print("step %d loss %.8f" % (number, self._step(*self._own_share(inputs, targets))))
            self._steps_done.assign(number + 1)
            if (number + 1) % self._options.save_steps == 0:
                self._manager.save(number + 1)
            sys.stdout.flush()
            after_step(number)

    def _own_share(self, *arrays):
        """Returns this worker's part of the global batch, as one value for its one device."""
        size = self._options.batch // self._strategy.num_replicas_in_sync
        start = self._options.task * size
        for array in arrays:
            yield self._strategy.experimental_distribute_values_from_function(
                lambda context, array=array: tf.constant(array[start : start + size])
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
    parser.add_argument("--workers", required=True, help="addresses: host1:2222,host2:2222")
    parser.add_argument("--task", type=int, required=True, help="index of this worker")
    parser.add_argument("--folder", required=True, help="for checkpoints")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-steps", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--batch", type=int, default=16, help="size of the global batch")
    return parser.parse_args(arguments)


def main(arguments=None, after_step=lambda number: None):
    options = parse_arguments(arguments)
    task = {"type": "worker", "index": options.task}
    cluster = {"worker": options.workers.split(",")}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    Training(strategy, options).run(after_step)


if __name__ == "__main__":
    main()
