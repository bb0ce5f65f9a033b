"""The kernels that call cuDNN, run without a GPU over a mock of cuDNN, against the CPU kernels.

These tests cover this project's side: shapes, memory, lengths, the reserve space, errors. The mock
computes with the CPU plan; tests of the real cuDNN need a machine that has it.
"""

import re

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn
from helpers import mock_kernels, reference
from helpers.cases import COLUMNS, random_arrays
from helpers.op_harness import (
    FORWARD,
    TOLERANCES,
    Network,
    assert_close,
    assert_same_bits,
    kernel_labels,
    model_attributes,
    size_arguments,
    swap_major,
)
from helpers.processes import output_of
from helpers.sequence_cases import BATCH, DTYPES, GRU, LENGTHS, LSTM, PROJECTED, STEPS, arrays_for
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

pytestmark = [pytest.mark.once, pytest.mark.ci]

LABEL = mock_kernels.LABEL
OUT_OF_MEMORY, EXECUTION_FAILED = 1, 3
OP_ERRORS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.InternalError,
    tf.errors.UnimplementedError,
)


@pytest.fixture(scope="module")
def library():
    return mock_kernels.load()


@pytest.fixture
def mock(library):
    """Yields the mock after a reset; fails if the test did what the real cuDNN would reject."""
    library.mock_reset()
    library.mock_set_any_memory(1)
    yield library
    assert library.mock_violations() == 0, library.mock_violation_text().decode()


def labelled(*arguments, **named):
    return Network(*arguments, kernel_label=LABEL, **named)


def arrays_without_lengths(configuration=LSTM):
    return random_arrays(configuration, BATCH, STEPS, "float64", np.random.RandomState(0))


def assert_parity(arrays, *arguments, **named):
    """Asserts that both kernels compute the same; the arguments are those of `Network`."""
    with Network(*arguments, **named) as cpu, labelled(*arguments, **named) as gpu:
        assert_close(gpu.run(arrays), cpu.run(arrays), TOLERANCES[arguments[1]], str(arguments))


# --- parity ---


@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("direction", COLUMNS["direction"])
@pytest.mark.parametrize("rnn_mode", COLUMNS["rnn_mode"])
def test_parity(mock, rnn_mode, direction, version):
    configuration = LSTM._replace(rnn_mode=rnn_mode, direction=direction)
    arrays = arrays_without_lengths(configuration)
    assert_parity(arrays, configuration, "float64", version=version)
    assert mock.mock_calls(b"cudnnRNNForward") > 0
    assert mock.mock_calls(b"cudnnRNNBackwardWeights_v8") > 0


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=list(LENGTHS))
@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=["lstm", "projected", "gru"])
def test_lengths(mock, configuration, lengths, time_major):
    arrays = arrays_for(configuration, lengths)
    arrays = arrays if time_major else swap_major(arrays)
    assert_parity(arrays, configuration, "float64", version=3, time_major=time_major)


@pytest.mark.parametrize("padded_weights", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_padded_weights(mock, dtype, padded_weights):
    mock.mock_set_padded_weights(padded_weights)
    arrays = arrays_for(PROJECTED, LENGTHS["with zeros"], dtype)
    assert_parity(arrays, PROJECTED, dtype, version=3)


def test_other_lengths_in_every_call(mock):
    with Network(LSTM, "float64", version=3) as cpu, labelled(LSTM, "float64", version=3) as gpu:
        for lengths in list(LENGTHS.values()) * 2:
            arrays = arrays_for(LSTM, lengths)
            assert_close(gpu.run(arrays), cpu.run(arrays), TOLERANCES["float64"], str(lengths))


@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=["lstm", "projected", "gru"])
def test_empty_batches_and_no_steps(mock, configuration):
    arguments = (configuration, "float64")
    with Network(*arguments, version=3) as cpu, labelled(*arguments, version=3) as gpu:
        for batch, steps in ((0, 3), (3, 0), (0, 0)):
            arrays = random_arrays(configuration, batch, steps, "float64", np.random.RandomState(0))
            arrays["sequence_lengths"] = np.zeros(batch, np.int32)
            assert_same_bits(gpu.run(arrays), cpu.run(arrays))


