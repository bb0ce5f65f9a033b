"""The client's side of workers/worker.py: a peer's process, which measures on request.

Separate processes make it possible to measure in turn libraries that cannot share a process or a
Python environment.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys

from measuring import Sample

# These variables let our ops, or oneDNN in TensorFlow and PyTorch, round the factors of products.
_PRECISIONS = (
    "CUDNN_RNN_FLOAT32_MATMUL_PRECISION",
    "TF_SET_ONEDNN_FPMATH_MODE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
)


class PeerFailure(Exception):
    """A peer has no time; `is_error` is False if that is expected."""

    def __init__(self, peer_name, reason, is_error=True):
        super().__init__(reason)
        self.peer_name, self.is_error = peer_name, is_error

    def result(self):
        """Returns the peer's entry in the results."""
        return {"reason": str(self), "is_error": self.is_error}


def worker_environment(peer, threads):
    """Returns the environment variables of a worker; `threads` is None in the GPU benchmark.

    There, $TENSORFLOW_PYTHONPATH and $TENSORFLOW_LD_LIBRARY_PATH override the variables of this
    process for TensorFlow.
    """
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    for name in _PRECISIONS:
        environment.pop(name, None)
    if threads:
        # PYTHONPATH belongs to the Python that runs the benchmark.
        environment.pop("PYTHONPATH", None)
        environment.update(PYTHONWARNINGS="ignore", CUDA_VISIBLE_DEVICES="")
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment[name] = str(threads)
    elif peer.environment == "tensorflow":
        environment["CUDNN_RNN_GPU_KERNELS"] = peer.options["kernels"]
        for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
            if "TENSORFLOW_" + name in os.environ:
                environment[name] = os.environ["TENSORFLOW_" + name]
    return environment


class PeerProcess:
    """A peer's process. It lives until the benchmark ends, and is restarted if it dies.

    If it does not answer a request in time, it is killed; the second time, it stays dead.
    """

    def __init__(self, name, peer, chosen, cpus=None, **environment):
        """Stores the name in results, the `Peer`, the arguments of the benchmark, and further ones.

        `cpus` are the CPUs that the process may use, or None for all; `environment` has environment
        variables besides those of `worker_environment`.
        """
        self.name, self.peer, self.versions, self.has_product = name, peer, {}, False
        self._environment = dict(worker_environment(peer, chosen.threads), **environment)
        self._cpus, self._is_suspended, self._process = cpus, chosen.device == "cpu", None
        self._is_ready = False
        common = {name: getattr(chosen, name) for name in ("threads", "device", "dtype")}
        self._options = dict(peer.options, arithmetic=peer.arithmetic, **common)
        self._is_wanted = chosen.names_peers
        self.answer_seconds, self._late_answers = chosen.answer_seconds, 0
        self._log = os.path.join(chosen.logs, "worker-%s.log" % name.replace(" ", "-"))

    def start(self):
        """Starts the process unless it runs, and waits for it; raises `PeerFailure` if it fails."""
        if self._process is None:
            self.launch()
        if not self._is_ready:
            answer = self.ask("start")
            self.versions, self.has_product = answer["versions"], answer["has_product"]
            self._is_ready = True

    def launch(self):
        """Starts the process without waiting for it."""
        if self._late_answers > 1:
            raise PeerFailure(self.name, "not started again: two requests had no answer in time")
        variable = self.peer.environment.upper() + "_PYTHON"
        # One Python may run the whole GPU benchmark.
        python = os.environ.get(variable) or (None if self._options["threads"] else sys.executable)
        if not python:
            text = "$%s is not set; expected the path of this peer's Python" % variable
            raise PeerFailure(self.name, text, is_error=self._is_wanted)
        worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers", "worker.py")
        command = [python, worker, self.peer.module, json.dumps(self._options)]
        options = {"env": self._environment, "universal_newlines": True}
        options.update(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            with open(self._log, "w") as log:
                self._process = subprocess.Popen(command, stderr=log, **options)
        except OSError as error:
            raise PeerFailure(self.name, "the process cannot be started: %s" % error)
        if self._cpus:
            os.sched_setaffinity(self._process.pid, self._cpus)

    def ask(self, request, **fields):
        """Returns the answer; raises `PeerFailure` if it is an error.

        If the process has died, the next `start` starts a new one. A process that computes on CPUs
        runs only during requests, so that its pool's threads, which may keep spinning after their
        work, do not disturb other peers.
        """
        if self._is_suspended:
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(dict(fields, request=request)) + "\n")
            self._process.stdin.flush()
            # A line arrives as a whole: it is short, and written at once.
            seconds = self.answer_seconds
            if not select.select([self._process.stdout], [], [], seconds)[0]:
                self._late_answers += 1
                self.close()
                text = "no answer to %r within %g s, so the process was killed (see %s)"
                raise PeerFailure(self.name, text % (request, seconds, self._log))
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            status = self._process.wait()
            self.close()
            with open(self._log) as log:
                last_line = log.read().strip().rpartition("\n")[2]
            text = "the process ended with status %s: %s (see %s)"
            raise PeerFailure(self.name, text % (status, last_line, self._log))
        if self._is_suspended:
            self._process.send_signal(signal.SIGSTOP)
        answer = json.loads(line)
        if "error" in answer:
            raise PeerFailure(self.name, answer["error"])
        return answer

    def prepare(self, configuration, results_path=None):
        """Creates the network, and writes its results to `results_path` unless that is None.

        Returns the name of the peer's variant.
        """
        self.start()
        answer = self.ask("prepare", configuration=configuration._asdict(), results=results_path)
        if "refused" in answer:
            raise PeerFailure(self.name, answer["refused"], is_error=False)
        return answer["variant"]

    def run(self, num_steps, product_size=None):
        """Returns a `Sample` of steps or, with a size, of a matrix product."""
        self.start()  # the process whose matrix product is the peak may have died in a step
        answer = self.ask("run", num_steps=num_steps, product_size=product_size)
        seconds = (answer["seconds"], answer["device_seconds"])
        return Sample(*[one and one / num_steps for one in seconds])

    def release(self):
        """Frees the network, by ending the process if that fails."""
        try:
            if self._process is not None:
                self.ask("release")
        except PeerFailure:
            self.close()

    def close(self):
        """Kills the process and waits for its end, but not long: a driver may hold the process."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._process.wait(timeout=10)
                self._process.stdout.close()
                self._process.stdin.close()  # fails if it still holds a request
        self._process, self._is_ready = None, False
