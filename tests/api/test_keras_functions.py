"""Models of Keras 2 that call functions of TensorFlow, or have layers with `time_major=True`."""

import json
import os
import zipfile

import numpy as np
import pytest

import cudnn_rnn.keras as ours
from cudnn_rnn._compat import KERAS_LOADS_NAMED_TENSORS
from cudnn_rnn.keras import _functions
from cudnn_rnn.keras._conversion import convert_model
from helpers.keras_files import change, members_of_archives, read_config
from helpers.keras_layers import keras, needs_keras_3
from helpers.paths import GOLDEN
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

TOLERANCE = 2e-6  # as in test_keras_old_models.py
FOLDER = os.path.join(GOLDEN, "keras_functions")


# (ARCHIVE, FILE) of each model.
FILES = members_of_archives(FOLDER, lambda name: not name.endswith(".npz"))
OF_KERAS_2 = [file for file in FILES if "tf2" in file[0]]
if IS_TENSORFLOW_1:  # which has no layers of functions
    FILES = [file for file in FILES if file[1].startswith(("embedding", "masking"))]
SLICES = ("functions_tf2.15.1.zip", "slices.h5")
TIME_MAJOR = [file for file in OF_KERAS_2 if file[1].startswith("time_major")]
MASKING = [file for file in FILES if file[1].startswith("masking")]


def extract(file, folder):
    """Extracts a model; returns its path, inputs and outputs."""
    archive, name = file
    with zipfile.ZipFile(os.path.join(FOLDER, archive)) as content:
        content.extractall(str(folder))
    with np.load(str(folder / (name.split(".")[0] + ".npz"))) as arrays:
        return str(folder / name), arrays["arr_0"], arrays["y"]


def assert_predicts(model, inputs, expected):
    found = model.predict(inputs, batch_size=len(inputs), verbose=0)
    assert found.shape == expected.shape
    # Some functions have no bound: 2e-6 of 1 or of the value.
    np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)


@pytest.fixture(autouse=True)
def new_session():
    keras.backend.clear_session()


def functions_in(config):
    entries = [entry["config"] for entry in config["config"]["layers"]]
    return {entry["function"] for entry in entries if "function" in entry}


@needs_tensorflow_2
def test_each_function_is_in_a_file(tmp_path):
    found = set()
    for number, file in enumerate(OF_KERAS_2):
        path, _, _ = extract(file, tmp_path / str(number))
        found |= functions_in(read_config(path))
    assert found == set(_functions.NAMES)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("file", FILES, ids="-".join)
def test_outputs_are_those_of_the_original(tmp_path, file):
    path, inputs, expected = extract(file, tmp_path)
    if not KERAS_LOADS_NAMED_TENSORS:
        with pytest.raises(ValueError, match="the argument 'mask' .* in TensorFlow 1.15 or newer"):
            ours.load_model(path)
        return
    assert np.abs(expected).max() > 0.01
    assert_predicts(ours.load_model(path), inputs, expected)


@pytest.mark.sampled(2)
@pytest.mark.skipif(
    not KERAS_LOADS_NAMED_TENSORS, reason="requires Keras of TensorFlow 1.15 or newer"
)
@pytest.mark.parametrize("file", MASKING, ids="-".join)
def test_dropout_of_a_model_with_masks_acts_in_training(tmp_path, file):
    path, inputs, _ = extract(file, tmp_path)
    model = ours.load_model(path)
    # With a learning rate, the losses would differ because the weights do.
    model.compile(keras.optimizers.SGD(0.0), "mse")
    targets = np.random.RandomState(0).uniform(-1, 1, (len(inputs), 6)).astype(np.float32)
    losses = [model.train_on_batch(inputs, targets) for _ in range(2)]
    assert losses[0] != losses[1]


@pytest.mark.sampled(4)
@needs_keras_3
@pytest.mark.parametrize("file", [SLICES, *TIME_MAJOR], ids="-".join)
def test_loaded_models_are_saved_and_loaded_again(tmp_path, file):
    path, inputs, expected = extract(file, tmp_path)
    for suffix in (".keras", ".h5"):
        saved = str(tmp_path / ("saved" + suffix))
        ours.load_model(path).save(saved)
        for load in (ours.load_model, keras.models.load_model):
            assert_predicts(load(saved), inputs, expected)