def test_inference(mock):
    arrays = arrays_for(LSTM, LENGTHS["mixed"])
    assert_parity(arrays, LSTM, "float64", version=3, is_training=False)


def test_dropout(mock, monkeypatch):
    """Patterns change per call, or repeat with the switch; gradients use the call's pattern."""
    arrays = arrays_without_lengths()
    with labelled(LSTM, "float64", dropout=0.5, seed=3) as gpu:
        first, second = gpu.run(arrays), gpu.run(arrays)
    assert np.abs(first["output"] - second["output"]).max() > 1e-3
    monkeypatch.setenv("TF_CUDNN_RESET_RND_GEN_STATE", "1")
    with labelled(LSTM, "float64", dropout=0.5, seed=3) as gpu:
        assert_same_bits(gpu.run(arrays), first)
        again = gpu.run(arrays)
        assert_same_bits(again, first)
        direction = np.random.RandomState(1).standard_normal(arrays["params"].shape)
        sums = [
            sum(
                (value * arrays[name + "_backprop"]).sum()
                for name, value in gpu.forward(
                    dict(arrays, params=arrays["params"] + step * direction)
                ).items()
            )
            for step in (1e-6, -1e-6)
        ]
        expected = (again["d_params"] * direction).sum()
        assert abs((sums[0] - sums[1]) / 2e-6 - expected) < 1e-6 * (1 + abs(expected))


# --- parameters ---


@pytest.mark.parametrize("padded_weights", [0, 1])
@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=["lstm", "projected", "gru"])
def test_params_longer_than_needed(mock, configuration, padded_weights):
    """Surplus params are not read, and their gradient is zero."""
    mock.mock_set_padded_weights(padded_weights)
    arrays = arrays_for(configuration, LENGTHS["with zeros"])
    size = arrays["params"].size
    longer = dict(arrays, params=np.append(arrays["params"], [np.nan] * 7))
    with labelled(configuration, "float64", version=3) as gpu:
        expected = gpu.run(arrays)
        for _ in range(3):  # The gradient's memory has the values of an earlier call.
            found = gpu.run(longer)
            assert found["d_params"].shape == (size + 7,)
            assert not found["d_params"][size:].any()
            assert_same_bits(dict(found, d_params=found["d_params"][:size]), expected)


@pytest.mark.parametrize("configuration", [LSTM, PROJECTED, GRU], ids=["lstm", "projected", "gru"])
def test_params_ops(mock, configuration):
    params = np.arange(reference.params_size(configuration), dtype=np.float32)
    weights, biases = reference.params_to_canonical(configuration, params)
    attributes = dict(model_attributes(configuration), num_proj=configuration.num_proj)
    sizes = size_arguments(configuration)
    with tf.Graph().as_default(), kernel_labels(LABEL), tf.Session() as session:
        size = gen_cudnn_rnn_ops.cudnn_rnn_params_size(
            T=tf.float32, S=tf.int32, **dict(sizes, **attributes)
        )
        canonical = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical_v2(
            params=params,
            num_params_weights=len(weights),
            num_params_biases=len(biases),
            **dict(sizes, **attributes),
        )
        back = gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params_v2(
            weights=canonical[0], biases=canonical[1], **dict(sizes, **attributes)
        )
        size, (found_weights, found_biases), back = session.run([size, canonical, back])
    assert size.tolist() == [params.size]
    assert_same_bits(dict(enumerate(found_weights)), dict(enumerate(weights)))
    assert_same_bits(dict(enumerate(found_biases)), dict(enumerate(biases)))
    assert_same_bits({"params": back}, {"params": params})
    # Each non-empty tensor is copied once per direction.
    count = sum(tensor.size > 0 for tensor in weights + biases)
    assert mock.mock_calls(b"cuMemcpyDtoDAsync_v2") == 2 * count


# --- the reserve space ---


