"""Bad input to CudnnRNN and CudnnRNNBackprop: errors name argument, value and expectation.

All inputs are fed through placeholders of unknown shape (`op_harness.call`), so that no check at
graph construction precedes the kernels' own checks.
"""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import networks, reference
from helpers.op_harness import FORWARD, HUGE, assert_refused, call, model_attributes
from helpers.sequence_cases import GRU, LSTM, SKIP
from helpers.versions import needs_tensorflow_2

DTYPE = "float32"
BATCH, STEPS = 3, 6
PARAMS_SIZE = reference.params_size(LSTM)


def forward_inputs(configuration, batch=BATCH, steps=STEPS):
    arrays = networks.forward_arrays(configuration, batch, steps, DTYPE)
    return dict({"input_c": np.zeros([0], DTYPE)}, **arrays)


def backward_inputs(configuration, inputs=None, **attributes):
    inputs = inputs or forward_inputs(configuration)
    return networks.backward_inputs(inputs, dict(model_attributes(configuration), **attributes))


def call_backward(configuration, inputs, **attributes):
    return call("cudnn_rnn_backprop", inputs, **model_attributes(configuration), **attributes)


def assert_reserve_space_refused(inputs, *parts, **attributes):
    parts = ("reserve_space",) + parts
    assert_refused(parts, "cudnn_rnn_backprop", inputs, **model_attributes(LSTM), **attributes)


def test_valid_arguments_are_accepted():
    for configuration in (LSTM, GRU, SKIP):
        results = call_backward(configuration, backward_inputs(configuration))
        assert all(np.isfinite(result).all() for result in results)


def assert_network_refuses(parts, configuration, changes, version=1, **attributes):
    """Checks that forward and backward both refuse valid inputs with these changes."""
    inputs, own = forward_inputs(configuration), model_attributes(configuration)
    if version == 3:
        inputs["sequence_lengths"] = np.arange(BATCH, dtype=np.int32)
    networks.assert_network_refuses(parts, inputs, own, version, changes, **attributes)


