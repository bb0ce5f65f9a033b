"""`torch.nn.LSTM`, `GRU` and `RNN`: their `state_dict` in a `.pt` or `.safetensors` file.

PyTorch has cuDNN's order of gates and both biases, so all numbers go both ways unchanged. Scopes
become prefixes of modules: `encoder/rnn` is `encoder.rnn.weight_ih_l0` and so on.

The `state_dict` of an optimizer numbers the parameters. If a file has it beside the `state_dict` of
the model, whose keys are in the same order, the slots of Adam and the momentum of SGD are read too.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange import declared_sizes, torch_optimizers
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    Facts,
    Format,
    library,
    mode_of,
    name_of,
    prefixes,
    replacing,
    sentence,
    zero_bias,
)
from cudnn_rnn.model.weights import LayerWeights, RnnWeights

__all__ = ["from_state_dict", "read", "to_state_dict", "write"]

# Names of a state_dict, in the order of the fields of `LayerWeights`.
_MATRICES, _BIASES = ("weight_ih", "weight_hh"), ("bias_ih", "bias_hh")
_NAMES = (*_MATRICES, *_BIASES, "weight_hr")
_KEY = re.compile(
    r"(?P<prefix>(.*\.)?)(?P<name>%s)_l(?P<layer>0|[1-9][0-9]{0,9})(?P<reverse>_reverse)?"
    % "|".join(_NAMES),
    re.DOTALL,
)
# Keys beside the parameters of an RNN that are none of them, but similar: misspelt ones.
_SIMILAR = re.compile(r"weight|bias|.*_l[0-9]", re.DOTALL)
# What parameters are computed from, such as weight_hh_l0_g, weight_hh_l0_orig, weight_hh_l0_raw and
# parametrizations.weight_hh_l0.original0.
_SOURCE = re.compile(
    r"(.*\.)?(parametrizations\.)?(%s)_l[0-9]+(_reverse)?(?(2)\..+|_(raw|orig|mask|[guv]))"
    % "|".join(_NAMES),
    re.DOTALL,
)
_COMPILED = "_orig_mod."  # what torch.compile puts before the keys of a module
# Modules may share parameters, but each only with a few.
_USES = 4

# Keys of a training checkpoint.
_MODELS = ("model", "state_dict", "model_state_dict")
_OPTIMIZERS = ("optimizer", "optimizer_state_dict")


class _Part(NamedTuple):
    """A `state_dict` in a file: the keys that lead to it, and the dict that it is in."""

    path: Tuple[str, ...]
    state: Mapping[str, Any]
    level: Mapping[str, Any]


def to_state_dict(rnns: Sequence[RnnWeights]) -> Dict[str, np.ndarray]:
    """Returns the arrays of `state_dict()` by name.

    `module.load_state_dict({name: torch.from_numpy(array) for name, array in ...})` takes them:
    of a `torch.nn` module for one RNN, of a module whose attributes are the scopes for several.
    """
    state = {}
    for rnn, prefix in zip(rnns, prefixes(rnns, ".")):
        for layer, direction, weights in rnn.places():
            for name, array in zip(_NAMES, weights):
                if array is not None:
                    state[prefix + _key(name, layer, direction)] = array
    return state


def from_state_dict(
    state: Mapping[str, Any],
    facts: Facts = Facts(),  # noqa: B008 (immutable)
) -> Contents:
    """Returns the RNNs in a `state_dict()` of tensors or arrays.

    Modules without biases (`bias=False`) get biases of 0, with a note.

    Raises:
      ExchangeError: parameters are missing or have shapes that do not fit.
    """
    found: Dict[str, Dict[Any, Any]] = {}
    used: Dict[Any, Any] = {}
    notes: List[str] = []
    for key, value in state.items():
        match = _KEY.fullmatch(str(key))
        if match:
            place = int(match.group("layer")), bool(match.group("reverse")), match.group("name")
            of_rnn = found.setdefault(match.group("prefix").replace(_COMPILED, ""), {})
            if place in of_rnn:
                raise ExchangeError(
                    "The keys %r and %r are the same without %r, which torch.compile adds. Remove "
                    "one." % (of_rnn[place], key, _COMPILED)
                )
            of_rnn[place] = key
            used[key] = value
    others = [str(key) for key in state if key not in used]
    cell = next((key for key in others if key.rpartition(".")[2] == _NAMES[0]), None)
    if cell is not None:
        notes.append(
            "Keys such as %r are of LSTMCell, GRUCell or RNNCell, which are not read. Renamed to "
            "%r and so on, they are those of an RNN of one layer." % (cell, cell + "_l0")
        )
    _refuse_computed(others)
    _refuse_similar(found, others)
    _check_storages(used)
    arrays = {key: _as_array(key, value) for key, value in used.items()}
    rnns = []
    for prefix, keys in found.items():
        parts = {place: arrays[key] for place, key in keys.items()}
        rnns.append(_rnn(prefix, parts, facts, notes))
    return Contents("", "PyTorch state_dict", rnns, notes, others)


def _refuse_computed(others):
    """Raises if parameters of an RNN are computed: a value of theirs in the file may be an old one.

    An example is a `weight_hh_l0` that has the dropout of the last step, beside a trained
    `weight_hh_l0_raw`.
    """
    for key in filter(_SOURCE.fullmatch, others):
        raise ExchangeError(
            "The module of an RNN computes parameters from %r: by a parametrization, weight "
            "normalization, pruning or dropout of weights. Make them parameters before saving the "
            "state_dict: with remove_parametrizations, remove_weight_norm or prune.remove of "
            "torch.nn.utils. If a key ends in _raw, its value is the trained one: store it under "
            "the name without _raw." % key
        )


def _refuse_similar(prefixes_of_rnns, others):
    """Raises if a module with an RNN has similar keys, too, which the RNN may need."""
    for key in others:
        module, _, name = key.replace(_COMPILED, "").rpartition(".")
        prefix = module + "." if module else ""
        if prefix in prefixes_of_rnns and _SIMILAR.match(name):
            raise ExchangeError(
                "The key %r stands beside those of an RNN, but torch.nn.LSTM, GRU and RNN have "
                "none of this name. Correct it or remove it." % key
            )


def _check_storages(tensors):
    """Raises if the tensors share their memory: a few bytes can be any number of tensors."""
    storages, size = {}, 0
    for value in tensors.values():
        if hasattr(value, "detach"):
            storage = _storage_of(value)
            storages[storage.data_ptr()] = storage.nbytes()
            size += value.numel() * value.element_size()
    stored = sum(storages.values())
    if size > _USES * stored:
        raise ExchangeError(
            "The RNNs have tensors of %d bytes, but only %d bytes for them: their elements share "
            "memory. Save value.clone() of each." % (size, stored)
        )


def _storage_of(tensor):
    try:
        return getattr(tensor, "untyped_storage", tensor.storage)()
    except (RuntimeError, NotImplementedError) as error:  # sparse tensors, for example
        raise ExchangeError("A tensor of an RNN has no plain memory: %s." % error) from error


def _key(name, layer, direction):
    return "%s_l%d%s" % (name, layer, "_reverse" if direction else "")


def _rnn(prefix, parts, facts, notes):
    scope = prefix[:-1].replace(".", "/")
    num_layers = 1 + max(layer for layer, _, _ in parts)
    num_directions = 1 + max(direction for _, direction, _ in parts)
    has_biases = any(name in _BIASES for _, _, name in parts)
    if not has_biases:
        notes.append(
            "%s has no biases, as with bias=False: they are read as 0." % sentence(name_of(scope))
        )
    layers: List[List[LayerWeights]] = []
    for layer in range(num_layers):
        layers.append([])
        for direction in range(num_directions):
            arrays = [parts.get((layer, bool(direction), name)) for name in _NAMES]
            for name, array in zip(_NAMES, arrays):
                if array is not None and not array.size:
                    raise ExchangeError(
                        "%s%s has shape %s, no element."
                        % (prefix, _key(name, layer, direction), list(array.shape))
                    )
                is_bias = name in _BIASES
                is_needed = has_biases if is_bias else name in _MATRICES
                if is_needed if array is None else array.ndim != (1 if is_bias else 2):
                    raise ExchangeError(
                        "%s%s is missing or not a %s."
                        % (prefix, _key(name, layer, direction), "vector" if is_bias else "matrix")
                    )
            matrices, biases, projection = arrays[:2], arrays[2:4], arrays[4]
            biases = [zero_bias(arrays[1]) if bias is None else bias for bias in biases]
            layers[-1].append(LayerWeights(*[*matrices, *biases, projection]))
    first = layers[0][0]
    rows, columns = first.recurrent_weights.shape
    num_units = columns if first.projection is None else first.projection.shape[-1]
    num_gates = rows / num_units if rows % num_units else rows // num_units
    rnn_mode = mode_of(num_gates, facts, name_of(scope))
    try:
        return RnnWeights(rnn_mode, layers, scope)
    except ValueError as error:
        raise ExchangeError("The parameters %s* are no RNN: %s" % (prefix, error)) from error


def _as_array(key, value):
    if not hasattr(value, "detach"):
        return np.asarray(value)
    try:
        return value.detach().cpu().numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise ExchangeError(
            "%s is %s, which NumPy does not have. Convert the module with .float() (%s)."
            % (key, value.dtype, error)
        ) from error


def read(path: str, facts: Facts = Facts()) -> Contents:  # noqa: B008 (immutable)
    """Reads a `.pt` file (a state_dict, or a dict that has one) or a `.safetensors` file."""
    is_plain = is_safetensors(path)
    try:
        if is_plain:
            saved = library("safetensors.numpy", "torch").load_file(path)
        else:
            if zipfile.is_zipfile(path):
                declared_sizes.check_zip(path)
            saved = library("torch", "torch").load(path, map_location="cpu", weights_only=True)
    except ExchangeError:
        raise
    except Exception as error:  # torch has no common class for errors about a file
        raise ExchangeError(
            "%s cannot be read as a file of PyTorch: %s. Save the state_dict of the module: "
            "torch.save(module.state_dict(), path)." % (path, _reason(error))
        ) from error
    if is_plain:
        return from_state_dict(saved, facts)._replace(path=path, format="safetensors")
    if not isinstance(saved, dict):
        return Contents(path, "PyTorch file", [])
    if _has_rnn(saved):
        return from_state_dict(saved, facts)._replace(path=path)
    parts, others = _parts(saved)
    if parts:
        return _contents_of_parts(parts, others, facts)._replace(path=path)
    return from_state_dict(saved, facts)._replace(path=path, format="PyTorch file")


def _reason(error):
    """Returns what is wrong, without PyTorch's advice to run the code of a file."""
    found = re.search(r"Unsupported (?:global|class)[^.]*: (?:GLOBAL )?([\w.]+)", str(error))
    if found:
        return "it has an object of the class %s, not only tensors" % found.group(1)
    found = re.search("module 'numpy' has no attribute '([^']+)'", str(error))
    if found:
        return "it has tensors of %s, which NumPy does not have" % found.group(1)
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    text = text.strip().split("\n")[0].rstrip(".")
    if "weights_only" in text:
        text = ""
    return "it is no archive of tensors (%s)" % (text or type(error).__name__)


