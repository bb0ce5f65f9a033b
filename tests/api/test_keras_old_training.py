"""Training goes on with models that `load_model` reads: loss, metrics, optimizer and its state."""

import json
import warnings

import numpy as np
import pytest

import cudnn_rnn.keras as ours
from cudnn_rnn.exchange import keras_files
from cudnn_rnn.keras import _stored_models
from helpers.keras_files import change, extract_old_model, names_of_old_models
from helpers.keras_layers import IS_KERAS_3, keras

layers = keras.layers
HAS_ARCHIVES = IS_KERAS_3 or hasattr(getattr(keras, "saving", None), "load_model")
OPTIMIZERS = {
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "SGD": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01),
    # What some settings add to the state, or leave out of it.
    "Adam amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "SGD plain": lambda: keras.optimizers.SGD(0.05),
    "RMSprop momentum": lambda: keras.optimizers.RMSprop(0.01, momentum=0.9),
    "RMSprop all": lambda: keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True),
}


@pytest.fixture(autouse=True)
def new_session():
    keras.backend.clear_session()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(call model.compile|starts anew)")
        yield


def training_config_of(path):
    """Returns what a model was compiled with, or None."""
    import h5py

    with h5py.File(path, "r") as file:
        text = file.attrs.get("training_config", "null")
        return json.loads(text if isinstance(text, str) else text.decode())


def set_slots(path, arrays):
    """Replaces what the optimizer's state has after the number of steps."""
    import h5py

    with h5py.File(path, "r+") as file:
        group = file["optimizer_weights"]
        for name, array in zip(group.attrs["weight_names"][1:], arrays):
            group[name][...] = array


def trained_model(optimizer):
    inputs = keras.Input((6, 5))
    hidden = layers.Bidirectional(ours.LSTM(4, return_sequences=True))(inputs)
    hidden = ours.GRU(3)(layers.BatchNormalization()(hidden))
    model = keras.Model(inputs, layers.Dense(2)(hidden))
    model.compile(optimizer, "mse", metrics=["mae"])
    for _ in range(3):
        model.train_on_batch(*data())
    return model


def data():
    random = np.random.RandomState(0)
    return random.standard_normal((16, 6, 5)), random.standard_normal((16, 2))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("suffix", [".h5"] + [".keras"] * HAS_ARCHIVES)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_training_goes_on(tmp_path, name, suffix):
    model = trained_model(OPTIMIZERS[name]())
    path = str(tmp_path / ("model" + suffix))
    model.save(path)
    loaders = [ours.load_model]
    if suffix == ".keras":  # what another Keras would read
        loaders.append(lambda path: _stored_models.load_archive(path, {}))
    copies = [load(path) for load in loaders]
    for _ in range(2):
        expected = model.train_on_batch(*data())
        for made in copies:
            np.testing.assert_allclose(made.train_on_batch(*data()), expected, rtol=1e-5)
    for made in copies:
        for found, weights in zip(made.get_weights(), model.get_weights()):
            np.testing.assert_allclose(found, weights, atol=1e-6)


def test_the_number_of_steps_of_an_optimizer_without_slots(tmp_path):
    model, path = trained_model(OPTIMIZERS["SGD plain"]()), str(tmp_path / "model.h5")
    model.save(path)
    made = ours.load_model(path)
    assert keras.backend.get_value(made.optimizer.iterations) == 3


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", names_of_old_models())
def test_models_of_all_releases_can_be_trained(tmp_path, name):
    path, inputs, outputs = extract_old_model(name, tmp_path)
    config = training_config_of(path)
    model = ours.load_model(path)
    if config is None:
        assert getattr(model, "optimizer", None) is None
        return
    stored = config["optimizer_config"]
    assert type(model.optimizer).__name__ == stored["class_name"].rpartition(">")[2]
    stored = stored["config"]
    rate = keras.backend.get_value(model.optimizer.learning_rate)
    assert rate == pytest.approx(stored.get("learning_rate", stored.get("lr")))
    batch = [one[:3] for one in inputs], [np.zeros_like(one[:3]) for one in outputs]
    losses = [np.ravel(model.train_on_batch(*batch))[0] for _ in range(2)]
    assert np.isfinite(losses).all() and losses[0] > 0


