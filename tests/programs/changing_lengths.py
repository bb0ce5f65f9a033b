"""Runs CudnnRNNV3 and its gradient while a thread writes into the fed sequence_lengths.

TensorFlow does not copy a fed NumPy array whose memory is aligned, so the kernels see the thread's
writes. Every round must return results or refuse the lengths. Prints the number of rounds.
"""

import os
import random
import sys
import threading

import numpy as np
import tensorflow.compat.v1 as tf

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from helpers import op_harness, reference  # noqa: E402

ROUNDS = 200
STEPS = 8
LENGTH = 7
BATCH = 20000
TOO_LARGE = 2**30


def aligned(array):
    """Returns a copy of the array at an address that TensorFlow uses without copying."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


class Writer(threading.Thread):
    """Until `is_over`, writes a wrong length at a random index and then the right one again."""

    def __init__(self, lengths):
        super().__init__()
        self.lengths = lengths
        self.is_over = False

    def run(self):
        choose = random.Random(0)
        while not self.is_over:
            place = choose.randrange(BATCH)
            self.lengths[place] = choose.choice((TOO_LARGE, -TOO_LARGE))
            self.lengths[place] = LENGTH


def make_arrays():
    """Returns the smallest model's configuration and all its inputs except the lengths."""
    configuration = reference.Configuration("lstm", "linear_input", "unidirectional", 1, 1, 1)
    ones = np.ones((1, BATCH, 1), np.float32)
    arrays = {"params": np.ones(16, np.float32), "input": np.ones((STEPS, BATCH, 1), np.float32)}
    arrays["output_backprop"] = arrays["input"]
    for name in ("input_h", "input_c", "output_h_backprop", "output_c_backprop"):
        arrays[name] = ones
    return configuration, arrays


def main():
    configuration, arrays = make_arrays()
    arrays["sequence_lengths"] = aligned(np.full(BATCH, LENGTH, np.int32))
    writer = Writer(arrays["sequence_lengths"])
    rounds = 0
    with op_harness.Network(configuration, "float32", version=3) as network:
        network.run(arrays)
        writer.start()
        try:
            for _ in range(ROUNDS):
                try:
                    network.run(arrays)
                except tf.errors.InvalidArgumentError as error:
                    assert "sequence_lengths" in str(error), error
                rounds += 1
        finally:
            writer.is_over = True
            writer.join()
    print(rounds)


if __name__ == "__main__":
    main()
