"""Configurations, sequence lengths and inputs for CudnnRNNV3."""

import itertools

import numpy as np
import tensorflow.compat.v1 as tf

from cudnn_rnn.graph import config
from helpers import reference
from helpers.cases import COLUMNS, push_away_from_relu_kink, random_arrays

BATCH, STEPS = 5, 6
LSTM = reference.Configuration("lstm", "linear_input", "bidirectional", 2, 5, 4)
PROJECTED = LSTM._replace(num_proj=3)
GRU = LSTM._replace(rnn_mode="gru")
SKIP = LSTM._replace(input_mode="skip_input", input_size=5)

# The lengths of a batch, with zeros at the start, at the end, alone and everywhere.
LENGTHS = {
    "full": [6, 6, 6, 6, 6],
    "descending": [6, 5, 3, 2, 1],
    "ascending": [1, 2, 3, 5, 6],
    "mixed": [3, 6, 1, 6, 2],
    "with zeros": [0, 4, 0, 6, 0],
    "none full": [2, 4, 1, 3, 3],
    "one step": [1, 1, 1, 1, 1],
    "all zero": [0, 0, 0, 0, 0],
    "one of them": [0, 0, 3, 0, 0],
    "alone": [4],
}


# Whether the ops of this TensorFlow accept bfloat16.
HAS_BFLOAT16 = tf.bfloat16 in config.DTYPES
DTYPES = ["float64", "float32", "float16"] + ["bfloat16"] * HAS_BFLOAT16


def configurations():
    """Returns every mode in both directions, and LSTMs with a projection."""
    found = []
    for rnn_mode, direction in itertools.product(COLUMNS["rnn_mode"], COLUMNS["direction"]):
        configuration = LSTM._replace(rnn_mode=rnn_mode, direction=direction)
        found.append(configuration)
        if rnn_mode == "lstm":
            found.append(configuration._replace(num_proj=3))
    found.append(PROJECTED._replace(num_layers=3, num_units=17, num_proj=16))
    found.append(PROJECTED._replace(num_proj=1, num_layers=1))
    found.append(PROJECTED._replace(input_mode="skip_input", input_size=5))
    return found


def arrays_for(configuration, lengths, dtype="float64", seed=0):
    """Returns all inputs of the op, with NaN beyond each length where nothing may be read."""
    random = np.random.RandomState(seed)
    dtype = tf.as_dtype(dtype).as_numpy_dtype
    arrays = random_arrays(configuration, len(lengths), STEPS, np.float64, random)
    if configuration.rnn_mode == "rnn_relu":
        push_away_from_relu_kink(configuration, arrays)
    for b, length in enumerate(lengths):
        for name in ("input", "output_backprop"):
            arrays[name][length:, b] = np.nan
    arrays = {name: array.astype(dtype) for name, array in arrays.items()}
    return dict(arrays, sequence_lengths=np.array(lengths, np.int32))


def expected_for(configuration, arrays):
    """Returns the results of the reference, run on each sequence alone."""
    arrays = {
        name: array if name == "sequence_lengths" else array.astype(np.float64)
        for name, array in arrays.items()
    }
    lengths = arrays.pop("sequence_lengths")
    return reference.run_reference(configuration, arrays, lengths=lengths)
