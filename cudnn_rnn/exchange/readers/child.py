"""The child process of `exchange/guarded.py`: calls one function and writes its result.

The request on the standard input is a JSON object; see `guarded.call`.
"""

import importlib.util
import json
import os
import resource
import struct
import sys
from typing import Any, List


def main():
    request = json.loads(sys.stdin.read())
    # Libraries may print; the answer goes to the original standard output alone.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    output.write(b"begins")
    output.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (request["memory"],) * 2)
    sys.path[:] = request["path"]
    try:
        module = _load(request["module"])
        answer = {"value": getattr(module, request["function"])(*request["arguments"])}
    except MemoryError:
        answer = {"error": "the reader needs more memory than is allowed for a file of this size"}
    except Exception as error:
        is_of_reader = type(error).__module__ == "reader"  # its message says all
        answer = {
            "error": str(error) if is_of_reader else "%s (%s)" % (error, type(error).__name__)
        }
    _write(output, answer)


def _load(path):
    """Returns a module of `exchange/readers/`."""
    spec: Any = importlib.util.spec_from_file_location("reader", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write(output, answer):
    arrays: List[Any] = []
    described = {name: _encode(value, arrays) for name, value in answer.items()}
    described["arrays"] = [[array.dtype.str, list(array.shape)] for array in arrays]
    text = json.dumps(described).encode()
    output.write(struct.pack("<Q", len(text)) + text)
    for array in arrays:
        output.write(array.tobytes())
    output.flush()


def _encode(value, arrays):
    """Returns `value` as JSON, with a reference for each array, which is added to `arrays`."""
    if isinstance(value, list):
        return [_encode(part, arrays) for part in value]
    if isinstance(value, dict):
        return {"dict": {name: _encode(part, arrays) for name, part in value.items()}}
    if hasattr(value, "tobytes"):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    return value


if __name__ == "__main__":
    main()
