"""A process that measures one peer on request. `peers.py` starts it and sends the requests.

    python worker.py MODULE THREADS

MODULE is a module of this folder, with
  start(threads)
      is called once; sets the number of threads, and returns the versions as a dict
  Network(configuration, arrays, threads)
      has step(), which runs once and waits for the end, and results(), which returns the results
      by name as described in ../problem.py; raises `Refused` if the peer does not support the
      configuration
  matrix_product(size)  (optional)
      returns a function that multiplies two [size, size] matrices
This file and its modules for TensorFlow 1 must also run on Python 3.7.
"""

import ctypes
import gc
import importlib
import os
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(FOLDER))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "common"))

from worker_loop import Answers  # noqa: E402


class Worker:
    """Answers the requests."""

    def __init__(self, peer, threads):
        self._peer, self._threads = peer, threads
        self._network = self._product = None

    def answer(self, request):
        """Returns the answer to one request; both are dicts."""
        return getattr(self, "_" + request["request"])(request)

    def _start(self, _):
        versions = self._peer.start(self._threads)
        return {"versions": versions, "has_product": hasattr(self._peer, "matrix_product")}

    def _prepare(self, request):
        """Creates a network; writes its results if the request has a path for them."""
        import numpy as np
        from refusal import Refused

        self._network = None
        gc.collect()
        configuration, arrays = _read(request)
        try:
            self._network = self._peer.Network(configuration, arrays, self._threads)
        except Refused as refusal:
            return {"refused": str(refusal)}
        if request.get("results"):
            np.savez(request["results"], **self._network.results())
        return {}

    def _run(self, request):
        """Measures steps. An unmeasured step precedes several, to wake threads and fill caches."""
        if request["what"] == "matrix_product":
            if self._product is None:
                self._product = self._peer.matrix_product(request["size"])
                self._product()
            step = self._product
        else:
            step = self._network.step
        if request["num_steps"] > 1:
            step()
        start = time.perf_counter()
        for _ in range(request["num_steps"]):
            step()
        return {"seconds": time.perf_counter() - start}

    def _memory(self, request):
        """Returns the resident memory before some steps, and its peak during them, in bytes."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _reset_peak()
        before = _status_bytes("VmRSS")
        for _ in range(request["num_steps"]):
            self._network.step()
        return {"before": before, "peak": _status_bytes("VmHWM")}


def _read(request):
    import numpy as np
    from configurations import Configuration

    with np.load(request["arrays"]) as file:
        arrays = {name: file[name] for name in file.files}
    return Configuration(**request["configuration"]), arrays


def _reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets VmHWM to the current resident memory


def _status_bytes(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    raise ValueError("/proc/self/status has no %s" % name)


def main():
    module, threads = sys.argv[1], int(sys.argv[2])
    answers = Answers()
    answers.serve(Worker(importlib.import_module(module), threads).answer)


if __name__ == "__main__":
    main()
