"""A process that measures one peer on request. `processes.py` starts it and sends the requests.

    python worker.py MODULE OPTIONS

Requests are lines of JSON on stdin, answers are lines of JSON on the original stdout. OPTIONS is a
JSON object: "threads" (None for the library's default), "device" ("cpu" or "cuda"), "dtype" (of
matrix_product), and the peer's "arithmetic" and its own (../peers.py). MODULE is a module of this
folder, with
  start(options)
      is called once; sets the number of threads, and returns the versions as a dict
  Network(configuration, problem, options)
      has step(), which runs once and, on a CPU, waits for the end, and results(), which returns a
      list of arrays, the `result_names` of ../problem.py; raises `Refused` if the peer does not
      support the configuration
      Optional: close(); variant, a name for tables
  matrix_product(size, options)  (optional)
      returns a function that multiplies two [size, size] matrices
  time_on_gpu(step, num_steps)  (optional)
      is like time_steps below, and measures the time on the device
  launch_on_gpu(step)  (optional)
      returns the seconds until a step behind other work is launched, and until it is done
  kernels_on_gpu(step)  (optional)
      returns a dict from the names of the kernels that a step runs to [count, microseconds]
This file and its modules for TensorFlow 1 must also run on Python 3.7.
"""

import ctypes
import gc
import importlib
import json
import os
import re
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def time_steps(step, num_steps):
    """Returns the seconds of all steps: wall-clock time, and on the device (here unknown)."""
    start = time.perf_counter()
    for _ in range(num_steps):
        step()
    return time.perf_counter() - start, None


class Worker:
    """Answers the requests."""

    def __init__(self, peer, options):
        self._peer, self._options = peer, options
        self._network = self._product = None

    def answer(self, request):
        """Returns the answer to one request; both are dicts."""
        return getattr(self, "_" + request["request"])(request)

    def _start(self, _):
        versions = dict(self._peer.start(self._options), python=sys.version.split()[0])
        return {"versions": versions, "has_product": hasattr(self._peer, "matrix_product")}

    def _prepare(self, request):
        """Creates a network; writes its results if the request has a path for them."""
        import numpy as np
        from configurations import Configuration
        from problem import Refused, make_problem

        self._release({})
        configuration = Configuration(**request["configuration"])
        problem = make_problem(configuration)
        try:
            self._network = self._peer.Network(configuration, problem, self._options)
        except Refused as refusal:
            return {"refused": str(refusal)}
        if request["results"]:
            results = [np.asarray(one, np.float32) for one in self._network.results()]
            np.savez(request["results"], *results)
        return {"variant": getattr(self._network, "variant", "")}

    def _release(self, _):
        """Frees the network, and the device memory that PyTorch has cached."""
        if hasattr(self._network, "close"):
            self._network.close()
        self._network = None
        gc.collect()
        if self._options["device"] == "cuda" and "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()
        return {}

    def _run(self, request):
        """Measures steps. An unmeasured step precedes several, to wake threads and fill caches."""
        size, timer = request["product_size"], time_steps
        if size and self._product is None:
            self._product = self._peer.matrix_product(size, self._options)
            self._product()
        step = self._product if size else self._network.step
        if self._options["device"] == "cuda":
            timer = getattr(self._peer, "time_on_gpu", time_steps)
        if request["num_steps"] > 1:
            step()
        seconds, device_seconds = timer(step, request["num_steps"])
        return {"seconds": seconds, "device_seconds": device_seconds}

    def _launch(self, _):
        launch = getattr(self._peer, "launch_on_gpu", lambda _: None)
        return {"seconds": launch(self._network.step)}

    def _kernels(self, _):
        kernels = getattr(self._peer, "kernels_on_gpu", lambda _: None)
        return {"kernels": kernels(self._network.step)}

    def _memory(self, request):
        """Returns by how many bytes some steps raise the peak of the resident memory."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets VmHWM to the current resident memory
        before = _status_bytes("VmRSS")
        for _ in range(request["num_steps"]):
            self._network.step()
        return {"bytes": _status_bytes("VmHWM") - before}


def _status_bytes(name):
    with open("/proc/self/status") as file:
        return int(re.search(name + r":\s*(\d+) kB", file.read()).group(1)) * 1024


def main():
    """Answers requests until stdin is closed; an exception becomes {"error": text}."""
    module, options = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # everything that libraries print goes to stderr
    worker = Worker(importlib.import_module(module), json.loads(options))
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # the requesting process decides how to handle it
            answer = {"error": "%s: %s" % (type(error).__name__, str(error).strip()[:500])}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
