"""Models in HDF5 that older releases of Keras wrote, loaded with `cudnn_rnn.keras.load_model`."""

import json
import shutil

import numpy as np
import pytest

import cudnn_rnn.keras as ours
from cudnn_rnn.exchange.keras_files import read_hdf5_model
from helpers.keras_files import (
    change,
    extract_old_model,
    layers_of,
    names_of_old_models,
    read_config,
)
from helpers.keras_layers import keras, needs_keras_3

# Float32; the originals ran on other processors and with other versions of TensorFlow.
TOLERANCE = 2e-6
CUDNN_LSTM, PLAIN_GRU = "keras2.2.4/lstm", "keras2.2.4/plaingru"


def load(path, **named):
    """Loads a model without a warning that its optimizer is not loaded."""
    return ours.load_model(path, compile=False, **named)


@pytest.fixture(autouse=True)
def new_session():
    keras.backend.clear_session()


def predict(model, inputs):
    """Returns a list of the outputs."""
    found = model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=3, verbose=0)
    return found if isinstance(found, list) else [found]


def difference(found, expected):
    """Returns the largest difference of two lists of arrays of the same shapes."""
    assert [one.shape for one in found] == [one.shape for one in expected]
    return max(np.abs(one - other).max() for one, other in zip(found, expected))


def assert_predicts(model, inputs, expected):
    assert difference(predict(model, inputs), expected) <= TOLERANCE


def classes_in(entry):
    """Returns the names of all classes of layers that a configuration has."""
    if isinstance(entry, list):
        return [name for part in entry for name in classes_in(part)]
    if not isinstance(entry, dict):
        return []
    own = [entry["class_name"]] if "class_name" in entry else []
    return own + [name for part in entry.values() for name in classes_in(part)]


def layers_inside(layer):
    """Returns all layers of a model, also those in wrappers and models."""
    inside = list(getattr(layer, "layers", []))
    for name in ("layer", "forward_layer", "backward_layer"):
        inside += [getattr(layer, name)] if hasattr(layer, name) else []
    return [layer] + [found for each in inside for found in layers_inside(each)]


def append_layer(path, **entry):
    config = read_config(path)
    config["config"]["layers"].append(entry)
    change(path, config)
    import h5py

    with h5py.File(path, "r+") as file:
        weights = file["model_weights"]
        weights.create_group("last").attrs["weight_names"] = np.zeros([0], "S1")
        weights.attrs["layer_names"] = [*weights.attrs["layer_names"], b"last"]


def test_all_releases_are_there():
    assert len(names_of_old_models()) == 52


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", names_of_old_models())
def test_outputs_are_those_of_the_original(tmp_path, name):
    """The recurrent layers are this package's, all others Keras's."""
    path, inputs, expected = extract_old_model(name, tmp_path)
    assert min(np.abs(one).max() for one in expected) > 0.01
    model = load(path)
    assert_predicts(model, inputs, expected)
    stored = classes_in(read_config(path))
    for kind in ("LSTM", "GRU", "SimpleRNN"):
        found = [layer for layer in layers_inside(model) if type(layer) is getattr(ours, kind)]
        names = (kind, "CuDNN" + kind, "cudnn_rnn>" + kind)
        assert bool(found) == any(one in names for one in stored), kind
    found = [layer for layer in layers_inside(model) if type(layer) is keras.layers.Dense]
    assert bool(found) == ("Dense" in stored)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", ["tf2.15.1/bigru", PLAIN_GRU, "tf1.15.5/s2s", "keras_layers_tf1.15.5/nested"]
)
def test_loaded_models_are_saved_and_loaded_again(tmp_path, name):
    path, inputs, expected = extract_old_model(name, tmp_path)
    for suffix in [".h5"] + [".keras"] * hasattr(keras.layers.RNN, "inner_loop"):
        saved = str(tmp_path / ("saved" + suffix))
        load(path).save(saved)
        assert_predicts(ours.load_model(saved), inputs, expected)


