"""Files of Keras models from strangers: nothing of them runs, and what is damaged is refused."""

import io
import json
import os
import shutil
import zipfile

import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import guarded, keras_format
from helpers.exchange_models import assert_refused, assert_same
from helpers.keras_files import change, layers_of, read_config
from helpers.paths import GOLDEN
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

pytestmark = pytest.mark.ci
HUGE = 2**60
SUFFIXES = [".h5"] + [".keras"] * (not IS_TENSORFLOW_1)
keras = tensorflow.keras


def saved_model(path, *layers):
    """Saves a model of a SimpleRNN and these layers; returns the first RNN."""
    inputs = values = keras.Input((3, 4))
    for layer in (keras.layers.SimpleRNN(2, name="rnn"), *layers):
        values = layer(values)
    model = keras.Model(inputs, values)
    model.save(str(path))
    return keras_format.from_model(model).rnns[0]


@pytest.fixture
def trace(tmp_path):
    """Returns the path of a file that hostile code would create; fails if it exists at the end."""
    path = tmp_path / "trace"
    yield str(path)
    assert not path.exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("has_zip", [False, True])
def test_code_of_lambda_layers_does_not_run(tmp_path, trace, suffix, has_zip):
    """A ZIP archive at the end of an HDF5 file does not make it one."""
    path = tmp_path / ("model" + suffix)
    layer = keras.layers.Lambda(lambda inputs: (open(trace, "w"), inputs)[1])
    rnn = saved_model(path, layer)
    os.remove(trace)
    if has_zip:
        name = "other.json" if suffix == ".keras" else "config.json"
        zipfile.ZipFile(str(path), "a").writestr(name, "{}")
    assert_same(exchange.read(path).rnns[0], rnn)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "entry",
    [
        {"module": "os", "class_name": "system", "config": {"name": "x", "command": "touch %s"}},
        {"module": "keras.utils", "class_name": "get_file", "config": {"name": "x"}},
        {"class_name": "StringLookup", "config": {"name": "x", "vocabulary": "/etc/passwd"}},
        {"class_name": "TFSMLayer", "config": {"name": "x", "filepath": "/etc"}},
        {"class_name": "TorchModuleWrapper", "config": {"name": "x", "module": "%s"}},
        {"class_name": "LSTM", "module": "evil", "config": {"name": "x", "units": 10**9}},
        {"class_name": "Dense", "config": {"name": "x", "units": 10**9}},
        {
            "class_name": "Bidirectional",
            "config": {"name": "x", "layer": {"class_name": "Dense", "config": {}}},
        },
    ],
)
def test_layers_that_the_file_names_are_not_built(tmp_path, trace, suffix, entry):
    path = tmp_path / ("model" + suffix)
    rnn = saved_model(path)
    config = read_config(path)
    text = json.dumps(dict({"module": "keras.layers"}, **entry)).replace("%s", trace)
    config["config"]["layers"].append(json.loads(text))
    change(path, config)
    (found,) = exchange.read(path).rnns
    assert_same(found, rnn)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "name, value, message",
    [
        ("units", 100000, "has 100000 units, but weights of the shapes"),
        ("units", "2", "has '2' units"),
        ("use_bias", False, "must have 2 arrays"),
        ("activation", {"module": "os", "class_name": "function", "config": "tanh"}, "activation"),
        ("activation", "sigmoid", "activation='sigmoid'"),
        ("go_backwards", True, "go_backwards"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, suffix, name, value, message):
    path = tmp_path / ("model" + suffix)
    saved_model(path)
    config = read_config(path)
    layers_of(config)["rnn"]["config"][name] = value
    change(path, config)
    assert_refused(path, message)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "config, message",
    [
        ("{", "configuration is damaged"),
        ("[" * 100000, "configuration is damaged"),
        ("7", "no configuration of a Keras model"),
        ('{"class_name": "Sequential"}', "the class Sequential, whose layers are not in the file"),
        ('{"class_name": "Mine", "config": {}}', "keras_format.from_model"),
        ('{"class_name": "Sequential", "config": [7]}', "configuration is damaged"),
        ('{"class_name": "Sequential", "config": [{"class_name": "LSTM"}]}', "has no name"),
        (
            '{"class_name": "Sequential", "config": [{"class_name": "LSTM", "config": '
            '{"name": "other", "units": 3}}]}',
            "'other' must have 3 arrays, but has none",
        ),
    ],
)
def test_damaged_configurations(tmp_path, suffix, config, message):
    path = tmp_path / ("model" + suffix)
    saved_model(path)
    change(path, config)
    assert_refused(path, message)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("nodes", [[], [7], [[["unknown", 0, 0, {}]]]])
