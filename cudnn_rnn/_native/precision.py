"""The precision of float32 models in this process, which the engine keeps."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Iterator, Optional

from cudnn_rnn._native import library
from cudnn_rnn.model.spec import PRECISIONS, checked_choice

_chosen: Optional[str] = None  # what this module set last


@functools.lru_cache(maxsize=None)
def _engine():
    """Returns the loaded library, through which the engine's functions are found."""
    engine = ctypes.CDLL(library.library_path())
    engine.cudnn_rnn_set_precision.argtypes = [ctypes.c_char_p]
    engine.cudnn_rnn_last_error.restype = ctypes.c_char_p
    return engine


def _set(name):
    """Sets a precision, or with None what the environment says."""
    global _chosen
    _check(_engine().cudnn_rnn_set_precision((name or "").encode()))
    _chosen = name


def _check(status):
    if status:
        raise ValueError(_engine().cudnn_rnn_last_error().decode())


def set_float32_matmul_precision(precision: str) -> None:
    """Sets how precisely float32 models multiply matrices, in this process, from now on.

    The names are those of `torch.set_float32_matmul_precision`. A precision is a permission: where
    the processor is not faster with less, all three compute in float32. Sums, activations, cells,
    states and all tensors are float32 in each; float64, float16 and bfloat16 models do not change.

    | precision | factors of products keep | on a GPU |
    | --- | --- | --- |
    | "highest" | 24 significant bits, as float32 has | no TF32 |
    | "high" | 16: each is the sum of two bfloat16 numbers | TF32 is allowed |
    | "medium" | 8: each is rounded to bfloat16 | TF32 is allowed |

    The setting is read when an op runs, so it also holds for graphs, functions and SavedModels that
    exist already. A gradient has the precision of its forward call. A model with an argument
    `float32_matmul_precision` of its own does not change.

    Without a call of this function, the environment variable CUDNN_RNN_FLOAT32_MATMUL_PRECISION
    decides, if it is set when the first op runs. Otherwise TF_SET_ONEDNN_FPMATH_MODE=BF16, with
    which TensorFlow's own products on a CPU round to bfloat16, means "medium" on a CPU. The default
    is "highest" on a CPU; on a GPU TensorFlow's own switch for TF32 decides then. TensorFlow's own
    GPU kernels, where they run, always follow that switch.

    Args:
      precision: "highest", "high" or "medium".

    Raises:
      ValueError: `precision` is anything else.
    """
    _set(checked_choice("precision", precision, PRECISIONS))


def get_float32_matmul_precision() -> str:
    """Returns the precision in force on a CPU, "highest", "high" or "medium".

    "highest" may mean that none is set, which on a GPU leaves TF32 to TensorFlow's switch. To set
    another for a while, use `float32_matmul_precision`, which restores either state.

    Raises:
      ValueError: the environment variable CUDNN_RNN_FLOAT32_MATMUL_PRECISION has another value.
    """
    name = ctypes.c_char_p()
    _check(_engine().cudnn_rnn_get_precision(ctypes.byref(name)))
    assert name.value is not None
    return name.value.decode()


@contextlib.contextmanager
def float32_matmul_precision(precision: str) -> Iterator[None]:
    """Returns a context in which ops run with this precision; afterwards the earlier one is back.

    Use it around what runs the ops: `session.run`, a call of a `tf.function`, `model.predict`.
    Around the construction of a graph it has no effect. It is for the whole process, other threads
    included.

    Args:
      precision: as of `set_float32_matmul_precision`.

    Raises:
      ValueError: `precision` is anything else.
    """
    before = _chosen
    set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        _set(before)
