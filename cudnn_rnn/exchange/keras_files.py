"""Refuses files of Keras models that would run code, read other files or exhaust memory.

Keras checks some of this, too: which, depends on its version.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

from cudnn_rnn.exchange import declared_sizes
from cudnn_rnn.exchange.contents import ExchangeError

# Where layers and their parts are. Keras imports any module that a configuration names.
_MODULE = re.compile(
    r"builtins|cudnn_rnn\.keras(\..*)?|(tf_)?keras(\.src)?(\.(activations|constraints|dtype_policies"
    r"|engine|initializers|layers|models|regularizers)(\..*)?)?"
)


def check(path: str, registered: Any) -> None:
    """Checks a `.keras` or `.h5` file.

    Args:
      path: str.
      registered: the names of the custom objects that the program has registered.

    Raises:
      ExchangeError: the file declares more data than it has or data in other files, or its
        configuration has a Lambda layer or names a module outside Keras.
    """
    import h5py

    if zipfile.is_zipfile(path):
        declared_sizes.check_zip(path)
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith((".h5", ".hdf5")):
                    with h5py.File(io.BytesIO(archive.read(name)), "r") as file:
                        declared_sizes.check_hdf5(path, file)
            config = json.loads(archive.read("config.json").decode())
    else:
        with h5py.File(path, "r") as file:
            declared_sizes.check_hdf5(path, file)
            config = file.attrs.get("model_config", "{}")
        config = json.loads(config.decode() if isinstance(config, bytes) else config)
    _check_config(path, config, registered)


def _check_config(path, config, registered):
    """Checks a configuration of nested dicts and lists."""
    if isinstance(config, list):
        for value in config:
            _check_config(path, value, registered)
    if not isinstance(config, dict):
        return
    class_name, module = str(config.get("class_name", "")), config.get("module")
    if "lambda" in class_name.lower():
        raise ExchangeError(
            "%s has a layer of the class %s, whose code would run. If you trust the file, load it "
            "in your program and call cudnn_rnn.exchange.keras_format.from_model."
            % (path, class_name)
        )
    is_registered = class_name in registered or config.get("registered_name") in registered
    if class_name and module is not None and not is_registered:
        if not _MODULE.fullmatch(str(module)):
            raise ExchangeError(
                "%s names the class %s of the module %s, which is not one of Keras's modules for "
                "layers. If you trust the file, load it in your program and call "
                "cudnn_rnn.exchange.keras_format.from_model." % (path, class_name, module)
            )
    for name, value in config.items():
        if name != "compile_config":  # which is not loaded
            _check_config(path, value, registered)
