"""Runs pytest for scripts/run_mutants in the tests' environment.

TensorFlow takes seconds to import, so one process imports it and then forks for each run. Requests
and replies are lines of JSON:

  {"arguments": pytest's arguments, "seconds": limit, "coverage": a file or null, "log": a file}
  {"status": pytest's exit status, 0 if all tests pass, or null after the time limit}

With "coverage", the run appends a line [test, seconds, {path: lines}] per test to the file: the
lines of the package's modules that the test executes in this process.
"""

import json
import os
import signal
import sys
import threading
import time

import pytest
import tensorflow  # noqa: F401, so that forked processes need not import it


class Coverage:
    """A pytest plugin that records which lines of the modules in `folder` each test executes."""

    def __init__(self, folder, path):
        self._folder = os.path.realpath(folder) + os.sep
        self._file = open(path, "a", buffering=1)
        self._tracers = {}
        self._lines = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        self._lines = {}
        self._tracers = {}
        start = time.process_time()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        yield
        sys.settrace(None)
        threading.settrace(None)
        seconds = round(time.process_time() - start, 2)
        lines = {
            path[len(self._folder) :]: sorted(found) for path, found in self._lines.items() if found
        }
        self._file.write(json.dumps([item.nodeid, seconds, lines]) + "\n")

    def _trace(self, frame, event, argument):
        path = frame.f_code.co_filename
        if path not in self._tracers:
            self._tracers[path] = self._tracer_of(path)
        tracer = self._tracers[path]
        return tracer and tracer(frame, event, argument)

    def _tracer_of(self, path):
        if not path.startswith(self._folder):
            return None
        found = self._lines.setdefault(path, set())

        def trace(frame, event, argument):
            found.add(frame.f_lineno)
            return trace

        return trace


def _run_in_child(request):
    os.setpgid(0, 0)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    coverage = request["coverage"]
    plugins = [Coverage("cudnn_rnn", coverage)] if coverage else []
    sys.path.insert(0, os.getcwd())
    status = 1
    try:
        status = int(pytest.main(request["arguments"], plugins))
    finally:
        sys.stdout.flush()
        os._exit(status)


def _wait(child, seconds):
    """Returns the exit status, or None after the limit.

    Counts short waits instead of reading the clock: while this process is stopped, no time passes.
    """
    for _ in range(int(seconds * 20)):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
        time.sleep(0.05)
    return None


def main():
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run_in_child(request)
        status = _wait(child, request["seconds"])
        try:
            os.killpg(child, signal.SIGKILL)  # also what a test has left running
        except ProcessLookupError:
            pass
        if status is None:
            os.waitpid(child, 0)
        print(json.dumps({"status": status}), flush=True)


if __name__ == "__main__":
    main()
