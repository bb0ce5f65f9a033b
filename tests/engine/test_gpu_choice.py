"""Which kernels run on a GPU, and the kernel label that selects them in TensorFlow 1.

Each program runs in a separate process, because the choice is made at import.
"""

import os
import re
import shutil

import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn.cli import cudnn_dependencies, doctor
from helpers import mock_kernels
from helpers.processes import run_python
from helpers.versions import IS_TENSORFLOW_1

pytestmark = pytest.mark.ci

TRAIN = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
import cudnn_rnn
model = cudnn_rnn.CudnnGRU(1, 4, 3)
params = tf.Variable(tf.random_uniform([model.params_size()], seed=1), validate_shape=False)
output, _ = model(tf.ones([2, 5, 3]), tf.zeros([1, 5, 4]), params, True)
weights, biases = model.params_to_canonical(params)
back = model.canonical_to_params(weights, biases)
gradient, = tf.gradients(output, params)
gradient = tf.identity(gradient, name="gradient")
gradients_of_canonical = tf.gradients(weights[0], params)
labels = {}
for op in tf.get_default_graph().get_operations():
    if op.type.startswith("CudnnRNN"):
        try:
            label = op.get_attr("_kernel").decode()
        except ValueError:
            label = ""
        labels.setdefault(op.type, set()).add(label)
print(sorted((name, sorted(found)) for name, found in labels.items()))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    assert np.isfinite(session.run(gradient)).all()
    session.run([back, gradients_of_canonical])
if len(sys.argv) > 1:
    tf.train.export_meta_graph(sys.argv[1])
"""

IMPORT = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
import cudnn_rnn
tf.train.import_meta_graph(sys.argv[1])
graph = tf.get_default_graph()
forward = [op for op in graph.get_operations() if op.type == "CudnnRNN"][0]
again, = tf.gradients(forward.outputs[0], forward.inputs[3])
assert again.op.get_attr("_kernel") == b"cudnn_rnn"
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    first, second = session.run([graph.get_tensor_by_name("gradient:0"), again])
assert np.array_equal(first, second)
print("the same")
"""

CHOICE = "import cudnn_rnn; print(cudnn_rnn.kernels_in_charge())"


def run(program, *arguments, **environment):
    """Runs the program in another process, with these environment variables."""
    return run_python("-c", program, *arguments, **environment)


def labels_of(process):
    assert process.returncode == 0, process.stderr
    return {name: labels for name, labels in eval(process.stdout.splitlines()[-1])}


@pytest.mark.sampled(2)
def test_nodes_have_no_label_by_default():
    found = labels_of(run(TRAIN))
    assert "CudnnRNN" in found and "CudnnRNNBackprop" in found
    assert all(labels == [""] for labels in found.values()), found


@pytest.mark.sampled(2)
def test_labels_with_tensorflow_1():
    """Forward and gradient nodes get the same label; TensorFlow 2 needs none."""
    found = labels_of(run(TRAIN, CUDNN_RNN_GPU_KERNELS="cudnn_rnn"))
    expected = ["cudnn_rnn"] if IS_TENSORFLOW_1 else [""]
    assert set(found) == {
        "CudnnRNN",
        "CudnnRNNBackprop",
        "CudnnRNNCanonicalToParams",
        "CudnnRNNParamsToCanonical",
    } | (set(found) & {"CudnnRNNParamsSize"})
    assert all(labels == expected for labels in found.values()), found


@pytest.mark.sampled(2)
@pytest.mark.skipif(not IS_TENSORFLOW_1, reason="kernel labels require TensorFlow 1")
def test_a_graph_with_labels_runs_without_the_variable(tmp_path):
    path = str(tmp_path / "graph.meta")
    assert run(TRAIN, path, CUDNN_RNN_GPU_KERNELS="cudnn_rnn").returncode == 0
    process = run(IMPORT, path)
    assert "the same" in process.stdout, process.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize("value", ["gpu", "Cudnn_rnn", "1"])
def test_a_bad_value_is_an_import_error(value):
    process = run(CHOICE, CUDNN_RNN_GPU_KERNELS=value)
    assert process.returncode != 0
    last = process.stderr.strip().splitlines()[-1]
    assert "ImportError" in last and "CUDNN_RNN_GPU_KERNELS" in last and value in last


@pytest.mark.sampled(2)
def test_tensorflows_kernels_are_used_if_requested():
    process = run(CHOICE, CUDNN_RNN_GPU_KERNELS="tensorflow")
    assert process.returncode == 0, process.stderr
    expected = "tensorflow" if tf.test.is_built_with_cuda() else "none"
    assert process.stdout.splitlines()[0] == "GPU kernels: " + expected
    if tf.test.is_built_with_cuda():
        assert "CUDNN_RNN_GPU_KERNELS=tensorflow" in process.stdout


