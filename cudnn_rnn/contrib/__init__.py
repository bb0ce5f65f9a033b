"""`install()`: this library as the `tf.contrib.cudnn_rnn` of a given TensorFlow release.

    import cudnn_rnn.contrib
    cudnn_rnn.contrib.install(version="1.3")

    from tensorflow.contrib.cudnn_rnn import CudnnLSTM
    from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops

TensorFlow 2 has no `tf.contrib`, so `install()` creates one with this package and the parts in
`other_packages.py`. In TensorFlow 1, `install()` replaces only this package of `tf.contrib`.
`uninstall()` undoes either.

May import `_compat`, `_release_numbers`, `cudnn_rnn_ops`, `graph`, `layers`, `model`, `op_level`,
`tf1_layers` and TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from typing import Any, Callable, List

import tensorflow

from cudnn_rnn import _release_numbers
from cudnn_rnn._compat import IS_TENSORFLOW_1
from cudnn_rnn.contrib import estimators, other_packages, releases

__all__ = ["install", "uninstall"]

_CONTRIB = other_packages.CONTRIB
_PACKAGE = _CONTRIB + ".cudnn_rnn"

_ABSENT = object()
# Functions that undo an installation, called in reverse order.
_undo: List[Callable[[], Any]] = []


def install(version: str = "1.15") -> None:
    """Provides `tf.contrib.cudnn_rnn` as it was in the given TensorFlow release.

    Afterwards `tf.contrib.cudnn_rnn`, `import tensorflow.contrib.cudnn_rnn` and imports from its
    `python.ops.cudnn_rnn_ops` and (from 1.4) `python.layers.cudnn_rnn` give this library's classes
    and functions, with the names, defaults and arguments of that release. Objects that were
    imported earlier do not change. A later call for another release replaces the earlier one.

    TensorFlow 2 also gets what programs use beside it: names of `tf.contrib.rnn`, `seq2seq`,
    `training`, `learn`, `framework` and `layers`, and, if the package tf_slim is installed, all of
    `layers` and `slim`. docs/migrating.md lists them. Missing names raise `AttributeError` or
    `ImportError` with the reason. TensorFlow 2.16 and newer also get `tf.compat.v1.estimator`, if
    the package tensorflow-estimator is installed.

    Args:
      version: str, a release from "1.0" to "1.15"; a patch number is ignored.

    Raises:
      TypeError: `version` is not a string.
      ValueError: no such release exists.
    """
    minor = _release_numbers.minor_of(version)
    modules = _make_modules(releases.namespaces(minor), "1.%d" % minor)
    uninstall()
    contrib_modules = _existing_contrib() or _install_contrib()
    for contrib in contrib_modules:
        _set_attribute(contrib, "cudnn_rnn", modules[_PACKAGE])
    for name in [name for name in sys.modules if (name + ".").startswith(_PACKAGE + ".")]:
        _set_module(name, None)
    for name, module in modules.items():
        _set_module(name, module)
    if estimators.is_to_be_added():
        _set_module(estimators.NAME, estimators.Estimators())
        _set_attribute(tensorflow.compat.v1, "estimator", sys.modules[estimators.NAME])


def uninstall() -> None:
    """Undoes `install`: restores or removes `tf.contrib.cudnn_rnn`."""
    while _undo:
        _undo.pop()()


def _make_modules(namespaces, release):
    """Returns a dict from full module names to modules."""
    modules = {}
    contents = {(_PACKAGE + "." + name).rstrip("."): names for name, names in namespaces.items()}
    for name, names in contents.items():
        is_package = any(other.startswith(name + ".") for other in contents)
        text = "%s of TensorFlow %s, from the library cudnn_rnn." % (name, release)
        modules[name] = _make_module(name, is_package, text)
        vars(modules[name]).update(names)
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        # In every release, the package itself hides undocumented names, including `python`.
        if parent in modules and parent != _PACKAGE:
            setattr(modules[parent], child, module)
    layers = modules.get(_PACKAGE + ".python.layers.cudnn_rnn")
    if layers is not None:  # the file of the layers imports that of the ops
        layers.cudnn_rnn_ops = modules[_PACKAGE + ".python.ops.cudnn_rnn_ops"]
    return modules


def _make_module(name, is_package, text):
    module = types.ModuleType(name, text)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=is_package)
    module.__package__ = name if is_package else name.rpartition(".")[0]
    if is_package:
        module.__path__ = []
    return module


def _existing_contrib():
    """Returns every module in use as `tf.contrib`, an empty list if there is none."""
    found = []
    if IS_TENSORFLOW_1:
        # Resolves TensorFlow's lazy loader, so that the modules below exist.
        importlib.import_module(_PACKAGE)
        names = (_CONTRIB, "tensorflow_core.contrib")
        found += [sys.modules[name] for name in names if name in sys.modules]
    for module in _tensorflow_modules():
        if vars(module).get("contrib") is not None:
            found.append(module.contrib)
    if not found and _CONTRIB in sys.modules:
        found = [sys.modules[_CONTRIB]]
    return found


def _tensorflow_modules():
    """Returns the modules that programs use as `tensorflow`."""
    modules = [sys.modules.get("tensorflow"), tensorflow]
    if not IS_TENSORFLOW_1:
        modules.append(tensorflow.compat.v1)
    return [module for module in modules if module is not None]


def _install_contrib():
    """Creates a `tf.contrib` for a TensorFlow without one; returns it in a list."""
    contrib = _make_module(_CONTRIB, True, "The parts of tf.contrib that cudnn_rnn provides.")
    contrib.__getattr__ = other_packages.find_part
    _set_module(_CONTRIB, contrib)
    _undo.append(_forget_parts)
    finder = other_packages.Finder()
    # Must come first: the path finder would load submodules of a successor package a second time.
    sys.meta_path.insert(0, finder)
    _undo.append(lambda: sys.meta_path.remove(finder))
    for name, part in other_packages.parts().items():
        setattr(contrib, name, part)
        sys.modules[part.__name__] = part
    for module in _tensorflow_modules():
        _set_attribute(module, "contrib", contrib)
    return [contrib]


def _forget_parts():
    """Removes the modules imported below the `tf.contrib` that this module created."""
    for name in [name for name in sys.modules if name.startswith(_CONTRIB + ".")]:
        del sys.modules[name]


def _set_module(name, module):
    """Sets (or, for None, removes) an entry of `sys.modules` until `uninstall`."""
    before = sys.modules.get(name, _ABSENT)

    def put(value):
        if value is _ABSENT:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = value

    put(_ABSENT if module is None else module)
    _undo.append(lambda: put(before))


def _set_attribute(module, name, value):
    """Sets an attribute of a module until `uninstall`."""
    before = vars(module).get(name, _ABSENT)
    setattr(module, name, value)

    def put_back():
        if before is not _ABSENT:
            setattr(module, name, before)
        elif getattr(module, name, None) is value:
            delattr(module, name)

    _undo.append(put_back)
