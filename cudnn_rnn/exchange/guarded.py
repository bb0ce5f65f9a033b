"""Reads files with other libraries in a child process whose memory and time are limited.

A damaged file can end a process inside a library, keep the library busy for ever, or make it
allocate any amount of memory. In a child process, each of these becomes an `ExchangeError`.

The child runs a function of `exchange/readers/`, whose modules do not import this package. It
answers with plain data: None, bool, int, float, str, `np.ndarray` of numbers, and lists
and dicts (with str as keys) of them. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from multiprocessing import spawn
from typing import Any, List, Optional

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError

_READERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "readers")
_PROGRAM = os.path.join(_READERS, "child.py")

# The child may take this many bytes, and as many as a multiple of the file.
_BASE_MEMORY = 2 * 2**30
_MEMORY_PER_BYTE = 16
# What this process may take for the answer, in addition to the same multiple of the file.
_PARENT_MEMORY = 2**30
# A watchdog: a healthy file takes a small part of this. Reading is much faster than 1 MB/s.
_BASE_SECONDS = 120
_SECONDS_PER_BYTE = 1e-6

_BEGINS = b"begins"  # what the child writes first

_DTYPE = re.compile(r"[<>|=][?biufcV]\d{1,2}")


class _NoPython(Exception):
    """The child did not begin; the message names its program and the reason."""


class _Failed(Exception):
    """The child gave no valid answer; the message says why."""


def call(
    path: str,
    what: str,
    reader: str,
    *arguments: Any,
    seconds: Optional[float] = None,
    memory: Optional[int] = None,
    name: Optional[str] = None,
) -> Any:
    """Calls a function of `exchange/readers/` in a child process; returns its result.

    Args:
      path: the file that is read, for errors and for the limits.
      what: the format, for errors, such as "an HDF5 file".
      reader: the name of a module there and a function in it, such as "hdf5.read".
      *arguments: the function's arguments: None, bool, int, float, str and lists of them.
      seconds, memory: limits; by default in proportion to the file.
      name: the name of the file in errors; `path` by default.

    Raises:
      ExchangeError: the function failed, ended its process, or exceeded a limit, or the process
        could not be started.
    """
    size = os.path.getsize(path)
    memory = memory or _BASE_MEMORY + _MEMORY_PER_BYTE * size
    seconds = seconds or _BASE_SECONDS + _SECONDS_PER_BYTE * size
    module, function = reader.split(".")
    request = dict(
        path=[os.path.abspath(entry) for entry in sys.path if entry],
        module=os.path.join(_READERS, module + ".py"),
        function=function,
        arguments=list(arguments),
        memory=memory,
    )
    try:
        answer = _run(
            json.dumps(request).encode(), _PARENT_MEMORY + _MEMORY_PER_BYTE * size, seconds
        )
    except _NoPython as failure:
        raise ExchangeError(
            "%s was not read: reading %s needs another process that runs Python, but %s. Name an "
            "interpreter with multiprocessing.set_executable(PATH)." % (name or path, what, failure)
        ) from None
    except _Failed as failure:
        raise ExchangeError(
            "%s cannot be read as %s: %s. Get the file from its source again."
            % (name or path, what, failure)
        ) from None
    if "error" in answer:
        reason = answer["error"].rstrip(".")
        raise ExchangeError("%s cannot be read as %s: %s." % (name or path, what, reason))
    return answer["value"]


def _start():
    """Starts a child with the interpreter that `multiprocessing` would take."""
    python = spawn.get_executable()  # bytes in Python 3.11 and newer
    python = os.fsdecode(python) if python else ""
    if not python or (getattr(sys, "frozen", False) and python == sys.executable):
        raise _NoPython("this program embeds Python and is no interpreter")
    try:
        return subprocess.Popen(
            # -I: nothing in the environment or the working directory changes what Python imports.
            [python, "-I", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # The library of linear algebra would reserve memory for each core.
            env=dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1"),
        )
    except OSError as error:
        raise _NoPython("%s did not start (%s)" % (python, error.strerror)) from None


def _begins(process, request):
    """Sends the request; returns whether the child says that it begins."""
    try:
        with process.stdin:
            process.stdin.write(request)
    except OSError:
        return False
    return process.stdout.read(len(_BEGINS)) == _BEGINS


def _run(request, longest_answer, seconds):
    """Runs a child with this request; returns the decoded answer."""
    process = _start()
    is_late: List[bool] = []

    def end():
        is_late.append(True)
        process.kill()

    watchdog = threading.Timer(seconds, end)
    watchdog.daemon = True
    watchdog.start()
    try:
        if not _begins(process, request):
            raise _NoPython("%s did not run a Python program" % process.args[0])
        try:
            return _Answer(process.stdout, longest_answer).read()
        except (_Failed, OSError) as failure:
            process.kill()
            process.wait()
            raise _Failed(_reason(process, is_late, seconds, failure)) from None
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def _reason(process, is_late, seconds, failure):
    """Returns why there is no answer."""
    if is_late:
        return "the reader did not end within %g seconds" % seconds
    if process.returncode < 0 and process.returncode != -signal.SIGKILL:
        name = signal.Signals(-process.returncode).name
        return "the file makes the reader end with %s" % name
    return str(failure)


class _Answer:
    """What a child writes: the length of a JSON text, the text, and the bytes of all arrays.

    The child is not trusted, because the file may control it.
    """

    def __init__(self, stream, limit):
        self._stream, self._left = stream, limit

    def read(self):
        """Returns the decoded answer; raises `_Failed` unless it is complete and valid."""
        (length,) = struct.unpack("<Q", self._take(8))
        try:
            answer = json.loads(self._take(length).decode())
            arrays = [self._array(*described) for described in answer["arrays"]]
            if "error" in answer:
                return {"error": str(answer["error"])}
            return {"value": _decode(answer["value"], arrays)}
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            RecursionError,
        ) as error:
            raise _Failed("the reader's answer is damaged (%s)" % error) from error

    def _take(self, count):
        """Returns the next `count` bytes."""
        if not 0 <= count <= self._left:
            raise _Failed("the reader's answer is longer than its limit of memory")
        self._left -= count
        content = self._stream.read(count)
        if len(content) != count:
            raise _Failed("the reader needs more memory than is allowed, or ended early")
        return content

    def _array(self, dtype, shape):
        if not _DTYPE.fullmatch(dtype):
            raise ValueError("dtype %r" % dtype)
        count = 1
        for size in shape:
            if type(size) is not int or size < 0:
                raise ValueError("shape %r" % shape)
            count *= size
        content = self._take(count * np.dtype(dtype).itemsize)
        return np.frombuffer(content, np.dtype(dtype)).reshape(shape)


def _decode(value, arrays):
    """Reverses `_encode` of `readers/child.py`."""
    if isinstance(value, list):
        return [_decode(part, arrays) for part in value]
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "array":
            return arrays[content]
        if kind != "dict":
            raise ValueError("a value of the kind %r" % kind)
        return {name: _decode(part, arrays) for name, part in content.items()}
    return value
