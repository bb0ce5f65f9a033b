"""Every op compared with the reference, for the cases in cases.py."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import reference
from helpers.cases import CASES, Case, make_arrays
from helpers.networks import arrays_and_results, every_mode, run_network
from helpers.op_harness import (
    FORWARD,
    TOLERANCES,
    Network,
    assert_close,
    assert_same_bits,
    model_attributes,
    run_reference,
    size_arguments,
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_gradients(case):
    """Checks results and all gradients in training, and results in inference."""
    arrays, expected = arrays_and_results(case)
    assert all(np.abs(expected[name]).max() > 0.0 for name in ("output", "d_params"))
    found = run_network(case.configuration, case.dtype, arrays)
    assert {value.dtype for value in found.values()} == {np.dtype(case.dtype)}
    assert_close(found, expected, TOLERANCES[case.dtype], "training")
    found = run_network(case.configuration, case.dtype, arrays, dropout=0.5, is_training=False)
    forward = {name: value for name, value in expected.items() if name in FORWARD}
    assert_close(found, forward, TOLERANCES[case.dtype], "inference")


def swap_dimensions(array):
    """Returns the elements in the same order as [width, units], the shape in old releases."""
    return array.reshape(array.shape[::-1])


def assert_same_tensors(found, expected):
    """Asserts that two lists of arrays have equal dtypes, shapes and values."""
    assert_same_bits(dict(enumerate(found)), dict(enumerate(expected)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_params_ops(case):
    """Checks the size, the canonical form and the conversion back, exactly."""
    configuration = case.configuration
    size = reference.params_size(configuration)
    # float16 cannot count far, so use random values: they repeat, but not in the same order.
    params = np.random.RandomState(size).standard_normal(size).astype(case.dtype)
    weights, biases = reference.params_to_canonical(configuration, params)
    arguments = dict(model_attributes(configuration), **size_arguments(configuration))
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        sizes = [
            gen_cudnn_rnn_ops.cudnn_rnn_params_size(T=tf.as_dtype(case.dtype), S=S, **arguments)
            for S in (tf.int32, tf.int64)
        ]
        canonical = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical(
            params=params, num_params=len(weights), **arguments
        )
        buffers = [
            gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params(
                weights=[reshape(weight) for weight in weights],
                biases=[reshape(bias) for bias in biases],
                **arguments,
            )
            for reshape in (np.asarray, np.ravel, swap_dimensions)
        ]
        sizes, found_weights, found_biases, buffers = session.run([sizes, *canonical, buffers])
    assert_same_tensors(sizes, [np.array([size], dtype) for dtype in (np.int32, np.int64)])
    assert_same_tensors(found_weights, weights)
    assert_same_tensors(found_biases, biases)
    assert_same_tensors(buffers, [params] * 3)


def test_the_comparison_detects_errors():
    """Wrong parameters, a wrong gate order and a wrong direction must fail the comparison."""
    case = Case("gru", "linear_input", "bidirectional", 2, 5, 4, 2, 5, "float32")
    arrays = make_arrays(case)
    found = run_network(case.configuration, case.dtype, arrays)
    units, width = case.num_units, case.input_size
    swapped_gates = arrays["params"].copy()
    gates = swapped_gates[: 2 * units * width].reshape(2, units * width)
    gates[...] = gates[::-1].copy()
    wrong = [
        dict(arrays, params=swapped_gates),
        dict(arrays, params=arrays["params"] * np.float32(1.001)),
        dict(arrays, input=arrays["input"][::-1]),
        dict(arrays, output_backprop=arrays["output_backprop"][::-1]),
        dict(arrays, output_h_backprop=arrays["output_h_backprop"][::-1]),
    ]
    for arrays in wrong:
        with pytest.raises(AssertionError, match="relative error"):
            expected = run_reference(case.configuration, arrays)
            assert_close(found, expected, TOLERANCES[case.dtype], "")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_mode
def test_gradients_of_some_outputs_only(rnn_mode, dtype):
    """TensorFlow passes zero gradients for outputs that the loss does not use."""
    case = Case(rnn_mode, "linear_input", "bidirectional", 2, 17, 4, 7, 5, dtype)
    arrays = make_arrays(case)
    outputs = [name for name in FORWARD if name + "_backprop" in arrays]
    for used in outputs:
        unused = [name + "_backprop" for name in outputs if name != used]
        chosen = dict(arrays, **{name: np.zeros_like(arrays[name]) for name in unused})
        with Network(case.configuration, dtype) as network:
            found = network.run(chosen)
            # With one output in the loss, TensorFlow supplies the other outputs' gradients.
            with network.session.graph.as_default(), tf.device("/cpu:0"):
                backprop = network.placeholders[used + "_backprop"]
                (network.fetches["d_input of one"],) = tf.gradients(
                    network.fetches[used], network.placeholders["input"], backprop
                )
            found_of_one = network.run(arrays, ["d_input of one"])
        expected = run_reference(case.configuration, chosen)
        assert_close(found, expected, TOLERANCES[dtype], f"only {used}")
        expected_of_one = {"d_input of one": expected["d_input"]}
        assert_close(found_of_one, expected_of_one, TOLERANCES[dtype], used)
