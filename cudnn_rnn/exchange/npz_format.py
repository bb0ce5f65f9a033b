"""NumPy archives, `.npz`.

The arrays of an RNN, all in cuDNN's order of gates (`cudnn_rnn.exchange.LayerWeights`):

    rnn_mode                                  "lstm", "gru", "rnn_relu" or "rnn_tanh"
    scope                                     the name of the RNN
    num_layers                                the number of layers
    layer_<i>/<forward or backward>/input_weights         [gates * num_units, width]
    layer_<i>/<forward or backward>/recurrent_weights     [gates * num_units, num_proj or num_units]
    layer_<i>/<forward or backward>/input_bias            [gates * num_units]
    layer_<i>/<forward or backward>/recurrent_bias        [gates * num_units]
    layer_<i>/<forward or backward>/projection            [num_proj, num_units], only with one

With several RNNs, `<scope>/` precedes every key.
"""

from __future__ import annotations

import re
import reprlib
import zipfile
import zlib
from typing import Dict, List, Mapping, Sequence

import numpy as np

from cudnn_rnn.exchange import declared_sizes
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    Format,
    prefixes,
    replacing,
    require_activation,
)
from cudnn_rnn.model.layout import DIRECTIONS
from cudnn_rnn.model.weights import LayerWeights, RnnWeights

__all__ = ["from_arrays", "read", "to_arrays", "write"]

_KEY = re.compile(
    r"(?P<prefix>(.*/)?)(?P<name>rnn_mode|layer_[0-9]+/[^/]+/(%s))"
    % "|".join(LayerWeights._fields),
    re.DOTALL,
)
# A key beside those of an RNN that may be a misspelt one.
_SIMILAR = re.compile(r"(?P<prefix>(.*/)??)(?P<name>layer.*)", re.DOTALL)
_OPTIONAL = ["scope", "num_layers"]
_LAYER = re.compile(r"layer_(?P<layer>\d{1,18})/")


def to_arrays(rnns: Sequence[RnnWeights]) -> Dict[str, np.ndarray]:
    """Returns the arrays of an archive by key."""
    arrays = {}
    for rnn, prefix in zip(rnns, prefixes(rnns, "/")):
        require_activation(rnn, "this package's archive")
        arrays[prefix + "rnn_mode"] = np.array(rnn.rnn_mode)
        arrays[prefix + "scope"] = np.array(rnn.scope)
        arrays[prefix + "num_layers"] = np.array(rnn.num_layers)
        for layer, direction, weights in rnn.places():
            for name, array in weights._asdict().items():
                if array is not None:
                    arrays[prefix + _key(layer, direction, name)] = array
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> List[RnnWeights]:
    """Returns the RNNs in an archive.

    Raises:
      ExchangeError: arrays of an RNN are missing, misfit, or are more than it has.
    """
    parts: Dict[str, Dict[str, np.ndarray]] = {}
    matches = {key: _KEY.fullmatch(key) for key in arrays}
    for key, match in matches.items():
        if match:
            parts.setdefault(match.group("prefix"), {})[match.group("name")] = arrays[key]
    for prefix, of_rnn in parts.items():
        for name in _OPTIONAL:
            if prefix + name in arrays:
                of_rnn[name] = arrays[prefix + name]
    for similar in [_SIMILAR.fullmatch(key) for key, match in matches.items() if not match]:
        if similar and similar.group("prefix") in parts:
            parts[similar.group("prefix")][similar.group("name")] = arrays[similar.group()]
    return [_rnn(prefix, of_rnn) for prefix, of_rnn in parts.items()]


def _rnn(prefix, arrays):
    """Returns the RNN of the arrays by name, the key without the prefix."""
    numbers = [int(match.group("layer")) for match in map(_LAYER.match, arrays) if match]
    is_bidirectional = any(name.split("/")[1:2] == [DIRECTIONS[1]] for name in arrays)
    num_layers = _num_layers(prefix, arrays, 1 + max(numbers, default=0))
    ways = range(1 + is_bidirectional)
    places = [(layer, way) for layer in range(num_layers) for way in ways]
    has_projection = any(name.endswith("/projection") for name in arrays)
    fields = [name for name in LayerWeights._fields if has_projection or name != "projection"]
    needed = ["rnn_mode"] + [_key(*place, name) for place in places for name in fields]
    missing = [prefix + name for name in needed if name not in arrays]
    unknown = [prefix + name for name in set(arrays).difference(needed, _OPTIONAL)]
    if missing:
        raise ExchangeError("The archive lacks the arrays %s." % ", ".join(missing[:8]))
    if unknown:
        raise ExchangeError(
            "The archive has the arrays %s, which are none of its RNN %r."
            % (", ".join(sorted(unknown)[:8]), prefix)
        )
    layers: List[List[LayerWeights]] = [
        [LayerWeights(**{name: arrays[_key(layer, way, name)] for name in fields}) for way in ways]
        for layer in range(num_layers)
    ]
    scope = _text(prefix, arrays, "scope") if "scope" in arrays else prefix[:-1]
    try:
        return RnnWeights(_text(prefix, arrays, "rnn_mode"), layers, scope)
    except ValueError as error:
        raise ExchangeError("The arrays %s* are no RNN: %s" % (prefix, error)) from error


def _num_layers(prefix, arrays, found):
    """Returns the number of layers; archives of version 0.1 do not have it."""
    stored = np.asarray(arrays.get("num_layers", found))
    if stored.shape or stored.dtype.kind not in "iu" or not 0 < stored <= len(arrays):
        raise ExchangeError(
            "The archive's RNN %r has num_layers %s; expected a number of layers with arrays."
            % (prefix, reprlib.repr(stored.tolist()))
        )
    return int(stored)


def _text(prefix, arrays, name):
    """Returns an array that must be one str."""
    array = np.asarray(arrays[name])
    if array.shape or array.dtype.kind != "U":
        raise ExchangeError(
            "The array %s%s is %s with shape %s; expected a single string."
            % (prefix, name, array.dtype, list(array.shape))
        )
    return str(array)


def _key(layer, direction, name):
    return "layer_%d/%s/%s" % (layer, DIRECTIONS[direction], name)


def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads an archive. `facts` has no use here: an archive is complete."""
    del facts
    if not zipfile.is_zipfile(path):
        raise ExchangeError("%s is no NumPy archive, or it is truncated." % path)
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


def recognizes(path: str) -> bool:
    """Returns whether a file is a ZIP archive with arrays."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith(".npy") for name in archive.namelist())


FORMAT = Format("npz", "a NumPy archive", (".npz",), recognizes, read, write)
