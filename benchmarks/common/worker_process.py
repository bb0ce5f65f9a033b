"""A process that measures on request, seen from the one that asks; worker_loop.py is its side.

Libraries that cannot share a process, or a Python, can so be measured in turn.
"""

import atexit
import json
import signal
import subprocess

from measuring import Sample, Unsupported


class WorkerProcess:
    """Talks with a worker: a line of JSON to it, a line of JSON back."""

    def __init__(self, title, command, environment, log_path=None):
        """Starts it.

        Args:
          title: who that is, for messages.
          command: a list, program and arguments.
          environment: its environment variables, all of them.
          log_path: a file for what it prints, or None to drop that.
        """
        self._title, self._log_path = title, log_path
        log = open(log_path, "w") if log_path else subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                universal_newlines=True,
            )
        except OSError as error:
            raise Unsupported("the %s process cannot be started: %s" % (title, error))
        finally:
            if log_path:
                log.close()
        atexit.register(self._process.kill)

    @property
    def pid(self):
        """Of the process."""
        return self._process.pid

    def is_alive(self):
        """Whether it still answers."""
        return self._process.poll() is None

    def ask(self, request):
        """Sends a request and waits for the answer; `Unsupported` where that is an error."""
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            status = self._process.wait()
            hint = " (see %s)" % self._log_path if self._log_path else ""
            raise Unsupported("the %s process ended with status %s%s" % (self._title, status, hint))
        answer = json.loads(line)
        if "error" in answer:
            raise Unsupported(answer["error"])
        return answer

    def stop(self):
        """Lets none of its threads run: those of a pool may spin long after their work is done."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self):
        """Takes back `stop`."""
        self._process.send_signal(signal.SIGCONT)

    def close(self):
        """Ends the process."""
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class WorkerRun:
    """What `measure_all` runs: steps of what the worker has prepared last."""

    def __init__(self, ask, **request):
        """`ask` is a function of a dict: of the request, with the number of steps."""
        self._ask, self._request = ask, request

    def run(self, num_steps):
        """Returns a `Sample` by the worker's clock."""
        answer = self._ask(dict(self._request, num_steps=num_steps))
        return Sample(None, answer["seconds"] / num_steps)

    def close(self):
        """Leaves all to the worker: the next configuration replaces this one."""
