"""Keras models and their files beyond the round trips of `test_neighbours.py`."""

import os

import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights, keras_format
from helpers.exchange_models import assert_same, random_rnn
from helpers.networks import every_mode
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

pytestmark = pytest.mark.ci


@every_mode
def test_arrays_of_a_keras_layer(rnn_mode):
    rnn = random_rnn(rnn_mode, 1, equal_biases=rnn_mode != "gru")
    arrays = keras_format.to_layer_weights(rnn.layers[0][0], rnn_mode)
    found = keras_format.from_layer_weights(arrays, rnn_mode)
    assert_same(RnnWeights(rnn_mode, [[found]]), rnn)
    zeros = np.zeros_like(found.input_bias)
    found = keras_format.from_layer_weights(arrays[:2], rnn_mode)
    expected = rnn.layers[0][0]._replace(input_bias=zeros, recurrent_bias=zeros)
    assert_same(RnnWeights(rnn_mode, [[found]]), RnnWeights(rnn_mode, [[expected]]))


def scopes_and_layers(model):
    return [(rnn.scope, rnn.num_layers) for rnn in keras_format.from_model(model).rnns]


@needs_tensorflow_2
def test_a_layer_after_a_stack_is_an_rnn_of_its_own():
    import cudnn_rnn.keras

    keras = tensorflow.keras
    inputs = keras.Input((None, 4))
    stack = cudnn_rnn.keras.RNNStack("lstm", 2, 5, return_sequences=True, name="stack")
    model = keras.Model(inputs, keras.layers.LSTM(5, name="after")(stack(inputs)))
    assert scopes_and_layers(model) == [("stack", 2), ("after", 1)]


def test_which_layers_are_one_rnn():
    """Those that are called once, with the output of the other; also in a model in the model."""
    keras = tensorflow.keras
    inputs = keras.Input((None, 4))
    a, b, c, d, e = (
        keras.layers.SimpleRNN(4, return_sequences=True, name=name) for name in "abcde"
    )
    once = a(inputs)
    assert scopes_and_layers(keras.Model(inputs, [c(b(once)), once])) == [("a", 3)]
    # A layer that is called twice belongs to no other.
    twice = keras.Model(inputs, [e(d(inputs)), e(inputs)])
    assert sorted(scopes_and_layers(twice)) == [("d", 1), ("e", 1)]
    # Each call of the inner model calls its layers as they follow each other in it.
    inner_input = keras.Input((None, 4))
    layers = [
        keras.layers.SimpleRNN(4, return_sequences=True, name="inner_%d" % i) for i in range(2)
    ]
    inner = keras.Model(inner_input, layers[1](layers[0](inner_input)))
    assert scopes_and_layers(keras.Model(inputs, inner(inner(inputs)))) == [("inner_0", 2)]


@pytest.mark.parametrize("is_built_late", [False, True])
def test_layers_of_a_sequential_model_are_one_rnn(is_built_late):
    keras = tensorflow.keras
    model = keras.Sequential([] if is_built_late else [keras.layers.InputLayer((None, 4))])
    for name in "abc":
        model.add(keras.layers.SimpleRNN(4, return_sequences=True, name=name))
    if is_built_late:
        model.build((None, None, 4))
    assert scopes_and_layers(model) == [("a", 3)]


@needs_tensorflow_2
def test_layers_without_a_graph_are_rnns_of_their_own():
    """Keras does not know which layer of such a model follows which."""
    keras = tensorflow.keras

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = keras.layers.GRU(4, return_sequences=True, name="first")
            self.second = keras.layers.GRU(4, name="second")

        def call(self, inputs):
            return self.second(self.first(inputs))

    model = Model()
    model(np.zeros([2, 3, 4], np.float32))
    assert scopes_and_layers(model) == [("first", 1), ("second", 1)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_truncated", [False, True])
@pytest.mark.parametrize(
    "name", ["rnn.h5", "rnn.weights.h5"] + ["rnn.keras"] * (not IS_TENSORFLOW_1)
)
def test_a_file_without_the_weights_is_not_kept(tmp_path, monkeypatch, name, is_truncated):
    """HDF5 may hide errors of a disk."""
    method = "save_weights" if name.endswith(".weights.h5") else "save"
    save = getattr(tensorflow.keras.Model, method)

    def save_wrongly(model, path):
        if not is_truncated:
            model.set_weights([2 * array for array in model.get_weights()])
        save(model, path)
        if is_truncated:
            os.truncate(path, os.path.getsize(path) // 2)

    monkeypatch.setattr(tensorflow.keras.Model, method, save_wrongly)
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.write(tmp_path / name, [random_rnn("gru")], "keras")
    assert "%s cannot be written: " % (tmp_path / name) in str(caught.value)
    assert "does not have the weights that were written to it" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