def test_hdf5_under_another_name(tmp_path):
    path, inputs, expected = extract_old_model(CUDNN_LSTM, tmp_path)
    shutil.move(path, str(tmp_path / "model.keras"))
    assert_predicts(load(tmp_path / "model.keras"), inputs, expected)


@needs_keras_3
def test_hard_sigmoid_has_the_meaning_of_the_version(tmp_path):
    path, inputs, expected = extract_old_model(PLAIN_GRU, tmp_path)
    change(path, keras_version="3.0.0")
    assert difference(predict(load(path), inputs), expected) > 1e-3


def test_stateful_layers_keep_their_states(tmp_path):
    path, inputs, expected = extract_old_model("keras2.2.4/statefullstm", tmp_path)
    model = load(path)
    assert_predicts(model, inputs, expected)
    assert difference(predict(model, inputs), expected) > 1e-3
    [layer.reset_states() for layer in model.layers if hasattr(layer, "reset_states")]
    assert_predicts(model, inputs, expected)


def refused(message):
    return pytest.raises(ValueError, match=message)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name, value", [("units", 2**40), ("batch_input_shape", [3, 6, 2**45])])
def test_layers_larger_than_their_arrays(tmp_path, name, value):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    config = read_config(path)
    config["config"]["layers"][0]["config"][name] = value
    change(path, config)
    # In a graph, Keras builds no layer of such a size.
    with refused("its configuration describes a model with more weights|cannot build its model"):
        load(path)


def test_arrays_of_other_shapes(tmp_path):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    config = read_config(path)
    config["config"]["layers"][0]["config"]["units"] = 5
    change(path, config)
    with refused(r"lstm\.h5 is damaged: its layer 'cu_dnnlstm_1' must have arrays of the shapes"):
        load(path)


def test_a_sequential_without_the_shape_of_its_inputs(tmp_path):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    config = read_config(path)
    del config["config"]["layers"][0]["config"]["batch_input_shape"]
    change(path, config)
    with refused(r"lstm\.h5 does not have the shape of the model's inputs.*load_weights"):
        load(path)


def test_missing_arrays(tmp_path):
    import h5py

    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    with h5py.File(path, "r+") as file:
        file["model_weights/dense_1"].attrs["weight_names"] = [b"dense_1/kernel:0"]
    with refused("its layer 'dense_1' must have 2 arrays, but has 1"):
        load(path)
    with h5py.File(path, "r+") as file:
        del file["model_weights/dense_1/dense_1/kernel:0"]
    with refused("model_weights/dense_1 must have the arrays dense_1/kernel:0, but lacks one"):
        load(path)


def test_long_lists_of_names_are_in_parts(tmp_path):
    import h5py

    path, inputs, expected = extract_old_model(CUDNN_LSTM, tmp_path)
    with h5py.File(path, "r+") as file:
        attributes = file["model_weights/cu_dnnlstm_1"].attrs
        for number, name in enumerate(attributes.pop("weight_names")):
            attributes["weight_names%d" % number] = [name]
    assert_predicts(load(path), inputs, expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "change_of_file, message",
    [
        (dict(config="{"), "its configuration is damaged"),
        (dict(config={"class_name": "Sequential", "config": {}}), "its configuration is damaged"),
        (dict(keras_version="1.2.2"), "was written by Keras 1.2.2"),
        (dict(keras_version="new"), "was written by Keras new"),
    ],
)
def test_damaged_configurations(tmp_path, change_of_file, message):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    change(path, **change_of_file)
    with refused(message):
        load(path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "class_name, config, message",
    [
        ("TFSMLayer", {"filepath": "elsewhere"}, "has the class 'TFSMLayer'"),
        ("TorchModuleWrapper", {"module": "gASV"}, "has the class 'TorchModuleWrapper'"),
        ("Masking", {"vocabulary": "words.txt"}, r"from the file words\.txt, which is not opened"),
    ],
)
def test_layers_that_read_other_files(tmp_path, class_name, config, message):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    append_layer(path, class_name=class_name, config=dict(config, name="last"))
    with refused("The layer 'last' .*" + message):
        load(path)


