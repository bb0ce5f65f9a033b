"""The later versions of the ops: V2, V3 with lengths, projection and batch-major, canonical V2.

V3 is compared with a reference that runs each sequence alone, and with V3 on each sequence alone.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers import reference
from helpers.cases import COLUMNS, random_arrays
from helpers.op_harness import (
    FORWARD,
    TOLERANCES,
    Network,
    assert_close,
    assert_refused,
    assert_same_bits,
    call,
    model_attributes,
    projection_attribute,
    refusal,
    run_reference,
    size_arguments,
    swap_major,
)
from helpers.sequence_cases import (
    BATCH,
    DTYPES,
    GRU,
    LENGTHS,
    LSTM,
    PROJECTED,
    STEPS,
    arrays_for,
    configurations,
    expected_for,
    takes_bfloat16,
)
from helpers.versions import needs_projection

# --- V2 ---


@pytest.mark.parametrize("rnn_mode", COLUMNS["rnn_mode"])
def test_v2_equals_v1(rnn_mode):
    configuration = LSTM._replace(rnn_mode=rnn_mode)
    arrays = random_arrays(configuration, BATCH, STEPS, "float32", np.random.RandomState(0))
    with Network(configuration, "float32", dropout=0.5) as first:
        expected = first.run(arrays)
    with Network(configuration, "float32", dropout=0.5, version=2) as second:
        assert_same_bits(second.run(arrays), expected)


# --- V3 against the reference ---


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=list(LENGTHS))
@pytest.mark.parametrize("configuration", configurations(), ids=str)
def test_v3_equals_separate_sequences(configuration, lengths):
    arrays = arrays_for(configuration, lengths)
    with Network(configuration, "float64", version=3) as network:
        found = network.run(arrays)
    assert_close(found, expected_for(configuration, arrays), TOLERANCES["float64"], str(lengths))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=str)
def test_dtypes(configuration, dtype):
    arrays = arrays_for(configuration, LENGTHS["with zeros"], dtype)
    with Network(configuration, dtype, version=3) as network:
        found = network.run(arrays)
    assert_close(found, expected_for(configuration, arrays), TOLERANCES[dtype], dtype)
    assert all(value.dtype == tf.as_dtype(dtype).as_numpy_dtype for value in found.values())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.skipif(not takes_bfloat16(), reason="this TensorFlow's ops have no bfloat16")
def test_bfloat16_of_the_earlier_versions(version):
    dtype = tf.bfloat16.as_numpy_dtype
    arrays = random_arrays(LSTM, BATCH, STEPS, dtype, np.random.RandomState(0))
    with Network(LSTM, "bfloat16", version=version) as network:
        found = network.run(arrays)
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    assert_close(found, run_reference(LSTM, wide), TOLERANCES["bfloat16"], "")


@pytest.mark.parametrize("lengths", ["full", "with zeros", "mixed"])
@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=str)
def test_batch_major_is_time_major_transposed(configuration, lengths):
    arrays = arrays_for(configuration, LENGTHS[lengths])
    with Network(configuration, "float64", version=3, time_major=False) as network:
        found = network.run(swap_major(arrays))
    expected = swap_major(expected_for(configuration, arrays))
    assert_close(found, expected, TOLERANCES["float64"], lengths)


@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=str)
def test_a_batch_equals_separate_calls_of_the_same_op(configuration):
    """The op with one full-length sequence at a time gives the results of the batch."""
    lengths = LENGTHS["with zeros"]
    arrays = arrays_for(configuration, lengths)
    with Network(configuration, "float64", version=3) as network:
        together = network.run(arrays)
        d_params = 0
        for b, length in enumerate(lengths):
            alone = {
                name: array[:, b : b + 1] if array.ndim == 3 else array
                for name, array in arrays.items()
            }
            alone["sequence_lengths"] = np.array([length], np.int32)
            for name in ("input", "output_backprop"):
                alone[name] = alone[name][:length]
            found = network.run(alone)
            d_params = d_params + found.pop("d_params")
            part = {name: together[name][:, b : b + 1] for name in found}
            for name in ("output", "d_input"):
                assert not part[name][length:].any(), name
                part[name] = part[name][:length]
            assert_close(found, part, TOLERANCES["float64"], f"sequence {b} of length {length}")
    assert_close({"d": d_params}, {"d": together["d_params"]}, TOLERANCES["float64"], "d_params")


@pytest.mark.parametrize("configuration", [LSTM, PROJECTED], ids=str)
def test_inference_equals_training(configuration):
    arrays = arrays_for(configuration, LENGTHS["mixed"])
    with Network(configuration, "float64", version=3) as training:
        expected = training.forward(arrays)
    with Network(configuration, "float64", version=3, is_training=False) as inference:
        found = inference.forward(arrays)
        names = ["reserve_space", "host_reserved"]
        reserves = inference.session.run(
            list(inference.raw_outputs[3:]),
            {inference.placeholders[name]: arrays[name] for name in inference.placeholders},
        )
    assert_close(found, expected, TOLERANCES["float64"], "")
    assert [reserve.size for reserve in reserves] == [0, 0], names


def test_other_lengths_in_every_call():
    with Network(LSTM, "float64", version=3) as network:
        for lengths in list(LENGTHS.values()) * 2:
            arrays = arrays_for(LSTM, lengths)
            expected = expected_for(LSTM, arrays)
            assert_close(network.run(arrays), expected, TOLERANCES["float64"], str(lengths))


@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=str)
def test_empty_batches_and_no_steps(configuration):
    with Network(configuration, "float64", version=3) as network:
        for batch, steps in ((0, 3), (3, 0), (0, 0)):
            arrays = random_arrays(configuration, batch, steps, "float64", np.random.RandomState(0))
            found = network.run(dict(arrays, sequence_lengths=np.zeros(batch, np.int32)))
            assert found["output"].shape[:2] == (steps, batch)
            assert_same_bits({"h": found["output_h"]}, {"h": arrays["input_h"]})
            assert not found["d_params"].any()


@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=str)
def test_gradient_matches_finite_differences(configuration, fixed_dropout_pattern):
    """With dropout, whose pattern the reference lacks, gradients equal numeric differences."""
    arrays = arrays_for(configuration, LENGTHS["with zeros"])
    for name in ("input", "output_backprop"):
        arrays[name] = np.nan_to_num(arrays[name])
    random = np.random.RandomState(1)
    with Network(configuration, "float64", dropout=0.5, version=3) as network:
        gradients = network.run(arrays)

        def weighted_sum(**changed):
            outputs = network.forward(dict(arrays, **changed))
            return sum((outputs[n] * arrays[n + "_backprop"]).sum() for n in outputs)

        for name in ("input", "input_h", "input_c", "params"):
            if name not in arrays:
                continue
            direction, step = random.standard_normal(arrays[name].shape), 1e-6
            difference = weighted_sum(**{name: arrays[name] + step * direction})
            difference -= weighted_sum(**{name: arrays[name] - step * direction})
            expected = (gradients["d_" + name] * direction).sum()
            assert abs(difference / (2 * step) - expected) < 1e-6 * (1 + abs(expected)), name


# --- what V3 refuses ---


def v3_inputs(configuration, dtype="float32", time_major=True):
    """Returns valid inputs of CudnnRNNV3 and its attributes."""
    arrays = arrays_for(configuration, LENGTHS["mixed"], dtype)
    arrays = {name: array for name, array in arrays.items() if not name.endswith("_backprop")}
    arrays.setdefault("input_c", np.zeros([0], dtype))
    attributes = dict(model_attributes(configuration), **projection_attribute(configuration))
    if not time_major:
        arrays, attributes["time_major"] = swap_major(arrays), False
    return arrays, attributes


def v3_backward_inputs(inputs, attributes):
    """Returns valid inputs of CudnnRNNBackpropV3 for the given forward inputs."""
    outputs = call("cudnn_rnnv3", inputs, **attributes)
    inputs = dict(inputs, **dict(zip(FORWARD + ("reserve_space", "host_reserved"), outputs)))
    inputs.update((name + "_backprop", np.ones_like(inputs[name])) for name in FORWARD)
    return inputs


def assert_v3_refuses(parts, inputs, attributes, **changes):
    """Asserts that the forward op, training or not, and the backward op refuse `changes`."""
    backward_inputs = v3_backward_inputs(inputs, attributes)
    assert_refused(parts, "cudnn_rnnv3", dict(inputs, **changes), **attributes)
    assert_refused(
        parts, "cudnn_rnnv3", dict(inputs, **changes), **dict(attributes, is_training=False)
    )
    assert_refused(parts, "cudnn_rnn_backprop_v3", dict(backward_inputs, **changes), **attributes)


@pytest.mark.parametrize("value", [-1, 7, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("index", [0, 4])
def test_lengths_out_of_range(value, index):
    lengths = np.array(LENGTHS["mixed"], np.int32)
    lengths[index] = value
    inputs, attributes = v3_inputs(LSTM)
    parts = [f"sequence_lengths[{index}]", str(value), "6"]
    assert_v3_refuses(parts, inputs, attributes, sequence_lengths=lengths)


@pytest.mark.parametrize("shape", [(), (4,), (6,), (0,), (5, 1), (1, 5)])
def test_shape_of_lengths(shape):
    inputs, attributes = v3_inputs(LSTM)
    parts = ["sequence_lengths", str(list(shape)), "[5]"]
    assert_v3_refuses(parts, inputs, attributes, sequence_lengths=np.ones(shape, np.int32))


@pytest.mark.parametrize("num_proj", [-1, 5, 6, 2**31])
def test_projection_must_be_below_num_units(num_proj):
    inputs, attributes = v3_inputs(PROJECTED)
    attributes["num_proj"] = num_proj
    text = refusal("cudnn_rnnv3", inputs, **attributes)
    assert "num_proj" in text and str(num_proj) in text and "num_units 5" in text, text


@needs_projection
def test_projection_needs_lstm():
    inputs, attributes = v3_inputs(GRU)
    attributes["num_proj"] = 3
    text = refusal("cudnn_rnnv3", inputs, **attributes)
    assert "num_proj" in text and "gru" in text, text


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
    text = refusal("cudnn_rnnv3", dict(inputs, **{name: np.ones(shape, "float32")}), **attributes)
    assert any(word in text for word in ("input_h must", "input_c must", "num_proj must")), text


def test_states_in_the_other_major():
    inputs, attributes = v3_inputs(LSTM, time_major=False)
    for name in ("input_h", "input_c"):
        changed = dict(inputs, **{name: np.swapaxes(inputs[name], 0, 1)})
        text = refusal("cudnn_rnnv3", changed, **attributes)
        assert name + " must" in text and "batch, num_layers" in text, text


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
    backward_inputs = v3_backward_inputs(inputs, attributes)
    backward_inputs["host_reserved"] = v3_backward_inputs(*other_call(name))["host_reserved"]
    parts = ["host_reserved", "forward call", name]
    assert_refused(parts, "cudnn_rnn_backprop_v3", backward_inputs, **attributes)


@pytest.mark.parametrize("op", ["cudnn_rnn_backprop_v2", "cudnn_rnn_backprop_v3"])
@pytest.mark.parametrize("size", [0, 1, 63, 65, "zeros", "scalar"])
def test_damaged_host_reserved(op, size):
    inputs, attributes = v3_inputs(LSTM)
    backward_inputs = v3_backward_inputs(inputs, attributes)
    if op == "cudnn_rnn_backprop_v2":
        del backward_inputs["sequence_lengths"]
    shape = {"zeros": 64, "scalar": ()}.get(size, size)
    backward_inputs["host_reserved"] = np.zeros(shape, np.int8)
    assert_refused(["host_reserved"], op, backward_inputs, **attributes)


def test_gradient_without_training():
    for version in (2, 3):
        with Network(LSTM, "float32", version=version, is_training=False) as network:
            with network.session.graph.as_default(), pytest.raises(ValueError, match="is_training"):
                tf.gradients(network.raw_outputs[0], network.placeholders["params"])


# --- params ops ---


def canonical(configuration, dtype="float64"):
    params = np.arange(reference.params_size(configuration)).astype(
        tf.as_dtype(dtype).as_numpy_dtype
    )
    return params, reference.params_to_canonical(configuration, params)


def v2_attributes(configuration):
    return dict(model_attributes(configuration), **projection_attribute(configuration))


def v2_sizes(configuration):
    return {name: np.int32(value) for name, value in size_arguments(configuration).items()}


@pytest.mark.parametrize("S", [tf.int32, tf.int64])
@pytest.mark.parametrize("configuration", configurations(), ids=str)
def test_params_size(configuration, S):
    found = call(
        "cudnn_rnn_params_size",
        v2_sizes(configuration),
        T=tf.float32,
        S=S,
        **v2_attributes(configuration),
    )
    assert found.tolist() == [reference.params_size(configuration)]
    assert found.dtype == S.as_numpy_dtype


@needs_projection
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("configuration", configurations(), ids=str)
def test_canonical_v2(configuration, dtype):
    params, (weights, biases) = canonical(configuration, dtype)
    sizes, attributes = v2_sizes(configuration), v2_attributes(configuration)
    found_weights, found_biases = call(
        "cudnn_rnn_params_to_canonical_v2",
        dict(sizes, params=params),
        num_params_weights=len(weights),
        num_params_biases=len(biases),
        **attributes,
    )
    if configuration.num_proj:
        cells = configuration.num_layers * configuration.directions
        assert (len(weights), len(biases)) == (cells * 9, cells * 8)
    assert_same_bits(dict(enumerate(found_weights)), dict(enumerate(weights)))
    assert_same_bits(dict(enumerate(found_biases)), dict(enumerate(biases)))
    back = call(
        "cudnn_rnn_canonical_to_params_v2",
        dict(sizes, weights=weights, biases=biases),
        **attributes,
    )
    assert_same_bits({"params": back}, {"params": params})


@needs_projection
@pytest.mark.parametrize("count", [(1, 1), (35, 32), (36, 36), (32, 32), (37, 32), (36, 31)])
def test_canonical_v2_checks_both_lengths(count):
    params, (weights, biases) = canonical(PROJECTED)
    assert (len(weights), len(biases)) == (36, 32)
    sizes, attributes = v2_sizes(PROJECTED), v2_attributes(PROJECTED)
    wrong = "weights" if count[0] != 36 else "biases"
    given = count[0] if wrong == "weights" else count[1]
    parts = [wrong, str(given), {"weights": "36", "biases": "32"}[wrong]]
    assert_refused(
        parts,
        "cudnn_rnn_params_to_canonical_v2",
        dict(sizes, params=params),
        num_params_weights=count[0],
        num_params_biases=count[1],
        **attributes,
    )
    inputs = dict(sizes, weights=(weights * 2)[: count[0]], biases=(biases * 2)[: count[1]])
    assert_refused(parts, "cudnn_rnn_canonical_to_params_v2", inputs, **attributes)


@pytest.mark.parametrize("num_proj", [-1, 5, 100])
def test_params_ops_check_num_proj(num_proj):
    attributes = dict(model_attributes(LSTM), num_proj=num_proj)
    sizes = v2_sizes(LSTM)
    parts = ["num_proj", str(num_proj), "num_units", "5"]
    assert_refused(parts, "cudnn_rnn_params_size", sizes, T=tf.float32, S=tf.int32, **attributes)
    weights = dict(sizes, weights=[np.ones(1)], biases=[np.ones(1)])
    assert_refused(parts, "cudnn_rnn_canonical_to_params_v2", weights, **attributes)
