"""Keras's weights as the parameter buffer: the node with kernels of this package, and its gradient.

The reference rearranges with NumPy.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.graph import keras_params
from cudnn_rnn.graph.config import rnn_config
from cudnn_rnn.model import layout

GATES = {"lstm": [0, 1, 2, 3], "gru": [1, 0, 2], "rnn_tanh": [0], "rnn_relu": [0]}
ALL_CASES = [
    (mode, layers, direction)
    for mode in GATES
    for layers in (1, 3)
    for direction in ("unidirectional", "bidirectional")
]


def make_config(mode, layers, direction, units=21, input_size=70, dtype=tf.float32):
    sizes = (layers, units, input_size)
    return rnn_config(mode, *sizes, "linear_input", direction, dtype, 0.0, seed=0, seed2=0)


def random_weights(config):
    """Returns arrays: for every layer and direction, kernel, recurrent kernel and bias."""
    random, width = np.random.RandomState(4), len(GATES[config.rnn_mode]) * config.num_units
    dtype = np.dtype(config.dtype)
    found = []
    for layer in range(config.num_layers):
        for _ in range(config.num_directions):
            rows = config.input_size if layer == 0 else config.num_directions * config.num_units
            bias = (2, width) if config.rnn_mode == "gru" else (width,)
            shapes = [(rows, width), (config.num_units, width), bias]
            found.append([random.randn(*shape).astype(dtype) for shape in shapes])
    return found


def expected_params(config, weights):
    gates, units = GATES[config.rnn_mode], config.num_units

    def by_gate(matrix):
        return np.concatenate([matrix[gate * units : (gate + 1) * units].ravel() for gate in gates])

    matrices = [by_gate(part.T) for of_layer in weights for part in of_layer[:2]]
    biases = []
    for _, _, bias in weights:
        pair = bias if config.rnn_mode == "gru" else [bias, np.zeros_like(bias)]
        biases += [by_gate(one) for one in pair]
    return np.concatenate(matrices + biases)


def node_types(graph):
    return [node.type for node in graph.get_operations() if "CudnnRNN" in node.type]


def build(config, weights, is_training=True):
    """Returns the buffer and a list of the weights' tensors, in the default graph."""
    tensors = [[tf.constant(part) for part in of_layer] for of_layer in weights]
    params = keras_params.keras_to_params(config, tensors, is_training)
    return params, tf.nest.flatten(tensors)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("mode, layers, direction", ALL_CASES)
def test_values_and_gradients(mode, layers, direction, dtype):
    """The node, its gradient and the gradient of that are the permutation and its inverse."""
    config = make_config(mode, layers, direction, dtype=dtype)
    weights = random_weights(config)
    expected = expected_params(config, weights)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        params, tensors = build(config, weights)
        upstream = tf.constant(np.arange(expected.size), dtype)
        gradients = tf.gradients(params, tensors, upstream)
        second = tf.gradients(gradients, upstream, tensors)[0]
        assert sorted(set(node_types(graph))) == [
            "CudnnRNNCanonicalToParams",
            "CudnnRNNParamsToCanonical",
        ]
        found, gradients, second = session.run([params, gradients, second])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(second, expected)
    # <P w, u> = <w, P^T u>, for all w: here for each weight alone.
    flat = [part for of_layer in weights for part in of_layer]
    for index, gradient in enumerate(gradients):
        probe = [np.zeros_like(part) for part in flat]
        probe[index] = np.arange(probe[index].size, dtype=probe[index].dtype).reshape(
            probe[index].shape
        )
        image = expected_params(config, [probe[i : i + 3] for i in range(0, len(probe), 3)])
        assert np.sum(gradient.astype(float) * probe[index]) == np.sum(
            image.astype(float) * np.arange(image.size)
        )


def uses_node(config, is_training=True):
    with tf.Graph().as_default() as graph:
        params, _ = build(config, random_weights(config), is_training)
        assert params.shape.as_list() == [layout.params_size(config)]
        return bool(node_types(graph))


def test_where_the_node_is_made(monkeypatch):
    """Not for inference, for 16-bit weights, as plain ops, or where a GPU is visible."""
    config = make_config("gru", 1, "unidirectional")
    assert uses_node(config)
    assert not uses_node(config, is_training=False)
    assert not uses_node(config._replace(dtype="float16"))
    with cudnn_rnn.plain_ops():
        assert not uses_node(config)
    monkeypatch.setattr(
        tf.config.experimental, "get_visible_devices", lambda kind: ["GPU:0"] * (kind == "GPU")
    )
    assert not uses_node(config)


def test_wrong_shapes_are_refused():
    config = make_config("lstm", 1, "unidirectional")
    ((kernel, recurrent_kernel, bias),) = random_weights(config)
    for weights, message in [
        ([kernel.T, recurrent_kernel, bias], r"weights\[0\] must have shape \[70,84\].*\[84,70\]"),
        ([kernel, kernel, bias], r"weights\[1\] must have shape \[21,84\].*\[70,84\]"),
        ([kernel, recurrent_kernel, bias[1:]], r"biases\[0\] must have shape \[84\].*\[83\]"),
    ]:
        with tf.Graph().as_default(), tf.Session() as session:
            params, _ = build(config, [weights])
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(params)


def test_a_wrong_number_of_tensors_is_refused():
    """Before memory for that many layers is needed."""
    config = make_config("lstm", 1, "unidirectional")
    with tf.Graph().as_default(), tf.Session() as session:
        params, _ = build(config._replace(num_layers=10**9), random_weights(config))
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="must each hold 2000000000 tensors"
        ):
            session.run(params)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode, layers, direction", [ALL_CASES[3], ALL_CASES[7]])
def test_plain_graphs(mode, layers, direction):
    """The export of a graph for training replaces the node and its gradient."""
    config = make_config(mode, layers, direction)
    weights = random_weights(config)
    with tf.Graph().as_default() as graph:
        params, tensors = build(config, weights)
        names = [tf.identity(params).name]
        gradients = tf.gradients(params**2, tensors)
        names += [tf.identity(gradient).name for gradient in gradients]
    plain = cudnn_rnn.plain_graph_def(graph.as_graph_def(add_shapes=True), training=True)
    with tf.Graph().as_default() as copy, tf.Session() as session:
        tf.import_graph_def(plain, name="")
        assert not node_types(copy)
        found = session.run(names)
    np.testing.assert_array_equal(found[0], expected_params(config, weights))
    for gradient, part in zip(found[1:], [part for of_layer in weights for part in of_layer]):
        np.testing.assert_array_equal(gradient, 2 * part)
