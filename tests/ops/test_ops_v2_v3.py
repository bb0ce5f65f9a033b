"""The later versions of the ops: V2, V3 with lengths, projection and batch-major, canonical V2.

V3 is compared with a reference that runs each sequence alone.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers import reference
from helpers.networks import (
    assert_network_refuses,
    backward_inputs,
    every_mode,
    run_network,
    seeded_arrays,
)
from helpers.op_harness import (
    TOLERANCES,
    Network,
    assert_close,
    assert_refused,
    assert_same_bits,
    call,
    model_attributes,
    projection_attribute,
    refused,
    run_reference,
    size_arguments,
    swap_major,
)
from helpers.sequence_cases import (
    BATCH,
    DTYPES,
    GRU,
    HAS_BFLOAT16,
    LENGTHS,
    LSTM,
    PROJECTED,
    STEPS,
    arrays_for,
    configurations,
    expected_for,
)
from helpers.versions import needs_projection

every_configuration = pytest.mark.parametrize("configuration", configurations(), ids=str)
three_configurations = pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=str)

# --- V2 ---


@every_mode
def test_v2_equals_v1(rnn_mode):
    configuration = LSTM._replace(rnn_mode=rnn_mode)
    arrays = seeded_arrays(configuration, BATCH, STEPS, "float32")
    first, second = (
        run_network(configuration, "float32", arrays, dropout=0.5, version=version)
        for version in (1, 2)
    )
    assert_same_bits(second, first)


# --- V3 against the reference ---


@every_configuration
def test_v3_equals_separate_sequences(configuration):
    """One kernel gets every set of lengths, twice."""
    with Network(configuration, "float64", version=3) as network:
        for lengths in LENGTHS.values():
            arrays = arrays_for(configuration, lengths)
            expected = expected_for(configuration, arrays)
            for _ in range(2):
                found = network.run(arrays)
                assert_close(found, expected, TOLERANCES["float64"], str(lengths))
                # The arrays are NaN beyond the lengths.
                assert not found["d_input"][np.isnan(arrays["input"])].any()
                assert not found["output"][np.isnan(arrays["output_backprop"])].any()


@pytest.mark.parametrize("dtype", DTYPES)
@three_configurations
def test_dtypes(configuration, dtype):
    arrays = arrays_for(configuration, LENGTHS["with zeros"], dtype)
    found = run_network(configuration, dtype, arrays, version=3)
    assert_close(found, expected_for(configuration, arrays), TOLERANCES[dtype], dtype)
    assert all(value.dtype == tf.as_dtype(dtype).as_numpy_dtype for value in found.values())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.skipif(not HAS_BFLOAT16, reason="this TensorFlow's ops have no bfloat16")
def test_bfloat16_of_the_earlier_versions(version):
    arrays = seeded_arrays(LSTM, BATCH, STEPS, tf.bfloat16.as_numpy_dtype)
    found = run_network(LSTM, "bfloat16", arrays, version=version)
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    assert_close(found, run_reference(LSTM, wide), TOLERANCES["bfloat16"], "")


@pytest.mark.parametrize("lengths", ["full", "with zeros", "mixed"])
@three_configurations
def test_batch_major_is_time_major_transposed(configuration, lengths):
    arrays = arrays_for(configuration, LENGTHS[lengths])
    swapped = swap_major(arrays)
    found = run_network(configuration, "float64", swapped, version=3, time_major=False)
    expected = swap_major(expected_for(configuration, arrays))
    assert_close(found, expected, TOLERANCES["float64"], lengths)


@pytest.mark.parametrize("configuration", [LSTM, PROJECTED], ids=str)
def test_inference_equals_training(configuration):
    arrays = arrays_for(configuration, LENGTHS["mixed"])
    with Network(configuration, "float64", version=3) as training:
        expected = training.forward(arrays)
    with Network(configuration, "float64", version=3, is_training=False) as inference:
        inference.fetches.update(zip(["reserve_space", "host_reserved"], inference.raw_outputs[3:]))
        found = inference.run(arrays)
    assert found.pop("reserve_space").size == 0
    assert found.pop("host_reserved").size == 0
    assert_close(found, expected, TOLERANCES["float64"], "")


@three_configurations
def test_empty_batches_and_no_steps(configuration):
    with Network(configuration, "float64", version=3) as network:
        for batch, steps in ((0, 3), (3, 0), (0, 0)):
            arrays = seeded_arrays(configuration, batch, steps)
            found = network.run(dict(arrays, sequence_lengths=np.zeros(batch, np.int32)))
            assert found["output"].shape[:2] == (steps, batch)
            assert_same_bits({"h": found["output_h"]}, {"h": arrays["input_h"]})
            assert not found["d_params"].any()


# --- what V3 refuses ---


def v3_attributes(configuration):
    return dict(model_attributes(configuration), **projection_attribute(configuration))


def v3_inputs(configuration):
    """Returns valid inputs of CudnnRNNV3 and its attributes."""
    arrays = arrays_for(configuration, LENGTHS["mixed"], "float32")
    arrays = {name: array for name, array in arrays.items() if not name.endswith("_backprop")}
    arrays.setdefault("input_c", np.zeros([0], "float32"))
    return arrays, v3_attributes(configuration)


def assert_lengths_refused(parts, lengths):
    changes = {"sequence_lengths": lengths}
    assert_network_refuses(["sequence_lengths"] + parts, *v3_inputs(LSTM), 3, changes)


@pytest.mark.parametrize("value", [-1, 7, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("index", [0, 4])
def test_lengths_out_of_range(value, index):
    lengths = np.array(LENGTHS["mixed"], np.int32)
    lengths[index] = value
    assert_lengths_refused([f"sequence_lengths[{index}]", str(value), "6"], lengths)


@pytest.mark.parametrize("shape", [(), (4,), (6,), (0,), (5, 1), (1, 5)])
def test_shape_of_lengths(shape):
    assert_lengths_refused([str(list(shape)), "[5]"], np.ones(shape, np.int32))


@pytest.mark.parametrize("num_proj", [-1, 5, 6, 2**31])
def test_projection_must_be_below_num_units(num_proj):
    inputs, attributes = v3_inputs(PROJECTED)
    attributes["num_proj"] = num_proj
    parts = ["num_proj", str(num_proj), "num_units 5"]
    assert_refused(parts, "cudnn_rnnv3", inputs, **attributes)


@needs_projection
def test_projection_needs_lstm():
    inputs, attributes = v3_inputs(GRU)
    assert_refused(["num_proj", "gru"], "cudnn_rnnv3", inputs, num_proj=3, **attributes)


@needs_projection
@pytest.mark.parametrize(
    "name, shape",
    [
        ("input_h", (4, 5, 5)),
        ("input_h", (4, 5, 2)),
        ("input_h", (4, 4, 3)),
        ("input_h", (4, 5)),
        ("input_c", (4, 5, 3)),
        ("input_c", (4, 5)),
        ("input_c", (0,)),
        ("input_c", (2, 5, 5)),
    ],
)
def test_states_of_a_projection(name, shape):
    inputs, attributes = v3_inputs(PROJECTED)
    inputs[name] = np.ones(shape, "float32")
    parts = [("input_h must", "input_c must", "num_proj must")]
    assert_refused(parts, "cudnn_rnnv3", inputs, **attributes)


def test_states_in_the_other_major():
    arrays, attributes = v3_inputs(LSTM)
    inputs = swap_major(arrays)
    for name in ("input_h", "input_c"):
        changed = dict(inputs, **{name: arrays[name]})
        parts = [name + " must", "batch, num_layers"]
        assert_refused(parts, "cudnn_rnnv3", changed, time_major=False, **attributes)


def other_call(name):
    """Returns the inputs and attributes of v3_inputs(LSTM), except for a different `name`."""
    inputs, attributes = v3_inputs(LSTM)
    if name == "sequence_lengths":
        return dict(inputs, sequence_lengths=np.array(LENGTHS["none full"], np.int32)), attributes
    if name == "rnn_mode":
        return v3_inputs(GRU)
    if name == "shape":
        return v3_inputs(LSTM._replace(num_units=6))
    return inputs, dict(attributes, **{name: 1})


@pytest.mark.parametrize("name", ["sequence_lengths", "dropout", "seed", "rnn_mode", "shape"])
def test_host_reserved_of_another_call(name):
    inputs, attributes = v3_inputs(LSTM)
    other = backward_inputs(*other_call(name), version=3)["host_reserved"]
    inputs = dict(backward_inputs(inputs, attributes, 3), host_reserved=other)
    parts = ["host_reserved", "forward call", name]
    assert_refused(parts, "cudnn_rnn_backprop_v3", inputs, **attributes)


@pytest.mark.parametrize("shape", [0, 1, 63, 65, 64, ()])
def test_damaged_host_reserved(shape):
    inputs, attributes = v3_inputs(LSTM)
    inputs = dict(backward_inputs(inputs, attributes, 3), host_reserved=np.zeros(shape, np.int8))
    assert_refused(["host_reserved"], "cudnn_rnn_backprop_v3", inputs, **attributes)
    del inputs["sequence_lengths"]
    assert_refused(["host_reserved"], "cudnn_rnn_backprop_v2", inputs, **attributes)


# --- params ops ---


def call_params_op(op, configuration, inputs=(), **attributes):
    """Calls a params op with the model's sizes and attributes."""
    sizes = {name: np.int32(value) for name, value in size_arguments(configuration).items()}
    return call(op, dict(sizes, **dict(inputs)), **dict(v3_attributes(configuration), **attributes))


