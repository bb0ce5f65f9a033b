"""Arguments that cannot be tensors: every error names the argument and says what to pass."""

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops, layers
from cudnn_rnn.contrib import block_cells, fused_cells
from helpers.rnn_models import initialize, params_size
from helpers.versions import needs_tensorflow_2

SEQUENCES = np.linspace(-1, 1, 30, dtype=np.float32).reshape([3, 2, 5])
STATE = np.zeros([1, 2, 4], np.float32)
PARAMS = np.zeros([500], np.float32)
ROWS = [[[1.0], [2.0]], [[3.0]]]

# What is passed -> the error's type and a part of its text; `%s` is the argument's name.
KINDS = {
    "ragged": (
        lambda: tf.ragged.constant(ROWS, ragged_rank=1),
        TypeError,
        "%s must be a tensor of numbers, but is a RaggedTensor. Pass %s.to_tensor()",
    ),
    "none": (lambda: None, TypeError, "but is None"),
    "dict": (lambda: {"x": SEQUENCES}, TypeError, "but is a dict with the keys 'x'. Pass one of"),
    "dataset": (
        lambda: tf.data.Dataset.from_tensors(SEQUENCES),
        TypeError,
        "but is a Dataset. Pass an element of it",
    ),
    "sparse": (
        lambda: tf.SparseTensor([[0, 0, 0]], [1.0], [3, 2, 5]),
        TypeError,
        "but is a SparseTensor. Pass tf.sparse.to_dense(%s).",
    ),
    "text": (lambda: "word", TypeError, "but is text: 'word'."),
    "texts": (lambda: np.array([[["a"]]]), TypeError, "an array of shape [1, 1, 1] of text"),
    "tensor of text": (
        lambda: tf.constant([[["a"]]]),
        TypeError,
        "a tensor of shape [1, 1, 1] of text",
    ),
    "unequal lists": (
        lambda: ROWS,
        ValueError,
        "%s must have parts of one shape, but %s[0] has shape [2, 1] and %s[1] has shape [1, 1]. "
        "Pad them to one shape",
    ),
    "unequal arrays": (
        lambda: np.array([[1.0, 2.0], [3.0]], dtype=object),
        ValueError,
        "%s[0] has shape [2] and %s[1] has shape [1]",
    ),
    "generator": (lambda: (row for row in ROWS), TypeError, "an object of type generator"),
    "none in a list": (lambda: [SEQUENCES, None], TypeError, "%s[1] must be a tensor"),
}


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-6)


kinds = pytest.mark.parametrize("kind", sorted(KINDS))


def refused(kind, name, call, more="", always=None):
    """Checks the error of `call` for a value of this kind; `always` is the type for all kinds."""
    make, error, text = KINDS[kind]
    error = always or error
    with pytest.raises(error) as caught:
        call(make())
    found = str(caught.value)
    assert name in found and text.replace("%s", name) in found, found
    assert len(found) < 300, found
    if kind in ("ragged", "unequal lists"):
        assert more in found, found


@kinds
def test_layers(session, kind):
    advice = "sequence_lengths"
    refused(kind, "inputs", lambda value: layers.CudnnLSTM(1, 4)(value), advice)
    built = layers.CudnnGRU(1, 4)
    built.build([None, None, 5])
    refused(kind, "inputs", lambda value: built(value), advice)
    if kind != "none":
        refused(kind, "input_h", lambda value: built(SEQUENCES, (value,)))
        call = lambda value: built(SEQUENCES, sequence_lengths=value)  # noqa: E731
        refused(kind, "sequence_lengths", call, always=TypeError)


@kinds
def test_op_level(session, kind):
    model = cudnn_rnn.CudnnLSTM(1, 4, 5)
    arguments = dict(input_data=SEQUENCES, input_h=STATE, input_c=STATE, params=PARAMS)
    for name in arguments:
        if kind == "none" and name != "input_data":
            continue  # test_missing_states
        more = "sequence_lengths" if name == "input_data" else ""
        refused(
            kind, name, lambda value, name=name: model(**dict(arguments, **{name: value})), more
        )
    refused(kind, "params", model.params_to_canonical)
    refused(
        kind,
        "inputs",
        lambda value: cudnn_rnn_ops.cudnn_gru(value, STATE, PARAMS, True),
        "sequence_lengths",
    )


@kinds
@pytest.mark.parametrize("name", ["CudnnCompatibleLSTMCell", "CudnnCompatibleGRUCell"])
def test_cells(session, name, kind):
    cell = getattr(cudnn_rnn, name)(4)
    zeros = tf.zeros([2, 4])
    is_lstm = "LSTM" in name
    refused(kind, "inputs", lambda value: cell(value, (zeros, zeros) if is_lstm else zeros))
    if is_lstm:
        refused(kind, "state.h", lambda value: cell(tf.zeros([2, 5]), (zeros, value)))
    elif kind not in ("unequal lists", "none in a list"):  # One state may be in a list.
        refused(kind, "state", lambda value: cell(tf.zeros([2, 5]), value))


