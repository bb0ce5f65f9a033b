"""The client's side of a process that measures on request; worker_loop.py is the worker's side.

Separate processes make it possible to measure in turn libraries that cannot share a process or a
Python environment.
"""

import atexit
import json
import signal
import subprocess

from measuring import Sample, Unsupported


class WorkerProcess:
    """Exchanges requests and answers with a worker, one line of JSON each."""

    def __init__(self, title, command, environment, log_path=None):
        """Starts the process.

        Args:
          title: the worker's name in messages.
          command: the program and its arguments, a list.
          environment: all environment variables of the process.
          log_path: the file that receives the worker's output, or None to discard the output.
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
        """The process id."""
        return self._process.pid

    def is_alive(self):
        """Returns whether the process is still running."""
        return self._process.poll() is None

    def ask(self, request):
        """Sends a request and returns the answer; raises `Unsupported` if it is an error."""
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
        """Suspends the process, whose pool threads may otherwise keep spinning after their work."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self):
        """Resumes the process after `stop`."""
        self._process.send_signal(signal.SIGCONT)

    def close(self):
        """Kills the process and waits for its end."""
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class WorkerRun:
    """A run for `measure_all`: steps of the network that the worker has prepared last."""

    def __init__(self, ask, **request):
        """Stores `ask`, a function that sends a request dict, and the request's other fields."""
        self._ask, self._request = ask, request

    def run(self, num_steps):
        """Returns a `Sample` measured with the worker's clock."""
        answer = self._ask(dict(self._request, num_steps=num_steps))
        return Sample(None, answer["seconds"] / num_steps)

    def close(self):
        """Does nothing: in the worker, the next configuration replaces this one."""
