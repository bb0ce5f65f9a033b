"""`load_model`: a `.keras` file of Keras's own layers, loaded with this package's."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from typing import Any, Union

import tensorflow

_CONFIG = "config.json"
_NAMES = ("LSTM", "GRU", "SimpleRNN")


def load_model(path: Union[str, os.PathLike], **named: Any) -> Any:
    """Loads a model, with this package's layers in place of Keras's LSTM, GRU and SimpleRNN.

    The file stays as it is. The optimizer's state is loaded too.

    Args:
      path: a `.keras` file.
      **named: of `keras.models.load_model`.

    Returns:
      a Keras model.

    Raises:
      ValueError: the file is not a `.keras` file.
    """
    path = os.fspath(path)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            "%r is not a .keras file. Load other formats with keras.models.load_model, or build "
            "the model with the layers of cudnn_rnn.keras and call load_weights." % path
        )
    with tempfile.TemporaryDirectory() as folder:
        changed = os.path.join(folder, "model.keras")
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
            for name in source.namelist():
                content = source.read(name)
                if name == _CONFIG:
                    config = _with_our_layers(json.loads(content.decode()))
                    content = json.dumps(config).encode()
                target.writestr(name, content)
        return tensorflow.keras.models.load_model(changed, **named)


def _with_our_layers(config):
    """Returns a configuration, of nested dicts and lists, that names this package's layers."""
    if isinstance(config, list):
        return [_with_our_layers(value) for value in config]
    if not isinstance(config, dict):
        return config
    config = {name: _with_our_layers(value) for name, value in config.items()}
    if config.get("module") == "keras.layers" and config.get("class_name") in _NAMES:
        config["module"] = "cudnn_rnn.keras"
        config["registered_name"] = "cudnn_rnn>" + config["class_name"]
    return config
