"""TensorFlow, by session step: our kernels, and TensorFlow's own CudnnRNN and CudnnRNNV3 kernels.

Whose kernels a process has is decided when it starts, so each has a process of its own, which lives
as long as the benchmark. $TENSORFLOW_PYTHON is its Python (else the one that runs this), which
needs TensorFlow and this package. There is no device time: a session step is measured by the clock.
"""

import atexit
import json
import os
import subprocess
import sys

from measuring import Sample, Unsupported

NAME = "TensorFlow"

# name: (value of CUDNN_RNN_GPU_KERNELS, version of the op). Our kernels are registered for both.
WORKERS = {
    "ours": ("cudnn_rnn", "V1"),
    "built-in CudnnRNN": ("tensorflow", "V1"),
    "built-in CudnnRNNV3": ("tensorflow", "V3"),
}

_workers = {}
# What each worker said of itself, for the record.
versions = {}


class _Worker:
    def __init__(self, kernels, op_version, device):
        folder = os.path.dirname(os.path.abspath(__file__))
        self._process = subprocess.Popen(
            [
                os.environ.get("TENSORFLOW_PYTHON", sys.executable),
                os.path.join(folder, "tensorflow_worker.py"),
                op_version,
                "/gpu:0" if device.type == "cuda" else "/cpu:0",
            ],
            env=_environment(kernels),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
        )
        atexit.register(self._process.kill)

    def ask(self, request):
        """Sends a request and waits for the answer; `Unsupported` where that is an error."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise Unsupported(
                "the TensorFlow process has ended, with status %s" % self._process.poll()
            )
        answer = json.loads(line)
        if "error" in answer:
            raise Unsupported(answer["error"])
        return answer


def _environment(kernels):
    """Of the worker: TensorFlow's own libraries are its own matter."""
    environment = dict(os.environ, CUDNN_RNN_GPU_KERNELS=kernels, TF_CPP_MIN_LOG_LEVEL="3")
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        if "TENSORFLOW_" + name in os.environ:
            environment[name] = os.environ["TENSORFLOW_" + name]
    return environment


class _Run:
    def __init__(self, worker):
        self._worker = worker

    def run(self, num_steps):
        seconds = self._worker.ask({"num_steps": num_steps})["seconds"]
        return Sample(None, seconds / num_steps)

    def close(self):
        pass  # the next configuration replaces the session


def make_runs(configuration, device):
    """A dict of a run for each worker that can; `Unsupported` if none can."""
    runs, refusals = {}, []
    for name, (kernels, op_version) in WORKERS.items():
        if device.type == "cpu" and kernels == "tensorflow":
            refusals.append("%s: TensorFlow has no CPU kernels of its own" % name)
            continue
        if name not in _workers:
            _workers[name] = _Worker(kernels, op_version, device)
        try:
            answer = _workers[name].ask(configuration._asdict())
            if device.type == "cuda" and not answer["kernels"].startswith(kernels + ":"):
                raise Unsupported("its GPU kernels are others: " + answer["kernels"])
            runs[name] = _Run(_workers[name])
            versions[name] = answer
        except Unsupported as refusal:
            refusals.append("%s: %s" % (name, refusal))
    if not runs:
        raise Unsupported("; ".join(refusals))
    return runs
