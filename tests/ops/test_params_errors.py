"""Invalid input to the three params ops: errors name the argument, the value and the expectation.

All inputs are fed through placeholders of unknown shape (`op_harness.call`), so the kernels make
the first checks, not the graph construction.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers import reference
from helpers.cases import COLUMNS
from helpers.op_harness import (
    HUGE,
    assert_refused,
    call,
    model_attributes,
    refusal,
    size_arguments,
)

DTYPE = "float32"
LSTM = reference.Configuration("lstm", "linear_input", "bidirectional", 2, 5, 4)
GRU = LSTM._replace(rnn_mode="gru")
SKIP = LSTM._replace(input_mode="skip_input", input_size=5)


def params_op_inputs(op, configuration):
    """Returns valid inputs and attributes of one of the params ops."""
    inputs = {name: np.int32(value) for name, value in size_arguments(configuration).items()}
    attributes = model_attributes(configuration)
    size = reference.params_size(configuration)
    weights, biases = reference.params_to_canonical(configuration, np.ones(size, DTYPE))
    if op == "cudnn_rnn_params_size":
        attributes.update(T=tf.float32, S=tf.int32)
    if op == "cudnn_rnn_params_to_canonical":
        attributes.update(num_params=len(weights))
        inputs["params"] = np.ones(size, DTYPE)
    if op == "cudnn_rnn_canonical_to_params":
        inputs.update(weights=weights, biases=biases)
    return inputs, attributes


PARAMS_OPS = [
    "cudnn_rnn_params_size",
    "cudnn_rnn_params_to_canonical",
    "cudnn_rnn_canonical_to_params",
]
params_ops = pytest.mark.parametrize("op", PARAMS_OPS)


@params_ops
@pytest.mark.parametrize("configuration", [LSTM, GRU, SKIP], ids=str)
def test_params_ops_accept_valid_arguments(op, configuration):
    """Valid inputs must be accepted; otherwise the refusals below prove nothing."""
    inputs, attributes = params_op_inputs(op, configuration)
    call(op, inputs, **attributes)


@params_ops
@pytest.mark.parametrize("value", [0, -1, -(2**31)])
@pytest.mark.parametrize("name", ["num_layers", "num_units", "input_size"])
def test_sizes_must_be_positive(op, name, value):
    inputs, attributes = params_op_inputs(op, LSTM)
    inputs[name] = np.int32(value)
    assert_refused([name, "at least 1", str(value)], op, inputs, **attributes)


@params_ops
@pytest.mark.parametrize("shape", [(1,), (2,), (0,), (1, 1)])
@pytest.mark.parametrize("name", ["num_layers", "num_units", "input_size"])
def test_sizes_must_be_scalars(op, name, shape):
    inputs, attributes = params_op_inputs(op, LSTM)
    inputs[name] = np.full(shape, 3, np.int32)
    assert_refused([name, "scalar", str(list(shape))], op, inputs, **attributes)


@params_ops
def test_params_ops_check_skip_input(op):
    inputs, attributes = params_op_inputs(op, LSTM)
    attributes["input_mode"] = "skip_input"
    assert_refused(["skip_input", "input_size", "4", "num_units", "5"], op, inputs, **attributes)


@params_ops
@pytest.mark.parametrize("dropout", [-0.1, 1.5, np.nan, np.inf, -np.inf])
def test_params_ops_check_dropout(op, dropout):
    inputs, attributes = params_op_inputs(op, LSTM)
    text = refusal(op, inputs, dropout=dropout, **attributes)
    assert "dropout" in text and "between 0 and 1" in text and str(dropout) in text


@pytest.mark.parametrize(
    "sizes",
    [
        (HUGE, HUGE, HUGE),
        (1, HUGE, HUGE),
        (HUGE, HUGE, 1),
        (2**16, 2**26, 1),
        (2**29, 2**16, 2**16),
    ],
)
@pytest.mark.parametrize("S", [tf.int32, tf.int64])
@pytest.mark.parametrize("rnn_mode", COLUMNS["rnn_mode"])
@pytest.mark.parametrize("op", PARAMS_OPS)
def test_sizes_whose_product_overflows_64_bits(op, rnn_mode, S, sizes):
    inputs, attributes = params_op_inputs(op, LSTM._replace(rnn_mode=rnn_mode))
    inputs.update(zip(("num_layers", "num_units", "input_size"), map(np.int32, sizes)))
    if "S" in attributes:
        attributes["S"] = S
    size = reference_size(rnn_mode, *sizes)
    if size < 2**63 // 4:
        pytest.skip("this product does not overflow")
    text = refusal(op, inputs, **attributes)
    assert "large" in text and all(str(value) in text for value in sizes), text


def reference_size(rnn_mode, num_layers, num_units, input_size):
    """Returns reference.params_size of the bidirectional model, in Python's unbounded integers."""
    configuration = reference.Configuration(
        rnn_mode, "linear_input", "bidirectional", num_layers, num_units, input_size
    )
    return reference.params_size(configuration)


