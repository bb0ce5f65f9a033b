"""`python -m cudnn_rnn convert OLD NEW --to keras`: a whole model, for today's Keras alone."""

import os

import numpy as np
import pytest

import cudnn_rnn.keras
from helpers.keras_files import extract_archive, extract_old_model
from helpers.keras_layers import IS_KERAS_3, keras, needs_keras_3
from helpers.processes import output_of, status_and_text

SUFFIXES = [".h5"] + [".keras"] * (IS_KERAS_3 or hasattr(keras, "saving"))
# Opens the file in a process that does not import this package.
PREDICT = """
import sys
import numpy as np
import tensorflow as tf
model = tf.keras.models.load_model(sys.argv[1])
with np.load(sys.argv[2]) as arrays:
    inputs = [arrays[name] for name in sorted(arrays.files)]
found = model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=3, verbose=0)
np.savez(sys.argv[3], *(found if isinstance(found, list) else [found]))
assert not [name for name in sys.modules if name.startswith("cudnn_rnn")]
"""
FILES = [
    (extract_old_model, "keras2.2.4/lstm"),
    (extract_old_model, "tf1.15.5/s2s"),
    (extract_old_model, "tf2.15.1/bigru"),
    (extract_old_model, "keras2.3.1/nested"),
    (extract_archive, "tf2.15.1/stackedlstm"),
    (extract_archive, "keras3.15.1/nested"),
]


def convert(*arguments):
    return status_and_text("-m", "cudnn_rnn", "convert", *arguments, "--to", "keras")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("extract, name", FILES, ids=[name for _, name in FILES])
def test_whole_models(tmp_path, extract, name):
    path, inputs, expected = extract(name, tmp_path)
    np.savez(str(tmp_path / "inputs.npz"), *inputs)
    for suffix in SUFFIXES:
        target = str(tmp_path / ("new" + suffix))
        status, text = convert(path, target)
        assert status == 0 and "(the whole model, of layers of Keras)" in text, text
        outputs = str(tmp_path / "outputs.npz")
        output_of("-c", PREDICT, target, str(tmp_path / "inputs.npz"), outputs)
        with np.load(outputs) as found:
            for one, other in zip([found[key] for key in sorted(found.files)], expected):
                np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.sampled(4)
def test_hard_sigmoid_of_keras_2(tmp_path):
    """Keras 3 has another function of that name; a note says that this package is needed."""
    path, inputs, expected = extract_old_model("keras2.2.4/plaingru", tmp_path)
    target = str(tmp_path / ("new" + SUFFIXES[-1]))
    status, text = convert(path, target)
    assert status == 0 and ("must import cudnn_rnn.keras" in text) == IS_KERAS_3, text
    found = keras.models.load_model(target).predict(inputs[0], batch_size=3, verbose=0)
    np.testing.assert_allclose(found, expected[0], atol=2e-6)


@pytest.mark.sampled(4)
def test_a_stack_needs_this_package(tmp_path):
    model = keras.Sequential(
        [keras.layers.InputLayer((None, 3)), cudnn_rnn.keras.RNNStack("gru", 2, 4)]
    )
    path = str(tmp_path / ("stack" + SUFFIXES[-1]))
    model.save(path)
    status, text = convert(path, str(tmp_path / ("new" + SUFFIXES[-1])))
    assert status == 0, text
    assert "has layers of the class RNNStack, which this Keras does not have" in text


@pytest.mark.sampled(4)
@needs_keras_3
def test_masks_in_hdf5_need_this_package(tmp_path):
    inputs = keras.Input((None, 3))
    masked = keras.layers.Masking()(inputs)
    keras.Model(inputs, keras.layers.LSTM(4)(masked)).save(str(tmp_path / "model.keras"))
    for suffix in SUFFIXES:
        status, text = convert(str(tmp_path / "model.keras"), str(tmp_path / ("new" + suffix)))
        told = "which Keras 3 cannot load from HDF5: write a .keras file" in text
        assert (status, told) == (0, suffix == ".h5"), text
    with pytest.raises(ValueError, match="Unknown layer"):
        keras.models.load_model(str(tmp_path / "new.h5"))
    array = np.random.RandomState(0).standard_normal([2, 4, 3]).astype("float32")
    found = [
        load(str(tmp_path / name))(array)
        for load, name in [
            (cudnn_rnn.keras.load_model, "new.h5"),
            (keras.models.load_model, "new.keras"),
        ]
    ]
    np.testing.assert_allclose(*found, atol=1e-6)


@pytest.mark.sampled(4)
def test_a_scope_picks_an_rnn(tmp_path):
    path, _, _ = extract_old_model("tf1.15.5/s2s", tmp_path)
    status, text = convert(path, str(tmp_path / "new.h5"), "--scope", "enc")
    assert status == 0 and "the whole model" not in text, text


@pytest.mark.sampled(4)
def test_what_is_refused(tmp_path):
    path, _, _ = extract_old_model("keras2.2.4/lstm", tmp_path)
    target = str(tmp_path / "folder" / "new.txt")
    for options in ([], ["--dry-run"]):
        status, text = convert(path, target, *options)
        assert status == 1 and "the suffix must be" in text, text
    assert not os.path.exists(str(tmp_path / "folder"))
    existing = tmp_path / "old.h5"
    existing.write_text("kept")
    status, text = convert(path, str(existing))
    assert status == 1 and "exists" in text and existing.read_text() == "kept"
    status, text = convert(path, str(tmp_path / "new.h5"), "--target-scope", "a")
    assert status == 1 and "--target-scope is for weights" in text
    new = tmp_path / "folder" / "new.h5"
    status, text = convert(path, str(new), "--dry-run")
    assert status == 0 and "Would write" in text and not os.path.exists(str(new.parent))
    status, text = convert(path, str(new))
    assert status == 0 and new.is_file() and "The folder %s is new." % new.parent in text, text
    assert os.listdir(str(new.parent)) == ["new.h5"]
