"""Damaged files of every format; `make trials` reads thousands of them."""

import os
import sys

import pytest

from helpers.paths import TESTS
from helpers.processes import status_and_text
from helpers.versions import IS_TENSORFLOW_1

pytestmark = pytest.mark.ci

PROGRAM = os.path.join(TESTS, "trials", "damaged_files.py")
FORMATS = ["npz", "h5", "checkpoint", "pb", "saved_model"]
if not IS_TENSORFLOW_1:
    FORMATS += ["onnx", "pt", "safetensors", "keras"]


@pytest.mark.sampled(len(FORMATS))
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(name):
    num_files = 25 if name == "h5" else 100  # each HDF5 file is read in a process of its own
    options = ["--files", str(num_files), "--formats", name]
    status, text = status_and_text(
        PROGRAM, *options, TRIALS_PYTHON=sys.executable, TRIALS_PYTHON_TF1=None
    )
    assert status == 0, text
    assert "result: %d damaged files of 1 formats: 0 failures" % num_files in text
