"""run_published_tests.py, on a test file of ours that is structured like TensorFlow's."""

import os

import pytest
import tensorflow.compat.v1 as tf

from helpers.paths import PROGRAMS
from helpers.processes import run_python

pytestmark = pytest.mark.ci

RUNNER = os.path.join(PROGRAMS, "run_published_tests.py")
FILE = """
import sys
import unittest

from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.framework import test_util
from tensorflow.python.ops import array_ops
from tensorflow.python.platform import googletest
from tensorflow.python.platform import test


class PublishedTest(test_util.TensorFlowTestCase):

  @unittest.skipUnless(test.is_built_with_cuda(), "needs a GPU")
  def testRelease(self):
    assert cudnn_rnn_ops.CudnnLSTM(1, 2, 3).input_mode == "auto_select"
    assert cudnn_rnn_ops.CudnnLSTM.__mro__[-2].__module__.startswith("cudnn_rnn.")
    with self.test_session(use_gpu=True) as sess:
      assert sess.run(cudnn_rnn_ops.CudnnGRU(1, 5, 3).params_size()) == 150
    print("the release ran")

  @test_util.run_gpu_only
  def testPins(self):
    with context.eager_mode(), ops.device("gpu:0"):
      assert array_ops.zeros([2]).device.endswith("CPU:0")
    print("the pins ran")

  def testFailure(self):
    self.fail("on purpose")


if __name__ == "__main__":
  FAILING = "--fail" in sys.argv and sys.argv.remove("--fail") is None
  if not FAILING:
    del PublishedTest.testFailure
  googletest.main()
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arguments", [[], ["--fail"]], ids=["passing", "failing"])
def test_a_file_runs_in_the_environment_of_its_release(tmp_path, arguments):
    path = tmp_path / "published_test.py"
    path.write_text(FILE)
    process = run_python(RUNNER, path, "--release", "1.1", *arguments)
    output = process.stdout + process.stderr
    if not tf.VERSION.startswith("1.15"):
        assert process.returncode == 2 and "run with TensorFlow 1.15, but this is" in output
        return
    assert "the release ran" in output and "the pins ran" in output, output
    assert (process.returncode == 0) == (not arguments), output
    assert ("on purpose" in output) == bool(arguments)
