"""Lists the public interface, which `tests/api/test_public_api.py` compares with a file.

    python tests/programs/public_api.py    writes the lines of this TensorFlow to the file

Run it in TensorFlow 1.15 and in 2.21. A line that is only in one of them starts with its mark.
"""

import importlib
import inspect
import os
import sys
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if __name__ == "__main__":
    sys.path.insert(0, ROOT)

from cudnn_rnn._compat import IS_TENSORFLOW_1  # noqa: E402

PATH = os.path.join(ROOT, "tests", "api", "public_api.txt")
MODULES = [
    "cudnn_rnn",
    "cudnn_rnn.contrib",
    "cudnn_rnn.cudnn_rnn_ops",
    "cudnn_rnn.exchange",
    "cudnn_rnn.keras",
    "cudnn_rnn.layers",
    "cudnn_rnn.onnx",
    "cudnn_rnn.opaque_saveable",
    "cudnn_rnn.plain",
    "cudnn_rnn.saveables",
]
MARKS = {True: "[TensorFlow 1] ", False: "[TensorFlow 2] "}


def describe_default(value):
    """Returns a text that is the same in every process and TensorFlow."""
    if isinstance(value, (str, int, float, type(None), tuple)):
        return repr(value)
    return getattr(value, "name", None) or type(value).__name__  # the name of a dtype


def describe_parameters(function):
    """Returns for example "(inputs, *, name=None)": names, kinds and defaults, without types."""
    parameters = [
        parameter.replace(
            annotation=parameter.empty,
            default=parameter.empty
            if parameter.default is parameter.empty
            else _Text(describe_default(parameter.default)),
        )
        for parameter in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters))


class _Text(str):
    __repr__ = str.__str__


def class_members(cls):
    """Yields names and values that this package defines in the class or in its base classes."""
    names = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("cudnn_rnn"):
            continue
        for name, value in vars(base).items():
            if name not in names and (not name.startswith("_") or name in ("__init__", "__call__")):
                names.add(name)
                yield name, value


def describe(name, value, seen):
    """Yields the lines of a public name. `seen`: the first name of every described class."""
    if isinstance(value, types.ModuleType):
        yield "%s: module" % name
    elif inspect.isclass(value):
        if seen.setdefault(value, name) != name:
            yield "%s is %s" % (name, seen[value])
            return
        yield "%s: class" % name
        for member, part in sorted(class_members(value)):
            yield from describe("%s.%s" % (name, member), part, seen)
    elif inspect.isdatadescriptor(value):
        # Since Python 3.8, fields of named tuples are of a class of their own.
        is_settable = getattr(value, "fset", None) is not None
        yield "%s: %s" % (name, "property, may be set" if is_settable else "property")
    elif callable(getattr(value, "__func__", value)):
        yield name + describe_parameters(inspect.unwrap(getattr(value, "__func__", value)))
    else:
        yield "%s = %s" % (name, describe_default(value))


def public_api():
    """Returns the lines of the running TensorFlow."""
    lines, seen = [], {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in sorted(getattr(module, "__all__", vars(module))):
            if not name.startswith("_"):
                full_name = "%s.%s" % (module_name, name)
                lines += describe(full_name, getattr(module, name), seen)
    return lines


def read(is_tensorflow_1):
    """Returns the lines of the file for a TensorFlow."""
    if not os.path.exists(PATH):
        return []
    with open(PATH) as file:
        lines = file.read().splitlines()
    other = MARKS[not is_tensorflow_1]
    own = MARKS[is_tensorflow_1]
    return [
        line[len(own) :] if line.startswith(own) else line
        for line in lines
        if not line.startswith(other)
    ]


def write(lines):
    """Replaces the lines of the running TensorFlow."""
    found = {IS_TENSORFLOW_1: lines, not IS_TENSORFLOW_1: read(not IS_TENSORFLOW_1)}
    common = set(found[True]) & set(found[False])
    marked = {(line, "") for line in common}
    for is_tensorflow_1, own_lines in found.items():
        marked |= {(line, MARKS[is_tensorflow_1]) for line in own_lines if line not in common}
    with open(PATH, "w") as file:
        file.writelines("%s%s\n" % (mark, line) for line, mark in sorted(marked))


if __name__ == "__main__":
    write(public_api())
