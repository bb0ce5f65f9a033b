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
from helpers import cases, op_harness, reference  # noqa: E402

ROUNDS = 80
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


def write(lengths, is_over):
    """Until `is_over`, writes a wrong length at a random index and then the right one again."""
    choose = random.Random(0)
    while not is_over.is_set():
        place = choose.randrange(BATCH)
        lengths[place] = choose.choice((TOO_LARGE, -TOO_LARGE))
        lengths[place] = LENGTH


def main():
    configuration = reference.Configuration("lstm", "linear_input", "unidirectional", 1, 1, 1)
    arrays = cases.random_arrays(configuration, BATCH, STEPS, "float32", np.random.RandomState(0))
    lengths = aligned(np.full(BATCH, LENGTH, np.int32))
    arrays["sequence_lengths"] = lengths
    is_over = threading.Event()
    writer = threading.Thread(target=write, args=(lengths, is_over))
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
            is_over.set()
            writer.join()
    print(rounds)


if __name__ == "__main__":
    main()