def _has_rnn(state):
    """Returns whether a value is a `state_dict` with parameters of an RNN, maybe computed ones."""
    return isinstance(state, dict) and any(
        _KEY.fullmatch(str(key)) or _SOURCE.fullmatch(str(key)) for key in state
    )


def _parts(saved):
    """Finds the state_dicts in a dict and in the dicts inside it, at any depth.

    Returns:
      parts: list of `_Part`, one for each state_dict, those of outer dicts first.
      others: list of str, the names of everything else.
    """
    parts, inner, seen = [], [], {id(saved)}
    waiting: List[Tuple[Tuple[str, ...], Mapping[Any, Any]]] = [((), saved)]
    while waiting:
        path, level = waiting.pop(0)
        inner.append((path, level))
        for key, value in level.items():
            if _has_rnn(value):
                parts.append(_Part((*path, str(key)), value, level))
            elif isinstance(value, dict) and id(value) not in seen:
                seen.add(id(value))
                waiting.append(((*path, str(key)), value))
    ways = {part.path[:length] for part in parts for length in range(len(part.path) + 1)}
    others = [
        ".".join((*path, str(key)))
        for path, level in inner
        if path in ways
        for key in level
        if (*path, str(key)) not in ways
    ]
    return parts, others


def _contents_of_parts(parts, others, facts):
    """Returns the contents of the first state_dict, with notes on the rest of the file."""
    first = parts[0]
    contents = from_state_dict(first.state, facts)
    if len(parts) > 1:
        left_out = ", ".join(repr(".".join(part.path)) for part in parts[1:])
        note = (
            "Only the RNNs of %r are read. Left out are those of %s: to read these, save that "
            "state_dict as a file of its own." % (".".join(first.path), left_out)
        )
        contents = contents._replace(notes=[*contents.notes, note])
    key = next((key for key in _OPTIMIZERS if key in first.level), "")
    state = None
    if first.path[-1] in _MODELS:
        state = torch_optimizers.read(first.state, first.level.get(key))
    if state is not None:
        slots: Dict[str, Any] = {rnn.scope: {} for rnn in contents.rnns}
        for slot, by_name in state.slots.items():
            for rnn in from_state_dict(by_name, facts).rnns:
                slots[rnn.scope]["", slot] = rnn.to_opaque()
        contents = contents._replace(slots=slots, optimizer=state.powers)
        optimizer = ".".join((*first.path[:-1], key))
        others = [name for name in others if name != optimizer] + [optimizer + ".param_groups"]
        others += [
            "%s.state.%d" % (optimizer, number)
            for number, name in enumerate(first.state)
            if not _KEY.fullmatch(str(name))
        ]
    return contents._replace(others=contents.others + others)


