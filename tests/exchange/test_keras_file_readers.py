"""Keras's files, read without Keras, give what `from_model` gives of the live model."""

import numpy as np
import pytest
import tensorflow

import cudnn_rnn.keras as ours
from cudnn_rnn import exchange
from cudnn_rnn.exchange import keras_format
from helpers.exchange_models import assert_same
from helpers.versions import IS_TENSORFLOW_1

pytestmark = pytest.mark.ci
keras = tensorflow.keras
layers = keras.layers
SUFFIXES = [".h5"] + [".keras"] * (not IS_TENSORFLOW_1)


def named(**others):
    """Returns the arguments of an LSTM or GRU that cuDNN computes, in every Keras."""
    return dict(dict(return_sequences=True, recurrent_activation="sigmoid"), **others)


def gru(units, **others):
    return layers.GRU(units, **named(reset_after=True, **others))


def stacked():
    """Layers that are one RNN, whose names are in another order than they are."""
    return keras.Sequential(
        [
            keras.layers.InputLayer((None, 4)),
            layers.LSTM(3, **named(name="z")),
            layers.LSTM(3, **named(name="a", use_bias=True)),
            layers.Dense(3, name="z_dense"),
            layers.LSTM(3, **named(name="b", use_bias=False)),
        ]
    )


def bidirectional():
    inputs = keras.Input((None, 4))
    first = layers.Bidirectional(gru(3, name="inner"), name="pair")(inputs)
    second = layers.Bidirectional(gru(3))(first)
    other = layers.Bidirectional(layers.LSTM(2, **named()), merge_mode="concat", name="one")(inputs)
    forward = layers.LSTM(2, **named(name="with_bias"))
    backward = layers.LSTM(2, **named(name="without", use_bias=False, go_backwards=True))
    half = layers.Bidirectional(forward, backward_layer=backward, name="half")(inputs)
    return keras.Model(inputs, [second, other, half])


def nested():
    """Two models in a model, one of which is called twice; a batch normalization."""
    inner_inputs = keras.Input((None, 4))
    values = layers.SimpleRNN(4, return_sequences=True, name="s")(inner_inputs)
    values = layers.BatchNormalization()(values)
    values = layers.SimpleRNN(4, return_sequences=True, activation="relu", name="t")(values)
    inner = keras.Model(inner_inputs, values, name="inside")
    sequence = keras.Sequential(
        [keras.layers.InputLayer((None, 4)), gru(3, name="g"), gru(3, name="h")], name="other"
    )
    inputs = keras.Input((None, 4))
    return keras.Model(inputs, sequence(inner(inner(inputs))))


def with_states():
    """States passed from one layer to another, so that the two are no stack."""
    inputs, targets = keras.Input((None, 4)), keras.Input((None, 5))
    _, h, c = layers.LSTM(3, **named(return_state=True, name="encoder"))(inputs)
    outputs = layers.LSTM(3, **named(name="decoder"))(targets, initial_state=[h, c])
    return keras.Model([inputs, targets], outputs)


def parallel():
    inputs = keras.Input((None, 4))
    chains = []
    for name in "ab":
        values = inputs
        for number in range(2):
            values = layers.SimpleRNN(4, return_sequences=True, name="%s%d" % (name, number))(
                values
            )
        chains.append(values)
    return keras.Model(inputs, chains)


def of_this_package():
    inputs = keras.Input((None, 4))
    values = ours.LSTM(3, return_sequences=True, name="first")(inputs)
    values = ours.LSTM(3, return_sequences=True)(values)
    values = layers.Bidirectional(ours.GRU(2, return_sequences=True, reset_after=True))(values)
    stack = ours.RNNStack("gru", 2, 3, bidirectional=True, return_sequences=True, name="stack")
    return keras.Model(inputs, stack(values))


MODELS = [stacked, bidirectional, nested, with_states, parallel, of_this_package]


def randomize(model):
    random = np.random.RandomState(0)
    arrays = [random.uniform(-1, 1, array.shape) for array in model.get_weights()]
    model.set_weights([array.astype(np.float32) for array in arrays])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_files_like_the_model(tmp_path, make, suffix):
    keras.backend.clear_session()
    if IS_TENSORFLOW_1 and make is of_this_package:
        pytest.skip("requires TensorFlow 2")  # that Keras cannot serialize the stack
    model = make()
    randomize(model)
    path = str(tmp_path / ("model" + suffix))
    model.save(path)
    expected = keras_format.from_model(model).rnns
    found = exchange.read(path).rnns
    assert [rnn.scope for rnn in found] == [rnn.scope for rnn in expected]
    for one, other in zip(found, expected):
        assert_same(one, other)


@pytest.mark.sampled(4)
def test_the_files_have_more_than_one_rnn():
    """What the cases above are about is in them."""
    counts = []
    for make in MODELS[:5]:
        keras.backend.clear_session()
        rnns = keras_format.from_model(make()).rnns
        counts.append([rnn.num_layers for rnn in rnns])
    assert counts == [[2, 1], [2, 1, 1], [1, 1, 2], [1, 1], [2, 2]]
