"""Runs an unchanged test file of TensorFlow's tf.contrib.cudnn_rnn with this library.

    python tests/programs/run_published_tests.py FILE --release 1.15 [ARGUMENTS OF THE FILE]

The files belong to TensorFlow and are not in this repository: take
tensorflow/contrib/cudnn_rnn/python/kernel_tests/cudnn_rnn_ops_test.py or cudnn_rnn_test.py from the
sources of a release. They import internals of TensorFlow, so run them with TensorFlow 1.15.

The tests skip themselves without a GPU. On a machine without one, this program makes TensorFlow
report a GPU, and ops that the tests pin to the GPU run on the CPU.
"""

import argparse
import runpy
import sys

import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops, test_util
from tensorflow.python.platform import test

import cudnn_rnn.contrib


def pretend_to_have_a_gpu():
    """Makes TensorFlow report a GPU, so that tests that require one run."""

    def yes(*arguments, **named):
        return True

    test.is_built_with_cuda = test.is_gpu_available = yes
    test_util.is_gpu_available = test_util.IsGoogleCudaEnabled = yes
    # Sessions use soft placement for ops pinned to a missing device; eager ops cannot.
    device = ops.device

    def device_that_is_there(name):
        is_gpu = isinstance(name, str) and "gpu" in name.lower()
        return device("cpu:0" if is_gpu and context.executing_eagerly() else name)

    ops.device = device_that_is_there


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="the test file")
    parser.add_argument("--release", required=True, help='of TensorFlow, the file\'s, like "1.15"')
    # All other arguments, such as names of tests, are for the file.
    arguments, for_the_file = parser.parse_known_args()
    if not tf.VERSION.startswith("1.15"):
        parser.error("the files run with TensorFlow 1.15, but this is %s" % tf.VERSION)
    if not tf.test.is_gpu_available():
        pretend_to_have_a_gpu()
    cudnn_rnn.contrib.install(version=arguments.release)
    sys.argv = [arguments.file] + for_the_file
    runpy.run_path(arguments.file, run_name="__main__")


if __name__ == "__main__":
    main()
