"""TensorFlow session steps: our kernels, and TensorFlow's own CudnnRNN and CudnnRNNV3 kernels.

A process chooses its kernels when it starts, so each choice has its own process, which lives until
the benchmark ends. $TENSORFLOW_PYTHON is its Python (default: the one that runs this file); it
needs TensorFlow and this package. There is no device time; only wall-clock time is measured.
"""

import os
import sys

from measuring import Unsupported
from worker_process import WorkerProcess, WorkerRun

NAME = "TensorFlow"

# name: (value of CUDNN_RNN_GPU_KERNELS, version of the op). Our kernels are registered for both.
WORKERS = {
    "ours": ("cudnn_rnn", "V1"),
    "built-in CudnnRNN": ("tensorflow", "V1"),
    "built-in CudnnRNNV3": ("tensorflow", "V3"),
}

_workers = {}
# Version and kernels that each worker reported; run.py records them.
versions = {}


def _start(name, kernels, op_version, device):
    folder = os.path.dirname(os.path.abspath(__file__))
    command = [
        os.environ.get("TENSORFLOW_PYTHON", sys.executable),
        os.path.join(folder, "tensorflow_worker.py"),
        op_version,
        "/gpu:0" if device.type == "cuda" else "/cpu:0",
    ]
    return WorkerProcess(name, command, _environment(kernels))


def _environment(kernels):
    """Returns the worker's environment.

    $TENSORFLOW_PYTHONPATH and $TENSORFLOW_LD_LIBRARY_PATH override the variables of this process.
    """
    environment = dict(os.environ, CUDNN_RNN_GPU_KERNELS=kernels, TF_CPP_MIN_LOG_LEVEL="3")
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        if "TENSORFLOW_" + name in os.environ:
            environment[name] = os.environ["TENSORFLOW_" + name]
    return environment


def make_runs(configuration, device):
    """Returns a run for each worker that can run it; raises `Unsupported` if none can."""
    runs, refusals = {}, []
    for name, (kernels, op_version) in WORKERS.items():
        if device.type == "cpu" and kernels == "tensorflow":
            refusals.append("%s: TensorFlow has no CPU kernels of its own" % name)
            continue
        if name not in _workers:
            _workers[name] = _start(name, kernels, op_version, device)
        try:
            answer = _workers[name].ask(configuration._asdict())
            if device.type == "cuda" and not answer["kernels"].startswith(kernels + ":"):
                raise Unsupported("it uses other GPU kernels: " + answer["kernels"])
            runs[name] = WorkerRun(_workers[name].ask)
            versions[name] = answer
        except Unsupported as refusal:
            refusals.append("%s: %s" % (name, refusal))
    if not runs:
        raise Unsupported("; ".join(refusals))
    return runs
