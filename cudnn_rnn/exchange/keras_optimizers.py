"""The state of the optimizer in a file of a Keras model.

A `.keras` file numbers the variables of an optimizer. Adam has: the number of steps, the learning
rate unless that is a schedule, and the two moments of each trainable variable of the model, in the
model's order. Other optimizers, options that add variables, and `.h5` files are not interpreted:
only the names of their state are read.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from cudnn_rnn._compat import tf
from cudnn_rnn.exchange.contents import adam_powers

# Both have the same moments. The names are those of the slots of `tf.train.AdamOptimizer`.
_CLASSES = ("Adam", "AdamW")
_SLOTS = ("Adam", "Adam_1")


class Adam(NamedTuple):
    """The state of Adam.

    Attributes:
      slots: by the name of a slot and the `id` of a variable of the model, an array.
      keys: by the `id` of a variable, the keys of its slots in the file.
      step: the key of the number of steps.
      powers: see `contents.adam_powers`.
    """

    slots: Dict[str, Dict[int, np.ndarray]]
    keys: Dict[int, List[str]]
    step: str
    powers: Dict[str, np.ndarray]


def read(path: str, variables: Sequence[Any]) -> Tuple[List[str], Optional[Adam]]:
    """Returns the keys of an optimizer's state, and Adam's state if it certainly is that.

    Args:
      path: a `.keras` or `.h5` file that `keras_files.check` has accepted.
      variables: the trainable variables of its model.
    """
    import h5py

    if not zipfile.is_zipfile(path):
        with h5py.File(path, "r") as file:
            return list(_datasets(file, "optimizer_weights")), None
    with zipfile.ZipFile(path) as archive:
        if "model.weights.h5" not in archive.namelist():
            return [], None
        content = io.BytesIO(archive.read("model.weights.h5"))
        config = json.loads(archive.read("config.json").decode()).get("compile_config")
    with h5py.File(content, "r") as file:
        datasets = _datasets(file, "optimizer")
        keys = sorted(datasets, key=lambda key: (len(key), key))  # 2 before 10
        return keys, _adam(datasets, config, variables)


def _datasets(file, name):
    """Returns the datasets of a group by their paths; does not follow links in the group."""
    import h5py

    found: Dict[str, Any] = {}

    def add(path, item):
        if isinstance(item, h5py.Dataset):
            found[name + "/" + path] = item

    group = file.get(name)
    if isinstance(group, h5py.Group):
        group.visititems(add)
    return found


def _adam(datasets, config, variables):
    """Returns the state of Adam; None if the configuration, a shape or a dtype does not fit."""
    keys = ["optimizer/vars/%d" % number for number in range(len(datasets))]
    num_scalars = len(keys) - 2 * len(variables)
    if set(keys) != set(datasets) or num_scalars not in (1, 2):
        return None
    moments = keys[num_scalars:]
    scalars = [datasets[key] for key in keys[:num_scalars]]
    kinds = "".join(scalar.dtype.kind for scalar in scalars)
    if kinds not in ("i", "if") or any(scalar.shape != () for scalar in scalars):
        return None
    if not all(_fits(datasets[key], variables[i // 2]) for i, key in enumerate(moments)):
        return None
    powers = adam_powers(int(scalars[0][()]), _betas(config))
    if powers is None:
        return None
    ids = [id(variable) for variable in variables]
    return Adam(
        {
            slot: {one: datasets[key][()] for one, key in zip(ids, moments[start::2])}
            for start, slot in enumerate(_SLOTS)
        },
        {one: moments[2 * i : 2 * i + 2] for i, one in enumerate(ids)},
        keys[0],
        powers,
    )


def _fits(dataset, variable):
    """Returns whether a dataset has the shape and dtype of a variable."""
    dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
    return dataset.shape == tuple(variable.shape) and dataset.dtype == dtype


def _betas(config):
    """Returns beta_1 and beta_2 of a `compile_config`; an empty list if it is not of Adam."""
    optimizer = config.get("optimizer") if isinstance(config, dict) else None
    if not isinstance(optimizer, dict) or not isinstance(optimizer.get("config"), dict):
        return []
    if optimizer.get("module") != "keras.optimizers" or optimizer.get("class_name") not in _CLASSES:
        return []
    return [optimizer["config"].get(name) for name in ("beta_1", "beta_2")]