def to_canonical(configuration, params, num_weights, num_biases):
    counts = dict(num_params_weights=num_weights, num_params_biases=num_biases)
    inputs = {"params": params}
    return call_params_op("cudnn_rnn_params_to_canonical_v2", configuration, inputs, **counts)


def to_params(configuration, weights, biases, **attributes):
    inputs = dict(weights=weights, biases=biases)
    return call_params_op("cudnn_rnn_canonical_to_params_v2", configuration, inputs, **attributes)


@pytest.mark.parametrize("S", [tf.int32, tf.int64])
@every_configuration
def test_params_size(configuration, S):
    found = call_params_op("cudnn_rnn_params_size", configuration, T=tf.float32, S=S)
    assert found.tolist() == [reference.params_size(configuration)]
    assert found.dtype == S.as_numpy_dtype


@needs_projection
@pytest.mark.parametrize("dtype", DTYPES)
@every_configuration
def test_canonical_v2(configuration, dtype):
    params = np.arange(reference.params_size(configuration))
    params = params.astype(tf.as_dtype(dtype).as_numpy_dtype)
    weights, biases = reference.params_to_canonical(configuration, params)
    found = to_canonical(configuration, params, len(weights), len(biases))
    if configuration.num_proj:
        cells = configuration.num_layers * configuration.directions
        assert (len(weights), len(biases)) == (cells * 9, cells * 8)
    for found_tensors, tensors in zip(found, (weights, biases)):
        assert_same_bits(dict(enumerate(found_tensors)), dict(enumerate(tensors)))
    back = to_params(configuration, weights, biases)
    assert_same_bits({"params": back}, {"params": params})


@needs_projection
@pytest.mark.parametrize("count", [(1, 1), (35, 32), (36, 36), (32, 32), (37, 32), (36, 31)])
def test_canonical_v2_checks_both_lengths(count):
    params = np.arange(reference.params_size(PROJECTED), dtype=np.float64)
    weights, biases = reference.params_to_canonical(PROJECTED, params)
    assert (len(weights), len(biases)) == (36, 32)
    given, good, name = (count[0], 36, "weights") if count[0] != 36 else (count[1], 32, "biases")
    parts = [name, str(given), str(good)]
    with refused(parts):
        to_canonical(PROJECTED, params, *count)
    with refused(parts):
        to_params(PROJECTED, (weights * 2)[: count[0]], (biases * 2)[: count[1]])


@pytest.mark.parametrize("num_proj", [-1, 5, 100])
def test_params_ops_check_num_proj(num_proj):
    parts = ["num_proj", str(num_proj), "num_units", "5"]
    with refused(parts):
        call_params_op("cudnn_rnn_params_size", LSTM, T=tf.float32, S=tf.int32, num_proj=num_proj)
    with refused(parts):
        to_params(LSTM, [np.ones(1)], [np.ones(1)], num_proj=num_proj)
