"""The kernels that call cuDNN, on memory that TensorFlow aligns less strictly than cuDNN needs.

TensorFlow aligns to 64 bytes, so host memory has addresses of every kind.
"""

import numpy as np
import pytest

from helpers import mock_kernels
from helpers.cases import random_arrays
from helpers.op_harness import TOLERANCES, Network, assert_close
from helpers.sequence_cases import BATCH, LSTM

pytestmark = [pytest.mark.once, pytest.mark.ci]


def test_buffers_that_are_not_aligned_are_copied():
    mock = mock_kernels.load()
    mock.mock_reset()
    mock.mock_set_any_memory(2)  # the mock refuses weights and spaces not aligned to 256 bytes
    for steps in range(1, 9):
        arrays = random_arrays(LSTM, BATCH, steps, "float64", np.random.RandomState(0))
        label = mock_kernels.STRICT_LABEL
        with Network(LSTM, "float64") as cpu, Network(LSTM, "float64", kernel_label=label) as gpu:
            assert_close(gpu.run(arrays), cpu.run(arrays), TOLERANCES["float64"], str(steps))
    assert mock.mock_violations() == 0, mock.mock_violation_text().decode()
    assert mock.mock_calls(b"cuMemcpyDtoDAsync_v2") > 0