def test_a_size_beyond_32_bits_needs_int64():
    sizes = (1, 40000, 40000)
    inputs, attributes = params_op_inputs("cudnn_rnn_params_size", LSTM)
    inputs.update(zip(("num_layers", "num_units", "input_size"), map(np.int32, sizes)))
    size = reference_size("lstm", *sizes)
    assert 2**31 < size < 2**40
    assert_refused([str(size), "int64"], "cudnn_rnn_params_size", inputs, **attributes)
    found = call("cudnn_rnn_params_size", inputs, **dict(attributes, S=tf.int64))
    assert found.tolist() == [size]
    # params_to_canonical refuses params that do not have this size.
    inputs, attributes = params_op_inputs("cudnn_rnn_params_to_canonical", LSTM)
    inputs.update(zip(("num_layers", "num_units", "input_size"), map(np.int32, sizes)))
    refusal("cudnn_rnn_params_to_canonical", inputs, **attributes)


@pytest.mark.parametrize("size", [0, 1, -1, +1])
def test_params_to_canonical_checks_the_length(size):
    good = reference.params_size(LSTM)
    length = size if size == 0 else good + size
    inputs, attributes = params_op_inputs("cudnn_rnn_params_to_canonical", LSTM)
    inputs["params"] = np.ones(length, DTYPE)
    assert_refused(
        ["params", str(length), str(good)], "cudnn_rnn_params_to_canonical", inputs, **attributes
    )


@pytest.mark.parametrize("shape", [(), (1, reference.params_size(LSTM))])
def test_params_to_canonical_checks_the_rank(shape):
    inputs, attributes = params_op_inputs("cudnn_rnn_params_to_canonical", LSTM)
    inputs["params"] = np.ones(shape, DTYPE)
    assert_refused(
        ["params", str(list(shape))], "cudnn_rnn_params_to_canonical", inputs, **attributes
    )


@pytest.mark.parametrize("num_params", [1, 8, 31, 33, 1000])
def test_params_to_canonical_checks_num_params(num_params):
    inputs, attributes = params_op_inputs("cudnn_rnn_params_to_canonical", LSTM)
    attributes["num_params"] = num_params
    assert_refused(
        ["num_params", str(num_params), "32"], "cudnn_rnn_params_to_canonical", inputs, **attributes
    )


@pytest.mark.parametrize("keep", [1, 16, 31])
def test_canonical_to_params_checks_the_length_of_the_lists(keep):
    inputs, attributes = params_op_inputs("cudnn_rnn_canonical_to_params", LSTM)
    for name in ("weights", "biases"):
        inputs[name] = inputs[name][:keep]
    assert_refused([str(keep), "32"], "cudnn_rnn_canonical_to_params", inputs, **attributes)


@pytest.mark.parametrize("change", [-1, +1, "empty"])
@pytest.mark.parametrize("index", [0, 7, 31])
@pytest.mark.parametrize("name", ["weights", "biases"])
def test_canonical_to_params_checks_the_element_counts(name, index, change):
    inputs, attributes = params_op_inputs("cudnn_rnn_canonical_to_params", LSTM)
    good = inputs[name][index].size
    count = 0 if change == "empty" else good + change
    inputs[name] = list(inputs[name])
    inputs[name][index] = np.ones(count, DTYPE)
    assert_refused(
        [f"{name}[{index}]", str(count), str(good)],
        "cudnn_rnn_canonical_to_params",
        inputs,
        **attributes,
    )


@pytest.mark.parametrize("count", [1, 20])
def test_canonical_to_params_checks_that_a_skipped_matrix_is_empty(count):
    inputs, attributes = params_op_inputs("cudnn_rnn_canonical_to_params", SKIP)
    inputs["weights"] = [np.ones(count, DTYPE)] + inputs["weights"][1:]
    assert_refused(
        ["weights[0]", str(count)], "cudnn_rnn_canonical_to_params", inputs, **attributes
    )


@params_ops
@pytest.mark.parametrize(
    "name, value",
    [("rnn_mode", "lstn"), ("input_mode", "linear"), ("direction", "both"), ("rnn_mode", "")],
)
def test_unknown_modes(op, name, value):
    inputs, attributes = params_op_inputs(op, LSTM)
    with pytest.raises(ValueError, match=name):
        call(op, inputs, **dict(attributes, **{name: value}))
