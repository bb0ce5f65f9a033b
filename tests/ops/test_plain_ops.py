"""Models in `plain_ops` have the results and the gradients of the fused ops."""

import itertools

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn._core import nodes
from cudnn_rnn._core.config import RnnConfig
from helpers.op_harness import TOLERANCES, assert_close, swap_major
from helpers.sequence_cases import DTYPES, LENGTHS, LSTM, PROJECTED, arrays_for

MODES = ("lstm", "gru", "rnn_relu", "rnn_tanh")
DIRECTIONS = ("unidirectional", "bidirectional")
INPUTS = ("input", "input_h", "input_c", "params")
# name -> changes of a Configuration
MODELS = {
    "one layer": dict(num_layers=1),
    "two layers": {},
    "three layers": dict(num_layers=3),
    "skip_input": dict(input_mode="skip_input", input_size=5),
    "auto_select": dict(input_mode="auto_select", input_size=5),
}
# (lengths, time_major)
SEQUENCES = [(None, True), (LENGTHS["mixed"], False), (LENGTHS["with zeros"], True)]


def config_of(configuration, dtype, dropout=0.0):
    fields = dict(zip(configuration._fields, configuration), dtype=dtype, dropout=dropout)
    return RnnConfig.checked(seed=1, **fields)


def cases():
    """Returns pairs of a configuration and of the sequences; each mode with each of the rest."""
    found = []
    for mode, direction in itertools.product(MODES, DIRECTIONS):
        for index, changes in enumerate(MODELS.values()):
            model = LSTM._replace(rnn_mode=mode, direction=direction, **changes)
            found.append((model, SEQUENCES[index % len(SEQUENCES)]))
    for direction, sequences in itertools.product(DIRECTIONS, SEQUENCES):
        found.append((PROJECTED._replace(direction=direction), sequences))
    return found


def results(config, arrays, time_major, static_shapes):
    """Returns the results and gradients of the fused ops, and of the plain ops, in one run."""
    with tf.Graph().as_default(), tf.Session() as session:
        fed = {
            name: tf.placeholder(
                array.dtype,
                array.shape if static_shapes else unknown_sequences(name, array.shape, time_major),
            )
            for name, array in arrays.items()
        }
        inputs = {name: fed[name] for name in INPUTS if name in fed}
        input_c = fed.get("input_c", tf.zeros([0], config.dtype))
        fetches = []
        for is_plain in (False, True):
            arguments = (config, fed["input"], fed["input_h"], input_c, fed["params"], True)
            named = dict(sequence_lengths=fed.get("sequence_lengths"), time_major=time_major)
            if is_plain:
                with cudnn_rnn.plain_ops():
                    before = len(tf.get_default_graph().get_operations())
                    outputs = nodes.rnn(*arguments, **named)
                    created = tf.get_default_graph().get_operations()[before:]
                    assert not [op for op in created if op.type.startswith("Cudnn")]
            else:
                outputs = nodes.rnn(*arguments, **named)
            outputs = dict(zip(("output", "output_h", "output_c"), outputs))
            if "input_c" not in fed:
                del outputs["output_c"]
            backprops = [fed[name + "_backprop"] for name in outputs]
            gradients = tf.gradients(list(outputs.values()), list(inputs.values()), backprops)
            outputs.update(("d_" + name, found) for name, found in zip(inputs, gradients))
            fetches.append(outputs)
        return session.run(fetches, {fed[name]: array for name, array in arrays.items()})


def unknown_sequences(name, shape, time_major):
    """Returns the shape with an unknown number of time steps and batch size."""
    if name in ("params", "sequence_lengths"):
        return [None] * len(shape)
    axis = 0 if time_major else 1  # of the layers and directions
    is_state = "_h" in name or "_c" in name
    unknown = [None, None, shape[2]]
    if is_state:
        unknown[axis] = shape[axis]
    return unknown


def compare(configuration, sequences, dtype, static_shapes=True):
    lengths, time_major = sequences
    arrays = arrays_for(configuration, lengths or LENGTHS["full"], dtype)
    if lengths is None:
        del arrays["sequence_lengths"]
    if not time_major:
        arrays = swap_major(arrays)
    config = config_of(configuration, dtype)
    expected, found = results(config, arrays, time_major, static_shapes)
    # Gradients of 16-bit parameters are sums of rounded products in both.
    assert_close(found, expected, TOLERANCES[dtype], (configuration, sequences, dtype))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_results_and_gradients(case):
    compare(*case, "float64")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
def test_unknown_batch_and_time(mode):
    model = LSTM._replace(rnn_mode=mode)
    compare(model, (LENGTHS["mixed"], False), "float64", static_shapes=False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_dtypes(mode, dtype):
    compare(LSTM._replace(rnn_mode=mode), (LENGTHS["mixed"], True), dtype)
