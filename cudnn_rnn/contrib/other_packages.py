"""The parts of `tf.contrib` that TensorFlow 2 gets in addition to `tf.contrib.cudnn_rnn`.

- `framework`, `learn`, `rnn`, `seq2seq` and `training`: the names that have an equivalent in this
  TensorFlow, in this library, or in the package tf_keras, which has the cells that TensorFlow with
  Keras 3 lacks;
- `layers` and `slim`: the package tf_slim, if it is installed. Without it, `layers` has this
  library's initializer and regularizers.

All other names raise an error that says what is missing and what to do. Every part is imported on
first use.
"""

import importlib
import importlib.machinery
import sys
import types
from typing import Any

from cudnn_rnn._compat import native_rnn_cell_module, tf
from cudnn_rnn.contrib import moved_names

CONTRIB = "tensorflow.contrib"
_LAYERS = CONTRIB + ".layers"

# The packages that replace parts of `tf.contrib`.
_SUCCESSORS = {_LAYERS: "tf_slim.layers", CONTRIB + ".slim": "tf_slim"}

# The names of each part, with the module of each: one of this library, or of TensorFlow.
_PLACES = {
    "framework": {"get_or_create_global_step": "tf.train"},
    "layers": {
        "l1_l2_regularizer": "contrib.small_parts",
        "l1_regularizer": "contrib.small_parts",
        "l2_regularizer": "contrib.small_parts",
        "xavier_initializer": "contrib.small_parts",
    },
    "learn": {"ModeKeys": "contrib.small_parts"},
    "rnn": {
        "BasicRNNCell": "cells.basic",
        "GRUBlockCell": "contrib.block_cells",
        "GRUBlockCellV2": "contrib.block_cells",
        "LSTMBlockCell": "contrib.block_cells",
        "LSTMBlockFusedCell": "contrib.fused_cells",
        "LSTMStateTuple": "cells.compatible",
        "MultiRNNCell": "cells.compatible",
        "RNNCell": "cells.compatible",
        "TimeReversedFusedRNN": "contrib.fused_cells",
        "stack_bidirectional_dynamic_rnn": "cells.basic",
        "static_bidirectional_rnn": "tf.nn",
        "static_rnn": "tf.nn",
        "static_state_saving_rnn": "tf.nn",
    },
    "seq2seq": {"sequence_loss": "contrib.losses"},
    "training": {"HParams": "contrib.hparams"},
}
# The names of `rnn` that TensorFlow has with Keras 2, or the package tf_keras.
_CELLS = (
    "BasicLSTMCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "ResidualWrapper",
)
_CELLS_OF_TF_KERAS = "tf_keras.api._v1.keras.__internal__.legacy.rnn_cell"

_ADVICE = {"rnn.stack_bidirectional_rnn": ["Use stack_bidirectional_dynamic_rnn."]}
_LAST_RESORT = "Change the program, or run it in TensorFlow 1.15, which has all of tf.contrib."


class Part(types.ModuleType):
    """The module `tf.contrib.<part>`; resolves each name on first use.

    `reason`, if given, is what errors say about every name that it lacks.
    """

    def __init__(self, part, reason=None):
        full_name = "%s.%s" % (CONTRIB, part)
        super().__init__(full_name, "The names of tf.contrib.%s that cudnn_rnn provides." % part)
        # A package, so that importing a missing name reaches `Finder`, which gives the reason.
        self.__path__ = []
        self.__package__ = full_name
        self.__spec__ = importlib.machinery.ModuleSpec(full_name, None, is_package=True)
        self._part, self._reason = part, reason

    def __getattr__(self, name):
        if name == "__all__":
            return dir(self)
        try:
            value = _find_name(self._part, name)
        except LookupError as error:
            reason = self._reason or error
            raise AttributeError(
                "module %r has no attribute %r: %s" % (self.__name__, name, reason)
            )
        setattr(self, name, value)
        return value

    def __dir__(self):
        names = list(_PLACES[self._part])
        if self._part == "rnn":
            try:
                _cell_module(_CELLS[0])
                names += _CELLS
            except LookupError:
                pass
        return sorted(names)


def parts():
    """Returns a new module for each part that needs no other package, a dict by name."""
    return {part: Part(part) for part in _PLACES if part != "layers"}


def _find_name(part, name):
    """Returns the object of this name in `tf.contrib.<part>`; `LookupError` tells why not."""
    place = _PLACES[part].get(name)
    if place is not None and place.startswith("tf."):
        return getattr(getattr(tf, place[len("tf.") :]), name)
    if place is not None:
        return getattr(importlib.import_module("cudnn_rnn." + place), name)
    if part == "rnn" and name in _CELLS:
        return getattr(_cell_module(name), name)
    reasons = ["neither TensorFlow %s nor cudnn_rnn has an equivalent." % tf.version.VERSION]
    reasons += _ADVICE.get("%s.%s" % (part, name), []) + [_LAST_RESORT]
    raise LookupError(" ".join(reasons))


def _cell_module(name):
    """Returns the module with TensorFlow 1's cells; `LookupError` if there is none."""
    native = native_rnn_cell_module()
    if native is not None:
        return native
    try:
        return importlib.import_module(_CELLS_OF_TF_KERAS)
    except Exception as error:
        problem = "" if _is_missing(error, "tf_keras") else " Importing it failed: %s" % error
    raise LookupError(
        "TensorFlow %s provides tf.nn.rnn_cell.%s only with Keras 2. %s%s"
        % (tf.version.VERSION, name, how_to_get_tf_keras(), problem)
    )


def how_to_get_tf_keras():
    """Returns the advice to install the package tf_keras for this TensorFlow."""
    version = ".".join(tf.version.VERSION.split(".")[:2])
    return "Install the package tf_keras, for example with `pip install tf_keras~=%s.0`." % version


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
        name = module.__name__
        try:
            found = importlib.import_module(self._name)
        except Exception as error:
            reason = _why_no_successor(name, self._name, error)
            if name != _LAYERS:
                raise ModuleNotFoundError("No module named %r: %s" % (name, reason)) from error
            found = Part("layers", reason)
        else:
            moved_names.give_to(self._name.split(".")[0])
        sys.modules[name] = found


def _successor(name):
    """Returns the name of a `tf.contrib` module in its successor package, None without one."""
    for old, new in _SUCCESSORS.items():
        if name == old or name.startswith(old + "."):
            return new + name[len(old) :]
    return None


def _why_no_successor(name, successor, error):
    """Returns what errors say about a module whose successor cannot be imported."""
    package = successor.split(".")[0]
    advice = "Importing it failed: %s" % error
    if _is_missing(error, package):
        advice = "Install it: pip install %s" % package
    return "%s has moved to %s in the package %s. %s" % (name, successor, package, advice)


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
    part, _, rest = name[len(CONTRIB) + 1 :].partition(".")
    if part in _PLACES and rest:
        try:
            _find_name(part, rest)
        except LookupError as error:
            return str(error)
    own = ", ".join(["cudnn_rnn", *_PLACES])
    return (
        "TensorFlow %s has no tf.contrib. The library cudnn_rnn provides names of its parts %s, "
        "and, if the package tf_slim is installed, all of layers and slim. %s"
        % (tf.version.VERSION, own, _LAST_RESORT)
    )
