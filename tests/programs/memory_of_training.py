"""Prints, after each training step of an LSTM, the memory of the process in bytes.

Two numbers per line: the blocks that malloc has mapped, and by how much the steps have raised the
peak of the resident memory. With MALLOC_MMAP_THRESHOLD_=65536, glibc maps each block of 64 KiB or
more, and unmaps it when it is freed. With TF_ENABLE_ONEDNN_OPTS=0, TensorFlow calls malloc.
"""

import argparse
import ctypes
import re

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn

WARM_UP_STEPS, STEPS = 2, 6


class MallocInfo(ctypes.Structure):
    """Struct mallinfo of malloc.h; `hblkhd` are the bytes of mapped blocks."""

    _fields_ = [
        (name, ctypes.c_int)
        for name in (
            "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
        )
    ]


def status_bytes(name):
    with open("/proc/self/status") as file:
        return int(re.search(name + r":\s*(\d+) kB", file.read()).group(1)) * 1024


def training_step(layers, units, batch, steps):
    """Returns a function that computes the gradient of `params` once."""
    model = cudnn_rnn.CudnnLSTM(layers, units, units)
    random = np.random.RandomState(0)
    shapes = [(steps, batch, units), (8 * layers * units * (units + 1),)]
    placeholders = [tf.placeholder(tf.float32, shape) for shape in shapes]
    x, params = [tf.Variable(placeholder) for placeholder in placeholders]
    states = [tf.zeros([layers, batch, units])] * 2
    output, _, _ = model(x, *states, params=params, is_training=True)
    gradient = tf.gradients(tf.reduce_sum(output**2), params)[0]
    session = tf.Session()
    values = [random.uniform(-0.05, 0.05, shape) for shape in shapes]
    session.run(tf.global_variables_initializer(), dict(zip(placeholders, values)))
    return session.make_callable(gradient.op)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = {"layers": 2, "units": 96, "batch": 32, "steps": 20}
    for name, default in sizes.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--warm-up-steps", type=int, default=WARM_UP_STEPS)
    parser.add_argument("--training-steps", type=int, default=STEPS)
    chosen = parser.parse_args()
    tf.disable_v2_behavior()
    step = training_step(*[getattr(chosen, name) for name in sizes])
    malloc = ctypes.CDLL(None)
    malloc.mallinfo.restype = MallocInfo
    for _ in range(chosen.warm_up_steps):
        step()
    malloc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets VmHWM to the current resident memory
    before = status_bytes("VmRSS")
    for _ in range(chosen.training_steps):
        step()
        print(malloc.mallinfo().hblkhd, status_bytes("VmHWM") - before)


if __name__ == "__main__":
    main()
