"""What all tests share: a quiet TensorFlow, no leftover switches, an end for tests that hang."""

import faulthandler
import os
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Read by the kernels when they are made; a test that wants it sets it itself.
os.environ.pop("TF_CUDNN_RESET_RND_GEN_STATE", None)

# The longest test trains a model; one that takes this long is stuck.
SECONDS_BEFORE_A_TEST_COUNTS_AS_STUCK = 1200


@pytest.fixture(autouse=True)
def end_when_stuck():
    """Ends the process, printing all threads' stacks, when a test hangs."""
    faulthandler.dump_traceback_later(
        SECONDS_BEFORE_A_TEST_COUNTS_AS_STUCK, exit=True, file=sys.__stderr__
    )
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def fixed_dropout_pattern(monkeypatch):
    """Every call of a kernel made from now on starts its dropout from the seed."""
    monkeypatch.setenv("TF_CUDNN_RESET_RND_GEN_STATE", "1")
