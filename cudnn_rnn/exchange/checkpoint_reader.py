"""The tensors of a checkpoint by key, whoever reads them."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, List, Tuple

import numpy as np

from cudnn_rnn.exchange import declared_sizes, guarded
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.exchange.tensor_bundle import TensorBundle, Unsupported

# TensorFlow reserves memory for its libraries and threads.
_MEMORY_OF_TENSORFLOW = 12 * 2**30


class CheckpointReader:
    """The tensors of a checkpoint; `shapes` and NumPy `dtypes` are by key.

    `TensorBundle` reads what today's TensorFlow writes. Checkpoints of TensorFlow 0.x ("V1"),
    compressed indices and partitioned variables are read by TensorFlow in a child process.
    """

    def __init__(self, path: str) -> None:
        """Reads keys, shapes and dtypes; raises `ExchangeError` if the files are damaged."""
        self._path = path
        self._bundle: Any = None
        self._of_child: List[str] = []  # keys, of numbers only
        self._arrays: Dict[str, np.ndarray] = {}
        self.shapes: Dict[str, Tuple[int, ...]] = {}
        self.dtypes: Dict[str, np.dtype] = {}
        try:
            self._bundle = TensorBundle(path)
        except Unsupported:
            self._read_shapes_in_child()
            return
        self.shapes, self.dtypes = self._bundle.shapes, self._bundle.dtypes
        self._of_child = sorted(self._bundle.partitioned)

    def _read_shapes_in_child(self):
        size = sum(map(os.path.getsize, _files_of(self._path)))
        # The files may be compressed.
        most = declared_sizes.LARGEST_RATIO * size
        for key, shape, dtype in self._call("list_tensors", self._path, most):
            self.shapes[key] = tuple(shape)
            self.dtypes[key] = np.dtype(dtype or object)
            if dtype is not None:
                self._of_child.append(key)

    def tensor(self, key: str) -> Any:
        """Returns the array of a key; raises `ExchangeError` if the files are damaged."""
        if key in self._of_child:
            if key not in self._arrays:
                arrays = self._call("read", self._path, self._of_child)
                self._arrays = dict(zip(self._of_child, arrays))
            return self._arrays[key]
        if self._bundle is None:
            raise ExchangeError(
                "%s, %s: TensorFlow 0.x wrote this file; only numbers are read from such files."
                % (self._path, key)
            )
        return self._bundle.tensor(key)

    def _call(self, function, *arguments):
        files = _files_of(self._path)
        if not files:
            raise ExchangeError("%s is no checkpoint: it has no files." % self._path)
        return guarded.call(
            max(files, key=os.path.getsize),
            "a checkpoint",
            "checkpoint." + function,
            *arguments,
            memory=_MEMORY_OF_TENSORFLOW + 16 * sum(map(os.path.getsize, files)),
            name=self._path,
        )


def _files_of(path):
    """Returns the files of a checkpoint; a V1 checkpoint is a single file."""
    found = glob.glob(glob.escape(path) + ".data-*") + glob.glob(glob.escape(path) + ".index")
    return found or [path] * os.path.isfile(path)