# The shape of the states in error messages.
STATES = "[4, 3, 5]"
# An input, wrong shapes of it, and what the message has besides its name and the shape.
WRONG_SHAPES = [
    ("input", [(), (6,), (6, 3), (6, 3, 4, 1)], ""),
    ("input", [(6, 3, 0)], "input must"),
    ("input_h", [(), (4, 5), (4, 3, 5, 1)], ""),
    ("input_h", [(4, 2, 5), (4, 4, 5), (4, 1, 5), (4, 0, 5)], STATES),
    # The layers of a bidirectional model come in pairs.
    ("input_h", [(3, 3, 5), (0, 3, 5), (1, 3, 5)], ""),
    ("input_c", [(), (0,), (60,), (4, 3, 5, 1)], ""),
    ("input_c", [(4, 2, 5), (2, 3, 5), (4, 3, 6), (4, 3, 0), (0, 3, 5), (3, 4, 5)], STATES),
    ("params", [(), (1, PARAMS_SIZE - 1), (PARAMS_SIZE // 5, 4)], str(PARAMS_SIZE)),
]


@pytest.mark.parametrize(
    "name, shape, part", [(name, shape, part) for name, all, part in WRONG_SHAPES for shape in all]
)
def test_shapes(name, shape, part):
    changes = {name: np.ones(shape, DTYPE)}
    assert_network_refuses([name, str(list(shape)), part], LSTM, changes)


@pytest.mark.parametrize("configuration", [LSTM, GRU], ids=lambda value: value.rnn_mode)
@pytest.mark.parametrize("change", [-1, -100, "none"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_too_few_params(configuration, version, change):
    """Too few params are an error; too many are not (see test_longer_params.py)."""
    good = reference.params_size(configuration)
    length = 0 if change == "none" else good + change
    changes = {"params": np.ones(length, DTYPE)}
    parts = ["params must have at least %d elements" % good, "has shape [%d]" % length]
    assert_network_refuses(parts, configuration, changes, version)


@pytest.mark.parametrize("shape", [(4, 3, 0), (4, 3, 6), (2, 3, 5), (6, 3, 5)])
def test_layers_and_units_of_input_h_must_fit_the_rest(shape):
    """Wrong layers or units do not fit params or input_c; the error may name any of them."""
    changes = {"input_h": np.ones(shape, DTYPE)}
    # A GRU with fewer layers has enough params, and no other input has the number of layers.
    for configuration in (LSTM,) if shape == (2, 3, 5) else (GRU, LSTM):
        inputs = dict(forward_inputs(configuration), **changes)
        parts = [("params must", "input_h must", "input_c must")]
        assert_refused(parts, "cudnn_rnn", inputs, **model_attributes(configuration))
    assert_network_refuses([], LSTM, changes)


def test_skip_input_with_unequal_sizes():
    parts = ["skip_input", "input_size", "4", "num_units", "5"]
    assert_network_refuses(parts, LSTM, {}, input_mode="skip_input")


@pytest.mark.parametrize("dropout", [-0.1, 1.5, np.nan, np.inf])
def test_dropout(dropout):
    assert_network_refuses(["dropout", str(dropout), "between 0 and 1"], LSTM, {}, dropout=dropout)


def test_sizes_without_elements_that_overflow(cpu_session):
    """Sizes that overflow are refused even with an empty batch, which allocates nothing."""

    def empty(*shape):
        # The graph creates the tensor: old NumPy versions have no empty arrays this large.
        return tf.zeros(tf.placeholder_with_default(np.array(shape, np.int64), [3]), DTYPE)

    inputs, states, params = empty(6, 0, HUGE), empty(4, 0, HUGE), tf.ones(PARAMS_SIZE, DTYPE)
    outputs = gen_cudnn_rnn_ops.cudnn_rnn(inputs, states, states, params, **model_attributes(LSTM))
    with pytest.raises(tf.errors.InvalidArgumentError, match=str(HUGE)):
        cpu_session.run(tf.shape(outputs[0]))


@pytest.mark.parametrize("name", FORWARD + tuple(name + "_backprop" for name in FORWARD))
def test_shapes_of_outputs_and_their_gradients(name):
    good = backward_inputs(LSTM)
    shape = good[name].shape
    wrong_shapes = [
        shape[1:],
        (shape[0] + 1,) + shape[1:],
        (shape[0], shape[1] - 1, shape[2]),
        shape[:2] + (shape[2] - 1,),
        (0,),
        (),
    ]
    for wrong in wrong_shapes:
        parts = [name + " must", str(list(wrong)), str(list(shape))]
        inputs = dict(good, **{name: np.ones(wrong, DTYPE)})
        assert_refused(parts, "cudnn_rnn_backprop", inputs, **model_attributes(LSTM))


def foreign_reserve_spaces(good):
    """Returns reserve spaces that no call of LSTM with BATCH and STEPS has made."""
    bytes_of_the_same_size = np.random.RandomState(0).bytes(good.nbytes)
    others = [
        (LSTM, dict(steps=STEPS + 1)),
        (LSTM, dict(steps=STEPS - 1)),
        (LSTM, dict(batch=BATCH + 1)),
        (LSTM, dict(batch=STEPS, steps=BATCH)),
        (LSTM._replace(num_units=6), {}),
        (LSTM._replace(input_size=5), {}),
        (GRU, {}),
        (SKIP, {}),
        (LSTM._replace(direction="unidirectional", num_layers=4), {}),
    ]
    return (
        [
            good[:0],
            good[:1],
            good[:-1],
            good[: good.size // 2],
            good[:64],  # only the header
            np.concatenate([good, good[:1]]),
            np.zeros_like(good),
            np.frombuffer(bytes_of_the_same_size, DTYPE),
            good[0],
            good.reshape(1, -1),
        ]
        + [
            backward_inputs(configuration, forward_inputs(configuration, **sizes))["reserve_space"]
            for configuration, sizes in others
        ]
    )


def test_reserve_space_of_another_call():
    good = backward_inputs(LSTM)
    for space in foreign_reserve_spaces(good["reserve_space"]):
        assert_reserve_space_refused(dict(good, reserve_space=space))


def test_reserve_space_of_every_size():
    """On a GPU, but not here, the number of elements says how the forward call was made."""
    good = backward_inputs(LSTM)
    for size in range(1, 65):
        inputs = dict(good, reserve_space=good["reserve_space"][:size])
        assert_reserve_space_refused(inputs, "bytes for this model and input, but has")


def test_reserve_space_of_other_attributes():
    """A reserve space from a call with another dropout is refused, although the shapes agree."""
    good = backward_inputs(LSTM)
    with_dropout = backward_inputs(LSTM, dropout=0.5)
    call_backward(LSTM, with_dropout, dropout=0.5)
    for other, dropout in ((good, 0.5), (with_dropout, 0.0), (with_dropout, 0.25)):
        inputs = dict(good, reserve_space=other["reserve_space"])
        assert_reserve_space_refused(inputs, dropout=dropout)


def test_reserve_space_of_an_equal_call_with_other_data():
    """A reserve space is refused if output_h is from another forward call."""
    good, inputs = backward_inputs(LSTM), forward_inputs(LSTM)
    for name, array in inputs.items():
        other = backward_inputs(LSTM, dict(inputs, **{name: array + np.float32(0.25)}))
        assert_reserve_space_refused(dict(good, reserve_space=other["reserve_space"]), "output_h")


def test_reserve_space_that_was_cast():
    """A graph optimizer that puts casts between a forward node and its gradient changes it."""
    good = backward_inputs(LSTM)
    with np.errstate(over="ignore"):
        space = good["reserve_space"].astype(np.float16).astype(DTYPE)
    parts = "has no header of a forward call", "auto_mixed_precision_cpu"
    assert_reserve_space_refused(dict(good, reserve_space=space), *parts)


@needs_tensorflow_2  # TensorFlow 1 has no such optimizer.
@pytest.mark.parametrize("version", [1, 3])
def test_a_graph_optimizer_that_casts(version, monkeypatch):
    monkeypatch.setenv("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE", "1")
    config = tf.ConfigProto()
    options = config.graph_options.rewrite_options
    options.auto_mixed_precision_cpu, options.min_graph_nodes = type(options).ON, -1
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        inputs = {name: tf.placeholder(DTYPE) for name in ("input", "input_h", "input_c", "params")}
        attributes = model_attributes(LSTM)
        if version == 3:
            inputs["sequence_lengths"] = tf.placeholder(tf.int32)
            node = gen_cudnn_rnn_ops.cudnn_rnnv3(**inputs, **attributes)
        else:
            node = gen_cudnn_rnn_ops.cudnn_rnn(**inputs, **attributes)
        gradients = tf.gradients(node.output, inputs["params"])
        arrays = dict(forward_inputs(LSTM), sequence_lengths=np.full([BATCH], STEPS))
        feeds = {placeholder: arrays[name] for name, placeholder in inputs.items()}
        fetches, metadata = [tf.identity(gradient) for gradient in gradients], tf.RunMetadata()
        run_options = tf.RunOptions(output_partition_graphs=True)
        try:
            session.run(fetches, feeds, options=run_options, run_metadata=metadata)
        except tf.errors.InvalidArgumentError as error:
            assert "auto_mixed_precision_cpu" in error.message
        else:  # A processor for which TensorFlow does not choose half.
            nodes = [node for graph in metadata.partition_graphs for node in graph.node]
            assert nodes and not [node.name for node in nodes if node.op == "Cast"]
        options.auto_mixed_precision_cpu = type(options).OFF
        with tf.Session(config=config) as other:
            assert np.isfinite(other.run(gradients, feeds)[0]).all()


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


@networks.unknown_modes
def test_unknown_modes(name, value):
    attributes = dict(model_attributes(LSTM), **{name: value})
    with pytest.raises(ValueError, match=name):
        call("cudnn_rnn", forward_inputs(LSTM), **attributes)


@pytest.mark.parametrize("name", ["input_h", "input_c", "params"])
def test_mixed_dtypes(name):
    inputs = forward_inputs(LSTM)
    inputs[name] = inputs[name].astype(np.float64)
    with pytest.raises((TypeError, ValueError), match=name):
        call("cudnn_rnn", inputs, **model_attributes(LSTM))