def copies_of_the_reserve_space(mock, num_gradients):
    """Runs a forward op with `num_gradients` gradient ops; returns gradients and copy count."""
    arrays = arrays_without_lengths()
    with tf.Graph().as_default(), kernel_labels(LABEL), tf.Session() as session:
        inputs = [tf.constant(arrays[n]) for n in ("input", "input_h", "input_c", "params")]
        outputs = gen_cudnn_rnn_ops.cudnn_rnn(*inputs, **model_attributes(LSTM))
        backprops = [tf.constant(arrays[name + "_backprop"]) for name in FORWARD]
        # Separate tf.identity nodes keep the graph optimizer from merging the gradients.
        gradients = [
            tf.gradients(outputs[:3], inputs, [tf.identity(b) for b in backprops])
            for _ in range(num_gradients)
        ]
        session.run(gradients)
        before = mock.mock_calls(b"cuMemcpyDtoDAsync_v2")
        results = session.run(gradients)
        return results, mock.mock_calls(b"cuMemcpyDtoDAsync_v2") - before


def test_two_gradients_of_one_forward_call_agree(mock):
    """A gradient must not destroy the reserve space of the next; a single one makes no copy."""
    (alone,), copies_alone = copies_of_the_reserve_space(mock, 1)
    several, copies = copies_of_the_reserve_space(mock, 3)
    for gradients in several:
        assert_same_bits(dict(enumerate(gradients)), dict(enumerate(alone)))
    assert copies_alone == 0
    assert 1 <= copies <= 3


@needs_tensorflow_2
def test_a_function_copies_the_reserve_space_only_if_the_caller_holds_it(mock):
    arrays = arrays_without_lengths()
    backprops = [tf.constant(arrays[name + "_backprop"]) for name in FORWARD]
    attributes = model_attributes(LSTM)

    @tf.function
    def train(*inputs):
        with kernel_labels(LABEL), tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = gen_cudnn_rnn_ops.cudnn_rnn(*inputs, **attributes)
            return tape.gradient(list(outputs[:3]), list(inputs), backprops)

    @tf.function
    def forward(*inputs):
        with kernel_labels(LABEL):
            return gen_cudnn_rnn_ops.cudnn_rnn(*inputs, **attributes)

    @tf.function
    def backward(inputs, outputs):
        with kernel_labels(LABEL):
            return gen_cudnn_rnn_ops.cudnn_rnn_backprop(
                *inputs, *outputs[:3], *backprops, outputs.reserve_space, **attributes
            )

    inputs = [tf.constant(arrays[n]) for n in ("input", "input_h", "input_c", "params")]
    counts, results = [], []
    for run in (lambda: train(*inputs), lambda: backward(inputs, forward(*inputs))):
        run()
        before = mock.mock_calls(b"cuMemcpyDtoDAsync_v2")
        results.append(dict(enumerate(value.numpy() for value in run())))
        counts.append(mock.mock_calls(b"cuMemcpyDtoDAsync_v2") - before)
    assert counts == [0, 1]
    assert_same_bits(*results)


def test_a_fetched_reserve_space_is_not_overwritten(mock):
    arrays = arrays_without_lengths()
    with labelled(LSTM, "float64") as gpu:
        feeds = {gpu.placeholders[name]: arrays[name] for name in gpu.placeholders}
        alone = gpu.session.run(gpu.raw_outputs.reserve_space, feeds)
        together, _ = gpu.session.run(
            [gpu.raw_outputs.reserve_space, gpu.fetches["d_params"]], feeds
        )
    # Up to 31 elements at the end only make up the tensor's size; no kernel writes them.
    assert together.shape == alone.shape
    assert_same_bits({"reserve": together[:-31]}, {"reserve": alone[:-31]})


def test_a_reserve_space_that_a_variable_holds_is_not_overwritten(mock):
    arrays = arrays_without_lengths()
    with tf.Graph().as_default(), kernel_labels(LABEL), tf.Session() as session:
        inputs = [tf.constant(arrays[n]) for n in ("input", "input_h", "input_c", "params")]
        outputs = gen_cudnn_rnn_ops.cudnn_rnn(*inputs, **model_attributes(LSTM))
        held = [
            tf.Variable(output, use_resource=True, trainable=False, validate_shape=False)
            for output in outputs
        ]
        output, output_h, output_c, reserve_space = [v.read_value() for v in held]
        backprops = [tf.constant(arrays[name + "_backprop"]) for name in FORWARD]
        gradient = gen_cudnn_rnn_ops.cudnn_rnn_backprop(
            *inputs, output, output_h, output_c, *backprops, reserve_space, **model_attributes(LSTM)
        )
        session.run(tf.global_variables_initializer())
        before = session.run(held[3])
        first, second = session.run(gradient), session.run(gradient)
        assert_same_bits({"reserve": session.run(held[3])}, {"reserve": before})
    assert_same_bits(first._asdict(), second._asdict())


