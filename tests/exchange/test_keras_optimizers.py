"""Optimizer state of Keras: Adam's goes to checkpoints, all other is listed as left out."""

import io
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights
from helpers.golden import read_checkpoint
from helpers.optimizer_steps import (
    ADAM,
    EPSILON,
    RATE,
    assert_close,
    inputs_of_training,
    left_out_of,
    step_of_cells,
    step_of_layer,
    targets,
)
from helpers.versions import needs_tensorflow_2

pytestmark = [needs_tensorflow_2, pytest.mark.ci]

CLASSES = {"lstm": "LSTM", "gru": "GRU"}
BETA = '"beta_1": 0.9'
POWERS = {"beta1_power": 0.9**4, "beta2_power": 0.999**4}  # after three steps


def adam(**named):
    return tensorflow.keras.optimizers.Adam(RATE, epsilon=EPSILON, **named)


class KerasModel:
    """A Keras model of two RNN layers, and its training."""

    def __init__(self, rnn_mode="lstm", bidirectional=False, optimizer=None):
        keras = tensorflow.keras
        keras.utils.set_random_seed(1)
        kind = getattr(keras.layers, CLASSES.get(rnn_mode, "SimpleRNN"))
        named = {"activation": "relu"} if rnn_mode == "rnn_relu" else {}
        self.model = keras.Sequential([keras.Input((None, 4))])
        for _ in range(2):
            layer = kind(5, return_sequences=True, bias_initializer="random_normal", **named)
            self.model.add(keras.layers.Bidirectional(layer) if bidirectional else layer)
        self.model.compile(optimizer or adam(), "mse")

    def train(self, steps=1):
        for _ in range(steps):
            inputs = inputs_of_training().swapaxes(0, 1)
            outputs = inputs.shape[:2] + self.model.output_shape[2:]
            self.model.train_on_batch(inputs, targets(outputs))
        return self

    def weights(self):
        (rnn,) = exchange.keras_format.from_model(self.model).rnns
        return rnn


@pytest.mark.sampled(6)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("rnn_mode", ["lstm", "rnn_relu", "rnn_tanh"])
def test_adam_of_keras_goes_on_with_cells(tmp_path, rnn_mode, bidirectional):
    """Cells have one bias, as Keras's layers do. A GRU's of Keras has two: see below."""
    keras = KerasModel(rnn_mode, bidirectional).train(3)
    keras.model.save(str(tmp_path / "model.keras"))
    path = str(tmp_path / "cells")
    done = exchange.convert(tmp_path / "model.keras", path, "cells", target_scope="")
    assert done.notes == ["Left out, as no part of an RNN: optimizer/vars/1."]  # learning rate
    arrays = read_checkpoint(path)
    for key, power in POWERS.items():
        np.testing.assert_allclose(arrays[key], power, rtol=1e-6)
    found = step_of_cells(path, keras.weights(), str(tmp_path / "trained"))
    assert_close(found, keras.train().weights(), biases="sum")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_adam_of_a_keras_gru_goes_on_with_a_layer(tmp_path, bidirectional):
    """Both have two biases."""
    keras = KerasModel("gru", bidirectional).train(3)
    keras.model.save(str(tmp_path / "model.keras"))
    path = str(tmp_path / "layer")
    exchange.convert(tmp_path / "model.keras", path, "1.15", target_scope="encoder")
    found = step_of_layer(path, keras.weights())
    assert_close(found, keras.train().weights())


def test_adam_of_a_keras_lstm_goes_on_with_a_layer(tmp_path):
    """Each of cuDNN's two biases makes the step of the bias of Keras."""
    keras = KerasModel("lstm").train(3)
    keras.model.save(str(tmp_path / "model.keras"))
    before = keras.weights()
    exchange.convert(tmp_path / "model.keras", tmp_path / "layer", "1.15", target_scope="encoder")
    found, after = step_of_layer(str(tmp_path / "layer"), before), keras.train().weights()
    assert_close(found, after, biases="none")
    for parts in zip(*[[one for _, _, one in rnn.places()] for rnn in (found, before, after)]):
        new, old, expected = [part.input_bias + part.recurrent_bias for part in parts]
        np.testing.assert_allclose(new - old, 2 * (expected - old), rtol=0, atol=1e-5)


