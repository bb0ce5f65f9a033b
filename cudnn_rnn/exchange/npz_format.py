"""NumPy archives, `.npz`.

The arrays of an RNN, all in cuDNN's order of gates (`cudnn_rnn.exchange.LayerWeights`):

    rnn_mode                                  "lstm", "gru", "rnn_relu" or "rnn_tanh"
    scope                                     the name of the RNN
    layer_<i>/<forward or backward>/input_weights         [gates * num_units, width]
    layer_<i>/<forward or backward>/recurrent_weights     [gates * num_units, num_proj or num_units]
    layer_<i>/<forward or backward>/input_bias            [gates * num_units]
    layer_<i>/<forward or backward>/recurrent_bias        [gates * num_units]
    layer_<i>/<forward or backward>/projection            [num_proj, num_units], only with one

With several RNNs, `<scope>/` precedes every key.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from typing import Dict, List, Mapping, Sequence

import numpy as np

from cudnn_rnn.exchange import declared_sizes
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    prefixes,
    replacing,
    require_activation,
)
from cudnn_rnn.exchange.weights import DIRECTIONS, LayerWeights, RnnWeights

__all__ = ["from_arrays", "read", "to_arrays", "write"]

_MODE = re.compile(r"(?P<prefix>(.*/)?)rnn_mode")


def to_arrays(rnns: Sequence[RnnWeights]) -> Dict[str, np.ndarray]:
    """Returns the arrays of an archive by key."""
    arrays = {}
    for rnn, prefix in zip(rnns, prefixes(rnns, "/")):
        require_activation(rnn, "this package's archive")
        arrays[prefix + "rnn_mode"] = np.array(rnn.rnn_mode)
        arrays[prefix + "scope"] = np.array(rnn.scope)
        for layer, direction, weights in rnn.places():
            for name, array in weights._asdict().items():
                if array is not None:
                    arrays[prefix + _key(layer, direction, name)] = array
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> List[RnnWeights]:
    """Returns the RNNs in an archive; raises `ExchangeError` if arrays are missing or misfit."""
    rnns = []
    for match in filter(None, map(_MODE.fullmatch, arrays)):
        prefix = match.group("prefix")
        layers: List[List[LayerWeights]] = []
        while prefix + _key(len(layers), 0, "input_weights") in arrays:
            directions = [
                direction
                for direction in range(2)
                if prefix + _key(len(layers), direction, "input_weights") in arrays
            ]
            layers.append([_layer(arrays, prefix, len(layers), way) for way in directions])
        scope = str(arrays[prefix + "scope"]) if prefix + "scope" in arrays else prefix[:-1]
        try:
            rnns.append(RnnWeights(str(arrays[match.group()]), layers, scope))
        except ValueError as error:
            raise ExchangeError("The arrays %s* are no RNN: %s" % (prefix, error)) from error
    return rnns


def _key(layer, direction, name):
    return "layer_%d/%s/%s" % (layer, DIRECTIONS[direction], name)


def _layer(arrays, prefix, layer, direction):
    keys = {name: prefix + _key(layer, direction, name) for name in LayerWeights._fields}
    missing = [key for name, key in keys.items() if key not in arrays and name != "projection"]
    if missing:
        raise ExchangeError("The archive lacks the arrays %s." % ", ".join(missing))
    return LayerWeights(**{name: arrays[key] for name, key in keys.items() if key in arrays})


def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads an archive. `facts` has no use here: an archive is complete."""
    del facts
    try:
        declared_sizes.check_zip(path)
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    except ExchangeError:
        raise
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ExchangeError("%s cannot be read as a NumPy archive: %s." % (path, error)) from error
    rnns = from_arrays(arrays)
    used = set(to_arrays(rnns)) if rnns else set()
    return Contents(path, "NumPy archive", rnns, others=sorted(set(arrays) - used))


def write(path: str, rnns: Sequence[RnnWeights]) -> None:
    """Writes an archive."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **to_arrays(rnns))
