"""Bad input to CudnnRNN and CudnnRNNBackprop: errors name argument, value and expectation.

All inputs are fed through placeholders of unknown shape (`op_harness.call`), so that no check at
graph construction precedes the kernels' own checks.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import reference
from helpers.cases import random_arrays
from helpers.op_harness import FORWARD, HUGE, assert_refused, call, model_attributes, refusal

DTYPE = "float32"
LSTM = reference.Configuration("lstm", "linear_input", "bidirectional", 2, 5, 4)
GRU = LSTM._replace(rnn_mode="gru")
SKIP = LSTM._replace(input_mode="skip_input", input_size=5)
BATCH, STEPS = 3, 6
# The shape of the states in error messages.
STATES_SHAPE = "[4, 3, 5]"


def forward_inputs(configuration, batch=BATCH, steps=STEPS, dtype=DTYPE, seed=0):
    """Returns valid inputs of CudnnRNN."""
    random = np.random.RandomState(seed)
    arrays = random_arrays(configuration, batch, steps, dtype, random)
    arrays.setdefault("input_c", np.zeros([0], dtype))
    return {name: arrays[name] for name in ("input", "input_h", "input_c", "params")}


def backward_inputs(configuration, inputs=None, **attributes):
    """Returns valid inputs of CudnnRNNBackprop: a forward call's inputs, results and gradients."""
    inputs = forward_inputs(configuration) if inputs is None else dict(inputs)
    attributes = dict(model_attributes(configuration), **attributes)
    outputs = call("cudnn_rnn", inputs, **attributes)
    inputs.update(zip(FORWARD + ("reserve_space",), outputs))
    inputs.update((name + "_backprop", np.ones_like(inputs[name])) for name in FORWARD)
    return inputs


def call_forward(configuration, inputs, **attributes):
    return call("cudnn_rnn", inputs, **dict(model_attributes(configuration), **attributes))


def call_backward(configuration, inputs, **attributes):
    return call("cudnn_rnn_backprop", inputs, **dict(model_attributes(configuration), **attributes))


def test_valid_arguments_are_accepted():
    for configuration in (LSTM, GRU, SKIP):
        results = call_backward(configuration, backward_inputs(configuration))
        assert all(np.isfinite(result).all() for result in results)


def assert_network_refuses(parts, configuration, changes, **attributes):
    """Checks that forward and backward both refuse valid inputs with these changes."""
    attributes = dict(model_attributes(configuration), **attributes)
    inputs = dict(forward_inputs(configuration), **changes)
    assert_refused(parts, "cudnn_rnn", inputs, **attributes)
    assert_refused(parts, "cudnn_rnn", inputs, is_training=False, **attributes)
    inputs = dict(backward_inputs(configuration), **changes)
    assert_refused(parts, "cudnn_rnn_backprop", inputs, **attributes)


@pytest.mark.parametrize(
    "name, shape, expected",
    [
        ("input", (), "input"),
        ("input", (6,), "input"),
        ("input", (6, 3), "input"),
        ("input", (6, 3, 4, 1), "input"),
        ("input_h", (), "input_h"),
        ("input_h", (4, 5), "input_h"),
        ("input_h", (4, 3, 5, 1), "input_h"),
        ("input_c", (), "input_c"),
        ("input_c", (0,), "input_c"),
        ("input_c", (60,), "input_c"),
        ("input_c", (4, 3, 5, 1), "input_c"),
        ("params", (), "params"),
        ("params", (1, reference.params_size(LSTM)), "params"),
        ("params", (reference.params_size(LSTM), 1), "params"),
    ],
)
def test_ranks(name, shape, expected):
    changes = {name: np.ones(shape, DTYPE)}
    assert_network_refuses([expected, str(list(shape))], LSTM, changes)


@pytest.mark.parametrize("configuration", [LSTM, GRU], ids=lambda value: value.rnn_mode)
@pytest.mark.parametrize("change", [-1, -100, "none"])
def test_too_few_params(configuration, change):
    """Too few params are an error; too many are not (see test_longer_params.py)."""
    good = reference.params_size(configuration)
    length = 0 if change == "none" else good + change
    changes = {"params": np.ones(length, DTYPE)}
    assert_network_refuses(["params", str(length), str(good)], configuration, changes)


@pytest.mark.parametrize(
    "shape",
    [(4, 2, 5), (4, 4, 5), (4, 1, 5), (4, 0, 5)],
)
def test_batch_of_input_h(shape):
    changes = {"input_h": np.ones(shape, DTYPE)}
    assert_network_refuses(["input_h", str(list(shape)), STATES_SHAPE], LSTM, changes)


