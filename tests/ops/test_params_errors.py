"""Invalid input to the three params ops: errors name the argument, the value and the expectation.

All inputs are fed through placeholders of unknown shape (`op_harness.call`), so the kernels make
the first checks, not the graph construction.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers import networks, reference
from helpers.op_harness import (
    HUGE,
    assert_refused,
    call,
    model_attributes,
    size_arguments,
)
from helpers.sequence_cases import GRU, LSTM, SKIP

DTYPE = "float32"
SIZE_OP = "cudnn_rnn_params_size"
TO_CANONICAL = "cudnn_rnn_params_to_canonical"
TO_PARAMS = "cudnn_rnn_canonical_to_params"
SIZES = ("num_layers", "num_units", "input_size")
PARAMS_SIZE = reference.params_size(LSTM)

params_ops = pytest.mark.parametrize("op", [SIZE_OP, TO_CANONICAL, TO_PARAMS])
every_size = pytest.mark.parametrize("name", SIZES)


def params_op_inputs(op, configuration=LSTM, sizes=()):
    """Returns valid inputs and attributes of one of the params ops; `sizes` replace the model's."""
    inputs = {name: np.int32(value) for name, value in size_arguments(configuration).items()}
    inputs.update(zip(SIZES, map(np.int32, sizes)))
    attributes = model_attributes(configuration)
    params = np.ones(reference.params_size(configuration), DTYPE)
    weights, biases = reference.params_to_canonical(configuration, params)
    if op == SIZE_OP:
        attributes.update(T=tf.float32, S=tf.int32)
    if op == TO_CANONICAL:
        attributes.update(num_params=len(weights))
        inputs["params"] = params
    if op == TO_PARAMS:
        inputs.update(weights=weights, biases=biases)
    return inputs, attributes


def assert_change_refused(parts, op, configuration=LSTM, **changes):
    """Checks that the op refuses valid arguments with these changes of inputs or attributes."""
    inputs, attributes = params_op_inputs(op, configuration)
    for name, value in changes.items():
        (inputs if name in inputs else attributes)[name] = value
    assert_refused(parts, op, inputs, **attributes)


@params_ops
@pytest.mark.parametrize("configuration", [LSTM, GRU, SKIP], ids=str)
def test_params_ops_accept_valid_arguments(op, configuration):
    """Valid inputs must be accepted; otherwise the refusals below prove nothing."""
    inputs, attributes = params_op_inputs(op, configuration)
    call(op, inputs, **attributes)


@params_ops
@every_size
def test_sizes_must_be_positive_scalars(op, name):
    for value in (0, -1, -(2**31)):
        assert_change_refused([name, "at least 1", str(value)], op, **{name: np.int32(value)})
    for shape in ((1,), (2,), (0,), (1, 1)):
        size = np.full(shape, 3, np.int32)
        assert_change_refused([name, "scalar", str(list(shape))], op, **{name: size})


@params_ops
def test_params_ops_check_skip_input_and_dropout(op):
    parts = ["skip_input", "input_size", "4", "num_units", "5"]
    assert_change_refused(parts, op, input_mode="skip_input")
    for dropout in (-0.1, 1.5, np.nan, np.inf, -np.inf):
        assert_change_refused(["dropout", "between 0 and 1", str(dropout)], op, dropout=dropout)


def overflowing_sizes():
    """Returns (mode, sizes) of which the size of a bidirectional model's params overflows."""
    every_sizes = [
        (HUGE, HUGE, HUGE),
        (1, HUGE, HUGE),
        (HUGE, HUGE, 1),
        (2**16, 2**26, 1),
        (2**29, 2**16, 2**16),
    ]
    # The reference computes in Python's unbounded integers.
    return [
        (rnn_mode, sizes)
        for rnn_mode in reference.GATES
        for sizes in every_sizes
        if reference.params_size(networks.model(rnn_mode, "bidirectional", *sizes)) >= 2**63 // 4
    ]


@pytest.mark.parametrize("S", [tf.int32, tf.int64])
@pytest.mark.parametrize("rnn_mode, sizes", overflowing_sizes())
@params_ops
def test_sizes_whose_product_overflows_64_bits(op, rnn_mode, S, sizes):
    inputs, attributes = params_op_inputs(op, LSTM._replace(rnn_mode=rnn_mode), sizes)
    if "S" in attributes:
        attributes["S"] = S
    assert_refused(["large"] + [str(value) for value in sizes], op, inputs, **attributes)


def test_a_size_beyond_32_bits_needs_int64():
    sizes = (1, 40000, 40000)
    size = reference.params_size(networks.model("lstm", "bidirectional", *sizes))
    assert 2**31 < size < 2**40
    inputs, attributes = params_op_inputs(SIZE_OP, sizes=sizes)
    assert_refused([str(size), "int64"], SIZE_OP, inputs, **attributes)
    found = call(SIZE_OP, inputs, **dict(attributes, S=tf.int64))
    assert found.tolist() == [size]
    # params_to_canonical refuses params of fewer elements.
    inputs, attributes = params_op_inputs(TO_CANONICAL, sizes=sizes)
    assert_refused([], TO_CANONICAL, inputs, **attributes)


@pytest.mark.parametrize("shape", [0, PARAMS_SIZE - 1, (), (1, PARAMS_SIZE - 1)])
def test_params_to_canonical_checks_the_number_of_elements(shape):
    params = np.ones(shape, DTYPE)
    parts = ["params must have at least %d elements" % PARAMS_SIZE, str(list(params.shape))]
    assert_change_refused(parts, TO_CANONICAL, params=params)


@pytest.mark.parametrize("num_params", [1, 8, 31, 33, 1000])
def test_params_to_canonical_checks_num_params(num_params):
    parts = ["num_params", str(num_params), "32"]
    assert_change_refused(parts, TO_CANONICAL, num_params=num_params)


@pytest.mark.parametrize("keep", [1, 16, 31])
def test_canonical_to_params_checks_the_length_of_the_lists(keep):
    inputs, _ = params_op_inputs(TO_PARAMS)
    shorter = {name: inputs[name][:keep] for name in ("weights", "biases")}
    assert_change_refused([str(keep), "32"], TO_PARAMS, **shorter)


@pytest.mark.parametrize("change", [-1, +1, "empty"])
@pytest.mark.parametrize("index", [0, 7, 31])
@pytest.mark.parametrize("name", ["weights", "biases"])
def test_canonical_to_params_checks_the_element_counts(name, index, change):
    tensors = list(params_op_inputs(TO_PARAMS)[0][name])
    good = tensors[index].size
    count = 0 if change == "empty" else good + change
    tensors[index] = np.ones(count, DTYPE)
    parts = [f"{name}[{index}]", str(count), str(good)]
    assert_change_refused(parts, TO_PARAMS, **{name: tensors})


@pytest.mark.parametrize("count", [1, 20])
def test_canonical_to_params_checks_that_a_skipped_matrix_is_empty(count):
    weights = [np.ones(count, DTYPE)] + params_op_inputs(TO_PARAMS, SKIP)[0]["weights"][1:]
    assert_change_refused(["weights[0]", str(count)], TO_PARAMS, SKIP, weights=weights)


@params_ops
@networks.unknown_modes
def test_unknown_modes(op, name, value):
    inputs, attributes = params_op_inputs(op)
    with pytest.raises(ValueError, match=name):
        call(op, inputs, **dict(attributes, **{name: value}))