@pytest.mark.sampled(2)
@needs_keras_3
@pytest.mark.parametrize("file", [SLICES, TIME_MAJOR[0]], ids="-".join)
def test_convert_says_that_a_program_must_import_this_package(tmp_path, file):
    path, inputs, expected = extract(file, tmp_path)
    notes = convert_model(path, str(tmp_path / "converted.keras"))
    assert "must import cudnn_rnn.keras" in " ".join(notes)
    assert_predicts(keras.models.load_model(str(tmp_path / "converted.keras")), inputs, expected)


@pytest.mark.sampled(2)
@needs_tensorflow_2
@pytest.mark.parametrize("function", ["io.write_file", "py_function", "numpy_function", None])
def test_other_functions_are_not_called(tmp_path, function):
    path, _, _ = extract(SLICES, tmp_path)
    config = read_config(path)
    layer = next(entry for entry in config["config"]["layers"] if "function" in entry["config"])
    layer["config"]["function"] = function
    change(path, config)
    message = r"layer 'tf\..*' calls %r of TensorFlow, which .*load_weights" % (function,)
    with pytest.raises(ValueError, match=message):
        ours.load_model(path)


@needs_tensorflow_2
@pytest.mark.parametrize("function, number", [("split", 2**40), ("unstack", 2**13)])
def test_no_more_outputs_than_a_program_has(tmp_path, function, number):
    path, _, _ = extract(("functions_tf2.15.1.zip", "shapes.h5"), tmp_path)
    config = read_config(path)
    name = "num_or_size_splits" if function == "split" else "num"
    for entry in config["config"]["layers"]:
        if entry["config"].get("function") == function:
            entry["inbound_nodes"][0][3][name] = number
    change(path, config)
    with pytest.raises(ValueError, match="with %s=%d; expected at most 4096" % (name, number)):
        ours.load_model(path)


@needs_keras_3
def test_an_archive_of_keras_3_calls_no_other_function(tmp_path):
    """Such a file is loaded by Keras itself."""
    path, _, _ = extract(SLICES, tmp_path)
    saved = str(tmp_path / "saved.keras")
    ours.load_model(path).save(saved)
    text = json.dumps(read_config(saved))
    assert '"__operators__.getitem"' in text
    change(saved, text.replace('"__operators__.getitem"', '"io.write_file"'))
    for load in (ours.load_model, keras.models.load_model):
        with pytest.raises((ValueError, TypeError), match="calls 'io.write_file' of TensorFlow"):
            load(saved)


@needs_keras_3
def test_damaged_calls(tmp_path):
    path, _, _ = extract(SLICES, tmp_path)
    config = read_config(path)
    layer = next(entry for entry in config["config"]["layers"] if "function" in entry["config"])
    nodes, layer["inbound_nodes"] = layer["inbound_nodes"], []
    change(path, config)
    with pytest.raises(ValueError, match=r"layer 'tf\..*' has 0 calls of the function"):
        ours.load_model(path)
    layer["inbound_nodes"] = [["_CONSTANT_VALUE", -1, [[1.0, 2.0]], nodes[0][3]]]
    change(path, config)
    with pytest.raises(ValueError, match=r"layer 'tf\..*' .* takes no tensor of the model"):
        ours.load_model(path)


@pytest.mark.sampled(2)
@needs_keras_3
@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_time_major_layers_take_masks_and_keep_states(mask, return_sequences):
    from cudnn_rnn.keras._time_major import TimeMajor

    layer = ours.LSTM(3, stateful=True, return_sequences=return_sequences)
    wrapper = TimeMajor(layer)
    inputs = np.random.RandomState(0).uniform(-1, 1, (6, 2, 5)).astype(np.float32)
    masks = np.arange(6)[:, None] < [3, 6]
    for _ in range(2):
        found = wrapper(inputs, mask=masks) if mask else wrapper(inputs)
    layer.reset_states()
    for _ in range(2):
        swapped = inputs.transpose(1, 0, 2)
        expected = layer(swapped, mask=masks.T) if mask else layer(swapped)
    axes = (1, 0, 2) if return_sequences else (0, 1)
    np.testing.assert_array_equal(found, np.transpose(expected, axes))
    wrapper.reset_states()
    assert not np.any(layer.states[0])