def test_calls_without_known_inputs(tmp_path, suffix, nodes):
    path = tmp_path / ("model" + suffix)
    saved_model(path, keras.layers.Reshape([2, 1]), keras.layers.SimpleRNN(2, name="second"))
    config = read_config(path)
    layers_of(config)["second"]["inbound_nodes"] = nodes
    change(path, config)
    assert_refused(path, "does not say which layers the RNN 'second' follows")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_arrays_of_no_layer_are_told(tmp_path, suffix):
    """A configuration that has lost its last layer would make an RNN of one layer of two."""
    path = tmp_path / ("model" + suffix)
    saved_model(path, keras.layers.Reshape([2, 1]), keras.layers.SimpleRNN(2, name="second"))
    whole = exchange.read(path)
    assert (len(whole.rnns), whole.others) == (2, [])
    config = read_config(path)
    config["config"]["layers"] = [
        layer for layer in config["config"]["layers"] if layer is not layers_of(config)["second"]
    ]
    change(path, config)
    found = exchange.read(path)
    assert len(found.rnns) == 1 and len(found.others) == 3, found.others


@needs_tensorflow_2
def test_archives_whose_weights_belong_to_other_layers(tmp_path):
    path = tmp_path / "model.keras"
    saved_model(path, keras.layers.Reshape([2, 1]), keras.layers.SimpleRNN(2, name="second"))
    config = read_config(path)
    layers = layers_of(config)
    order = [layer for layer in config["config"]["layers"] if layer is not layers["rnn"]]
    config["config"]["layers"] = order + [layers["rnn"]]
    change(path, config)
    message = "must have the weights" if keras.__version__ >= "3" else "units"
    assert_refused(path, "is damaged", message)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("suffix", [".keras", ".npz"])
def test_archives_of_other_compressions(tmp_path, suffix, method):
    path = tmp_path / ("rnn" + suffix)
    with zipfile.ZipFile(str(path), "w", method) as archive:
        for name in ("config.json", "model.weights.h5", "array.npy"):
            archive.writestr(name, bytes(2**20))
    assert_refused(path, "is compressed by method", "stored or deflated")


def overlapping(path, names):
    """Writes an archive whose members are all the same bytes."""
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        content = io.BytesIO()
        np.save(content, np.zeros(2**16))
        archive.writestr(names[0], content.getvalue())
        for name in names[1:]:
            member = archive.getinfo(names[0])
            other = zipfile.ZipInfo(name)
            for field in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(other, field, getattr(member, field))
            archive.filelist.append(other)
            archive.NameToInfo[name] = other


@pytest.mark.parametrize("suffix", [".keras", ".npz"])
def test_archives_whose_members_overlap(tmp_path, suffix):
    path = tmp_path / ("rnn" + suffix)
    overlapping(path, ["config.json", "model.weights.h5"] + ["%04d.npy" % i for i in range(1000)])
    assert_refused(path, "overlaps another member")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_with_a_name_twice(tmp_path):
    path = tmp_path / "rnn.npz"
    np.savez(str(path), a=np.zeros(3))
    zipfile.ZipFile(str(path), "a").writestr("a.npy", b"other")
    assert_refused(path, "a.npy is there twice")


def test_encrypted_archives(tmp_path):
    path = tmp_path / "rnn.npz"
    np.savez(str(path), a=np.zeros(3))
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert_refused(path, "a.npy is encrypted")


@needs_tensorflow_2
def test_archives_without_weights_in_hdf5(tmp_path):
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(str(path), "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.npz", b"")
    assert_refused(path, "it lacks model.weights.h5")