def is_safetensors(path: str) -> bool:
    """Returns whether the file starts as a safetensors file does: a length, then JSON."""
    with open(path, "rb") as file:
        start = file.read(9)
    return start[8:9] == b"{" and start[6:8] == b"\0\0"


def write(path: str, rnns: Sequence[RnnWeights]) -> None:
    """Writes a state_dict; the suffix `.safetensors` selects that format, others torch's own."""
    state = {name: np.ascontiguousarray(array) for name, array in to_state_dict(rnns).items()}
    if path.endswith(".safetensors"):
        content = library("safetensors.numpy", "torch").save(state)
    else:
        torch, buffer = library("torch", "torch"), io.BytesIO()
        # Copies: from_numpy warns of arrays that cannot be written to.
        torch.save({key: torch.from_numpy(array.copy()) for key, array in state.items()}, buffer)
        content = buffer.getbuffer()
    # Python's errors say why a file cannot be written. PyTorch's own do not, and those of
    # safetensors are no OSError.
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def recognizes(path: str) -> bool:
    """Returns whether a file is a ZIP archive, but not of arrays, or has a suffix of PyTorch."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return not any(name.endswith(".npy") for name in archive.namelist())
    return path.endswith((".pt", ".pth", ".bin")) or is_safetensors(path)


FORMAT = Format("torch", "a file of PyTorch", (".safetensors",), recognizes, read, write)
