"""Gradients against differences of the op's outputs, in float64, with and without dropout."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import reference
from helpers.cases import COLUMNS, random_arrays
from helpers.op_harness import FORWARD, Network, model_attributes, numeric_gradient, size_arguments

LARGEST_ERROR = 5e-6


@pytest.mark.usefixtures("fixed_dropout_pattern")
@pytest.mark.parametrize("dropout", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("direction", COLUMNS["direction"])
@pytest.mark.parametrize("rnn_mode", COLUMNS["rnn_mode"])
def test_network(rnn_mode, direction, dropout):
    """Gradients of inputs, states and params match; the loss weights all outputs differently."""
    configuration = reference.Configuration(rnn_mode, "linear_input", direction, 2, 3, 4)
    arrays = random_arrays(configuration, 3, 4, "float64", np.random.RandomState(7))
    with Network(configuration, "float64", dropout=dropout, seed=1, seed2=2) as network:

        def loss():
            outputs = network.forward(arrays)
            return sum(
                (value * arrays[name + "_backprop"]).sum() for name, value in outputs.items()
            )

        found = network.run(arrays)
        names = [name for name in ("input", "input_h", "input_c", "params") if name in arrays]
        for name in names:
            expected = numeric_gradient(loss, arrays[name])
            assert np.abs(expected).max() > 0.1, name
            assert np.abs(found["d_" + name] - expected).max() < LARGEST_ERROR, name


@pytest.mark.usefixtures("fixed_dropout_pattern")
def test_dropout_has_an_effect():
    """The three dropout rates of `test_network` give different outputs."""
    configuration = reference.Configuration("lstm", "linear_input", "unidirectional", 2, 3, 4)
    arrays = random_arrays(configuration, 3, 4, "float64", np.random.RandomState(7))
    outputs = []
    for dropout in (0.0, 0.5, 1.0):
        with Network(configuration, "float64", dropout=dropout, seed=1, seed2=2) as network:
            outputs.append(network.run(arrays)["output"])
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(outputs[first] - outputs[second]).max() > 1e-3


CONVERSIONS = [
    reference.Configuration("lstm", "linear_input", "unidirectional", 2, 3, 4),
    reference.Configuration("gru", "linear_input", "bidirectional", 2, 3, 4),
    reference.Configuration("rnn_tanh", "skip_input", "bidirectional", 2, 3, 3),
    reference.Configuration("rnn_relu", "auto_select", "unidirectional", 1, 5, 5),
]


def canonical_ops(configuration, params):
    """Returns weights and biases of `params`, and a function that converts them back."""
    arguments = dict(model_attributes(configuration), **size_arguments(configuration))
    cells = configuration.num_layers * configuration.directions
    weights, biases = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical(
        params=params, num_params=2 * configuration.gates * cells, **arguments
    )

    def back(weights, biases):
        return gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params(
            weights=weights, biases=biases, **arguments
        )

    return weights, biases, back


@pytest.mark.parametrize("configuration", CONVERSIONS, ids=str)
def test_params_to_canonical(configuration):
    """Each tensor's gradient goes to the tensor's place in the gradient of params."""
    random = np.random.RandomState(3)
    params = random.standard_normal(reference.params_size(configuration))
    factors = random.standard_normal(params.shape)
    weight_factors, bias_factors = reference.params_to_canonical(configuration, factors)
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        variable = tf.placeholder(tf.float64)
        weights, biases, _ = canonical_ops(configuration, variable)
        pairs = list(zip(weights, weight_factors)) + list(zip(biases, bias_factors))
        loss = sum(tf.reduce_sum(tensor * tensor * factor) for tensor, factor in pairs)
        gradient = tf.gradients(loss, variable)[0]
        found = session.run(gradient, {variable: params})
        expected = numeric_gradient(lambda: session.run(loss, {variable: params}), params)
    np.testing.assert_allclose(found, 2.0 * params * factors, rtol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=0, atol=LARGEST_ERROR)


@pytest.mark.parametrize("configuration", CONVERSIONS, ids=str)
def test_params_to_canonical_where_only_matrices_are_used(configuration):
    """A regularizer of the matrices alone leaves the biases' gradient zero, not missing."""
    params = np.random.RandomState(4).standard_normal(reference.params_size(configuration))
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        variable = tf.placeholder(tf.float64)
        weights, biases, _ = canonical_ops(configuration, variable)
        loss = sum(tf.nn.l2_loss(weight) for weight in weights)
        found = session.run(tf.gradients(loss, variable)[0], {variable: params})
    expected = params.copy()
    for bias in reference.params_to_canonical(configuration, expected)[1]:
        bias[...] = 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("flat", [False, True], ids=["matrices", "flat"])
@pytest.mark.parametrize("configuration", CONVERSIONS, ids=str)
def test_canonical_to_params(configuration, flat):
    """Each tensor gets the gradient of its place in the buffer, in the shape of the tensor."""
    random = np.random.RandomState(5)
    params = random.standard_normal(reference.params_size(configuration))
    factors = random.standard_normal(params.shape)
    tensors = reference.params_to_canonical(configuration, params)
    expected = reference.params_to_canonical(configuration, 2.0 * params * factors)
    shape = (lambda array: array.ravel()) if flat else (lambda array: array)
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        constants = [[tf.constant(shape(tensor)) for tensor in group] for group in tensors]
        _, _, back = canonical_ops(configuration, tf.zeros(params.shape, tf.float64))
        buffer = back(*constants)
        loss = tf.reduce_sum(buffer * buffer * factors)
        found = session.run([tf.gradients(loss, group) for group in constants])
    for found_group, expected_group in zip(found, expected):
        assert len(found_group) == len(expected_group)
        for found_tensor, expected_tensor in zip(found_group, expected_group):
            assert found_tensor.shape == shape(expected_tensor).shape
            np.testing.assert_allclose(found_tensor, shape(expected_tensor), rtol=1e-12)


def test_through_conversion_and_network():
    """Gradients reach canonical tensors through canonical_to_params and the network."""
    configuration = CONVERSIONS[1]
    arrays = random_arrays(configuration, 2, 3, "float64", np.random.RandomState(6))
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        tensors = reference.params_to_canonical(configuration, arrays["params"])
        constants = [[tf.constant(tensor) for tensor in group] for group in tensors]
        _, _, back = canonical_ops(configuration, tf.constant(arrays["params"]))
        outputs = gen_cudnn_rnn_ops.cudnn_rnn(
            arrays["input"],
            arrays["input_h"],
            tf.constant([], tf.float64),
            back(*constants),
            **model_attributes(configuration),
        )
        backprops = [arrays["output_backprop"], arrays["output_h_backprop"]]
        found = session.run(
            [
                tf.gradients(outputs[:2], group, [tf.constant(dy) for dy in backprops])
                for group in constants
            ]
        )
    tape = reference.forward(
        configuration, *[arrays.get(n) for n in ("input", "input_h", "input_c", "params")]
    )[3]
    d_params = reference.backward(
        tape, *[arrays.get(name + "_backprop") for name in FORWARD]
    ).params
    expected = reference.params_to_canonical(configuration, d_params)
    for found_group, expected_group in zip(found, expected):
        for found_tensor, expected_tensor in zip(found_group, expected_group):
            np.testing.assert_allclose(found_tensor, expected_tensor, rtol=0, atol=1e-10)
