"""`load_model`: a file of a Keras model, loaded with this package's layers."""

from __future__ import annotations

import json
import os
import re
import tempfile
import zipfile
from typing import Any, Dict, Optional, Union

import tensorflow

from cudnn_rnn._compat import KERAS_READS_ARCHIVES_OF_2_15
from cudnn_rnn.exchange import keras_files
from cudnn_rnn.keras import _archived_weights, _stored_models, _stored_weights
from cudnn_rnn.keras._fused_layer import IS_KERAS_3, OUR_PREFIX
from cudnn_rnn.model.keras_classes import CUDNN_CLASSES

_CONFIG = "config.json"
_OF_2_15 = re.compile(r"2\.(1[5-9]|[2-9]\d)")
_NAMES = ("LSTM", "GRU", "SimpleRNN")


def load_model(
    path: Union[str, os.PathLike],
    custom_objects: Optional[Dict[str, Any]] = None,
    **named: Any,
) -> Any:
    """Loads a model, with this package's layers in place of Keras's recurrent layers.

    These are LSTM, GRU, SimpleRNN, CuDNNLSTM and CuDNNGRU. The file stays as it is. The model is
    compiled as it was; if the loss, the metrics, the optimizer or its state cannot be carried over
    to this Keras, a warning says so.

    Args:
      path: a `.keras` file, or a whole model in HDF5, whatever its name is, of Keras 2 or 3.
      custom_objects: the program's classes and functions by their names in the file, and the
        functions of Lambda layers by the names of the layers.
      **named: of `keras.models.load_model`; a file of another Keras takes only `compile`.

    Returns:
      a Keras model.

    Raises:
      FileNotFoundError: there is no file at this path.
      ValueError: the path is that of a folder, the file is damaged or of another format, or a
        layer cannot be made.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(
            "%r does not exist. Check the name and the folder: paths are relative to %s."
            % (path, os.getcwd())
        )
    if keras_files.is_hdf5(path):
        return _stored_models.load_hdf5(path, custom_objects or {}, **named)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            "%r is neither a .keras file nor HDF5. Load other formats with "
            "keras.models.load_model, or build the model with the layers of cudnn_rnn.keras and "
            "call load_weights." % path
        )
    if not _is_read_by_this_keras(path):
        return _stored_models.load_archive(path, custom_objects or {}, **named)
    with tempfile.TemporaryDirectory() as folder:
        changed = os.path.join(folder, "model.keras")
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
            for name in source.namelist():
                content = source.read(name)
                if name == _CONFIG:
                    config = _with_our_layers(json.loads(content.decode()))
                    content = json.dumps(config).encode()
                target.writestr(name, content)
        load = tensorflow.keras.models.load_model
        return load(changed, custom_objects=custom_objects, **named)


def model_from_json(json_string: str, custom_objects: Optional[Dict[str, Any]] = None) -> Any:
    """Makes a new model of a configuration, with this package's layers as in `load_model`.

    Args:
      json_string: what `model.to_json()` of Keras 2 or 3 returned.
      custom_objects: as in `load_model`.

    Returns:
      a Keras model with initial weights; `load_weights` of this package reads old files.

    Raises:
      ValueError: the configuration is damaged, or a layer cannot be made.
    """
    what = "json_string"
    with keras_files.explaining_errors(what):
        config = json.loads(json_string)
        # Keras 2 writes its version; Keras 3 does not.
        version = config.get("keras_version") or "3.0"
    return _stored_models.build(what, version, config, custom_objects or {})


def load_weights(model: Any, path: Union[str, os.PathLike]) -> None:
    """Gives a model the weights of a file that `save_weights` of any Keras since 2.0 wrote.

    An HDF5 file of a whole model will do, too.

    `model.load_weights` decides by the name of the file which form it has, and reads only those
    that its own Keras writes. This function looks into the file, and converts the arrays of layers
    of cuDNN for LSTM and GRU, this package's or Keras's.

    Args:
      model: a built Keras model with the layers of the file, in their order.
      path: an HDF5 file, `.h5`, `.hdf5` or `.weights.h5`.

    Raises:
      OSError: the file does not exist or cannot be read.
      ValueError: the path is that of a folder, the file is damaged or of another format, or a
        layer or a shape does not fit. The model is then as it was.
    """
    path = os.fspath(path)
    weights, archive = keras_files.read_weights(path)
    if archive is None:
        _stored_weights.set_weights_in_order(path, model, weights)
    else:
        _archived_weights.set_weights_without_config(path, model, archive)


def _is_read_by_this_keras(path):
    """Returns whether Keras itself reads the archive, with all that the model was compiled with.

    Keras 3 does not read those of Keras 2, and the reverse; neither has layers of cuDNN.
    Keras 2.12 to 2.14 do not read those of 2.15, and the reverse.
    """
    version, classes = keras_files.version_and_classes(path)
    is_same = version.startswith("3." if IS_KERAS_3 else "2.")
    if not IS_KERAS_3 and bool(_OF_2_15.match(version)) != KERAS_READS_ARCHIVES_OF_2_15:
        return False
    return _stored_models.writes_archives() and is_same and not classes & set(CUDNN_CLASSES)


def _with_our_layers(config):
    """Returns a configuration, of nested dicts and lists, that names this package's layers."""
    if isinstance(config, list):
        return [_with_our_layers(value) for value in config]
    if not isinstance(config, dict):
        return config
    config = {name: _with_our_layers(value) for name, value in config.items()}
    if config.get("module") == "keras.layers" and config.get("class_name") in _NAMES:
        config["module"] = "cudnn_rnn.keras"
        config["registered_name"] = OUR_PREFIX + config["class_name"]
    return config
