"""Paths and tensors that `cudnn_rnn.keras` cannot take: the messages name them."""

import builtins
import re
import sys
import types

import pytest

import cudnn_rnn.keras as ours
from helpers.keras_layers import WIDTH, keras, needs_keras_3


def load_weights(path):
    ours.load_weights(keras.Sequential(), path)


READERS = [ours.load_model, load_weights]


@pytest.mark.parametrize("read", READERS)
def test_a_folder_is_refused_with_advice(tmp_path, read):
    text = re.escape(repr(str(tmp_path))) + " is a folder.*keras.models.load_model.*load_weights"
    with pytest.raises(ValueError, match=text):
        read(str(tmp_path))


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_does_not_exist_is_named(tmp_path, read):
    with pytest.raises(FileNotFoundError, match="'.*no_such.h5'"):
        read(str(tmp_path / "no_such.h5"))


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch, read):
    path, opened = str(tmp_path / "model.h5"), builtins.open

    def refuse(name, *arguments, **named):  # root can read any file
        if name == path:
            raise PermissionError(13, "Permission denied", name)
        return opened(name, *arguments, **named)

    opened(path, "wb").close()
    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(PermissionError, match="model.h5"):
        read(path)


@needs_keras_3
@pytest.mark.parametrize("make", [lambda: ours.LSTM(4), lambda: ours.RNNStack("gru", 1, 4)])
@pytest.mark.parametrize("place", ["inputs", "initial_state"])
def test_tensors_of_the_other_keras_are_refused(monkeypatch, make, place):
    """tf_keras itself need not be installed."""
    monkeypatch.setitem(sys.modules, "tf_keras", types.ModuleType("tf_keras"))
    own = keras.Input((6, WIDTH))
    strange = type("KerasTensor", (), {"__module__": "tf_keras.src.engine", "shape": own.shape})()
    text = "%s is a symbolic tensor of tf_keras, .* of Keras 3 .*TF_USE_LEGACY_KERAS=1" % place
    with pytest.raises(TypeError, match=text):
        if place == "inputs":
            make()(strange)
        else:
            make()(own, initial_state=[strange] * 2)