def test_reserves_of_another_call_are_refused(mock):
    arrays = arrays_for(LSTM, LENGTHS["mixed"])
    with labelled(LSTM, "float64", version=3) as gpu:
        lengths = gpu.placeholders["sequence_lengths"]
        feeds = {gpu.placeholders[name]: arrays[name] for name in gpu.placeholders}
        outputs = gpu.raw_outputs
        values = gpu.session.run(list(outputs), feeds)
        feeds.update(zip(outputs, values))
        gpu.session.run(gpu.fetches["d_params"], feeds)
        for name, changes in {
            "host_reserved": {outputs.host_reserved: values[4] + 1},
            "sequence_lengths": {lengths: np.array(LENGTHS["none full"], np.int32)},
            "reserve_space": {outputs.reserve_space: values[3][:-1]},
        }.items():
            with pytest.raises(tf.errors.InvalidArgumentError, match=name):
                gpu.session.run(gpu.fetches["d_params"], {**feeds, **changes})


# --- algorithms ---

STANDARD, PERSIST_STATIC_SMALL_H = 0, 3
DEFAULT_MATH, FMA_MATH = 0, 3  # the first allows TF32


@pytest.fixture
def allow_tf32():
    if IS_TENSORFLOW_1:
        pytest.skip("requires TensorFlow 2: TensorFlow 1 has no switch for TF32")
    yield tf2.config.experimental.enable_tensor_float_32_execution
    tf2.config.experimental.enable_tensor_float_32_execution(True)


def model_settings(mock):
    """Returns the algorithm and the math type of each model that cuDNN was told of, in order."""
    lines = re.findall(r"algorithm=(\d+) math_type=(\d+)", mock.mock_log().decode())
    return [(int(algorithm), int(math_type)) for algorithm, math_type in lines]


def float_arrays():
    return arrays_for(LSTM, LENGTHS["full"], "float32")


def run_forward(gpu, arrays):
    """Returns feeds for the gradient: the inputs and everything that the forward op returns."""
    feeds = {gpu.placeholders[name]: arrays[name] for name in gpu.placeholders}
    feeds.update(zip(gpu.raw_outputs, gpu.session.run(list(gpu.raw_outputs), feeds)))
    return feeds


def test_standard_is_the_default(mock):
    mock.mock_set_algorithm_time(PERSIST_STATIC_SMALL_H, 0.1, 0.1)
    with labelled(LSTM, "float32", version=3) as gpu:
        gpu.run(float_arrays())
    assert {algorithm for algorithm, _ in model_settings(mock)} == {STANDARD}
    assert mock.mock_calls(b"cudnnRNNForward") == 1


def test_auto_tries_algorithms(mock, monkeypatch):
    monkeypatch.setenv("CUDNN_RNN_ALGO", "auto")
    mock.mock_set_algorithm_time(PERSIST_STATIC_SMALL_H, 0.1, 0.1)
    arrays = float_arrays()
    with Network(LSTM, "float32", version=3) as cpu, labelled(LSTM, "float32", version=3) as gpu:
        found = gpu.run(arrays)
        assert model_settings(mock)[-1][0] == PERSIST_STATIC_SMALL_H
        assert_close(found, cpu.run(arrays), TOLERANCES["float32"], "auto")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_gradient_computes_like_its_forward_call(mock, monkeypatch, allow_tf32, version):
    """The settings change in between; the mock refuses another algorithm or math type."""
    arrays = float_arrays()
    with Network(LSTM, "float32", version=version) as cpu:
        expected = cpu.run(arrays, ["d_params"])
    for is_allowed, algorithm in ((True, "persist_static_small_h"), (False, "standard")):
        mock.mock_reset()
        mock.mock_set_any_memory(1)
        with labelled(LSTM, "float32", version=version) as gpu:
            allow_tf32(is_allowed)
            monkeypatch.setenv("CUDNN_RNN_ALGO", algorithm)
            feeds = run_forward(gpu, arrays)
            allow_tf32(not is_allowed)
            monkeypatch.setenv("CUDNN_RNN_ALGO", "persist_static")
            found = {"d_params": gpu.session.run(gpu.fetches["d_params"], feeds)}
        assert_close(found, expected, TOLERANCES["float32"], algorithm)
        assert len(model_settings(mock)) == 2 and len(set(model_settings(mock))) == 1


