"""Whom ours is measured against. Standard library only.

To add a peer: a line in PEERS, and a module of that name in workers/ (worker.py says what it has).
"""

import os
from collections import OrderedDict, namedtuple

from measuring import Unsupported
from worker_process import WorkerProcess, WorkerRun

Peer = namedtuple("Peer", "title environment module kinds")
"""A name for tables, whose Python runs it, its module in workers/, and what it does at all."""

OURS = "ours"
_BOTH = ("inference", "training")

PEERS = OrderedDict(
    [
        (OURS, Peer("ours in TensorFlow", "tensorflow", "ours", _BOTH)),
        ("torch", Peer("torch.nn", "torch", "torch_network", _BOTH)),
        (
            "onnxruntime",
            Peer("ONNX Runtime", "onnxruntime", "onnxruntime_network", ("inference",)),
        ),
        ("keras", Peer("Keras", "tensorflow", "keras_network", _BOTH)),
        ("tf1-cell", Peer("TF 1.15 dynamic_rnn", "tensorflow1", "tf1_cells", _BOTH)),
        ("tf1-fused", Peer("TF 1.15 LSTMBlockFusedCell", "tensorflow1", "tf1_fused", _BOTH)),
    ]
)

# Of Python programs, each with what the peers of an environment need.
ENVIRONMENT_VARIABLES = {
    "tensorflow": "TENSORFLOW_PYTHON",
    "torch": "TORCH_PYTHON",
    "onnxruntime": "ONNXRUNTIME_PYTHON",
    "tensorflow1": "TENSORFLOW_1_PYTHON",
}

# Long runs would take some peers minutes.
_ALLOWED_IN_GROUP = {"scaling": (OURS, "torch", "onnxruntime")}


def takes_part(name, configuration):
    """Whether a peer is measured on a configuration at all."""
    allowed = _ALLOWED_IN_GROUP.get(configuration.group, PEERS)
    return name in allowed and configuration.kind in PEERS[name].kinds


class Refusal(Exception):
    """A peer cannot be measured, and that is no error; the text says why."""


class PeerProcess:
    """The process of a peer, which lives until the benchmark ends; one that died is begun anew."""

    def __init__(self, name, threads, cores, log_folder, environment=None):
        self.name, self.versions, self.has_product = name, {}, False
        self._threads, self._cores, self._log_folder = threads, cores, log_folder
        self._environment = dict(environment or {})
        self._worker = None

    def start(self):
        """Starts it, unless it runs; `Refusal` without a Python, `Unsupported` where it fails."""
        if self._worker is not None:
            return
        peer = PEERS[self.name]
        variable = ENVIRONMENT_VARIABLES[peer.environment]
        python = os.environ.get(variable)
        if not python:
            raise Refusal("$%s is not set; expected the path of this peer's Python" % variable)
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers")
        command = [python, os.path.join(folder, "worker.py"), peer.module, str(self._threads)]
        self._worker = WorkerProcess(
            peer.title,
            command,
            dict(_worker_environment(self._threads), **self._environment),
            os.path.join(self._log_folder, "worker-%s.log" % self.name),
        )
        if self._cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._worker.pid, self._cores)
        answer = self.ask({"request": "start"})
        self.versions, self.has_product = answer["versions"], answer["has_product"]

    def ask(self, request):
        """An answer; after a failure of the process itself the next `start` begins a new one.

        The process runs only meanwhile, so that none disturbs another.
        """
        self._worker.go_on()
        try:
            answer = self._worker.ask(request)
        except Unsupported:
            if not self._worker.is_alive():
                self.close()
            raise
        self._worker.stop()
        return answer

    def prepare(self, configuration, arrays_path, results_path=None):
        """Makes the network, and writes its results where there is a path for them.

        Raises:
          Refusal: the peer does not have it, or there is no Python for the peer.
          Unsupported: it should, but failed.
        """
        self.start()
        answer = self.ask(
            {
                "request": "prepare",
                "configuration": configuration._asdict(),
                "arrays": arrays_path,
                "results": results_path,
            }
        )
        if "refused" in answer:
            raise Refusal(answer["refused"])

    def run_of(self, what, **more):
        """What `measure_all` runs: what "step" of the network, or "matrix_product" with `size`."""
        return WorkerRun(self.ask, request="run", what=what, **more)

    def close(self):
        """Ends it."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def _worker_environment(threads):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore")
    # PYTHONPATH is of the Python that runs the benchmark.
    environment.pop("PYTHONPATH", None)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(threads)
    environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment
