"""The state of the optimizer in a file of a Keras model.

A `.keras` file numbers the variables of an optimizer. Adam has: the number of steps, the learning
rate unless that is a schedule, and the two moments of each trainable variable of the model, in the
model's order. Other optimizers, options that add variables, and `.h5` files are not interpreted:
only the names of their state are read.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import adam_powers
from cudnn_rnn.exchange.keras_arrays import OPTIMIZER_KEYS
from cudnn_rnn.exchange.keras_files import KerasFile

# Both have the same moments. The names are those of the slots of `tf.train.AdamOptimizer`.
_CLASSES = ("Adam", "AdamW")
_SLOTS = ("Adam", "Adam_1")


class Adam(NamedTuple):
    """The state of Adam.

    Attributes:
      slots: by the name of a slot and the key of a weight, an array.
      keys: by the key of a weight, the keys of its slots in the file.
      step: the key of the number of steps.
      powers: see `contents.adam_powers`.
    """

    slots: Dict[str, Dict[str, np.ndarray]]
    keys: Dict[str, List[str]]
    step: str
    powers: Dict[str, np.ndarray]


def read(file: KerasFile) -> Tuple[List[str], Optional[Adam]]:
    """Returns the keys of an optimizer's state, and Adam's state if it certainly is that."""
    keys = [key for key in file.arrays if key.startswith(OPTIMIZER_KEYS)]
    keys.sort(key=lambda key: (len(key), key))  # 2 before 10
    if file.trainable is None:
        return keys, None
    return keys, _adam(file, keys)


def _adam(file, keys):
    """Returns the state of Adam; None if the configuration, a shape or a dtype does not fit."""
    expected = ["optimizer/vars/%d" % number for number in range(len(keys))]
    num_scalars = len(keys) - 2 * len(file.trainable)
    arrays = [file.arrays[key] for key in expected if file.arrays.get(key) is not None]
    if set(keys) != set(expected) or len(arrays) != len(keys) or num_scalars not in (1, 2):
        return None
    scalars, moments = arrays[:num_scalars], expected[num_scalars:]
    kinds = "".join(scalar.dtype.kind for scalar in scalars)
    if kinds not in ("i", "if") or any(scalar.shape != () for scalar in scalars):
        return None
    for number, array in enumerate(arrays[num_scalars:]):
        weight = file.arrays[file.trainable[number // 2]]
        if array.shape != weight.shape or array.dtype != weight.dtype:
            return None
    powers = adam_powers(int(scalars[0][()]), _betas(file.compile_config))
    if powers is None:
        return None
    return Adam(
        {
            slot: {name: file.arrays[key] for name, key in zip(file.trainable, moments[start::2])}
            for start, slot in enumerate(_SLOTS)
        },
        {name: moments[2 * i : 2 * i + 2] for i, name in enumerate(file.trainable)},
        expected[0],
        powers,
    )


def _betas(config):
    """Returns beta_1 and beta_2 of a `compile_config`; an empty list if it is not of Adam."""
    optimizer = config.get("optimizer") if isinstance(config, dict) else None
    if not isinstance(optimizer, dict) or not isinstance(optimizer.get("config"), dict):
        return []
    if optimizer.get("module") != "keras.optimizers" or optimizer.get("class_name") not in _CLASSES:
        return []
    return [optimizer["config"].get(name) for name in ("beta_1", "beta_2")]
