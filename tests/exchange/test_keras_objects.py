"""Checkpoints of objects and SavedModels that Keras writes."""

import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import keras_format
from cudnn_rnn.exchange.checkpoint_reader import CheckpointReader
from helpers.exchange_models import assert_refused, assert_same, run_op
from helpers.keras_files import extract_old_file, extract_old_model
from helpers.keras_layers import IS_KERAS_3
from helpers.old_outputs import TOLERANCE, outputs_of, outputs_of_chain

pytestmark = pytest.mark.ci
keras = tensorflow.keras


@pytest.mark.parametrize("name", ["lstm_ckpt", "lstm_sm"])
def test_a_layer_of_cudnn(tmp_path, name):
    path, inputs, expected = extract_old_model("tf1.15.5/lstm", tmp_path)
    checkpoint = extract_old_file("tf1.15.5/" + name, tmp_path)
    contents = exchange.read(checkpoint)
    assert contents.format == "checkpoint with the keys of Keras"
    assert [rnn.scope for rnn in contents.rnns] == ["cu_dnnlstm"]
    assert not [key for key in contents.others if key.startswith("layer_with_weights-0/kernel/.A")]
    target = str(tmp_path / "x.npz")
    exchange.convert(checkpoint, target, "npz")
    found = outputs_of("tf1.15.5/lstm", exchange.read(target).rnns, inputs, path)
    np.testing.assert_allclose(found, expected[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["objects_ckpt", "objects_sm"])
def test_bidirectional_and_nested_layers(tmp_path, name):
    checkpoint = extract_old_file("objects_tf2.15.1/" + name, tmp_path)
    contents = exchange.read(checkpoint, rnn_mode="rnn_relu")
    rnns = {rnn.scope: rnn for rnn in contents.rnns}
    assert {scope: rnn.num_layers for scope, rnn in rnns.items()} == dict(pair=2, in_a=2, last=1)
    assert "the defaults of TensorFlow 2.2 and newer" in contents.notes[0]
    path = extract_old_file("objects_tf2.15.1/objects.h5", tmp_path)
    with np.load(extract_old_file("objects_tf2.15.1/objects.npz", tmp_path)) as arrays:
        inputs, expected = arrays["arr_0"], arrays["y"]
    found = outputs_of_chain([rnns[scope] for scope in ("pair", "in_a", "last")], inputs, path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    for one in exchange.read(path).rnns:
        assert_same(rnns[one.scope], one)


def test_variables_that_another_object_names(tmp_path):
    path = extract_old_file("keras_layers_tf2.4.4/lstm_sm", tmp_path)
    (rnn,) = exchange.read(path).rnns
    reader = CheckpointReader(path + "/variables/variables")
    arrays = keras_format.to_layer_weights(rnn.layers[0][0], "lstm")
    for number, array in enumerate(arrays):
        stored = reader.tensor("variables/%d/.ATTRIBUTES/VARIABLE_VALUE" % number)
        np.testing.assert_array_equal(array, stored)


def live_model():
    """A model with a stack, a layer that is not its next, and a pair."""
    inputs = keras.Input((None, 4))
    named = dict(return_sequences=True, recurrent_activation="sigmoid")
    values = inputs
    for name in "ab":
        values = keras.layers.LSTM(3, name=name, **named)(values)
    values = keras.layers.Dense(3)(values)
    values = keras.layers.LSTM(3, name="c", **named)(values)
    gru = keras.layers.GRU(3, reset_after=True, **named)
    values = keras.layers.Bidirectional(gru, name="pair")(values)
    model = keras.Model(inputs, values)
    random = np.random.RandomState(0)
    model.set_weights([random.uniform(-1, 1, one.shape) for one in model.get_weights()])
    return model


def test_a_live_model(tmp_path):
    """As this Keras saves it."""
    keras.backend.clear_session()
    model = live_model()
    path = str(tmp_path / "model")
    if hasattr(keras.layers.RNN, "inner_loop"):  # Keras 3
        path = tensorflow.train.Checkpoint(model).save(path)
    else:
        model.save_weights(path, save_format="tf")
    expected = keras_format.from_model(model).rnns
    assert [(rnn.scope, rnn.num_layers) for rnn in expected] == [("a", 2), ("c", 1), ("pair", 1)]
    for rnn in expected:
        found = {one.scope: one for one in exchange.read(path, rnn_mode=rnn.rnn_mode).rnns}
        assert_same(found[rnn.scope], rnn)


def stack_of_own_layers():
    layers = keras.layers
    return [layers.LSTM(5, return_sequences=True), layers.LSTM(5, return_sequences=True)]


def pairs():
    from cudnn_rnn import keras as ours

    first = keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True))
    return [first, keras.layers.Bidirectional(ours.GRU(4, return_sequences=True))]