def test_layers_of_cudnn_rnn_keras_and_other_layers(tmp_path):
    """The slots of the Dense layer are left out as the layer is."""
    import cudnn_rnn.keras

    keras = tensorflow.keras
    stack = cudnn_rnn.keras.RNNStack("lstm", 2, 5, bidirectional=True, name="stack")
    layers = [keras.Input((None, 4)), stack, keras.layers.Dense(2, name="head")]
    model = keras.Sequential(layers)
    model.compile(adam(), "mse")
    inputs = inputs_of_training().swapaxes(0, 1)
    model.train_on_batch(inputs, targets((len(inputs), 2)))
    model.save(str(tmp_path / "model.keras"))
    contents = exchange.read(tmp_path / "model.keras")
    assert set(contents.slots) == {"stack"} and set(contents.slots["stack"]) == ADAM
    slots = [np.asarray(variable) for variable in model.optimizer.variables]
    for slot, start in zip(("Adam", "Adam_1"), (2, 3)):
        found = contents.slots["stack"]["", slot]
        rnn = RnnWeights.from_opaque(found, "lstm", 2, 5, 4, bidirectional=True)
        for place, (_, _, one) in enumerate(rnn.places()):
            kernel, recurrent, bias = slots[start + 6 * place : start + 6 * place + 6 : 2]
            np.testing.assert_array_equal(one.input_weights, kernel.T)
            np.testing.assert_array_equal(one.recurrent_weights, recurrent.T)
            np.testing.assert_array_equal(one.input_bias, bias)
            np.testing.assert_array_equal(one.recurrent_bias, bias)
    left_out = ["optimizer/vars/%d" % number for number in [1, 26, 27, 28, 29]]
    assert contents.others[-5:] == left_out
    done = exchange.convert(tmp_path / "model.keras", tmp_path / "new", "1.15")
    assert done.notes[-1] == "Left out, as no part of an RNN: %s." % ", ".join(contents.others)
    assert "stack/opaque_kernel/Adam_1" in done.keys
    done = exchange.convert(tmp_path / "model.keras", tmp_path / "new.npz", "npz")
    assert done.notes[:2] == [
        "Left out: the slots Adam of the RNN 'stack', Adam_1 of the RNN 'stack'.",
        "Left out with the slots: beta1_power, beta2_power.",
    ]


def frozen(model):
    model.layers[0].trainable = False


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "optimizer, named, change, count",
    [
        ("SGD", {"momentum": 0.9}, None, 8),
        ("Adam", {"amsgrad": True}, None, 20),
        ("Adam", {"use_ema": True}, None, 20),
        ("Nadam", {}, None, 15),
        ("Adamax", {}, None, 14),  # as many variables as Adam
        ("Adam", {}, frozen, 8),
    ],
)
def test_other_state_of_keras_is_listed(tmp_path, optimizer, named, change, count):
    made = getattr(tensorflow.keras.optimizers, optimizer)(0.1, **named)
    keras = KerasModel("gru", optimizer=made)
    if change is not None:
        change(keras.model)
        keras.model.compile(made, "mse")
    keras.train().model.save(str(tmp_path / "model.keras"))
    names = ["optimizer/vars/%d" % number for number in range(count)]
    expected = "Left out, as no part of an RNN: %s." % ", ".join(names)
    assert left_out_of(tmp_path / "model.keras") == expected


def test_adamw_of_keras_with_a_schedule(tmp_path):
    """Its learning rate is no variable."""
    optimizers = tensorflow.keras.optimizers
    rate = optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    keras = KerasModel("gru", optimizer=optimizers.AdamW(rate)).train()
    keras.model.save(str(tmp_path / "model.keras"))
    contents = exchange.read(tmp_path / "model.keras")
    (slots,) = contents.slots.values()
    assert set(slots) == ADAM and contents.others == []
    rnn = RnnWeights.from_opaque(slots["", "Adam_1"], "gru", 2, 5, 4)
    expected = np.asarray(keras.model.optimizer.variables[2])
    found = exchange.keras_format.to_layer_weights(rnn.layers[0][0], "gru")[0]
    np.testing.assert_array_equal(found, expected)


