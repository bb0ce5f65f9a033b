"""What a checkpoint has beside the tensors of an RNN: its opaque variable, and slots.

The work is in proportion to the checkpoint, which may have many RNNs of many variables.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import numpy as np

from cudnn_rnn.exchange.checkpoint_arrays import from_arrays
from cudnn_rnn.exchange.contents import StoredRnn, name_of
from cudnn_rnn.model import dialects, layout
from cudnn_rnn.model.keys import CELLS, OPAQUE_NAME, PLAIN, plain
from cudnn_rnn.model.weights import SIMPLE_MODES, RnnWeights, from_buffer

_Slots = Dict[Tuple[str, str], np.ndarray]
# Names of slots have fewer parts, separated by "/".
_MOST_PARTS = 32
# Comparisons of an RNN with a vector of its size and first element, for each key of the checkpoint.
_COMPARISONS_PER_KEY = 4


def is_average(pair: Tuple[str, str]) -> bool:
    """Returns whether a slot (before, after) holds a mean of values: sums of biases stay sums."""
    return pair[1].rpartition("/")[2] == "ExponentialMovingAverage"


class Extras:
    """Finds opaque variables and slots in a `CheckpointReader`; appends remarks to `notes`."""

    def __init__(self, reader: Any, notes: List[str]) -> None:
        self._reader, self._notes = reader, notes
        self._comparisons_left = 1000 + _COMPARISONS_PER_KEY * len(reader.shapes)
        self._vectors: Dict[Any, List[str]] = {}  # keys, the shortest first, by size and dtype
        for key in sorted(reader.shapes, key=len):
            if len(reader.shapes[key]) == 1:
                kind = reader.shapes[key][0], reader.dtypes[key]
                self._vectors.setdefault(kind, []).append(key)
        self._by_first_element: Dict[Any, Dict[bytes, List[str]]] = {}
        self._names_of_slots: Optional[Dict[str, List[Tuple[str, str]]]] = None

    def with_exact_biases(self, rnn: RnnWeights, used: Set[str]) -> Tuple[Any, RnnWeights]:
        """Looks for the opaque variable with the same weights, whose key is not in `used`.

        Returns:
          `(key, weights)`: the key is None, and the weights are the argument's, if there is none.
        """
        for skip_input in (False, True)[: 1 + (rnn.input_size == rnn.num_units)]:
            config = rnn.layout
            if skip_input:
                config = config._replace(input_mode="skip_input")
            layer = rnn.layers[0][0]
            first = layer.recurrent_weights if skip_input else layer.input_weights
            for key in self._candidates(rnn, layout.params_size(config), first.flat[0]):
                if key in used:
                    continue
                exact = from_buffer(self._reader.tensor(key), config, rnn.scope)
                if _is_same(rnn, exact):
                    return key, exact
                if plain(key).rpartition("/")[2] == OPAQUE_NAME:
                    self._notes.append(
                        "%s has the size of the opaque vector of %s, but other values, which a "
                        "Saver of that variable would restore. The values under the other keys "
                        "were taken." % (key, name_of(rnn.scope))
                    )
        return None, rnn

    def _candidates(self, rnn: RnnWeights, size: int, first: Any) -> Iterator[str]:
        """Yields the keys of vectors of this size that may have the weights.

        These are the vectors with the RNN's scope, and those with this first element.
        """
        reader = self._reader
        modes = SIMPLE_MODES if rnn.rnn_mode in SIMPLE_MODES else [rnn.rnn_mode]
        for layer in ("", *["cudnn_%s" % mode for mode in modes]):
            key = "/".join(filter(None, (rnn.scope, layer, OPAQUE_NAME)))
            if self._is_like(key, (size,), rnn.dtype):
                yield key
        kind = size, rnn.dtype
        if kind not in self._by_first_element:
            found: Dict[bytes, List[str]] = {}
            for key in self._vectors.get(kind, []):
                found.setdefault(reader.tensor(key)[:1].tobytes(), []).append(key)
            self._by_first_element[kind] = found
        for key in self._by_first_element[kind].get(first.tobytes(), []):
            if self._comparisons_left <= 0:
                break
            self._comparisons_left -= 1
            yield key

    def slots(
        self, stored: StoredRnn, rnn: RnnWeights, variable: Optional[str]
    ) -> Tuple[_Slots, Set[str]]:
        """Returns the slots of an RNN, as `Contents.slots` has them, and the set of their keys."""
        reader = self._reader
        slots: _Slots = {}
        used = set()
        if variable is not None:
            for before, after in self._slots_of(plain(variable)):
                key = before + plain(variable) + "/" + after
                if self._is_like(key, (rnn.params_size,), rnn.dtype):
                    slots[before, after] = reader.tensor(key)
                    used.add(key)
        if stored.generation not in (CELLS, PLAIN):
            return slots, used
        # A mean of biases lacks the forget bias as the biases do; moments of gradients do not.
        without_forget_bias = stored._replace(forget_biases=())
        for before, after in self._slots_of(stored.keys[0]):
            keys = [before + key + "/" + after for key in stored.keys]
            is_complete = all(
                self._is_like(key, reader.shapes[own], rnn.dtype)
                for key, own in zip(keys, stored.keys)
            )
            if is_complete:
                used.update(keys)
                if (before, after) not in slots:
                    pair = before, after
                    arrays = [reader.tensor(key) for key in keys]
                    if is_average(pair):
                        of_slot = from_arrays(stored, arrays)
                    else:
                        of_slot = from_arrays(without_forget_bias, arrays, dialects.copies_of)
                    slots[pair] = of_slot.to_opaque()
        return slots, used

    def _is_like(self, key, shape, dtype):
        shapes, dtypes = self._reader.shapes, self._reader.dtypes
        return key in shapes and tuple(shapes[key]) == tuple(shape) and dtypes[key] == dtype

    def _slots_of(self, name):
        """Returns the (before, after) of all keys `<before><name>/<after>`."""
        if self._names_of_slots is None:
            self._names_of_slots = _names_of_slots(self._reader.shapes)
        return self._names_of_slots.get(name, [])


def _names_of_slots(keys):
    """Returns the (before, after) of all keys `<before><name>/<after>` by name, also a key."""
    names = {plain(key) for key in keys} | set(keys)
    found: Dict[str, List[Tuple[str, str]]] = {}
    for key in keys:
        parts = key.split("/")
        if len(parts) > _MOST_PARTS:
            continue
        for start in range(len(parts) - 1):
            for end in range(start + 1, len(parts)):
                name, after = "/".join(parts[start:end]), "/".join(parts[end:])
                if name in names and after and not after.startswith("."):
                    before = "".join(part + "/" for part in parts[:start])
                    found.setdefault(name, []).append((before, after))
    return found


def _is_same(rnn, exact):
    """Returns whether the matrices are equal, and the sums of biases up to rounding."""
    tolerance = 8 * np.finfo(rnn.dtype).eps
    for (_, _, one), (_, _, other) in zip(rnn.places(), exact.places()):
        for name in ("input_weights", "recurrent_weights", "projection"):
            first, second = getattr(one, name), getattr(other, name)
            if first is not None and first.tobytes() != second.tobytes():
                return False
        sums = [part.input_bias + part.recurrent_bias for part in (one, other)]
        scale = np.abs(other.input_bias) + np.abs(other.recurrent_bias)
        # A NaN is equal to a NaN, but to no number.
        if np.any(np.isnan(sums[0]) != np.isnan(sums[1])):
            return False
        if np.any(np.abs(sums[0] - sums[1]) > tolerance * scale):
            return False
    return True