def layers_of_both():
    from cudnn_rnn import keras as ours

    first = keras.layers.Bidirectional(ours.LSTM(4, return_sequences=True, dropout=0.5))
    return [first, ours.GRU(3, return_sequences=True), keras.layers.Dense(3), ours.LSTM(3)]


def a_stack_as_one_layer():
    from cudnn_rnn import keras as ours

    return [ours.RNNStack("gru", 2, 4, bidirectional=True, return_sequences=True)]


def nested_models():
    inner = [keras.Input((None, 3)), keras.layers.GRU(3, name="a", return_sequences=True)]
    outer = keras.layers.LSTM(3, name="a", return_sequences=True)
    return [outer, keras.layers.Dropout(0.5), keras.Sequential(inner, name="inner")]


MODELS = {  # the layers of each RNN
    stack_of_own_layers: [2],
    pairs: [2],
    layers_of_both: [1, 1, 1],
    a_stack_as_one_layer: [2],
    nested_models: [1, 1],
}


@pytest.mark.sampled(9)
@pytest.mark.skipif(not IS_KERAS_3, reason="requires Keras 3")
@pytest.mark.parametrize("is_functional", [False, True])
@pytest.mark.parametrize("make_layers", MODELS, ids=lambda make: make.__name__)
def test_what_export_of_keras_3_writes(tmp_path, make_layers, is_functional):
    """Its object graph has lists of variables, and no layers."""
    keras.backend.clear_session()
    inputs, layers = keras.Input((None, 3)), make_layers()
    if is_functional:
        values = inputs
        for layer in layers:
            values = layer(values)
        model = keras.Model(inputs, values)
    else:
        model = keras.Sequential([inputs, *layers])
    random = np.random.RandomState(0)
    for variable in model.trainable_variables:
        variable.assign(random.uniform(-1, 1, variable.shape))
    path = str(tmp_path / "exported")
    model.export(path)
    contents = exchange.read(path)
    expected = keras_format.from_model(model).rnns
    assert [rnn.scope for rnn in contents.rnns] == [rnn.scope for rnn in expected]
    assert [rnn.num_layers for rnn in contents.rnns] == MODELS[make_layers]
    for found, one in zip(contents.rnns, expected):
        assert_same(found, one)
    assert "activation='tanh' and recurrent_activation='sigmoid'" in contents.notes[0]
    if len(expected) == 1:
        exchange.convert(path, tmp_path / "rnn.npz", "npz")
        (rnn,) = exchange.read(tmp_path / "rnn.npz").rnns
        batch = random.uniform(-1, 1, [2, 6, 3]).astype(np.float32)
        states = np.zeros([rnn.num_layers * rnn.num_directions, 2, rnn.num_units], np.float32)
        given = {"input": batch.swapaxes(0, 1), "input_h": states, "input_c": states}
        if rnn.rnn_mode != "lstm":
            del given["input_c"]
        found = run_op(rnn, given)["output"].swapaxes(0, 1)
        np.testing.assert_allclose(found, model(batch), rtol=0, atol=TOLERANCE)


def test_activations_that_the_checkpoint_does_not_tell(tmp_path):
    """Only names of TensorFlow 2.2 and newer tell the default."""
    keras.backend.clear_session()
    path = str(tmp_path / "model")

    class Layer(tensorflow.Module):
        def __init__(self):
            super().__init__()
            shapes = dict(kernel=(4, 12), recurrent_kernel=(3, 12), bias=(12,))
            for name, shape in shapes.items():
                value = np.ones(shape, np.float32)
                setattr(self, name, tensorflow.Variable(value, name="lstm/" + name))

    checkpoint = tensorflow.train.Checkpoint(layer=Layer())
    if tensorflow.__version__.startswith("1."):
        with tensorflow.Session() as session:
            session.run(tensorflow.global_variables_initializer())
            saved = checkpoint.save(path, session=session)
    else:
        saved = checkpoint.save(path)
    assert_refused(saved, "hard_sigmoid", "--rnn-mode lstm")
    (rnn,) = exchange.read(saved, rnn_mode="lstm").rnns
    assert (rnn.num_units, rnn.input_size) == (3, 4)
