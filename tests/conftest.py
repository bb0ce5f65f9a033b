"""Shared by all tests: a quiet TensorFlow, no leftover switches, a limit for tests that hang."""

import collections
import faulthandler
import importlib
import importlib.util
import os
import sys

import pytest

from helpers.processes import SECONDS_FOR_A_TEST
from helpers.samples import sample_of

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Kernels read this variable when they are created; a test that needs it sets it.
os.environ.pop("TF_CUDNN_RESET_RND_GEN_STATE", None)


def pytest_addoption(parser):
    parser.addoption(
        "--all",
        action="store_true",
        help="run every case, also of tests that run only a sample or only before a release",
    )
    parser.addoption("--ci", action="store_true", help="also run the tests that are left to CI")
    parser.addoption(
        "--test-seconds",
        type=float,
        default=SECONDS_FOR_A_TEST,
        help="end the process when a test takes longer (default: %(default)s)",
    )


# From few tests that take long to many short ones: with several processes, what begins last should
# end soon.
FOLDERS = [
    "tooling",
    "engine",
    "compat",
    "api",
    "checkpoints",
    "onnx_export",
    "exchange",
    "ops",
    "model",
]


def pytest_configure(config):
    # Before a test, pytest replaces the descriptor of stderr.
    config.stacks_of_stuck_test = os.fdopen(os.dup(2), "w")
    # pytest-xdist would begin with the files of most tests.
    config.option.loadscopereorder = False
    config.addinivalue_line(
        "markers",
        "sampled(n): runs one of n cases; of all such tests without cases, one of n; all with "
        "--all; see helpers/samples.py",
    )
    config.addinivalue_line(
        "markers", "ci: runs only with --ci, with --all, or if a file or folder is named"
    )
    config.addinivalue_line("markers", "release: slow and rarely fails; runs only with --all")
    config.addinivalue_line(
        "markers", "once: does not depend on TensorFlow's version; in TensorFlow 1 only with --all"
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Ends the process, printing all threads' stacks, when a test hangs."""
    seconds, file = item.config.getoption("test_seconds"), item.config.stacks_of_stuck_test
    faulthandler.dump_traceback_later(seconds, exit=True, file=file)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def runs_all(pytestconfig):
    """Whether the tests run every case."""
    return pytestconfig.getoption("--all")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--all") and not any("::" in argument for argument in config.args):
        _keep_samples(config, items)
        compat = _compat()
        is_tensorflow_1 = compat is not None and compat.IS_TENSORFLOW_1
        is_local = not config.getoption("--ci") and config.args == config.getini("testpaths")
        for marker in ["release"] + ["once"] * is_tensorflow_1 + ["ci"] * is_local:
            _deselect(config, items, {item for item in items if item.get_closest_marker(marker)})
    _skip_projections(items)
    items.sort(key=_position)


def _position(item):
    """Returns the position of a test's folder in FOLDERS; those of no listed folder come first."""
    folder = os.path.basename(os.path.dirname(str(item.fspath)))
    return FOLDERS.index(folder) if folder in FOLDERS else -1


def _compat():
    """Returns the module `cudnn_rnn._compat`, or None without TensorFlow, which some tests lack."""
    # find_spec raises ValueError for the imported tensorflow of 1.14, whose __spec__ is None.
    if "tensorflow" not in sys.modules and importlib.util.find_spec("tensorflow") is None:
        return None
    return importlib.import_module("cudnn_rnn._compat")


def _keep_samples(config, items):
    """Deselects cases of tests marked `sampled`.

    CUDNN_RNN_TEST_TURN, 0 by default, chooses the sample. It is the same in every process.
    """
    turn = int(os.environ.get("CUDNN_RNN_TEST_TURN", "0"))
    groups = collections.defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            test = (item.fspath, item.originalname) if hasattr(item, "callspec") else None
            groups[test, marker.args[0]].append(item)
    left_out = set()
    for (_, n), cases in groups.items():
        left_out.update(set(cases) - set(sample_of(cases, n, turn, name=lambda item: item.nodeid)))
    _deselect(config, items, left_out)


def _deselect(config, items, left_out):
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _skip_projections(items):
    """Skips the tests of projections in TensorFlow 1.14, whose ops do not support them."""
    items = [item for item in items if _has_projection(item)]
    if items and _compat() is not None and not _compat().has_projection():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="TensorFlow 1.14 has no projection"))


def _has_projection(item):
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return any(
        value if name == "num_proj" else getattr(value, "num_proj", None)
        for name, value in parameters.items()
    )


@pytest.fixture
def session():
    """Yields a session on a new default graph."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        yield session


@pytest.fixture
def eager():
    """Runs the test in eager execution."""
    from tensorflow.python.eager import context

    with context.eager_mode():
        yield


@pytest.fixture
def cpu_session(session):
    """Yields a session on a new default graph whose ops run on the CPU."""
    import tensorflow.compat.v1 as tf

    with tf.device("/cpu:0"):
        yield session


@pytest.fixture
def fixed_dropout_pattern(monkeypatch):
    """Makes kernels created from now on restart their dropout from the seed in every call."""
    monkeypatch.setenv("TF_CUDNN_RESET_RND_GEN_STATE", "1")


@pytest.fixture
def control_flow_of_tensorflow_1():
    """Lets loops and tf.cond be nodes of the graph itself, without functions."""
    import tensorflow.compat.v1 as tf

    is_enabled = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    yield
    if is_enabled:
        tf.enable_control_flow_v2()


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
