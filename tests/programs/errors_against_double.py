"""Prints the errors of one dtype against double: errors_against_double.py float32

Weights, inputs and states are random and rounded to the dtype before both runs. An error is the
largest difference of a result divided by its largest magnitude. CUDNN_RNN_CPU_INSTRUCTION_SET
chooses the kernels of the dtype; double has its own.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import cudnn_rnn

tf1 = tf.compat.v1

# Class, layers, units, batch size, steps.
MODELS = [
    (cudnn_rnn.CudnnLSTM, 2, 200, 20, 20),
    (cudnn_rnn.CudnnLSTM, 2, 650, 20, 35),
    (cudnn_rnn.CudnnLSTM, 4, 512, 64, 50),
    (cudnn_rnn.CudnnGRU, 2, 650, 64, 35),
    (cudnn_rnn.CudnnRNNTanh, 2, 400, 32, 50),
]


def run(model, dtype, values):
    """Returns output, gradient of input, gradient of params."""
    cls, layers, units, batch, steps = model
    with tf.Graph().as_default(), tf1.Session() as session:
        rnn = cls(layers, units, units, dtype=dtype)
        x, h, c, params, gradient = [tf.cast(tf.constant(value), dtype) for value in values]
        states = (h, c) if cls is cudnn_rnn.CudnnLSTM else (h,)
        output = rnn(x, *states, params=params, is_training=True)[0]
        results = (output, *tf.gradients(output, [x, params], gradient))
        return session.run([tf.cast(result, tf.float64) for result in results])


def main(dtype):
    generator = np.random.RandomState(5)
    print("%-22s %10s %10s %10s" % ("model", "output", "d input", "d params"))
    for model in MODELS:
        cls, layers, units, batch, steps = model
        with tf.Graph().as_default(), tf1.Session() as session:
            num_params = session.run(cls(layers, units, units, dtype=tf.float64).params_size())
        shapes = [(steps, batch, units), (layers, batch, units), (layers, batch, units)]
        values = [generator.uniform(-1, 1, shape) for shape in shapes]
        values.append(generator.uniform(-1, 1, num_params) / np.sqrt(units))
        values.append(generator.uniform(-1, 1, shapes[0]))
        rounded = [tf.cast(tf.cast(value, dtype), tf.float64).numpy() for value in values]
        pairs = zip(run(model, dtype, rounded), run(model, tf.float64, rounded))
        errors = [np.abs(found - exact).max() / np.abs(exact).max() for found, exact in pairs]
        name = "%s %dx%d b%d" % (cls.__name__[5:], layers, units, batch)
        print("%-22s %10.1e %10.1e %10.1e" % (name, *errors), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("float16", "bfloat16", "float32"):
        sys.exit(__doc__)
    main(tf.as_dtype(sys.argv[1]))
