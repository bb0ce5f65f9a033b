"""The entries of a Keras configuration: layers and models, as plain data.

An entry is a dict with the class and the settings of a layer or model. A class is only a name.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from cudnn_rnn.model.keras_classes import RNN_CLASSES

# The modules of the classes that are read; other modules may have classes of the same names.
_MODULES = re.compile(r"(tensorflow\.(python\.)?)?(tf_)?keras(\..*)?|cudnn_rnn\.keras(\..*)?")
_KNOWN = {*RNN_CLASSES, "Bidirectional", "RNNStack", "TimeDistributed"}


def cells_of(kind: Optional[str], entry: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Returns the entries of a layer's directions; an empty list if it is no RNN."""
    if kind == "TimeDistributed":
        return []
    if kind != "Bidirectional":
        return [dict(entry, class_name=kind)] if kind else []
    config = entry["config"]
    forward, backward = config["layer"], config.get("backward_layer")
    if backward is None:
        settings = forward["config"]
        reverse = dict(settings, go_backwards=not settings.get("go_backwards"))
        backward = dict(forward, config=reverse)
    cells = [dict(cell, class_name=kind_of(cell)) for cell in (forward, backward)]
    return cells if {cell["class_name"] for cell in cells} <= set(RNN_CLASSES) else []


def unwrapped(entry: Any) -> Tuple[Any, int]:
    """Returns the entry inside of TimeDistributed, and the number of these wrappers."""
    depth = 0
    while kind_of(entry) == "TimeDistributed":
        entry, depth = entry["config"]["layer"], depth + 1
    return entry, depth


def entries_of(config: Any) -> List[Any]:
    """Returns the list of the layers of a model; up to Keras 2.2.2 it is a Sequential's config."""
    inner = config["config"]
    return inner if isinstance(inner, list) else inner["layers"]


def is_container(entry: Any) -> bool:
    """Returns whether an entry is a model of layers."""
    inner = entry.get("config")
    return isinstance(inner, list) or isinstance(settings_of(entry).get("layers"), list)


def settings_of(entry: Any) -> Dict[str, Any]:
    """Returns the configuration of a layer or model, which up to Keras 2.2.2 may be a list."""
    inner = entry.get("config")
    return inner if isinstance(inner, dict) else {}


def dicts_in(config: Any) -> Iterator[Dict[str, Any]]:
    """Yields all dicts in a configuration of nested dicts and lists."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def name_of(entry: Any) -> str:
    """Returns the name of a layer or model."""
    name = settings_of(entry).get("name") or entry.get("name")
    if not isinstance(name, str):
        raise ValueError("a layer of the class %r has no name" % entry.get("class_name"))
    return name


def class_name_of(entry: Any) -> str:
    """Returns the class of a layer or model, without the package that files in HDF5 add."""
    return str(entry["class_name"]).rpartition(">")[2]


def kind_of(entry: Any) -> Optional[str]:
    """Returns the class of a layer if it is one that can be read, else None."""
    # Files in HDF5 name a registered class by its package.
    package, _, name = str(entry["class_name"]).rpartition(">")
    if name not in _KNOWN or package not in ("", "cudnn_rnn"):
        return None
    return name if _MODULES.fullmatch(str(entry.get("module") or "keras")) else None


def inputs_of(node: Any) -> List[str]:
    """Returns the names of the layers whose outputs a call takes."""
    names: List[str] = []
    waiting = [node]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            # [name of a layer, index of its call, index of the tensor]; in Keras 2 also the
            # keywords of the call, which may have tensors.
            if len(value) in (3, 4) and isinstance(value[0], str) and isinstance(value[1], int):
                names.append(value[0])
                waiting += value[3:]
            else:
                waiting += value
    return names
