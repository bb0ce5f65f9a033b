"""`.keras` archives that another Keras wrote, loaded with `cudnn_rnn.keras.load_model`."""

import json
import os
import warnings
import zipfile

import numpy as np
import pytest

import cudnn_rnn.keras as ours
from cudnn_rnn.exchange.contents import ExchangeError
from helpers.keras_files import (
    ARCHIVES,
    OLD_MODELS,
    change,
    extract_archive,
    extract_old_model,
    names_of_old_models,
    read_config,
)
from helpers.keras_layers import IS_KERAS_3, keras, needs_keras_2
from helpers.paths import GOLDEN

TOLERANCE = 2e-6  # as in test_keras_old_models.py


def names_of_archives():
    """Returns "RELEASE/NAME" of each archive whose inputs and outputs are known."""
    found = []
    for release in sorted(os.listdir(ARCHIVES)):
        members = set()
        for path in (os.path.join(ARCHIVES, release), os.path.join(OLD_MODELS, release)):
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as content:
                    members.update(content.namelist())
        names = sorted(name[:-6] for name in members if name.endswith(".keras"))
        found += ["%s/%s" % (release[:-4], name) for name in names if name + ".npz" in members]
    return found


NAMES = names_of_archives()
# A file of each generation, with models in models.
NESTED = ["archives_tf2.15.1/nested", "keras3.15.1/nested"]
OF_ANOTHER_KERAS = NESTED[0] if IS_KERAS_3 else NESTED[1]


@pytest.fixture(autouse=True)
def new_session():
    keras.backend.clear_session()


def test_archives_of_both_generations_are_there():
    assert len(NAMES) == 20 and set(NESTED) <= set(NAMES)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_the_original(tmp_path, name):
    """Nothing is left out: the models were compiled with Adam."""
    path, inputs, expected = extract_archive(name, tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(call model.compile|starts anew)")
        model = ours.load_model(path)
    found = model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=3, verbose=0)
    for one, other in zip(found if isinstance(found, list) else [found], expected):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)
    assert type(model.optimizer).__name__ == "Adam"
    recurrent = [layer for layer in model.layers if type(layer).__name__ in ours.__all__]
    assert all(type(layer).__module__.startswith("cudnn_rnn.") for layer in recurrent)


@pytest.mark.sampled(4)
def test_an_archive_of_tensorflow_2_13(tmp_path):
    """Its groups have other names; the same model is in HDF5 beside it."""
    with zipfile.ZipFile(os.path.join(GOLDEN, "keras_exchange", "archive_tf2.13.1.zip")) as archive:
        archive.extractall(str(tmp_path))
    archive, hdf5 = [
        ours.load_model(str(tmp_path / ("archive_tf2.13.1" + suffix)), compile=False)
        for suffix in (".keras", ".h5")
    ]
    for one, other in zip(archive.get_weights(), hdf5.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert len(archive.get_weights()) > 10


def changed(folder, change_config=None, **members):
    """Returns the path of a damaged copy of an archive of another Keras."""
    path, _, _ = extract_archive(OF_ANOTHER_KERAS, folder)
    config = read_config(path)
    if change_config:
        change_config(config)
    change(path, config, **members)
    return path


def test_a_model_that_is_larger_than_its_arrays(tmp_path):
    def enlarge(entry):
        if isinstance(entry, dict):
            if "units" in entry:
                entry["units"] = 30000
            [enlarge(one) for one in entry.values()]
        [enlarge(one) for one in entry] if isinstance(entry, list) else None

    with pytest.raises(ValueError, match="is damaged|must have|cannot be loaded"):
        ours.load_model(changed(tmp_path, enlarge))


def test_missing_arrays(tmp_path):
    import h5py

    path = changed(tmp_path)
    with zipfile.ZipFile(path) as archive:
        weights = archive.extract("model.weights.h5", str(tmp_path))
    with h5py.File(weights, "r+") as file:
        names = []
        file.visit(lambda name: names.append(name) if name.endswith("vars/1") else None)
        del file[[name for name in names if name.startswith("layers")][0]]
    with open(weights, "rb") as file:
        change(path, **{"model.weights.h5": file.read()})
    with pytest.raises(ExchangeError, match="is damaged: its layer .* must have arrays"):
        ours.load_model(path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "members, text",
    [
        ({"metadata.json": json.dumps({"keras_version": "4.0.0"})}, "written by Keras 4.0.0"),
        ({"metadata.json": "[]"}, "damaged|cannot be read"),
        ({"assets/layers/text/vocabulary.txt": "a"}, "keeps files beside its weights"),
        ({"model.weights.h5": b"no HDF5"}, "cannot be read"),
    ],
)
def test_archives_that_are_refused(tmp_path, members, text):
    with pytest.raises(ExchangeError, match=text):
        ours.load_model(changed(tmp_path, **members))


def test_an_archive_without_a_model(tmp_path):
    path = str(tmp_path / "empty.keras")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "")
    with pytest.raises(ExchangeError, match="cannot be read as a Keras model"):
        ours.load_model(path)