@pytest.mark.sampled(2)
@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="requires a machine without a GPU")
def test_without_a_driver_the_import_is_silent_and_the_report_says_why():
    process = run(CHOICE, CUDNN_RNN_GPU_KERNELS="cudnn_rnn")
    assert process.returncode == 0, process.stderr
    provider = process.stdout.splitlines()[0]
    assert provider in ("GPU kernels: tensorflow", "GPU kernels: none"), process.stdout
    assert "driver" in process.stdout
    # TensorFlow 2.18 itself complains about cuDNN, with a time in front.
    of_tensorflow = re.compile(r"(\d{4}-\d\d-\d\d|[IWE]\d{4}) \d\d:\d\d:")
    others = [line for line in process.stderr.splitlines() if not of_tensorflow.match(line)]
    assert not any("cudnn" in line.lower() for line in others), process.stderr


OPEN = """
import ctypes, sys
from cudnn_rnn._native import gpu_kernels, library
import cudnn_rnn

def loaded():
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libcudnn" in line
                       and "libcudnn_rnn_engine" not in line})

print("after the import", loaded(), cudnn_rnn.kernels_in_charge())
for name in sys.argv[1:]:
    ctypes.CDLL(name)  # as TensorFlow does when it creates its GPU devices
is_open, report = gpu_kernels.open_cudnn(library.library_path())
print("opened", is_open, report.splitlines()[0])
assert cudnn_rnn.kernels_in_charge().reason == report
"""


# The libraries of cuDNN 9 that RNNs need, besides libcudnn.so.9.
CUDNN_PARTS = ("libcudnn_adv.so.9", "libcudnn_graph.so.9", "libcudnn_ops.so.9")


@pytest.fixture(scope="module")
def mock_folders(tmp_path_factory):
    """Yields folders with the mock of cuDNN under its real names; the first has a driver, too."""
    built = mock_kernels.build_mock()
    mock = os.path.join(built, "libmock_cudnn_named.so")
    folders = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("libraries")
        shutil.copy(mock, str(folder / "libcudnn.so.9"))
        for part in CUDNN_PARTS:
            shutil.copy(os.path.join(built, part), str(folder))
        folders.append(str(folder))
    shutil.copy(os.path.join(built, "libmock_cudnn.so"), os.path.join(folders[0], "libcuda.so.1"))
    return folders


def run_open(*preloaded, **variables):
    process = run(OPEN, *preloaded, CUDNN_RNN_GPU_KERNELS="cudnn_rnn", **variables)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


@pytest.mark.sampled(2)
def test_the_import_opens_the_driver_but_not_cudnn(mock_folders):
    """A cuDNN that the import had opened would become TensorFlow's."""
    after_import, *report, opened = run_open(LD_LIBRARY_PATH=mock_folders[0])
    assert after_import.startswith("after the import [] GPU kernels: cudnn_rnn"), after_import
    assert "not opened yet" in report[0] and "libcuda.so.1" in report[1], report
    assert opened == "opened True cuDNN 9.13.0: %s/libcudnn.so.9" % mock_folders[0]


@pytest.mark.sampled(2)
def test_the_cudnn_that_tensorflow_has_loaded_comes_first(mock_folders):
    tensorflows = os.path.join(mock_folders[1], "libcudnn.so.9")
    opened = run_open(tensorflows, LD_LIBRARY_PATH=mock_folders[0])[-1]
    assert opened == "opened True cuDNN 9.13.0: " + tensorflows


@pytest.mark.sampled(2)
def test_a_missing_cudnn_is_reported_when_it_is_opened(mock_folders, tmp_path):
    shutil.copy(os.path.join(mock_folders[0], "libcuda.so.1"), str(tmp_path))
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "CUDNN_RNN_CUDNN_LIBRARY": "/nowhere.so"}
    opened = run_open(**variables)[-1]
    assert opened == "opened False No cuDNN 8.0.0 or newer was found. Tried:"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("missing", CUDNN_PARTS)
def test_an_incomplete_cudnn_is_reported_and_examined(mock_folders, tmp_path, missing):
    """Its first function would end the process. The doctor then names the missing library."""
    for name in set(os.listdir(mock_folders[0])) - {missing}:
        shutil.copy(os.path.join(mock_folders[0], name), str(tmp_path))
    path = str(tmp_path / "libcudnn.so.9")
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "CUDNN_RNN_CUDNN_LIBRARY": path}
    process = run(OPEN + "print(report)", CUDNN_RNN_GPU_KERNELS="cudnn_rnn", **variables)
    assert process.returncode == 0, process.stderr
    report = process.stdout.partition("\nopened False ")[2]
    assert "%s: libcudnn_adv.so.9, which computes RNNs, cannot be opened" % path in report
    (cudnn,) = cudnn_dependencies.cudnns_in(report)
    assert cudnn == (path, 9)
    problems, crash = doctor.run_trial(doctor._OPEN_LIBRARIES_OF_CUDNN % cudnn)
    assert crash is None and missing in problems
