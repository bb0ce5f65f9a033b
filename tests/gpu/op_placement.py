"""Places the ops under test on the chosen device, and runs programs in processes of their own."""

import contextlib
import os
import subprocess
import sys

import tensorflow.compat.v1 as tf

from helpers import mock_kernels
from helpers.op_harness import Network, kernel_labels

FOLDER = os.path.dirname(os.path.abspath(__file__))
# With --core-device=mock, a name of the CPU on which nodes run the GPU's kernels over the mock.
MOCK_DEVICE = "/device:CPU:0"


def growing_config():
    """Allocates GPU memory on demand, as other processes use the same GPU."""
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    return config


def label_for(device):
    """Returns the kernel label of nodes on the device; loads the mock of cuDNN if it is needed."""
    if device != MOCK_DEVICE:
        return ""
    mock_kernels.load()
    return mock_kernels.LABEL


@contextlib.contextmanager
def on(device):
    """Places the nodes of a graph on the device."""
    with tf.device(device), kernel_labels(label_for(device)):
        yield


def make_network(configuration, dtype, device, config=None, **options):
    """Returns a `Network` on the device."""
    options.update(device=device, kernel_label=label_for(device))
    return Network(configuration, dtype, config=config or growing_config(), **options)


def run_program(program, *arguments, **environment):
    """Runs the program with this folder's modules; returns its lines that start with RESULT.

    `environment`: variables to set, or to remove if None.
    """
    folders = os.pathsep.join([FOLDER, os.path.dirname(FOLDER)])
    variables = dict(os.environ, **environment)
    process = subprocess.run(
        [sys.executable, "-c", program, folders] + [str(argument) for argument in arguments],
        env={name: value for name, value in variables.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        # Less than --test-seconds of lease B, so that a test ends its process first.
        timeout=65 * int(os.environ.get("TIME_FACTOR", "1")),
    )
    assert process.returncode == 0, (process.returncode, process.stdout[-4000:])
    return "\n".join(line for line in process.stdout.splitlines() if line.startswith("RESULT"))