@kinds
def test_basic_cells_and_loops(session, kind):
    cell, zeros = cudnn_rnn.BasicRNNCell(4), tf.zeros([2, 4])
    if type(cell).__module__.startswith("cudnn_rnn."):  # not TensorFlow's own
        refused(kind, "inputs", lambda value: cell(value, zeros))
        refused(kind, "state", lambda value: cell(tf.zeros([2, 5]), value))
    refused(
        kind,
        "inputs",
        lambda value: cudnn_rnn.stack_bidirectional_dynamic_rnn(
            [cell], [cell], value, dtype=tf.float32
        ),
        "sequence_length",
    )


@kinds
def test_keras_layers(session, kind):
    keras_layers = cudnn_rnn.keras
    inputs = tf.constant(SEQUENCES)
    lstm, stack = keras_layers.LSTM(4), keras_layers.RNNStack("lstm", 2, 4)
    is_keras_3 = hasattr(tensorflow.keras.layers.RNN, "inner_loop")
    # Keras 2 takes a RaggedTensor, and a list of the inputs and the states.
    if is_keras_3 or kind not in ("ragged", "none in a list"):
        refused(kind, "inputs", lstm, "mask")
    refused(kind, "inputs", stack, "mask")
    if kind in ("none", "unequal lists", "unequal arrays", "none in a list"):
        return  # None is the default; a list has the states.
    for layer in (lstm, stack):
        refused(kind, "mask", lambda value, layer=layer: layer(inputs, mask=value))
        if "text" not in kind and kind != "sparse":
            name = "initial_state"
            refused(kind, name, lambda value, layer=layer: layer(inputs, initial_state=value))


def test_lists_for_keras_layers(session):
    keras_layers = cudnn_rnn.keras
    stack, steps = keras_layers.RNNStack("gru", 1, 4), [tf.zeros([2, 5])] * 3
    with pytest.raises(TypeError, match="inputs must be a tensor, but is a list of length 3"):
        stack(steps)
    inputs, state = tf.constant(SEQUENCES), tf.zeros([3, 1, 4])
    with pytest.raises(TypeError, match=r"must be a list of 1 tensors, h, each of shape \[batch"):
        stack(inputs, initial_state=state)
    with pytest.raises(ValueError, match="but is a list of length 2"):
        stack(inputs, initial_state=[state, state])
    with pytest.raises(TypeError, match=r"initial_state\[0\] must be a tensor.* but is None"):
        stack(inputs, initial_state=[None])


def test_what_the_error_of_a_ragged_tensor_says_is_right(session):
    ragged = tf.ragged.constant(ROWS, ragged_rank=1)
    layer = layers.CudnnGRU(1, 4)
    inputs, lengths = ragged.to_tensor(), ragged.row_lengths()
    outputs, (state,) = layer(inputs, sequence_lengths=lengths, time_major=False)
    single, (state_of_second,) = layer(inputs[1:, :1], time_major=False)
    initialize(session)
    found, expected, last, last_of_second = session.run([outputs, single, state, state_of_second])
    assert_close(found[1, :1], expected[0])
    assert_close(last[1], last_of_second[0])
    assert np.abs(found[1, 0]).max() > 0 and not found[1, 1].any()


@needs_tensorflow_2
def test_what_the_error_of_a_ragged_tensor_says_of_masks_is_right():
    keras_layers = cudnn_rnn.keras
    ragged = tensorflow.ragged.constant(ROWS, ragged_rank=1)
    layer = keras_layers.GRU(4)
    mask = tensorflow.sequence_mask(ragged.row_lengths())
    outputs = layer(ragged.to_tensor(), mask=mask).numpy()
    assert_close(outputs[1:], layer(ragged.to_tensor()[1:, :1]).numpy())


def test_arguments_that_are_no_shape(session):
    for shape in ({"x": 1}, "word", [[1]]):
        with pytest.raises((TypeError, ValueError), match="input shape must be|last dimension of"):
            layers.CudnnLSTM(1, 4).build(shape)


def test_lists_of_arrays_and_of_tensors_are_taken(session):
    model = cudnn_rnn.CudnnGRU(1, 4, 5)
    params = PARAMS[: params_size("gru", 1, 4, 5)]
    for steps in (list(SEQUENCES), [tf.constant(step) for step in SEQUENCES], SEQUENCES.tolist()):
        found = model(steps, STATE, params)[0]
        assert_close(*session.run([found, model(SEQUENCES, STATE, params)[0]]))


@needs_tensorflow_2  # TensorFlow 1 has classes of its own.
@kinds
@pytest.mark.parametrize("name", ["LSTMBlockCell", "GRUBlockCell", "LSTMBlockFusedCell"])
def test_cells_of_contrib(session, name, kind):
    module = block_cells if hasattr(block_cells, name) else fused_cells
    cell, zeros = getattr(module, name)(4), tf.zeros([2, 4])
    if name == "LSTMBlockFusedCell":
        refused(kind, "inputs", lambda value: cell(value, dtype=tf.float32))
        refused(kind, "initial_state.h", lambda value: cell(tf.zeros([3, 2, 5]), (zeros, value)))
    else:
        state = (zeros, zeros) if name == "LSTMBlockCell" else zeros
        refused(kind, "inputs", lambda value: cell(value, state))
