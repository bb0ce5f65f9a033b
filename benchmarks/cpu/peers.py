"""The peers that ours is measured against. Standard library only.

To add a peer, add a line to PEERS, and its module to workers/ (worker.py describes the interface).
"""

import os
from collections import OrderedDict, namedtuple

from measuring import Unsupported
from worker_process import WorkerProcess, WorkerRun

Peer = namedtuple("Peer", "title environment module kinds")
"""The title in tables, the Python environment, the module in workers/, and the supported kinds."""

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

# The environment variable that names each environment's Python executable.
ENVIRONMENT_VARIABLES = {
    "tensorflow": "TENSORFLOW_PYTHON",
    "torch": "TORCH_PYTHON",
    "onnxruntime": "ONNXRUNTIME_PYTHON",
    "tensorflow1": "TENSORFLOW_1_PYTHON",
}

# In these groups some peers would take minutes.
_ALLOWED_IN_GROUP = {"scaling": (OURS, "torch", "onnxruntime")}


def takes_part(name, configuration):
    """Returns whether a peer is measured on a configuration."""
    allowed = _ALLOWED_IN_GROUP.get(configuration.group, PEERS)
    return name in allowed and configuration.kind in PEERS[name].kinds


class Refusal(Exception):
    """A peer cannot be measured, which is not an error; the message says why."""


class PeerProcess:
    """A peer's process. It lives until the benchmark ends, and is restarted if it dies."""

    def __init__(self, name, threads, cores, log_folder, environment=None):
        self.name, self.versions, self.has_product = name, {}, False
        self._threads, self._cores, self._log_folder = threads, cores, log_folder
        self._environment = dict(environment or {})
        self._worker = None

    def start(self):
        """Starts the process unless it runs.

        Raises:
          Refusal: there is no Python for the peer.
          Unsupported: the process cannot be started.
        """
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
        """Returns the answer; if the process has died, the next `start` starts a new one.

        The process runs only during the request, so that it does not disturb other peers.
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
        """Creates the network, and writes its results to `results_path` unless that is None.

        Raises:
          Refusal: the peer does not support the configuration, or there is no Python for the peer.
          Unsupported: the peer failed.
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
        """Returns a run for `measure_all`; `what` is "step" or, with `size`, "matrix_product"."""
        return WorkerRun(self.ask, request="run", what=what, **more)

    def close(self):
        """Ends the process."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def _worker_environment(threads):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore")
    # PYTHONPATH belongs to the Python that runs the benchmark.
    environment.pop("PYTHONPATH", None)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(threads)
    environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment
