"""Environments with one TensorFlow each, in which other programs try this package."""

import collections
import os
import shutil
import subprocess

from tensorflow_releases import ROOT


class Failure(Exception):
    """A step of a trial failed; the message names the step."""


class ReleaseEnvironment:
    """An environment for a release of TensorFlow, and the log of the commands that run there."""

    def __init__(self, release, folder):
        self.release = release
        self.name = "%s-python%s" % (release.tensorflow, release.python)
        self.folder = os.path.join(ROOT, folder, self.name)
        self.log = self.folder + ".log"
        os.makedirs(os.path.join(ROOT, folder), exist_ok=True)

    def make(self, function, *arguments, **variables):
        """Creates the environment with a function of scripts/environments.sh."""
        python = find_python(self.release.python)
        if python is None:
            raise Failure("no Python %s was found" % self.release.python)
        self.call(
            "installation",
            ["bash", "-c", '. scripts/environments.sh && %s "$@"' % function, "bash"]
            + [os.path.relpath(self.folder, ROOT), python, *arguments],
            **variables,
        )

    def program(self, name):
        return os.path.join(self.folder, "bin", name)

    def call(self, step, command, folder=ROOT, **variables):
        """Runs a command and returns its output. Raises `Failure` if it fails."""
        start = self._log_size()
        if self.status_of(command, folder, **variables) != 0:
            raise Failure(step)
        with open(self.log, errors="replace") as file:
            file.seek(start)
            return file.read()

    def status_of(self, command, folder=ROOT, **variables):
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHON="", PYTHONWARNINGS="ignore")
        environment.pop("PYTHONPATH", None)
        environment.update(variables)
        with open(self.log, "a") as file:
            return subprocess.call(
                command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
            )

    def end_of_log(self):
        """Returns the last lines of the log, "" without one."""
        if not self._log_size():
            return ""
        with open(self.log, errors="replace") as file:
            return "".join(collections.deque(file, maxlen=40))

    def delete(self):
        """Deletes the environment, but not its log."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _log_size(self):
        return os.path.getsize(self.log) if os.path.exists(self.log) else 0


def find_python(version):
    """Returns the path of a Python of this version, or None if there is none."""
    process = subprocess.run(
        ["bash", "-c", '. scripts/environments.sh && find_python "$1"', "bash", version],
        cwd=ROOT,
        env=dict(os.environ, PYTHON=""),
        stdout=subprocess.PIPE,
        universal_newlines=True,
    )
    return process.stdout.strip() if process.returncode == 0 else None