def hdf5_with(path, kind):
    """Adds something to the weights of a saved model that the file does not have."""
    import h5py

    other = os.path.join(os.path.dirname(str(path)), "other.h5")
    with h5py.File(other, "w") as file:
        file["data"] = np.ones(4, np.float32)
    with h5py.File(str(path), "r+") as file:
        group = file[sorted(file)[0]]
        if kind == "empty":
            group.create_dataset("x", (HUGE,), "f4", chunks=(4,))
        elif kind == "external":
            group.create_dataset("x", (4,), "f4", external=[(str(path), 0, 16)])
        elif kind == "link":
            group["x"] = h5py.ExternalLink("other.h5", "data")
        elif kind == "link_of_root":
            file["x"] = h5py.ExternalLink("other.h5", "data")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((4,), "f4")
            layout[:] = h5py.VirtualSource(other, "data", (4,))
            group.create_virtual_dataset("x", layout)
        elif kind == "chunk":
            named = dict(maxshape=(None,), chunks=(2**28,), compression="gzip")
            group.create_dataset("x", data=np.zeros(4, np.float32), **named)
        elif kind == "twice":
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((2**20,))
            plist.set_deflate(9)
            plist.set_deflate(9)
            space = h5py.h5s.create_simple((2**20,))
            dataset = h5py.h5d.create(group.id, b"x", h5py.h5t.IEEE_F32LE, space, plist)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.zeros(2**20, np.float32))


NOT_THERE = {
    "empty": "declares",
    "external": "not self-contained",
    "link": "not self-contained",
    "link_of_root": "not self-contained",
    "virtual": "not self-contained",
    "chunk": "a chunk of",
    "twice": "expected each of deflate, shuffle and fletcher32 at most once",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", sorted(NOT_THERE))
def test_hdf5_with_data_that_the_file_does_not_have(tmp_path, kind):
    path = tmp_path / "model.h5"
    saved_model(path)
    hdf5_with(path, kind)
    assert_refused(path, NOT_THERE[kind])


@needs_tensorflow_2
@pytest.mark.parametrize("kind", ["empty", "link", "twice"])
def test_archives_with_data_that_the_weights_do_not_have(tmp_path, kind):
    path = tmp_path / "model.keras"
    saved_model(path)
    with zipfile.ZipFile(str(path)) as archive:
        weights = archive.extract("model.weights.h5", str(tmp_path))
    hdf5_with(weights, kind)
    with open(weights, "rb") as file:
        change(path, **{"model.weights.h5": file.read()})
    assert_refused(path, NOT_THERE[kind])


def test_arrays_that_share_their_bytes(tmp_path):
    """The sum of what datasets have is at most the file."""
    import h5py

    path = tmp_path / "model.h5"
    saved_model(path)
    with h5py.File(str(path), "r+") as file:
        for name in "ab":
            file.create_dataset(name, data=np.ones(2**18, np.float32))
            offset = file[name].id.get_offset()
        size = file["a"].id.get_storage_size()
    assert offset and size == 2**20
    os.truncate(str(path), offset)  # "b" is not there
    assert_refused(path, "cannot be read as an HDF5 file")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_file_that_keeps_libhdf5_busy_for_ever(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(guarded, "_BASE_SECONDS", 3)
    loops, path = os.path.join(GOLDEN, "damaged", "loops_in_libhdf5.h5"), tmp_path / ("x" + suffix)
    if suffix == ".h5":
        shutil.copy(loops, str(path))
    else:
        with zipfile.ZipFile(str(path), "w") as archive:
            archive.write(loops, "model.weights.h5")
            archive.writestr("config.json", '{"class_name": "Sequential", "config": []}')
    assert_refused(path, "the reader did not end within 3")


@pytest.mark.sampled(4)
def test_a_run_of_ff_bytes(tmp_path):
    path = tmp_path / "model.h5"
    saved_model(path)
    content = bytearray(path.read_bytes())
    for start in range(96, len(content), len(content) // 16):
        changed = bytes(content[:start]) + b"\xff" * 64 + bytes(content[start + 64 :])
        path.write_bytes(changed)
        try:
            exchange.read(path)
        except exchange.ExchangeError as error:
            assert str(path) in str(error)
