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


def train(arguments):
    """Builds a training step of an LSTM with batch 64 and 50 time steps."""
    batch, steps, units = 64, 50, arguments.units
    lstm = cudnn_rnn.CudnnLSTM(arguments.layers, units, units)
    params = tf.get_variable("params", initializer=tf.zeros([lstm.params_size()]))
    state = tf.zeros([arguments.layers, batch, units])
    outputs = lstm(tf.ones([steps, batch, units]), state, state, params, True)[0]
    loss = tf.reduce_mean(tf.square(outputs - 0.5))
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def multiply(unused_arguments):
    """Builds a product of large matrices, which TensorFlow divides among all its threads."""
    factors = tf.get_variable("factors", initializer=tf.ones([4096, 4096]))
    return tf.linalg.matmul(factors, factors)[0, 0]


def decode(arguments):
    """Builds a decode loop: an LSTM with batch 1, one time step per iteration."""
    units = arguments.decoder_units
    lstm = cudnn_rnn.CudnnLSTM(1, units, units)
    size = tf.get_static_value(lstm.params_size())
    params = tf.constant(np.random.RandomState(1).uniform(-0.1, 0.1, [size]), tf.float32)

    def step(index, x, h, c):
        return (index + 1,) + tuple(lstm(x, h, c, params, False))

    zeros = tf.zeros([1, 1, units])
    return tf.while_loop(lambda index, *_: index < arguments.steps, step, [0, zeros, zeros, zeros])


def make_callables(count, build, arguments):
    """Returns functions that run what `build` builds, each in a session of its own."""
    callables = []
    for _ in range(count):
        with tf.Graph().as_default():
            operation = build(arguments)
            config = tf.ConfigProto(intra_op_parallelism_threads=arguments.threads)
            session = tf.Session(config=config)
            session.run(tf.global_variables_initializer())
            callables.append(session.make_callable(operation))
    return callables


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in OPTIONS.items():
        parser.add_argument("--" + name, type=int, default=default)
    arguments = parser.parse_args()
    workers = make_callables(arguments.trainers, train, arguments)
    workers += make_callables(arguments.multipliers, multiply, arguments)
    decoders = make_callables(arguments.decoders, decode, arguments)
    stopping, steps, results = threading.Event(), [], []

    def work(run):
        while not stopping.is_set():
            steps.append(run())

    def run_loop(index):
        started = time.time()
        result = decoders[index]()
        print("decoder %d: %.2f s" % (index, time.time() - started), flush=True)
        return result

    alone = [run_loop(index) for index in range(len(decoders))]

    def run_loops(index):
        for _ in range(arguments.rounds):
            pairs = zip(run_loop(index), alone[index])
            results.append(all(np.array_equal(*pair) for pair in pairs))

    working = [threading.Thread(target=work, args=(run,)) for run in workers]
    decoding = [threading.Thread(target=run_loops, args=(i,)) for i in range(len(decoders))]
    for thread in working + decoding:
        thread.start()
    for thread in decoding:
        thread.join()
    stopping.set()
    for thread in working:
        thread.join()
    num_loops, num_wrong = len(results), results.count(False)
    print(
        "%d loops of %d steps beside %d steps of training and products; %d wrong results"
        % (num_loops, arguments.steps, len(steps), num_wrong)
    )
    return 1 if num_wrong or num_loops < len(decoders) * arguments.rounds else 0


if __name__ == "__main__":
    sys.exit(main())
