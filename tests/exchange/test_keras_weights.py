"""Files of Keras's weights alone: what names and shapes tell, and what the user must state."""

import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import keras_format
from helpers.exchange_models import assert_refused, assert_same, random_rnn
from helpers.keras_files import extract_old_file, extract_old_model
from helpers.old_outputs import NAMES, TOLERANCE, outputs_of

pytestmark = pytest.mark.ci
keras = tensorflow.keras
FILES = [name for name in NAMES if not name.startswith("keras_layers")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FILES)
def test_weights_of_old_models(tmp_path, name):
    path, inputs, expected = extract_old_model(name, tmp_path)
    weights = extract_old_file(name + ".weights.h5", tmp_path)
    contents = exchange.read(weights)
    assert contents.format == "Keras weights" and not contents.problems
    assert "The file has weights alone. Assumed: " in contents.notes[0]
    target = str(tmp_path / "converted.npz")
    exchange.convert(weights, target, "npz")
    rnns = {rnn.scope: rnn for rnn in exchange.read(target).rnns}
    ordered = [rnns[rnn.scope] for rnn in contents.rnns]
    found = outputs_of(name, ordered, inputs, path)
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("release", ["keras2.2.4", "tf1.15.5"])
def test_an_old_gru_without_reset_after(tmp_path, release):
    path = extract_old_file(release + "/plaingru.weights.h5", tmp_path)
    for facts in ({}, {"rnn_mode": "gru"}):
        assert_refused(path, "GRU with 4 units", "has reset_after=False", **facts)


def arrays_of(rnn, cell="lstm_1"):
    """Returns the arrays of each layer and direction by the names that Keras gives them."""
    parts = ("kernel", "recurrent_kernel", "bias")
    found = []
    for _, _, weights in rnn.places():
        arrays = keras_format.to_layer_weights(weights, rnn.rnn_mode)
        found.append({"%s/%s:0" % (cell, part): array for part, array in zip(parts, arrays)})
    return found