def test_the_state_of_layers_of_cudnn(tmp_path):
    """The arrays of the state are arranged as the weights are; biases of equal gradients, once."""
    path, _, _ = extract_old_model("tf1.15.5/lstm", tmp_path)
    stored = keras_files.read_hdf5_model(path).weights
    set_slots(path, 2 * [array for of_layer in stored.values() for array in of_layer])
    model = ours.load_model(path)
    optimizer, variables = model.optimizer, model.trainable_weights
    for slot, attribute in (("m", "_momentums"), ("v", "_velocities")):
        if hasattr(optimizer, attribute):
            values = [np.asarray(one) for one in getattr(optimizer, attribute)]
        else:
            values = keras.backend.batch_get_value(
                [optimizer.get_slot(one, slot) for one in variables]
            )
        expected = model.get_weights()
        expected[2] = expected[2] / 2  # the layer has the sum of two biases, the slot one of them
        for one, other in zip(values, expected):
            np.testing.assert_allclose(one, other, rtol=1e-6)


UNKNOWN = {"module": "os", "class_name": "NoLoss", "config": {}}
MEAN_SQUARED_ERROR = {
    "class_name": "MeanSquaredError",
    "config": {"reduction": "auto", "name": "mean_squared_error"},
}


def test_objects_as_loss_and_metrics(tmp_path):
    path, inputs, outputs = extract_old_model("keras2.2.4/lstm", tmp_path)
    config = training_config_of(path)
    config.update(loss=MEAN_SQUARED_ERROR, metrics=[["mae"]])
    change(path, training_config=json.dumps(config))
    found = ours.load_model(path).evaluate(inputs[0], outputs[0] + 2, batch_size=3, verbose=0)
    np.testing.assert_allclose(found, [4, 2], rtol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "change_config, text",
    [
        (lambda config: config["optimizer_config"].update(class_name="Nadam"), "optimizer Nadam"),
        (lambda config: config.update(loss=UNKNOWN), "NoLoss is not in this Keras"),
    ],
)
def test_what_is_left_out_is_said(tmp_path, change_config, text):
    path, _, _ = extract_old_model("keras2.2.4/lstm", tmp_path)
    config = training_config_of(path)
    change_config(config)
    change(path, training_config=json.dumps(config))
    with pytest.warns(UserWarning, match=text + ".*call model.compile"):
        ours.load_model(path)
    ours.load_model(path, compile=False)


def test_a_state_of_other_shapes_is_left_out(tmp_path):
    path, _, _ = extract_old_model("keras2.2.4/lstm", tmp_path)
    import h5py

    with h5py.File(path, "r+") as file:
        names = list(file["optimizer_weights"].attrs["weight_names"])
        file["optimizer_weights"].attrs["weight_names"] = names[:-11]
    with pytest.warns(UserWarning, match="arrays instead of 10; the optimizer starts anew"):
        model = ours.load_model(path)
    assert np.isfinite(model.train_on_batch(np.ones([3, 6, 5]), np.ones([3, 2])))


def test_decay_of_the_learning_rate(tmp_path):
    path, _, _ = extract_old_model("keras2.2.4/lstm", tmp_path)
    config = training_config_of(path)
    config["optimizer_config"]["config"]["decay"] = 0.5
    change(path, training_config=json.dumps(config))
    optimizer = ours.load_model(path).optimizer
    schedule = getattr(optimizer, "_learning_rate", None) or optimizer._hyper["learning_rate"]
    for step in (0, 1, 10):
        rate = float(keras.backend.get_value(schedule(step)))
        assert rate == pytest.approx(0.001 / (1 + 0.5 * step), rel=1e-5)
