"""Shared by all tests: a quiet TensorFlow, no leftover switches, a limit for tests that hang."""

import faulthandler
import os
import sys

import pytest
from time_limits import SECONDS_FOR_A_TEST

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Kernels read this variable when they are created; a test that needs it sets it.
os.environ.pop("TF_CUDNN_RESET_RND_GEN_STATE", None)


def pytest_collection_modifyitems(items):
    """Skips the tests of projections in TensorFlow 1.14, whose ops do not support them."""
    module = sys.modules.get("cudnn_rnn._compat")  # some tests run without TensorFlow
    if module is None or module.has_projection():
        return
    for item in items:
        parameters = getattr(item, "callspec", None) and item.callspec.params
        if parameters and any(_is_projection(*parameter) for parameter in parameters.items()):
            item.add_marker(pytest.mark.skip(reason="TensorFlow 1.14 has no projection"))


def _is_projection(name, value):
    return bool(value if name == "num_proj" else getattr(value, "num_proj", None))


@pytest.fixture(autouse=True)
def end_when_stuck():
    """Ends the process, printing all threads' stacks, when a test hangs."""
    faulthandler.dump_traceback_later(SECONDS_FOR_A_TEST, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def fixed_dropout_pattern(monkeypatch):
    """Makes kernels created from now on restart their dropout from the seed in every call."""
    monkeypatch.setenv("TF_CUDNN_RESET_RND_GEN_STATE", "1")


@pytest.fixture(params=["control_flow_v1", "control_flow_v2"])
def control_flow(request):
    """Runs the test with TensorFlow 1's loops (and reference variables) and TensorFlow 2's."""
    import tensorflow.compat.v1 as tf
    from tensorflow.python.ops import control_flow_util

    def set_behavior(control_flow_v2, resource_variables):
        # TensorFlow 1.14 lacks tf.enable_control_flow_v2, which sets this flag.
        control_flow_util.ENABLE_CONTROL_FLOW_V2 = control_flow_v2
        (tf.enable_resource_variables if resource_variables else tf.disable_resource_variables)()

    before = control_flow_util.ENABLE_CONTROL_FLOW_V2, tf.resource_variables_enabled()
    set_behavior(*([request.param == "control_flow_v2"] * 2))
    yield request.param
    set_behavior(*before)