def test_tensorflows_switch_decides_about_tf32(mock, allow_tf32):
    found = {}
    for is_allowed in (True, False):
        mock.mock_reset()
        mock.mock_set_any_memory(1)
        allow_tf32(is_allowed)
        with labelled(LSTM, "float32", version=3) as gpu:
            gpu.run(float_arrays())
        (found[is_allowed],) = {math_type for _, math_type in model_settings(mock)}
    assert found == {True: DEFAULT_MATH, False: FMA_MATH}


@pytest.mark.sampled(4)
@needs_tensorflow_2
def test_a_switch_for_cpus_does_not_allow_tf32():
    """TensorFlow reads TF_SET_ONEDNN_FPMATH_MODE for its products on a CPU alone."""
    test = "%s::%s" % (__file__, test_tensorflows_switch_decides_about_tf32.__name__)
    arguments = ("-m", "pytest", "-p", "no:cacheprovider", "-q", test)
    assert "1 passed" in output_of(*arguments, TF_SET_ONEDNN_FPMATH_MODE="BF16")


def test_a_precision_decides_about_tf32(mock):
    """A precision overrides TensorFlow's switch; a gradient keeps its forward call's math type."""
    found = {}
    for forward, backward in (("highest", "medium"), ("high", "highest"), ("medium", "highest")):
        mock.mock_reset()
        mock.mock_set_any_memory(1)
        with labelled(LSTM, "float32", version=3) as gpu:
            with cudnn_rnn.float32_matmul_precision(forward):
                feeds = run_forward(gpu, float_arrays())
            with cudnn_rnn.float32_matmul_precision(backward):
                gpu.session.run(gpu.fetches["d_params"], feeds)
        (found[forward],) = {math_type for _, math_type in model_settings(mock)}
    assert found == {"highest": FMA_MATH, "high": DEFAULT_MATH, "medium": DEFAULT_MATH}


@pytest.mark.parametrize("version", [1, 3])
def test_a_reserve_space_of_other_settings_is_refused(mock, allow_tf32, version):
    with labelled(LSTM, "float32", version=version) as gpu:
        feeds = run_forward(gpu, float_arrays())
        reserve_space = gpu.raw_outputs.reserve_space
        if version == 1:
            # The size names the choice. These name no choice, and an algorithm that does not exist.
            for missing, expected in ((4, "must have .* bytes"), (10, "names algorithm 7")):
                shorter = {**feeds, reserve_space: feeds[reserve_space][:-missing]}
                with pytest.raises(
                    tf.errors.InvalidArgumentError, match="reserve_space.*" + expected
                ):
                    gpu.session.run(gpu.fetches["d_params"], shorter)
            return
        allow_tf32(False)
        with labelled(LSTM, "float32", version=version) as other:
            feeds[reserve_space] = run_forward(other, float_arrays())[other.raw_outputs[3]]
        expected = "host_reserved and reserve_space are of two forward calls"
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            gpu.session.run(gpu.fetches["d_params"], feeds)


@pytest.mark.parametrize("forward, gradient", [("CPU", "GPU"), ("GPU", "CPU")])
def test_the_reserves_of_another_device_are_refused(mock, forward, gradient):
    with Network(LSTM, "float32", version=3) as cpu, labelled(LSTM, "float32", version=3) as gpu:
        networks = {"CPU": cpu, "GPU": gpu}
        arrays = dict(float_arrays(), sequence_lengths=np.array(LENGTHS["full"], np.int32))
        feeds = run_forward(networks[gradient], arrays)
        other = run_forward(networks[forward], arrays)
        for place in (3, 4):
            reserve = networks[gradient].raw_outputs[place]
            feeds[reserve] = other[networks[forward].raw_outputs[place]]
        expected = "of a forward call on a %s, but its gradient runs on a %s" % (forward, gradient)
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            networks[gradient].session.run(networks[gradient].fetches["d_params"], feeds)


