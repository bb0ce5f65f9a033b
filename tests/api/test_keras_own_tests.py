"""Keras's own tests of its recurrent layers, run with this package's layers in their place."""

import os
import re

import pytest

from helpers.keras_layers import needs_keras_3
from helpers.paths import PROGRAMS
from helpers.processes import status_and_text

pytestmark = [pytest.mark.ci, pytest.mark.sampled(2), needs_keras_3]

PROGRAM = os.path.join(PROGRAMS, "run_keras_tests.py")
MODES = ("gru", "lstm", "rnn_tanh")


def test_keras_own_tests_pass_and_the_op_computes():
    status, text = status_and_text(PROGRAM, "-q")
    assert status == 0, text
    # Keras 3.15.1 has 45, of which two are for other backends.
    assert int(re.search(r"(\d+) passed", text).group(1)) >= 43, text
    calls = dict(re.findall(r"(\w+) (\d+)(?:, |$)", text.splitlines()[-1]))
    assert set(calls) >= set(MODES) and all(map(int, calls.values())), text


def test_the_run_fails_if_no_layer_of_this_package_computes():
    """Here, of all tests, only one that runs no recurrent layer."""
    status, text = status_and_text(PROGRAM, "-q", "-k", "test_mask_validation_with_none_mask")
    assert "1 passed" in text and text.splitlines()[-1].endswith("computed: none"), text
    assert status == 1, text