def write_weights(path, version, layers):
    """Writes a file as Keras up to 2.15 does: layers by name are arrays by name."""
    import h5py

    with h5py.File(str(path), "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in layers]
        if version:
            file.attrs["keras_version"] = version.encode()
        for name, arrays in layers.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = [key.encode() for key in arrays]
            for key, array in arrays.items():
                group[key] = array
    return str(path)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
@pytest.mark.parametrize(
    "version, is_default",
    [
        ("", False),
        ("2.0.8", False),
        ("2.2.4", False),
        ("2.2.4-tf", False),  # of TensorFlow 1.15 with hard_sigmoid, and 2.1 with sigmoid
        ("2.3.0", True),
        ("2.3.0-tf", True),
        ("2.15.0", True),
        ("3.0.0", True),
    ],
)
def test_activations_that_the_file_does_not_tell(tmp_path, rnn_mode, version, is_default):
    rnn = random_rnn(rnn_mode, 1, equal_biases=rnn_mode == "lstm")
    path = write_weights(tmp_path / "x.h5", version, {"lstm_1": arrays_of(rnn)[0]})
    stated = exchange.read(path, rnn_mode=rnn_mode)
    assert_same(stated.rnns[0], rnn)
    assert "activation" not in stated.notes[0]
    if not is_default:
        reasons = ["hard_sigmoid", "(--rnn-mode %s)" % rnn_mode, version or "unknown version"]
        assert_refused(path, *reasons)
        return
    contents = exchange.read(path)
    assert_same(contents.rnns[0], rnn)
    assert "recurrent_activation='sigmoid', the defaults of Keras %s" % version in contents.notes[0]


def test_layers_of_several_modes(tmp_path):
    lstm, gru = random_rnn("lstm", 1, equal_biases=True), random_rnn("gru", 1)
    layers = {"lstm_1": arrays_of(lstm)[0], "gru_1": arrays_of(gru, "gru_1")[0]}
    path = write_weights(tmp_path / "x.h5", "2.2.4", layers)
    contents = exchange.read(path, rnn_mode="gru")
    assert_same(contents.rnns[0], gru)
    assert "'lstm_1'" in contents.problems[0] and len(contents.problems) == 1
    assert_refused(path, "'lstm_1'", "'gru_1'", "--rnn-mode gru")


def test_a_gru_without_bias(tmp_path):
    arrays = arrays_of(random_rnn("gru", 1))[0]
    arrays.pop("lstm_1/bias:0")
    path = write_weights(tmp_path / "x.h5", "2.15.0", {"lstm_1": arrays})
    assert_refused(path, "nothing tells reset_after", "--rnn-mode gru")
    (rnn,) = exchange.read(path, rnn_mode="gru").rnns
    assert not rnn.layers[0][0].input_bias.any() and rnn.rnn_mode == "gru"


def test_simple_rnns_need_their_activation(tmp_path):
    rnn = random_rnn("rnn_relu", 1, equal_biases=True)
    path = write_weights(tmp_path / "x.h5", "2.15.0", {"lstm_1": arrays_of(rnn)[0]})
    (found,) = exchange.read(path).rnns
    assert found.rnn_mode == "rnn_tanh or rnn_relu"
    with pytest.raises(exchange.ExchangeError, match="Give rnn_mode= "):
        exchange.convert(path, str(tmp_path / "x.npz"), "npz")
    assert_same(exchange.read(path, rnn_mode="rnn_relu").rnns[0], rnn)


def test_which_layers_are_one_rnn(tmp_path):
    rnn = random_rnn("lstm", 3, num_units=4, equal_biases=True)
    first, second, third = arrays_of(rnn)
    other = arrays_of(random_rnn("lstm", 1, input_size=7))[0]
    layers = {"a": first, "b": second, "dropout": {}, "c": third, "d": other}
    for name in "abcd":
        layers[name] = {key.replace("lstm_1", name): array for key, array in layers[name].items()}
    contents = exchange.read(write_weights(tmp_path / "x.h5", "2.3.1", layers))
    assert [(one.scope, one.num_layers) for one in contents.rnns] == [("a", 2), ("c", 1), ("d", 1)]
    assert (
        "layers next to each other, whose widths fit, are one RNN: 'a' (2 layers)"
        in (contents.notes[0])
    )


def test_layers_of_a_model_in_the_model(tmp_path):
    """The file does not tell what is between them."""
    first, second = arrays_of(random_rnn("lstm", 2, num_units=4, equal_biases=True))
    inner = dict(first, **{key.replace("_1", "_2"): array for key, array in second.items()})
    path = write_weights(tmp_path / "x.h5", "2.3.1", {"inner": inner, "other": dict(first)})
    found = [(rnn.scope, rnn.num_layers) for rnn in exchange.read(path).rnns]
    assert found == [("lstm_1", 1), ("lstm_2", 1), ("lstm_1_1", 1)]


@pytest.mark.parametrize("cells", [("", ""), ("/lstm_cell", "/lstm_cell_1")])
def test_directions(tmp_path, cells):
    rnn = random_rnn("lstm", 2, bidirectional=True, equal_biases=True)
    layers = {}
    for number, (layer, way, _) in enumerate(rnn.places()):
        name = "two/bidirectional_%d/%s_lstm_1%s" % (
            layer,
            ("forward", "backward")[way],
            cells[way],
        )
        arrays = arrays_of(rnn)[number]
        arrays = {key.replace("lstm_1", name): array for key, array in arrays.items()}
        layers.setdefault("bidirectional_%d" % layer, {}).update(arrays)
    path = write_weights(tmp_path / "x.hdf5", "2.15.0", layers)
    (found,) = exchange.read(path).rnns
    assert found.scope == "bidirectional_0"
    assert_same(found, rnn)


def test_other_layers_are_left_out(tmp_path):
    random = np.random.RandomState(0)
    shapes = {
        "conv_lstm2d": [(3, 3, 2, 16), (3, 3, 4, 16), (16,)],
        "peephole": [(5, 16), (4, 17), (16,)],
        "empty": [(5, 0), (0, 0), (0,)],
        "dense": [(5, 16)],
    }
    parts = ("kernel", "recurrent_kernel", "bias")
    layers = {
        name: {
            "%s/%s:0" % (name, part): random.rand(*shape) for part, shape in zip(parts, of_layer)
        }
        for name, of_layer in shapes.items()
    }
    contents = exchange.read(write_weights(tmp_path / "x.h5", "2.15.0", layers))
    assert contents.rnns == [] and len(contents.others) == 10


@pytest.mark.parametrize("bias", [(15,), (2, 16), (4, 8), (24,)])
def test_biases_of_wrong_shapes(tmp_path, bias):
    arrays = dict(arrays_of(random_rnn("lstm", 1, num_units=4))[0])
    arrays["lstm_1/bias:0"] = np.zeros(bias, np.float32)
    path = write_weights(tmp_path / "x.h5", "2.15.0", {"lstm_1": arrays})
    assert_refused(path, "has a bias of shape %s; expected [16]" % list(bias))


def test_lists_of_names_that_the_file_does_not_have(tmp_path):
    import h5py

    arrays = arrays_of(random_rnn("lstm", 1))[0]
    path = write_weights(tmp_path / "x.h5", "2.15.0", {"lstm_1": arrays})
    with h5py.File(path, "r+") as file:
        del file["lstm_1/lstm_1/bias:0"]
    assert_refused(path, "'lstm_1' must have the arrays lstm_1/lstm_1/bias:0")
    with h5py.File(path, "r+") as file:
        file["lstm_1"].attrs["weight_names"] = [7, 8]
    assert_refused(path, "is damaged")


def test_a_layer_that_is_listed_many_times(tmp_path):
    import h5py

    rnn = random_rnn("lstm", 1, equal_biases=True)
    path = write_weights(tmp_path / "x.h5", "2.15.0", {"lstm_1": arrays_of(rnn)[0]})
    with h5py.File(path, "r+") as file:
        file.attrs["layer_names"] = [b"lstm_1"] * 1000
    contents = exchange.read(path)
    assert_same(contents.rnns[0], rnn)
    assert len(contents.rnns) == 1 and len(contents.notes) == 1000
    assert "The layer 'lstm_1' has arrays of the layer 'lstm_1', which are read once." in (
        contents.notes
    )


def test_weights_of_live_models(tmp_path):
    """As this Keras writes them: names of layers, or numbers."""
    inputs = keras.Input((None, 4))
    named = dict(return_sequences=True, recurrent_activation="sigmoid")
    values = keras.layers.LSTM(3, name="one", **named)(inputs)
    values = keras.layers.Dense(3)(values)
    pair = keras.layers.GRU(3, reset_after=True, **named)
    values = keras.layers.Bidirectional(pair, name="pair")(values)
    model = keras.Model(inputs, keras.layers.SimpleRNN(2, activation="relu", name="last")(values))
    random = np.random.RandomState(0)
    model.set_weights([random.uniform(-1, 1, one.shape) for one in model.get_weights()])
    path = str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    expected = {rnn.rnn_mode: rnn for rnn in keras_format.from_model(model).rnns}
    for rnn_mode, rnn in expected.items():
        contents = exchange.read(path, rnn_mode=rnn_mode)
        (found,) = [one for one in contents.rnns if one.num_gates == rnn.num_gates]
        assert_same(found, rnn)


def test_numbered_layers_are_in_the_order_of_their_numbers(tmp_path):
    import h5py

    rnn = random_rnn("lstm", 12, num_units=4, equal_biases=True)
    path = str(tmp_path / "x.weights.h5")
    with h5py.File(path, "w") as file:
        for number, arrays in enumerate(arrays_of(rnn)):
            folder = "layers/lstm" + ("_%d" % number if number else "")
            for index, array in enumerate(arrays.values()):
                file["%s/cell/vars/%d" % (folder, index)] = array
            file.create_group(folder + "/vars").attrs["name"] = "number_%d" % number
    (found,) = exchange.read(path).rnns
    assert found.scope == "number_0"
    assert_same(found, rnn)
