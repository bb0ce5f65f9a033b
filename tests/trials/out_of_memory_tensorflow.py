"""The part of the trial `out_of_memory` that runs in TensorFlow, under failing_allocations.cc.

Prints the numbers of cases and of failed allocations.
"""

import argparse
import ctypes
import gc
import os
import random
import resource
import sys

import numpy as np
import tensorflow.compat.v1 as tf

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import cudnn_rnn  # noqa: E402
from helpers import cases, op_harness, reference  # noqa: E402

SHIM = ctypes.CDLL(None)
# Allocations of the op library that may live longer than its sessions: entries of tables of pools
# and of kept weights, which the next ones replace.
FEW_LIVE = 64


class Ops:
    """A forward op and its gradient in a session of its own."""

    def __init__(self, rnn_mode, direction, dtype, version, threads):
        configuration = reference.Configuration(rnn_mode, "linear_input", direction, 2, 8, 5)
        self.arrays = cases.random_arrays(configuration, 3, 4, dtype, np.random.RandomState(0))
        if version == 3:
            self.arrays["sequence_lengths"] = np.array([4, 0, 2], np.int32)
        self._network = op_harness.Network(
            configuration,
            dtype,
            version=version,
            dropout=0.5,
            seed=3,
            config=op_harness.session_config(threads),
        )

    def run(self):
        """Returns the results by name."""
        return self._network.run(self.arrays)

    def close(self):
        """Closes the session."""
        self._network.session.close()


class Layer:
    """A layer that infers with its variables, its canonical parameters and its size."""

    def __init__(self, threads):
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(1)
            lstm = cudnn_rnn.layers.CudnnLSTM(2, 8, direction="bidirectional", name="lstm")
            output, _ = lstm(tf.ones([4, 3, 5]))
            self._fetches = {"output": output}
            for number, spec in enumerate(lstm.saveable.specs):
                self._fetches[str(number)] = spec.tensor
            config = op_harness.session_config(threads)
            self._session = tf.Session(graph=graph, config=config)
            self._session.run(tf.global_variables_initializer())

    def run(self):
        """Returns the results by name; packs weights in the second of three calls."""
        for _ in range(2):
            self._session.run(self._fetches["output"])
        return self._session.run(self._fetches)

    def close(self):
        """Closes the session."""
        self._session.close()


def makers():
    """Returns functions of a number of threads, which make a case; by name."""
    found = {"layer": Layer}
    for number, (rnn_mode, dtype) in enumerate(
        [("lstm", "float32"), ("gru", "float64"), ("rnn_tanh", "float16"), ("lstm", "float16")]
    ):
        direction = ("unidirectional", "bidirectional")[number % 2]
        for version in (1, 2, 3):
            name = "%s %s V%d" % (rnn_mode, dtype, version)
            found[name] = lambda threads, made=(rnn_mode, direction, dtype, version): Ops(
                *(made + (threads,))
            )
    return found


def require_equal(found, expected, text):
    for name, value in expected.items():
        if not np.array_equal(found[name], value):
            sys.exit("FAILED: %s differs, %s" % (name, text))


def run_with_failure(make, threads, expected, n, all_follow, text):
    """Runs a new case with allocation `n` failing; returns whether it was reached."""
    case = make(threads)
    SHIM.fail_allocation(ctypes.c_long(n), all_follow)
    try:
        found, error = case.run(), None
    except Exception as caught:  # of any kind: it is looked at below
        found, error = None, caught
    was_reached = bool(SHIM.stop_failing())
    if error is not None and not isinstance(error, tf.errors.ResourceExhaustedError):
        sys.exit("FAILED: %s\n%s: %s" % (text, type(error).__name__, error))
    if error is not None and not was_reached:
        sys.exit("FAILED: %s: an error although no allocation failed: %s" % (text, error))
    if found is not None:
        require_equal(found, expected, text)
    if was_reached:
        require_equal(case.run(), expected, "after " + text)
    case.close()
    return was_reached


def try_case(name, make, threads, stride):
    """Lets every allocation fail, or one in `stride`; returns how many did."""
    before = make(threads)
    # The op's dropout pattern differs from call to call; the session restarts it.
    expected = before.run()
    before.close()
    failures = 0
    for all_follow in (0, 1):
        n = 1
        num_unreached = 0
        while num_unreached < (1 if threads == 1 else 2):
            text = "%s, %d threads, allocation %d%s" % (
                name,
                threads,
                n,
                " and all after" if all_follow else "",
            )
            print(text, file=sys.stderr)
            if run_with_failure(make, threads, expected, n, all_follow, text):
                failures += 1
            else:
                num_unreached += 1
            # The first allocations are those of kernels' constructors.
            n += 1 if n < 4 else random.randint(1, 2 * stride - 1)
        if failures == 0:
            sys.exit("FAILED: %s makes no allocation that can fail" % name)
    return failures


def try_sizes_beyond_memory():
    """Asks for an output and a reserve space beyond a limit; returns how many were refused.

    Smaller allocations must fit: TensorFlow survives no failure of its own.
    """
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    configuration = reference.Configuration("lstm", "linear_input", "unidirectional", 1, 1024, 1)
    params = np.zeros(reference.params_size(configuration), np.float32)
    failures = 0
    for is_training, steps in [(False, 2**18), (True, 2**13)]:
        network = op_harness.Network(configuration, "float32", is_training=is_training)

        def run(steps, network=network):
            state = np.zeros([1, 64, 1024], np.float32)
            inputs = {"input": np.zeros([steps, 64, 1], np.float32), "params": params}
            return network.forward(dict(inputs, input_h=state, input_c=state))["output"]

        run(1)
        resource.setrlimit(resource.RLIMIT_AS, (used + 10 * 2**30, before[1]))
        try:
            run(steps)
            sys.exit("FAILED: %d steps fit into the limit" % steps)
        except tf.errors.ResourceExhaustedError:
            failures += 1
        if run(1).any():
            sys.exit("FAILED: other results after %d steps" % steps)
        resource.setrlimit(resource.RLIMIT_AS, before)
        network.session.close()
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1000)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    os.environ["TF_CUDNN_RESET_RND_GEN_STATE"] = "1"
    SHIM.live_allocations.restype = ctypes.c_long
    SHIM.fail_allocation(0, 0)
    tried = sorted(makers().items())
    random.shuffle(tried)
    tried.sort(key=lambda case: case[0] != "layer")  # in short runs, too
    tried = tried[: arguments.cases]
    failures = 0
    for name, make in tried:
        for threads in (1, 3):
            failures += try_case(name, make, threads, arguments.stride)
    failures += try_sizes_beyond_memory()
    gc.collect()
    live = SHIM.live_allocations()
    if live > FEW_LIVE:
        sys.exit("FAILED: %d allocations live after the last session" % live)
    print("%d %d %d" % (len(tried), failures, live))


if __name__ == "__main__":
    main()