def test_adam_of_keras_with_variables_of_one_shape(tmp_path):
    """Without biases, those of the RNN have zeros."""
    keras = tensorflow.keras
    layer = keras.layers.SimpleRNN(4, use_bias=False)
    model = keras.Sequential([keras.Input((None, 4)), layer])
    model.compile(adam(), "mse")
    inputs = inputs_of_training().swapaxes(0, 1)
    model.train_on_batch(inputs, targets((len(inputs), 4)))
    model.save(str(tmp_path / "model.keras"))
    (slots,) = exchange.read(tmp_path / "model.keras").slots.values()
    for slot, start in zip(("Adam", "Adam_1"), (2, 3)):
        rnn = RnnWeights.from_opaque(slots["", slot], "rnn_tanh", 1, 4, 4)
        weights, expected = rnn.layers[0][0], model.optimizer.variables[start::2]
        np.testing.assert_array_equal(weights.input_weights, np.asarray(expected[0]).T)
        np.testing.assert_array_equal(weights.recurrent_weights, np.asarray(expected[1]).T)
        assert not weights.input_bias.any() and not weights.recurrent_bias.any()


@pytest.fixture(scope="module")
def trained_gru(tmp_path_factory):
    """Returns the path of a model of Keras, trained with Adam."""
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    KerasModel("gru").train().model.save(str(path))
    return path


def replaced(key, value):
    def change(file):
        del file[key]
        if value is not None:
            file[key] = value

    return change


def linked(file):
    file["optimizer/vars/0"].parent.move("0", "kept")
    file["optimizer/vars/0"] = h5py.SoftLink("/optimizer/vars/kept")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "change",
    [
        replaced("optimizer/vars/0", np.int64(-(10**18))),
        replaced("optimizer/vars/0", np.float32(1)),
        replaced("optimizer/vars/0", np.ones(1, np.int64)),
        replaced("optimizer/vars/2", np.zeros([4, 16], np.float32)),
        replaced("optimizer/vars/2", np.zeros([4, 15], np.float64)),
        replaced("optimizer/vars/13", None),
        replaced("optimizer/vars", np.zeros(3)),
        replaced("optimizer", np.zeros(3)),
        linked,
        (BETA, '"beta_1": "0.9"'),
        (BETA, '"beta_1": NaN'),
        (BETA, '"beta_1": 1.5'),
        ('"optimizer": {', '"other": {'),
    ],
)
def test_damaged_state_of_keras_is_not_carried(tmp_path, trained_gru, change):
    path = tmp_path / "changed.keras"
    with zipfile.ZipFile(str(trained_gru)) as old, zipfile.ZipFile(str(path), "w") as new:
        members = {name: old.read(name) for name in old.namelist()}
        if isinstance(change, tuple):
            old_text, new_text = (text.encode() for text in change)
            assert old_text in members["config.json"]
            members["config.json"] = members["config.json"].replace(old_text, new_text)
        else:
            content = io.BytesIO(members["model.weights.h5"])
            with h5py.File(content, "r+") as file:
                change(file)
            members["model.weights.h5"] = content.getvalue()
        for name, member in members.items():
            new.writestr(name, member)
    contents = exchange.read(path)
    assert contents.slots == {} and contents.optimizer == {}
    with h5py.File(io.BytesIO(members["model.weights.h5"]), "r") as file:
        names = []
        file.visit(names.append)
        left = [name for name in names if isinstance(file[name], h5py.Dataset)]
    assert set(contents.others) == {name for name in left if name.split("/")[0] == "optimizer"}


def test_state_in_h5_models_is_listed(tmp_path):
    keras = KerasModel("gru", optimizer=adam(name="adam")).train()
    keras.model.save(str(tmp_path / "model.h5"))
    note = left_out_of(tmp_path / "model.h5")
    assert "optimizer_weights/adam/iteration" in note and "recurrent_kernel_velocity" in note
    assert note.count("optimizer_weights/") == 2 + 2 * 6
