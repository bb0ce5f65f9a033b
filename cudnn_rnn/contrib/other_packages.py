"""The parts of `tf.contrib` that TensorFlow 2 gets in addition to `tf.contrib.cudnn_rnn`.

- `rnn`: the names that have an equivalent in this TensorFlow, in this library, or in the package
  tf_keras, which has the cells that TensorFlow with Keras 3 lacks;
- `layers` and `slim`: the package tf_slim, if it is installed.

All other names raise an error that says what is missing and what to do. Every part is imported on
first use.
"""

import importlib
import importlib.machinery
import sys
import types
from typing import Any

from cudnn_rnn._compat import native_rnn_cell_module, tf

CONTRIB = "tensorflow.contrib"
_RNN = CONTRIB + ".rnn"

# The packages that replace parts of `tf.contrib`.
_SUCCESSORS = {CONTRIB + ".layers": "tf_slim.layers", CONTRIB + ".slim": "tf_slim"}

# The names of `tf.contrib.rnn`: their modules in this library, those in `tf.nn`, and the cells.
_OWN_MODULES = {
    "BasicRNNCell": "cells.basic",
    "LSTMStateTuple": "cells.compatible",
    "MultiRNNCell": "cells.compatible",
    "RNNCell": "cells.compatible",
    "stack_bidirectional_dynamic_rnn": "cells.basic",
}
_NAMES_IN_TF_NN = ("static_bidirectional_rnn", "static_rnn", "static_state_saving_rnn")
_CELLS = (
    "BasicLSTMCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "ResidualWrapper",
)
_CELLS_OF_TF_KERAS = "tf_keras.api._v1.keras.__internal__.legacy.rnn_cell"

_ADVICE = {
    "LSTMBlockCell": "cudnn_rnn.CudnnCompatibleLSTMCell is an LSTM cell, but its variables differ.",
    "LSTMBlockFusedCell": "cudnn_rnn.CudnnLSTM computes whole sequences of an LSTM, but its "
    "variables differ.",
    "stack_bidirectional_rnn": "Use stack_bidirectional_dynamic_rnn.",
}
_LAST_RESORT = "Change the program, or run it in TensorFlow 1.15, which has all of tf.contrib."


class Rnn(types.ModuleType):
    """The module `tf.contrib.rnn`; resolves each name on first use."""

    def __init__(self):
        super().__init__(_RNN, "The parts of tf.contrib.rnn that cudnn_rnn provides.")
        # A package, so that importing a missing name reaches `Finder`, which gives the reason.
        self.__path__ = []
        self.__package__ = _RNN
        self.__spec__ = importlib.machinery.ModuleSpec(_RNN, None, is_package=True)

    def __getattr__(self, name):
        if name == "__all__":
            return dir(self)
        try:
            value = _find_rnn_name(name)
        except LookupError as error:
            raise AttributeError("module %r has no attribute %r: %s" % (_RNN, name, error))
        setattr(self, name, value)
        return value

    def __dir__(self):
        names = [*_OWN_MODULES, *_NAMES_IN_TF_NN]
        try:
            _cell_module(_CELLS[0])
            names += _CELLS
        except LookupError:
            pass
        return sorted(names)


def _find_rnn_name(name):
    """Returns the object of this name in `tf.contrib.rnn`; `LookupError` says why there is none."""
    if name in _OWN_MODULES:
        return getattr(importlib.import_module("cudnn_rnn." + _OWN_MODULES[name]), name)
    if name in _NAMES_IN_TF_NN:
        return getattr(tf.nn, name)
    if name in _CELLS:
        return getattr(_cell_module(name), name)
    reasons = ["neither TensorFlow %s nor cudnn_rnn has an equivalent." % tf.version.VERSION]
    reasons += [_ADVICE[name]] if name in _ADVICE else []
    raise LookupError(" ".join(reasons + [_LAST_RESORT]))


def _cell_module(name):
    """Returns the module with TensorFlow 1's cells; `LookupError` if there is none."""
    native = native_rnn_cell_module()
    if native is not None:
        return native
    try:
        return importlib.import_module(_CELLS_OF_TF_KERAS)
    except Exception as error:
        problem = "" if _is_missing(error, "tf_keras") else " Importing it failed: %s" % error
    version = ".".join(tf.version.VERSION.split(".")[:2])
    raise LookupError(
        "TensorFlow %s provides tf.nn.rnn_cell.%s only with Keras 2. Install the package tf_keras, "
        "for example with `pip install tf_keras~=%s.0`.%s"
        % (tf.version.VERSION, name, version, problem)
    )


class Finder:
    """Finds the successor packages of `tf.contrib`; the error for other names gives the reason."""

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if ".".join(parts[:2]) != CONTRIB or len(parts) < 3 or parts[2] == "cudnn_rnn":
            return None
        successor = _successor(name)
        if successor is None:
            # With name=, `from tensorflow.contrib import ...` would swallow this error.
            raise ModuleNotFoundError("No module named %r: %s" % (name, why_missing(name)))
        loader: Any = _Alias(successor)
        return importlib.machinery.ModuleSpec(name, loader, is_package=True)


class _Alias:
    """A loader that replaces its module by another one, imported under that one's own name."""

    def __init__(self, name):
        self._name = name

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        try:
            sys.modules[module.__name__] = importlib.import_module(self._name)
        except Exception as error:
            reason = _why_no_successor(module.__name__, self._name, error)
            raise ModuleNotFoundError(reason) from error


def _successor(name):
    """Returns the name of a `tf.contrib` module in its successor package, None without one."""
    for old, new in _SUCCESSORS.items():
        if name == old or name.startswith(old + "."):
            return new + name[len(old) :]
    return None


def _why_no_successor(name, successor, error):
    package = successor.split(".")[0]
    advice = "Importing it failed: %s" % error
    if _is_missing(error, package):
        advice = "Install it: pip install %s" % package
    text = "No module named %r: it has moved to %s in the package %s. %s"
    return text % (name, successor, package, advice)


def _is_missing(error, package):
    """Tells whether an import failed because this package is not installed."""
    return isinstance(error, ModuleNotFoundError) and error.name == package


def find_part(name):
    """Returns `tf.contrib.<name>`; `AttributeError` gives the reason if it is missing."""
    full_name = "%s.%s" % (CONTRIB, name)
    reason: Any = why_missing(full_name)
    if _successor(full_name) is not None:
        try:
            return importlib.import_module(full_name)
        except ModuleNotFoundError as error:
            reason = error
    raise AttributeError("module %r has no attribute %r: %s" % (CONTRIB, name, reason))


def why_missing(name):
    """Returns an error message for a missing module of `tf.contrib`."""
    if name.startswith(_RNN + "."):
        try:
            _find_rnn_name(name[len(_RNN) + 1 :])
        except LookupError as error:
            return str(error)
    return (
        "TensorFlow %s has no tf.contrib. The library cudnn_rnn provides only its parts cudnn_rnn "
        "and rnn, and, if the package tf_slim is installed, layers and slim. %s"
        % (tf.version.VERSION, _LAST_RESORT)
    )
