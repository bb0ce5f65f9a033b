"""What users get: CUDNN_RNN_GPU_KERNELS unset, in a process of its own, compared with the CPU.

With TensorFlow 2.18 and newer, this package's kernels then run its own nodes and all conversions of
parameters, and TensorFlow's run the CudnnRNNV3 nodes that Keras makes.
"""

import pytest
from op_placement import run_program

PARTS = ("graph", "graph_with_lengths", "eager", "eager_with_lengths", "conversions", "keras")

PROGRAM = """
import sys, os, traceback
sys.path[:0] = sys.argv[1].split(os.pathsep)
import default_kernels
default_kernels.main(sys.argv[2])
"""


@pytest.fixture(scope="module")
def printed(op_device):
    """Runs all parts in one process, because TensorFlow takes long to start on a GPU."""
    return run_program(PROGRAM, op_device, CUDNN_RNN_GPU_KERNELS=None, CUDNN_RNN_ALGO=None)


@pytest.mark.parametrize("part", PARTS)
def test_default_kernels_agree_with_the_cpu(printed, part):
    lines = [line for line in printed.splitlines() if line.startswith("RESULT %s:" % part)]
    assert lines == ["RESULT %s: agrees" % part], printed


@pytest.mark.cudnn_only
def test_keras_keeps_tensorflows_kernel_and_our_nodes_have_labels(op_device, printed):
    label = "cudnn_rnn" if op_device.startswith("/gpu") else ""
    assert "RESULT labels: keras [''], ours ['%s']" % label in printed.splitlines(), printed