@pytest.mark.parametrize(
    "rates, expected",
    [((0.5, 0.0), "dropout is 0, .* with dropout"), ((0.0, 0.5), "without dropout")],
)
def test_a_gradient_of_another_dropout_is_refused(mock, rates, expected):
    """As in graphs of TensorFlow 1.0. The rate is not in the reserve space of a GPU."""
    arrays = arrays_without_lengths()
    with labelled(LSTM, "float64", dropout=rates[0]) as forward:
        feeds = {forward.placeholders[name]: arrays[name] for name in forward.placeholders}
        values = forward.session.run(list(forward.raw_outputs), feeds)
    with labelled(LSTM, "float64", dropout=rates[1]) as gradient:
        feeds = {gradient.placeholders[name]: arrays[name] for name in gradient.placeholders}
        feeds.update(zip(gradient.raw_outputs, values))
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            gradient.session.run(gradient.fetches["d_params"], feeds)


def test_elements_beyond_the_reserve_space_are_0(mock):
    """Their number says how the forward call has computed; old memory does not show in them."""
    arrays = arrays_without_lengths()
    with labelled(LSTM, "float64") as gpu:
        feeds = {gpu.placeholders[name]: arrays[name] for name in gpu.placeholders}
        for _ in range(3):
            reserve_space = gpu.session.run(gpu.raw_outputs.reserve_space, feeds)
            additional = reserve_space[-(reserve_space.size % 32) :]
            assert 0 < additional.size < 32 and not additional.any()
            with gpu.session.graph.as_default():
                gpu.session.run(tf.fill([reserve_space.size], np.float64("nan")))  # freed memory


# --- failures ---


@pytest.mark.sampled(4)
@pytest.mark.parametrize("failure", [OUT_OF_MEMORY, EXECUTION_FAILED])
@pytest.mark.parametrize("version", [1, 3])
def test_each_failing_call_raises_and_the_session_stays_usable(mock, version, failure):
    arrays = arrays_for(LSTM, LENGTHS["with zeros"])
    if version == 1:
        arrays = arrays_without_lengths()
    with Network(LSTM, "float64", version=version) as cpu:
        expected = cpu.run(arrays)
    mock.mock_reset()
    mock.mock_set_any_memory(1)
    with labelled(LSTM, "float64", version=version) as gpu:
        gpu.run(arrays)
        num_calls = mock.mock_fallible_calls()
    assert num_calls > 20
    refused = 0
    for number in range(1, num_calls + 1):
        with labelled(LSTM, "float64", version=version) as gpu:
            mock.mock_fail_call(number, failure)
            try:
                gpu.run(arrays)
            except OP_ERRORS as error:
                refused += 1
                assert "cu" in error.message and "CudnnRNN" in error.message, error.message
            mock.mock_fail_call(0, 0)
            assert_close(gpu.run(arrays), expected, TOLERANCES["float64"], f"after call {number}")
    assert refused > num_calls // 3
    assert mock.mock_live(b"pushed_context") == 0


def test_calls_with_cached_plans_do_not_wait_for_the_device(mock):
    arrays = arrays_for(LSTM, LENGTHS["with zeros"])
    with labelled(LSTM, "float64", dropout=0.5, version=3) as gpu:
        gpu.run(arrays)
        before = mock.mock_host_waits()
        for _ in range(3):
            gpu.run(arrays)
        assert mock.mock_host_waits() == before


@pytest.mark.parametrize("name", ["CUDNN_RNN_ALGO", "TF_DETERMINISTIC_OPS"])
def test_a_bad_value_of_a_variable_is_an_error(mock, monkeypatch, name):
    arrays = arrays_without_lengths()
    monkeypatch.setenv(name, "fastest")
    with labelled(LSTM, "float64", is_training=False) as gpu:
        with pytest.raises(tf.errors.OpError, match=name + ".*fastest"):
            gpu.run(arrays)


def test_an_algorithm_that_does_not_support_the_model_is_an_error(mock, monkeypatch):
    arrays = arrays_for(LSTM, LENGTHS["mixed"])
    monkeypatch.setenv("CUDNN_RNN_ALGO", "persist_static")
    with labelled(LSTM, "float64", version=3, is_training=False) as gpu:
        expected = "persist_static was requested.* CUDNN_RNN_ALGO is set to persist_static"
        with pytest.raises(tf.errors.UnimplementedError, match=expected):
            gpu.run(arrays)
