"""What `convert --to keras` writes in one Keras, all others load with their own `load_model`."""

import json
import zipfile

import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import keras_format
from helpers.exchange_models import assert_same, random_rnn
from helpers.keras_files import extract_old_file, read_config
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_1, needs_tensorflow_2

pytestmark = pytest.mark.ci
keras = tensorflow.keras
WRITERS = ["tf1.15.5.h5", "tf2.15.1.h5", "tf2.21.0.h5"]
ARCHIVES = ["tf2.15.1.keras", "tf2.21.0.keras"] * (not IS_TENSORFLOW_1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WRITERS + ARCHIVES)
def test_files_of_other_releases(tmp_path, name):
    keras.backend.clear_session()
    path = extract_old_file("converted/" + name, tmp_path, "keras_exchange")
    stored = extract_old_file("converted/weights.npz", tmp_path, "keras_exchange")
    expected = {rnn.scope: rnn for rnn in exchange.read(stored).rnns}
    model = keras.models.load_model(path, compile=False)
    for rnns in (keras_format.from_model(model).rnns, exchange.read(path).rnns):
        found = {rnn.scope: rnn for rnn in rnns}
        assert set(found) == set(expected) == set("abcde")
        for scope, rnn in expected.items():
            assert_same(found[scope], rnn)


@pytest.mark.parametrize("suffix", [".h5"] + [".keras"] * (not IS_TENSORFLOW_1))
def test_this_release_writes_the_same_configuration(tmp_path, suffix):
    stored = extract_old_file("converted/weights.npz", tmp_path, "keras_exchange")
    target = str(tmp_path / ("x" + suffix))
    exchange.convert(stored, target, "keras")
    for name in [name for name in WRITERS + ARCHIVES if name.endswith(suffix)]:
        other = extract_old_file("converted/" + name, tmp_path, "keras_exchange")
        assert in_order(read_config(target)) == in_order(read_config(other))


def in_order(config):
    """Releases number the layers in different orders."""
    config["config"]["layers"].sort(key=lambda entry: entry["name"])
    return config


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("suffix", [".h5"] + [".keras"] * (not IS_TENSORFLOW_1))
def test_the_model_of_one_rnn_has_one_input_and_one_output(tmp_path, suffix, bidirectional):
    keras.backend.clear_session()
    rnn = random_rnn("gru", 2, bidirectional=bidirectional, scope="encoder")
    path = str(tmp_path / ("x" + suffix))
    exchange.write(path, [rnn], "keras")
    model = keras.models.load_model(path, compile=False)
    inputs = np.random.RandomState(0).uniform(-1, 1, [2, 3, 4]).astype(np.float32)
    found = model.predict(inputs)
    expected = keras_format.to_model([rnn]).predict(inputs)
    assert found.shape == (2, 3, 10 if bidirectional else 5)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@needs_tensorflow_2
def test_other_members_of_an_archive_stay(tmp_path):
    rnn = random_rnn("gru", 2)
    path = str(tmp_path / "x.keras")
    exchange.write(path, [rnn], "keras")
    with zipfile.ZipFile(path) as archive:
        assert {"config.json", "metadata.json", "model.weights.h5"} <= set(archive.namelist())
        assert json.loads(archive.read("metadata.json").decode())["keras_version"]
    assert_same(exchange.read(path).rnns[0], rnn)


@pytest.mark.sampled(2)
@needs_tensorflow_1
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_suffix_that_this_keras_does_not_write(tmp_path, dry_run):
    stored = extract_old_file("converted/weights.npz", tmp_path, "keras_exchange")
    target = str(tmp_path / "x.keras")
    message = r"x\.keras cannot be written: Keras .* Give a name that ends with \.h5"
    with pytest.raises(exchange.ExchangeError, match=message):
        exchange.convert(stored, target, "keras", dry_run=dry_run)
    assert not (tmp_path / "x.keras").exists()
