"""Writes a model of any Keras as a file of today's Keras, for `python -m cudnn_rnn convert`."""

from __future__ import annotations

import os
import warnings
from typing import List

from cudnn_rnn.exchange import keras_files
from cudnn_rnn.exchange.contents import (
    ExchangeError,
    notes_on_folder,
    replacing,
    target_or_trial,
)
from cudnn_rnn.keras import _stored_models
from cudnn_rnn.keras._functions import TensorFlowFunction
from cudnn_rnn.keras._fused_layer import IS_KERAS_3, OUR_PREFIX, hard_sigmoid_of_keras_2
from cudnn_rnn.keras._implicit_masks import MERGING, InputMask
from cudnn_rnn.keras._new_nodes import OPERATIONS
from cudnn_rnn.keras._stack import RNNStack
from cudnn_rnn.keras._time_major import TimeMajor

SUFFIXES = (".keras", ".h5")
# What Keras cannot do without this package, and the name of the class or function that does it.
_ONLY_HERE = {
    "the hard_sigmoid of Keras 2": hard_sigmoid_of_keras_2.__name__,
    "functions of TensorFlow as layers": TensorFlowFunction.__name__,
    "layers with time_major=True": TimeMajor.__name__,
    "the mask of a call with initial_state": InputMask.__name__,
    "layers of the class RNNStack": RNNStack.__name__,
    **{"a %s of inputs with different masks" % name: ours for name, ours in MERGING.items()},
}


def convert_model(path: str, target: str, dry_run: bool = False) -> List[str]:
    """Writes a whole model with Keras's own layers; returns notes on what was left out.

    Args:
      path: a `.keras` file or a whole model in HDF5, of Keras 2 or 3.
      target: the new file, `.keras` or `.h5`, in a folder that is made if need be. An existing file
        is replaced when the new one is complete.
      dry_run: whether to try everything, but to write to a temporary folder only.

    Raises:
      ExchangeError: `path` is damaged, or this Keras cannot write a file of the suffix.
      ValueError: a layer cannot be made; the message names it.
    """
    suffix = os.path.splitext(target)[1]
    if suffix not in SUFFIXES or (suffix == ".keras" and not _stored_models.writes_archives()):
        raise ExchangeError(
            "%s cannot be written: the suffix must be %s." % (target, " or ".join(_suffixes()))
        )
    load = _stored_models.load_archive
    if keras_files.is_hdf5(path):
        load = _stored_models.load_hdf5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load(path, {}, with_ours=False)
    notes = [str(one.message) for one in caught if issubclass(one.category, _stored_models.Left)]
    text = model.to_json()
    for part, name in _ONLY_HERE.items():
        # TensorFlow 1 writes classes without the prefix.
        if OUR_PREFIX + name in text or '"class_name": "%s"' % name in text:
            notes.append(
                "%s has %s, which this Keras does not have: to open the file, a program must "
                "import cudnn_rnn.keras." % (target, part)
            )
    if suffix == ".h5" and OPERATIONS in text:
        notes.append(
            "%s has operations, such as those that make masks, which Keras 3 cannot load from "
            "HDF5: write a .keras file, or load this one with cudnn_rnn.keras.load_model." % target
        )
    # Keras 3 cannot load a loss that an HDF5 file names.
    options = {"include_optimizer": False} if IS_KERAS_3 and suffix == ".h5" else {}
    if options and getattr(model, "optimizer", None) is not None:
        notes.append("%s has neither loss nor optimizer; a .keras file has both." % target)
    notes += notes_on_folder(target, dry_run)
    with target_or_trial(target, dry_run) as place, replacing(place) as written:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras calls HDF5 an old format
            model.save(written, **options)
    return notes


def _suffixes():
    return [one for one in SUFFIXES if one != ".keras" or _stored_models.writes_archives()]
