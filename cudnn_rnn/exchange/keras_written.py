"""The configuration of a written model, which Keras 2 and 3 load, whichever writes the file.

The configurations that the releases write differ: others do not have their classes or arguments.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from typing import Any, Dict, List, Sequence

from cudnn_rnn.exchange.contents import prefixes
from cudnn_rnn.exchange.keras_files import CONFIG
from cudnn_rnn.exchange.keras_model import CLASSES
from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_RELU
from cudnn_rnn.model.weights import RnnWeights

# The last one whose configurations have this form.
_VERSION = "2.15.0"


def settings_of(rnn: RnnWeights) -> Dict[str, Any]:
    """Returns the arguments of the layers of an RNN, except their names.

    No argument that decides what a layer computes is left to the default: that of TensorFlow 1 is
    hard_sigmoid, and no reset_after.
    """
    settings: Dict[str, Any] = {
        "units": rnn.num_units,
        "return_sequences": True,
        "dtype": rnn.dtype.name,
        "activation": "relu" if rnn.rnn_mode == CUDNN_RNN_RELU else "tanh",
    }
    if rnn.rnn_mode in (CUDNN_LSTM, CUDNN_GRU):
        settings["recurrent_activation"] = "sigmoid"
    if rnn.rnn_mode == CUDNN_GRU:
        settings["reset_after"] = True
    return settings


def set_config(path: str, rnns: Sequence[RnnWeights], order: Sequence[str]) -> None:
    """Replaces the configuration in a file of `keras_format.to_model(rnns)`.

    Args:
      path: the file.
      rnns: the RNNs of the model.
      order: the names of the layers in the order in which Keras has numbered them in an archive.
    """
    config = _config_of(rnns)
    config["config"]["layers"].sort(key=lambda entry: order.index(entry["config"]["name"]))
    if zipfile.is_zipfile(path):
        _set_config_of_archive(path, config)
        return
    import h5py

    with h5py.File(path, "r+") as file:
        file.attrs["model_config"] = json.dumps(config).encode()
        file.attrs["keras_version"] = _VERSION.encode()


def _set_config_of_archive(path, config):
    """Replaces the configuration in a `.keras` archive, in which each class has its module."""
    for entry in config["config"]["layers"]:
        entry.update(module="keras.layers", registered_name=None)
    config.update(module="keras", registered_name=None)
    written = path + ".new"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(written, "w") as new:
        for name in old.namelist():
            if name == CONFIG:
                new.writestr(name, json.dumps(config))
                continue
            with old.open(name) as source, new.open(name, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
    os.replace(written, path)


def _config_of(rnns):
    """Returns the configuration of the model of these RNNs.

    That of a single RNN is a Sequential: releases differ in what a functional model with one input
    and one output takes and returns.
    """
    layers: List[Any] = []
    inputs, outputs = [], []
    for rnn, prefix in zip(rnns, prefixes(rnns, ".")):
        last = prefix + "input"
        shape = [None, None, rnn.input_size]
        settings = {"batch_input_shape": shape, "dtype": rnn.dtype.name, "sparse": False}
        layers.append(_entry("InputLayer", last, settings, []))
        inputs.append([last, 0, 0])
        for layer in range(rnn.num_layers):
            name = "%slayer_%d" % (prefix, layer)
            kind, settings = _layer(rnn)
            layers.append(_entry(kind, name, settings, [[[last, 0, 0, {}]]]))
            last = name
        outputs.append([last, 0, 0])
    config: Dict[str, Any] = {"name": "model", "layers": layers}
    if len(rnns) == 1:
        return {"class_name": "Sequential", "config": config}
    config.update(input_layers=inputs, output_layers=outputs)
    return {"class_name": "Model", "config": config}


def _layer(rnn):
    """Returns the class and the settings of a layer."""
    kind, settings = CLASSES[rnn.rnn_mode], settings_of(rnn)
    if not rnn.bidirectional:
        return kind, settings
    inside: Dict[str, Any] = {"class_name": kind, "config": dict(settings, name=kind.lower())}
    inside.update(module="keras.layers", registered_name=None)  # which Keras 3 requires here
    pair = {"layer": inside, "merge_mode": "concat", "dtype": rnn.dtype.name}
    return "Bidirectional", pair


def _entry(class_name, name, settings, nodes):
    """Returns the entry of a layer and its calls."""
    config = dict(settings, name=name)
    return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": nodes}