@pytest.mark.parametrize("shape", [(3, 3, 5), (0, 3, 5), (1, 3, 5)])
def test_layers_of_a_bidirectional_model_come_in_pairs(shape):
    changes = {"input_h": np.ones(shape, DTYPE)}
    assert_network_refuses(["input_h", str(list(shape))], LSTM, changes)


@pytest.mark.parametrize("shape", [(4, 3, 0), (4, 3, 6), (2, 3, 5), (6, 3, 5)])
def test_layers_and_units_of_input_h_must_fit_the_rest(shape):
    """Wrong layers or units do not fit params or input_c; the error may name any of them."""
    changes = {"input_h": np.ones(shape, DTYPE)}
    # A GRU with fewer layers has enough params, and no other input has the number of layers.
    for configuration in (LSTM,) if shape == (2, 3, 5) else (GRU, LSTM):
        inputs = dict(forward_inputs(configuration), **changes)
        text = refusal("cudnn_rnn", inputs, **model_attributes(configuration))
        assert any(name in text for name in ("params must", "input_h must", "input_c must")), text
    assert_network_refuses([], LSTM, changes)


@pytest.mark.parametrize(
    "shape", [(4, 2, 5), (2, 3, 5), (4, 3, 6), (4, 3, 0), (0, 3, 5), (3, 4, 5)]
)
def test_input_c_must_have_the_shape_of_input_h(shape):
    changes = {"input_c": np.ones(shape, DTYPE)}
    assert_network_refuses(["input_c", str(list(shape)), STATES_SHAPE], LSTM, changes)


def test_input_must_have_elements():
    changes = {"input": np.ones((6, 3, 0), DTYPE)}
    assert_network_refuses(["input must", "[6, 3, 0]"], LSTM, changes)


def test_skip_input_with_unequal_sizes():
    parts = ["skip_input", "input_size", "4", "num_units", "5"]
    assert_network_refuses(parts, LSTM, {}, input_mode="skip_input")


@pytest.mark.parametrize("dropout", [-0.1, 1.5, np.nan, np.inf])
def test_dropout(dropout):
    assert_network_refuses(["dropout", str(dropout), "between 0 and 1"], LSTM, {}, dropout=dropout)


def network_of_empty_tensors(input_shape, states_shape):
    """Returns CudnnRNN's outputs and the gradient of params, for tensors without elements.

    The graph creates the tensors, because old NumPy versions have no empty arrays with large
    dimensions.
    """

    def empty(shape):
        return tf.zeros(tf.placeholder_with_default(np.array(shape, np.int64), [3]), DTYPE)

    states, params = empty(states_shape), tf.ones(reference.params_size(LSTM), DTYPE)
    outputs = gen_cudnn_rnn_ops.cudnn_rnn(
        empty(input_shape), states, states, params, **model_attributes(LSTM)
    )
    # grad_ys is given because TensorFlow cannot create its default gradients in this size.
    return outputs, tf.gradients(outputs[:3], params, grad_ys=list(outputs[:3]))[0]


def test_sizes_without_elements_that_overflow():
    """Sizes that overflow are refused even with an empty batch, which allocates nothing."""
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        outputs, _ = network_of_empty_tensors((6, 0, HUGE), (4, 0, HUGE))
        with pytest.raises(tf.errors.InvalidArgumentError, match=str(HUGE)):
            session.run(tf.shape(outputs[0]))


def test_very_many_empty_steps_take_no_time():
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        outputs, d_params = network_of_empty_tensors((2**40, 0, 4), (4, 0, 5))
        shape, gradient = session.run([tf.shape(outputs[0], out_type=tf.int64), d_params])
    assert shape.tolist() == [2**40, 0, 10]
    assert gradient.shape == (reference.params_size(LSTM),) and not gradient.any()


@pytest.mark.parametrize(
    "name", ["output", "output_h", "output_c"] + [name + "_backprop" for name in FORWARD]
)
@pytest.mark.parametrize("change", ["rank", "first", "middle", "last", "empty", "scalar"])
def test_shapes_of_outputs_and_their_gradients(name, change):
    good = backward_inputs(LSTM)
    shape = good[name].shape
    wrong = {
        "rank": shape[1:],
        "first": (shape[0] + 1,) + shape[1:],
        "middle": (shape[0], shape[1] - 1, shape[2]),
        "last": shape[:2] + (shape[2] - 1,),
        "empty": (0,),
        "scalar": (),
    }[change]
    inputs = dict(good, **{name: np.ones(wrong, DTYPE)})
    assert_refused(
        [name + " must", str(list(wrong)), str(list(shape))],
        "cudnn_rnn_backprop",
        inputs,
        **model_attributes(LSTM),
    )


