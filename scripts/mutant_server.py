"""Runs pytest for scripts/run_mutants in the tests' environment.

TensorFlow takes seconds to import, so one process imports it and then forks for each run. Requests
and replies are lines of JSON:

  {"arguments": pytest's arguments, "seconds": limit, "log": a file}
  {"status": pytest's exit status, 0 if all tests pass, or null after the time limit}
"""

import json
import os
import signal
import sys
import time

import pytest
import tensorflow  # noqa: F401, so that forked processes need not import it


def _run_in_child(request):
    os.setpgid(0, 0)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path.insert(0, os.getcwd())
    status = 1
    try:
        status = int(pytest.main(request["arguments"]))
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
