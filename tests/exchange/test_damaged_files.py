"""A hundred damaged files of every format; `make trials` reads thousands of them."""

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


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(name):
    options = ["--files", "100", "--formats", name]
    status, text = status_and_text(
        PROGRAM, *options, TRIALS_PYTHON=sys.executable, TRIALS_PYTHON_TF1=None
    )
    assert status == 0, text
    assert "result: 100 damaged files of 1 formats: 0 failures" in text
