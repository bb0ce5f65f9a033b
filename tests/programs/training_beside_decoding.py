"""Runs training, matrix products and decode loops in one process with few shared threads.

Training and large products keep the threads of the intra-op pool busy while a decode loop requests
helper threads in every step; a call once deadlocked this way. Prints a line for each loop and a
summary; `test_teams_under_load.py` runs a short form.
"""

import argparse
import os
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

import cudnn_rnn  # noqa: E402

# Defaults of the options: sessions that train, multiply and decode; intra-op threads; layers and
# units that train; units and time steps of a decode loop; loops, one after the other.
OPTIONS = {
    "trainers": 3,
    "multipliers": 0,
    "decoders": 2,
    "threads": 2,
    "layers": 4,
    "units": 1024,
    "decoder-units": 512,
    "steps": 20000,
    "rounds": 1,
}


class Worker:
    """A session that runs one op until it is stopped."""

    def __init__(self, operation, config):
        self._operation = operation
        self._session = tf.Session(config=config)
        self._session.run(tf.global_variables_initializer())
        self.num_steps = 0

    def run(self, stopping):
        while not stopping.is_set():
            self._session.run(self._operation)
            self.num_steps += 1


class Trainer(Worker):
    """Trains an LSTM with batch 64 and 50 steps."""

    def __init__(self, arguments, config):
        batch, steps, units = 64, 50, arguments.units
        with tf.Graph().as_default():
            lstm = cudnn_rnn.CudnnLSTM(arguments.layers, units, units)
            params = tf.get_variable("params", initializer=tf.zeros([lstm.params_size()]))
            state = tf.zeros([arguments.layers, batch, units])
            outputs = lstm(tf.ones([steps, batch, units]), state, state, params, True)[0]
            loss = tf.reduce_mean(tf.square(outputs - 0.5))
            super().__init__(tf.train.GradientDescentOptimizer(0.1).minimize(loss), config)


class Multiplier(Worker):
    """Multiplies large matrices, which TensorFlow divides among all threads of its pool."""

    def __init__(self, config):
        with tf.Graph().as_default():
            factors = tf.get_variable("factors", initializer=tf.ones([4096, 4096]))
            super().__init__(tf.linalg.matmul(factors, factors)[0, 0], config)


def make_decoder(arguments, config):
    """Returns a function that runs a decode loop: batch 1, one time step per iteration."""
    units = arguments.decoder_units
    with tf.Graph().as_default():
        lstm = cudnn_rnn.CudnnLSTM(1, units, units)
        size = tf.get_static_value(lstm.params_size())
        params = tf.constant(np.random.RandomState(1).uniform(-0.1, 0.1, [size]), tf.float32)

        def step(index, x, h, c):
            return (index + 1,) + tuple(lstm(x, h, c, params, False))

        zeros = tf.zeros([1, 1, units])
        loop = tf.while_loop(
            lambda index, *_: index < arguments.steps, step, [0, zeros, zeros, zeros]
        )
        return tf.Session(config=config).make_callable(loop)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in OPTIONS.items():
        parser.add_argument("--" + name, type=int, default=default)
    arguments = parser.parse_args()
    config = tf.ConfigProto(intra_op_parallelism_threads=arguments.threads)
    workers = [Trainer(arguments, config) for _ in range(arguments.trainers)]
    workers += [Multiplier(config) for _ in range(arguments.multipliers)]
    decoders = [make_decoder(arguments, config) for _ in range(arguments.decoders)]
    stopping, results = threading.Event(), []

    def run_loop(index):
        started = time.time()
        result = decoders[index]()
        print("decoder %d: %.2f s" % (index, time.time() - started), flush=True)
        return result

    alone = [run_loop(index) for index in range(len(decoders))]

    def decode(index):
        for _ in range(arguments.rounds):
            pairs = zip(run_loop(index), alone[index])
            results.append(all(np.array_equal(*pair) for pair in pairs))

    training = [threading.Thread(target=worker.run, args=(stopping,)) for worker in workers]
    decoding = [threading.Thread(target=decode, args=(i,)) for i in range(len(decoders))]
    for thread in training + decoding:
        thread.start()
    for thread in decoding:
        thread.join()
    stopping.set()
    for thread in training:
        thread.join()
    print(
        "%d loops of %d steps; %d training steps; %d wrong results"
        % (
            len(results),
            arguments.steps,
            sum(worker.num_steps for worker in workers),
            results.count(False),
        )
    )
    return results.count(False)


if __name__ == "__main__":
    sys.exit(main())
