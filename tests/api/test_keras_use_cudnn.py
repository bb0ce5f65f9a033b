"""`use_cudnn` of `cudnn_rnn.keras`, with the values of Keras 3: "auto", True and False."""

import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from helpers.keras_layers import (
    STEPS,
    UNITS,
    WIDTH,
    assert_like_keras,
    keras,
    make_inputs,
    needs_keras_3,
    pair,
)

pytestmark = [pytest.mark.usefixtures("eager"), needs_keras_3]


def rnn_ops(layer):
    """Returns the names of the RNN ops in the graph of a layer in training."""
    function = tf.function(lambda inputs: layer(inputs, training=True))
    graph = function.get_concrete_function(tf.TensorSpec([2, STEPS, WIDTH])).graph.as_graph_def()
    nodes = list(graph.node) + [node for f in graph.library.function for node in f.node_def]
    return [node.op for node in nodes if node.op in ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")]


def warnings_in(recwarn):
    return [str(each.message) for each in recwarn if "fused op" in str(each.message)]


@pytest.mark.parametrize("use_cudnn", ["auto", True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_what_the_op_can_do(recwarn, kind, use_cudnn):
    layer = getattr(ours, kind)(UNITS, use_cudnn=use_cudnn)
    assert rnn_ops(layer) == ["CudnnRNNV3"] * (use_cudnn is not False)
    # Without a GPU, Keras's own layer refuses True.
    stock, _ = pair(kind, use_cudnn=use_cudnn is not False and "auto")
    _, layer = pair(kind, use_cudnn=use_cudnn)
    assert_like_keras([stock, layer], make_inputs())
    assert not warnings_in(recwarn)


@pytest.mark.parametrize("use_cudnn", ["auto", True, False])
@pytest.mark.parametrize(
    "kind, arguments",
    [
        ("LSTM", {"recurrent_dropout": 0.5}),
        ("LSTM", {"activation": "relu"}),
        ("GRU", {"recurrent_activation": "hard_sigmoid"}),
        ("GRU", {"unroll": True}),
        ("GRU", {"reset_after": False}),
    ],
)
def test_what_the_op_cannot_do(recwarn, kind, arguments, use_cudnn):
    """As with Keras's layers: True is an error, the others compute without the op."""
    layers = pair(kind, use_cudnn=use_cudnn, **arguments)
    if use_cudnn is True:
        for layer in layers:
            with pytest.raises(ValueError, match="use_cudnn.* True|use_cudnn=True") as caught:
                layer(tf.constant(make_inputs()))
        assert list(arguments)[0] in str(caught.value)
    else:
        assert_like_keras(layers, make_inputs())
        assert not rnn_ops(layers[1])
    assert len(warnings_in(recwarn)) == (use_cudnn == "auto")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("use_cudnn", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_copies_keep_it(tmp_path, kind, use_cudnn):
    """Keras's own copies, but for Bidirectional, have "auto" again."""
    layer = getattr(ours, kind)(UNITS, use_cudnn=use_cudnn)
    for copy in type(layer), getattr(keras.layers, kind):
        assert copy.from_config(layer.get_config()).use_cudnn is use_cudnn
    inputs = keras.Input((STEPS, WIDTH))
    model = keras.Model(inputs, keras.layers.Bidirectional(layer)(inputs))
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    for each in model, keras.models.clone_model(model), loaded:
        both = each.layers[-1]
        assert both.forward_layer.use_cudnn is both.backward_layer.use_cudnn is use_cudnn
        assert rnn_ops(each) == ["CudnnRNNV3"] * (2 * use_cudnn)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_other_configs_are_those_of_keras(kind):
    expected, found = [getattr(module, kind)(3, name="rnn") for module in (keras.layers, ours)]
    found, expected = found.get_config(), expected.get_config()
    assert found == expected
