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


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainers", type=int, default=3, help="sessions that train (default 3)")
    parser.add_argument("--multipliers", type=int, default=0, help="sessions that multiply")
    parser.add_argument("--decoders", type=int, default=2, help="decode loops (default 2)")
    parser.add_argument("--threads", type=int, default=2, help="intra-op threads (default 2)")
    parser.add_argument("--layers", type=int, default=4, help="layers that train (default 4)")
    parser.add_argument("--units", type=int, default=1024, help="units that train (default 1024)")
    parser.add_argument("--decoder-units", type=int, default=512, help="(default 512)")
    parser.add_argument("--steps", type=int, default=20000, help="of a loop (default 20000)")
    parser.add_argument("--rounds", type=int, default=1, help="loops, one after the other")
    parser.add_argument("--seconds", type=float, help="repeat the loops for so long instead")
    return parser.parse_args(arguments)


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


class Decoder:
    """A session with a decode loop: an LSTM with batch 1, one time step per iteration."""

    def __init__(self, arguments, config):
        units = arguments.decoder_units
        with tf.Graph().as_default():
            lstm = cudnn_rnn.CudnnLSTM(1, units, units)
            params = tf.constant(
                np.random.RandomState(1).uniform(-0.1, 0.1, [self._num_params(lstm)]), tf.float32
            )

            def step(index, x, h, c):
                x, h, c = lstm(x, h, c, params, False)
                return index + 1, x, h, c

            zeros = tf.zeros([1, 1, units])
            self._loop = tf.while_loop(
                lambda index, *_: index < arguments.steps, step, [0, zeros, zeros, zeros]
            )
            self._session = tf.Session(config=config)
        self.seconds = []

    @staticmethod
    def _num_params(lstm):
        with tf.Session() as session:
            return session.run(lstm.params_size())

    def run(self):
        started = time.time()
        result = self._session.run(self._loop)
        self.seconds.append(time.time() - started)
        return result


def main(arguments):
    arguments = parse_arguments(arguments)
    config = tf.ConfigProto(intra_op_parallelism_threads=arguments.threads)
    trainers = [Trainer(arguments, config) for _ in range(arguments.trainers)]
    multipliers = [Multiplier(config) for _ in range(arguments.multipliers)]
    decoders = [Decoder(arguments, config) for _ in range(arguments.decoders)]
    alone = [decoder.run() for decoder in decoders]
    print("alone: %s s" % ["%.2f" % decoder.seconds[0] for decoder in decoders], flush=True)

    stopping = threading.Event()
    end = None if arguments.seconds is None else time.time() + arguments.seconds
    wrong = []

    def decode(index):
        done = 0
        while done < arguments.rounds if end is None else time.time() < end:
            result = decoders[index].run()
            done += 1
            if not all(np.array_equal(*pair) for pair in zip(result, alone[index])):
                wrong.append(index)
            print("decoder %d, loop %d: %.1f s" % (index, done, decoders[index].seconds[-1]))
            sys.stdout.flush()

    training = [
        threading.Thread(target=worker.run, args=(stopping,)) for worker in trainers + multipliers
    ]
    decoding = [threading.Thread(target=decode, args=(i,)) for i in range(len(decoders))]
    for thread in training + decoding:
        thread.start()
    for thread in decoding:
        thread.join()
    stopping.set()
    for thread in training:
        thread.join()
    print(
        "%d loops of %d steps, the slowest %.1f s; %d training steps; %d wrong results"
        % (
            sum(len(decoder.seconds) - 1 for decoder in decoders),
            arguments.steps,
            max(max(decoder.seconds[1:]) for decoder in decoders),
            sum(trainer.num_steps for trainer in trainers),
            len(wrong),
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
