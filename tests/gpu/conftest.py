"""Selects the device for the tests of this folder. `make test-gpu` runs them; `make test` does not.

They run on the GPU and fail without one. `--core-device=cpu` runs the tests that do not need a GPU
on the CPU's kernels instead. `--core-device=mock` runs them on the cuDNN plan with the mock of
cuDNN in tests/cudnn, in host memory; $CUDNN_RNN_MOCK_CUDNN is the mock's path.
"""

import os
import time

import cuda_context
import pytest
from case_order import most_telling_first
from recording import Recorder

_OUT_OF_TIME = "not run within --seconds"


def pytest_addoption(parser):
    parser.addoption(
        "--core-device",
        choices=["cuda", "cpu", "mock"],
        default="cuda",
        help="what the tests run the kernels on (default: cuda)",
    )
    parser.addoption(
        "--core-cases",
        type=int,
        metavar="NUMBER",
        help="how many cases of each test to run, the most telling ones (default: all)",
    )
    parser.addoption(
        "--seconds",
        type=float,
        help="skip the tests that have not started by then, and exit with status 124",
    )
    parser.addoption(
        "--records", metavar="FILE", help="append each test's start and outcome to it at once"
    )
    parser.addoption("--part", default="", help="the name of this run in --records")


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu_only: with --core-device=cuda alone")
    config.addinivalue_line("markers", "cudnn_only: not with --core-device=cpu")
    config.addinivalue_line("markers", "persistent: runs a persistent algorithm, which may hang")
    config.addinivalue_line("markers", "memcheck: one of five cases for compute-sanitizer")
    config.addinivalue_line("markers", "fills_memory: fills the GPU's memory, so it runs alone")
    worker = getattr(config, "workerinput", None)
    # Of the whole run: pytest-xdist replaces its workers. If this folder is not chosen, its hooks
    # are only in the workers, and the time is not used.
    config.started = (worker or {}).get("started", time.monotonic())
    config.pluginmanager.register(cuda_context.Guard(worker is not None))
    path = config.getoption("records", None)
    if path and worker is None:
        config.pluginmanager.register(Recorder(path, config.getoption("part")))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_configure_node(node):
    node.workerinput["started"] = node.config.started


def pytest_ignore_collect(collection_path, config):
    """Ignores this folder unless an argument of pytest names the folder or something in it."""
    folder = os.path.dirname(os.path.realpath(__file__))
    asked_for = [
        os.path.realpath(os.path.join(str(config.invocation_params.dir), path.split("::")[0]))
        for path in config.args
    ]
    inside = any((path + os.sep).startswith(folder + os.sep) for path in asked_for)
    return None if inside else True


@pytest.hookimpl(trylast=True)  # after the selection by name and marker
def pytest_collection_modifyitems(config, items):
    """Deselects, and does not skip, what the device cannot run, and cases beyond --core-cases.

    The most telling cases of each test come first, so that a run may be cut off after any of them.
    """
    marks = {"cuda": [], "mock": ["gpu_only"], "cpu": ["gpu_only", "cudnn_only"]}
    without = marks[config.getoption("core_device", "cuda")]
    kept = [item for item in items if not any(map(item.get_closest_marker, without))]
    number = config.getoption("core_cases", None)
    tests = {}
    for item in kept:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = [item for cases in tests.values() for item in in_order(cases)[: number or None]]
    left = set(items).difference(kept)
    config.hook.pytest_deselected(items=list(left))
    items[:] = kept


def in_order(cases):
    """Returns the cases of a test, the most telling ones first."""
    if len(cases) == 1:
        return cases
    return [cases[index] for index in most_telling_first([columns(case) for case in cases])]


def columns(case):
    """Returns the parameters of a test's case; those of a row of core_cases.py are its features."""
    found = {}
    for name, value in case.callspec.params.items():
        found.update(getattr(value, "features", {name: value}))
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skips the tests for which no time is left; reports then list them."""
    seconds = item.config.getoption("seconds", None)
    if seconds is not None and time.monotonic() - item.config.started > seconds:
        pytest.skip(_OUT_OF_TIME)


def pytest_sessionfinish(session, exitstatus):
    """Tells a run that left out tests from one that passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []  # xdist's workers have none
    if exitstatus == 0 and any(_OUT_OF_TIME in str(report.longrepr) for report in skipped):
        session.exitstatus = 124


@pytest.fixture(scope="session")
def device(pytestconfig):
    """Returns the torch.device of the core; ends the run as failed if it is missing."""
    import torch

    name = pytestconfig.getoption("core_device")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.exit(
            "these tests need a GPU that PyTorch can use, and torch.cuda.is_available() is False"
            f" (torch {torch.__version__}). Without one, --core-device=cpu runs the core's CPU"
            " plan through the same tests.",
            returncode=1,
        )
    return torch.device("cuda" if name == "cuda" else "cpu")


@pytest.fixture(scope="session")
def opened_core(pytestconfig, device):
    """Returns the core library, with the GPU or the mock of cuDNN opened if the tests use it."""
    from core_library import CoreLibrary

    library = CoreLibrary()
    if device.type == "cuda":
        import torch

        # Loads PyTorch's own cuDNN, which the core then finds in the process.
        assert torch.backends.cudnn.is_available(), "PyTorch finds no cuDNN"
        library.open_gpu()
        print(library.gpu_report())
    elif pytestconfig.getoption("core_device") == "mock":
        library.open_mock(os.environ["CUDNN_RNN_MOCK_CUDNN"])
    return library


@pytest.fixture
def core(opened_core):
    """Yields the core library; on the mock of cuDNN, an invalid use of cuDNN fails the test."""
    yield opened_core
    violations = opened_core.mock_violations()
    assert not violations, violations


@pytest.fixture(scope="session")
def op_device(pytestconfig):
    """Returns the TensorFlow device of the ops, with TF32 off; ends the run if it is missing."""
    import tensorflow as tf

    # TF32 rounds the factors of float products to 11 bits, far beyond the tests' tolerances.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    if pytestconfig.getoption("core_device") == "cpu":
        return "/cpu:0"
    if pytestconfig.getoption("core_device") == "mock":
        from op_placement import MOCK_DEVICE

        return MOCK_DEVICE
    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        pytest.exit(
            f"these tests need a GPU that TensorFlow {tf.__version__} can use, and it finds none;"
            " TF_CPP_MIN_LOG_LEVEL=0 makes it say which library it lacks. Without a GPU,"
            " --core-device=cpu runs the CPU's kernels through the same tests.",
            returncode=1,
        )
    for device in devices:  # Programs that tests start use the same GPU.
        tf.config.experimental.set_memory_growth(device, True)
    return "/gpu:0"
