"""The weights of an RNN in a checkpoint, with exact biases if its opaque variable is there, too."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from cudnn_rnn.exchange.checkpoint_graph import restored
from cudnn_rnn.exchange.checkpoint_keys import OPAQUE, OPAQUE_NAME, Found, plain
from cudnn_rnn.exchange.contents import name_of
from cudnn_rnn.exchange.weights import RnnWeights


def to_weights(found: Found, arrays: Sequence[np.ndarray]) -> RnnWeights:
    """Returns the weights for the tensors of a generation."""
    if found.generation == OPAQUE:
        return _from_opaque(arrays[0], found.config, found.scope)
    return _from_opaque(restored(found, arrays), found.config, found.scope)


def _from_opaque(vector, config, scope):
    return RnnWeights.from_opaque(
        vector,
        config.rnn_mode,
        config.num_layers,
        config.num_units,
        config.input_size,
        config.num_directions == 2,
        config.num_proj,
        config.skips_input_projection,
        scope,
    )


def with_exact_biases(rnn, reader, candidates, notes):
    """Looks among the keys `candidates` for the opaque variable with the same weights.

    Returns:
      `(key, weights)`: the key is None, and the weights are the argument's, if there is none.
    """
    for skip_input in (False, True)[: 1 + (rnn.input_size == rnn.num_units)]:
        config = rnn.layout
        if skip_input:
            config = config._replace(input_mode="skip_input")
        size = [config.params_size()]
        for key in candidates:
            if list(reader.shapes[key]) != size or reader.dtypes[key] != rnn.dtype:
                continue
            exact = _from_opaque(reader.get_tensor(key), config, rnn.scope)
            if _is_same(rnn, exact):
                return key, exact
            if plain(key).rpartition("/")[2] == OPAQUE_NAME:
                notes.append(
                    "%s has the size of the opaque vector of %s, but other values, which a Saver "
                    "of that variable would restore. The values under the other keys were taken."
                    % (key, name_of(rnn.scope))
                )
    return None, rnn


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