def foreign_reserve_spaces():
    """Returns a dict of reserve spaces that no call of LSTM with BATCH and STEPS has made."""
    good = backward_inputs(LSTM)["reserve_space"]
    others = {
        "more steps": (LSTM, dict(steps=STEPS + 1)),
        "fewer steps": (LSTM, dict(steps=STEPS - 1)),
        "larger batch": (LSTM, dict(batch=BATCH + 1)),
        "batch and steps swapped": (LSTM, dict(batch=STEPS, steps=BATCH)),
        "more units": (LSTM._replace(num_units=6), {}),
        "other input size": (LSTM._replace(input_size=5), {}),
        "another mode": (GRU, {}),
        "another input mode": (SKIP, {}),
        "one direction": (LSTM._replace(direction="unidirectional", num_layers=4), {}),
    }
    random = np.random.RandomState(0)
    spaces = {
        "empty": good[:0],
        "one element": good[:1],
        "truncated": good[:-1],
        "half of it": good[: good.size // 2],
        "header only": good[:64],
        "longer": np.concatenate([good, good[:1]]),
        "zeros": np.zeros_like(good),
        "random bytes": random.bytes(good.nbytes),
        "scalar": good[0],
        "matrix": good.reshape(1, -1),
    }
    spaces["random bytes"] = np.frombuffer(spaces["random bytes"], DTYPE)
    for name, (configuration, sizes) in others.items():
        inputs = forward_inputs(configuration, **sizes)
        spaces[name] = backward_inputs(configuration, inputs)["reserve_space"]
    return spaces


def test_reserve_space_of_another_call():
    good = backward_inputs(LSTM)
    for name, space in foreign_reserve_spaces().items():
        inputs = dict(good, reserve_space=space)
        text = refusal("cudnn_rnn_backprop", inputs, **model_attributes(LSTM))
        assert "reserve_space" in text, (name, text)


def test_reserve_space_of_other_attributes():
    """A reserve space from a call with another dropout is refused, although the shapes agree."""
    good = backward_inputs(LSTM)
    with_dropout = backward_inputs(LSTM, dropout=0.5)
    call_backward(LSTM, with_dropout, dropout=0.5)
    for space, dropout in ((good, 0.5), (with_dropout, 0.0), (with_dropout, 0.25)):
        inputs = dict(good, reserve_space=space["reserve_space"])
        text = refusal("cudnn_rnn_backprop", inputs, dropout=dropout, **model_attributes(LSTM))
        assert "reserve_space" in text, text


def test_reserve_space_of_an_equal_call_with_other_data():
    """A reserve space is refused if output_h is from another forward call."""
    good = backward_inputs(LSTM)
    for changed in ("input", "input_h", "input_c", "params"):
        others = forward_inputs(LSTM)
        others[changed] = others[changed] + np.float32(0.25)
        other = backward_inputs(LSTM, others)
        inputs = dict(good, reserve_space=other["reserve_space"])
        text = refusal("cudnn_rnn_backprop", inputs, **model_attributes(LSTM))
        assert "reserve_space" in text and "output_h" in text, text


@pytest.mark.parametrize("seed", range(8))
def test_damaged_reserve_space_does_not_crash(seed):
    """A reserve space with flipped bits is refused or used, but never crashes the process."""
    random = np.random.RandomState(seed)
    good = backward_inputs(LSTM, dropout=0.5)
    for _ in range(4):
        damaged = bytearray(good["reserve_space"].tobytes())
        limit = min(256, len(damaged)) if seed % 2 else len(damaged)
        for _ in range(1 + random.randint(8)):
            damaged[random.randint(limit)] ^= 1 << random.randint(8)
        space = np.frombuffer(bytes(damaged), good["reserve_space"].dtype)
        try:
            call_backward(LSTM, dict(good, reserve_space=space), dropout=0.5)
        except tf.errors.InvalidArgumentError as error:
            assert "reserve_space" in error.message


# --- errors of TensorFlow itself ---


@pytest.mark.parametrize(
    "name, value",
    [("rnn_mode", "lstn"), ("input_mode", "linear"), ("direction", "both"), ("rnn_mode", "")],
)
def test_unknown_modes(name, value):
    with pytest.raises(ValueError, match=name):
        call_forward(LSTM, forward_inputs(LSTM), **{name: value})


@pytest.mark.parametrize("name", ["input_h", "input_c", "params"])
def test_mixed_dtypes(name):
    inputs = forward_inputs(LSTM)
    inputs[name] = inputs[name].astype(np.float64)
    with pytest.raises((TypeError, ValueError), match=name):
        call_forward(LSTM, inputs)