@needs_keras_2
def test_hard_sigmoid_of_keras_3_is_refused(tmp_path):
    def set_activation(entry):
        if isinstance(entry, dict):
            if entry.get("recurrent_activation"):
                entry["recurrent_activation"] = "hard_sigmoid"
            [set_activation(one) for one in entry.values()]
        [set_activation(one) for one in entry] if isinstance(entry, list) else None

    with pytest.raises(ExchangeError, match="hard_sigmoid of Keras 3, which has another slope"):
        ours.load_model(changed(tmp_path, set_activation))


def names_of_weights():
    """Returns "RELEASE/NAME" of each file of weights whose model is in `tests/golden/keras`."""
    found = []
    for release in ("keras2.2.4", "tf1.15.5", "tf2.15.1"):
        with zipfile.ZipFile(os.path.join(ARCHIVES, release + ".zip")) as content:
            names = [name for name in content.namelist() if name.endswith(".weights.h5")]
        found += ["%s/%s" % (release, name[: -len(".weights.h5")]) for name in sorted(names)]
    return found


def extract_weights(name, folder):
    release, _, name = name.rpartition("/")
    with zipfile.ZipFile(os.path.join(ARCHIVES, release + ".zip")) as archive:
        return archive.extract(name + ".weights.h5", str(folder))


def test_weights_of_all_releases_are_there():
    assert len(names_of_weights()) == 18


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", names_of_weights())
def test_weights_alone(tmp_path, name):
    """Both forms are under one name; the layers of the model have names of their own."""
    whole, inputs, expected = extract_old_model(name, tmp_path)
    model = ours.load_model(whole, compile=False)
    model.set_weights([np.zeros_like(one) for one in model.get_weights()])
    ours.load_weights(model, extract_weights(name, tmp_path))
    found = model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=3, verbose=0)
    for one, other in zip(found if isinstance(found, list) else [found], expected):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", names_of_old_models())
def test_weights_of_the_file_of_a_whole_model(tmp_path, name):
    path, _, _ = extract_old_model(name, tmp_path)
    model = ours.load_model(path, compile=False)
    expected = model.get_weights()
    model.set_weights([np.zeros_like(one) for one in expected])
    ours.load_weights(model, path)
    for one, other in zip(model.get_weights(), expected):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["keras2.2.4/lstm", "tf2.15.1/lstm"])
def test_weights_of_another_model_are_refused(tmp_path, name):
    path = extract_weights(name, tmp_path)
    for layers in ([ours.LSTM(5), keras.layers.Dense(2)], [ours.LSTM(4)]):
        model = keras.Sequential(layers)
        model.build((None, 6, 5))
        before = model.get_weights()
        with pytest.raises(ExchangeError, match="must have arrays|but the model has"):
            ours.load_weights(model, path)
        for one, other in zip(model.get_weights(), before):
            np.testing.assert_array_equal(one, other)


def test_weights_of_todays_keras(tmp_path):
    made = []
    for name in ("one", "two"):
        layers = [ours.LSTM(4, name=name, return_sequences=True), ours.GRU(3)]
        made.append(keras.Sequential(layers + [keras.layers.Dense(2)]))
        made[-1].build((None, 6, 5))
    path = str(tmp_path / "today.weights.h5")
    made[0].save_weights(path)
    ours.load_weights(made[1], path)
    for one, other in zip(*[model.get_weights() for model in made]):
        np.testing.assert_array_equal(one, other)


def test_what_is_no_file_of_weights(tmp_path):
    path = tmp_path / "text.h5"
    path.write_text("no HDF5")
    with pytest.raises(ExchangeError, match="is not an HDF5 file"):
        ours.load_weights(keras.Sequential([ours.LSTM(4)]), str(path))