@pytest.mark.parametrize("settings", [{"batch_input_shape": [2**40, 6, 5]}, {"units": 2**40}])
def test_states_larger_than_those_of_any_program(tmp_path, settings):
    path, _, _ = extract_old_model("keras2.2.4/statefullstm", tmp_path)
    config = read_config(path)
    config["config"]["layers"][0]["config"].update(settings)
    change(path, config)
    with refused("its stateful layers have a batch size of"):
        load(path)


@pytest.mark.parametrize("place", ["a layer", "an initializer"])
def test_modules_in_a_file_are_not_imported(tmp_path, monkeypatch, place):
    path, _, _ = extract_old_model(CUDNN_LSTM, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "hostile_module.py").write_text("raise SystemExit('imported')")
    hostile = {"module": "hostile_module", "class_name": "Thing", "config": {"name": "thing"}}
    config = read_config(path)
    if place == "a layer":
        config["config"]["layers"].append(hostile)
    else:
        layers_of(config)["dense_1"]["config"]["kernel_initializer"] = hostile
    change(path, config)
    with refused("has the class 'Thing', which is not in this Keras and not registered"):
        load(path)


class Doubled(keras.layers.Layer):
    """A layer of the program."""

    def call(self, inputs):
        return 2 * inputs


def double(inputs):
    return 2 * inputs


@pytest.mark.sampled(2)
@pytest.mark.parametrize("class_name", ["Doubled", "shop>Doubled"])
def test_layers_of_the_program(tmp_path, class_name):
    path, inputs, expected = extract_old_model(CUDNN_LSTM, tmp_path)
    append_layer(path, class_name=class_name, config={"name": "last", "trainable": True})
    message = r"layer 'last' has the class '%s', which is .* custom_objects=\{'%s': the class\}"
    with refused(message % (class_name, class_name)):
        load(path)
    model = load(path, custom_objects={class_name: Doubled})
    assert_predicts(model, inputs, [2 * expected[0]])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "function, name", [("double", "double"), (["bytecode", None, None], "last")]
)
def test_functions_of_lambda_layers(tmp_path, function, name):
    """Code in a file is not run."""
    path, inputs, expected = extract_old_model(CUDNN_LSTM, tmp_path)
    config = {
        "name": "last",
        "function": function,
        "function_type": "function" if function == name else "lambda",
        "output_shape": None,
        "output_shape_type": "raw",
        "arguments": {},
    }
    append_layer(path, class_name="Lambda", config=config)
    with refused(r"layer 'last' is a Lambda\. .* custom_objects=\{'%s': the function\}" % name):
        load(path)
    model = load(path, custom_objects={name: double})
    assert_predicts(model, inputs, [2 * expected[0]])


def test_an_activation_of_the_program(tmp_path):
    path, inputs, expected = extract_old_model(CUDNN_LSTM, tmp_path)
    config = read_config(path)
    layers_of(config)["dense_1"]["config"]["activation"] = "double"
    change(path, config)
    model = load(path, custom_objects={"double": double})
    assert_predicts(model, inputs, [2 * expected[0]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["keras2.2.4/s2s", "keras2.0.8/nested", "tf2.15.1/bigru"])
def test_configurations_in_json(tmp_path, name):
    path, inputs, expected = extract_old_model(name, tmp_path)
    version = read_hdf5_model(path).keras_version
    made = ours.model_from_json(json.dumps(dict(read_config(path), keras_version=version)))
    made.set_weights(load(path).get_weights())
    assert_predicts(made, inputs, expected)
    again = ours.model_from_json(made.to_json())
    again.set_weights(made.get_weights())
    assert_predicts(again, inputs, expected)


def test_damaged_json():
    for text in ("{", "[]", '{"class_name": "Sequential"}', '"text"'):
        with pytest.raises(ValueError, match="json_string"):
            ours.model_from_json(text)
