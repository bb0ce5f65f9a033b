"""The constants of an ONNX model, read when they are needed, in proportion to its files."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError, library

# Models may give the same weights to a few nodes.
_USES = 4
_EXTERNAL = 1  # TensorProto.EXTERNAL
_FLOATING = (1, 10, 11, 16)  # TensorProto.FLOAT, FLOAT16, DOUBLE, BFLOAT16


def is_of_onnx(node: Any) -> bool:
    """Returns whether a node's operator is one of ONNX itself, whose domain has two names."""
    return node.domain in ("", "ai.onnx")


class Constants:
    """The initializers and `Constant` nodes of a graph, also behind `Identity` nodes.

    `names` lists them. `origin(name)` is the one that `Identity` nodes hand on under another name:
    PyTorch writes equal initializers once, and such nodes. `array(name)` reads one; all together
    may have as many bytes as the files, or a few times as many if they are used several times.
    `integers(name, most)` reads a short list, and keeps it.
    """

    def __init__(self, model: Any, path: Optional[str]) -> None:
        """Takes the model; `path` is its file, None if it has none, and thus no other files.

        Raises:
          ExchangeError: two constants have the same name.
        """
        self._path = path
        self._tensors: Dict[str, Any] = {}
        self._origins: Dict[str, str] = {}  # by the outputs of Identity nodes
        for tensor in model.graph.initializer:
            self._add(tensor.name, tensor)
        for node in model.graph.node:
            values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
            if node.op_type == "Constant" and values and node.output:
                self._add(node.output[0], values[0])
            if node.op_type == "Identity" and is_of_onnx(node) and len(node.input) == 1:
                if node.input[0] in self and node.output and node.output[0] not in self:
                    self._origins[node.output[0]] = self.origin(node.input[0])
        self._left = _USES * model.ByteSize()
        self._integers: Dict[str, Optional[List[int]]] = {}
        self._files: Dict[str, List[Tuple[int, int]]] = {}  # the ranges that were read
        self._contents: Dict[str, bytes] = {}

    def _add(self, name, tensor):
        if name in self._tensors:
            raise ExchangeError("The model has two constants with the name %r." % name)
        self._tensors[name] = tensor

    @property
    def names(self) -> List[str]:
        return list(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors or name in self._origins

    def origin(self, name: str) -> str:
        """Returns the name of the constant that `name` is, maybe behind `Identity` nodes."""
        return self._origins.get(name, name)

    def is_floating(self, name: str) -> bool:
        """Returns whether a constant is an array of floating-point numbers, not a single one."""
        tensor = self._tensors[name]
        return tensor.data_type in _FLOATING and len(tensor.dims) > 0

    def array(self, name: str) -> np.ndarray:
        """Returns the array of a constant.

        Raises:
          ExchangeError: its data are not in the file, or used too often.
        """
        name = self.origin(name)
        onnx, tensor = library("onnx", "onnx"), self._tensors[name]
        if tensor.data_location == _EXTERNAL:
            if name not in self._contents:
                self._contents[name] = self._external_data(name, tensor)
            copy = type(tensor)(name=name, data_type=tensor.data_type, dims=tensor.dims)
            copy.raw_data = self._contents[name]
            tensor = copy
        size = tensor.ByteSize()
        if size > self._left:
            raise ExchangeError(
                "The RNNs of the model use its constants %d times or more, %r too. Give each RNN "
                "its own." % (_USES, name)
            )
        self._left -= size
        try:
            return onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise ExchangeError(
                "The constant %r with dims %s is damaged: %s." % (name, list(tensor.dims), error)
            ) from error

    def integers(self, name: str, most: int) -> Optional[List[int]]:
        """Returns an integer or a list of integers as a list; None if it is something else.

        Args:
          name: that of a constant.
          most: how many integers there may be.

        Raises:
          ExchangeError: as `array`.
        """
        name = self.origin(name)
        if name not in self._integers:
            self._integers[name] = None
            dims = self._tensors[name].dims
            if len(dims) == 0 or (len(dims) == 1 and 0 <= dims[0] <= most):
                array = self.array(name)
                if array.dtype.kind == "i":
                    self._integers[name] = array.reshape(-1).tolist()
        return self._integers[name]

    def _external_data(self, name, tensor):
        """Returns the bytes of a tensor that are in a file beside the model."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        file_name = entries.get("location", "")
        path = self._path_beside(name, file_name)
        size = os.path.getsize(path)
        try:
            start = int(entries.get("offset", 0))
            end = start + int(entries.get("length", size - start))
        except ValueError:
            raise ExchangeError("The place of the data of %s is damaged." % name) from None
        if not 0 <= start <= end <= size:
            raise ExchangeError(
                "The data of %s are bytes %d to %d of %r, which has %d bytes."
                % (name, start, end, file_name, size)
            )
        ranges = self._files.setdefault(path, [])
        if not ranges:
            self._left += _USES * size
        if any(start < other_end and other_start < end for other_start, other_end in ranges):
            raise ExchangeError(
                "The data of %s are also those of another tensor. Save the model again." % name
            )
        ranges.append((start, end))
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(end - start)

    def _path_beside(self, name, file_name):
        """Returns the path of a file in the model's own folder, not the model itself."""
        folder = os.path.dirname(os.path.abspath(self._path or ""))
        path = os.path.join(folder, file_name)
        is_inside = (
            self._path is not None
            and os.path.basename(file_name) == file_name
            and "\0" not in file_name
            and os.path.isfile(path)
            and os.path.dirname(os.path.realpath(path)) == os.path.realpath(folder)
        )
        if not is_inside or os.path.samefile(path, str(self._path)):
            raise ExchangeError(
                "The data of %s are in the file %r; expected one in the model's own folder, other "
                "than the model." % (name, file_name)
            )
        return path
