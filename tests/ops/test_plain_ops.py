"""Models in `plain_ops` have the results and the gradients of the fused ops."""

import itertools
import threading

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn.graph import canonical, model_sizes, nodes
from cudnn_rnn.graph.config import rnn_config
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import RnnConfig
from helpers.op_harness import TOLERANCES, assert_close, swap_major
from helpers.sequence_cases import DTYPES, LENGTHS, LSTM, PROJECTED, arrays_for
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

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
    return rnn_config(seed=1, **fields)


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


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_results_and_gradients(case):
    compare(*case, "float64")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", MODES)
def test_unknown_batch_and_time(mode):
    model = LSTM._replace(rnn_mode=mode)
    compare(model, (LENGTHS["mixed"], False), "float64", static_shapes=False)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_dtypes(mode, dtype):
    compare(LSTM._replace(rnn_mode=mode), (LENGTHS["mixed"], True), dtype)


@pytest.mark.parametrize("static_shapes", [True, pytest.param(False, marks=needs_tensorflow_2)])
def test_no_steps(static_shapes):
    arrays = arrays_for(LSTM, LENGTHS["all zero"])
    for name in ("input", "output_backprop"):
        arrays[name] = arrays[name][:0]
    arrays = swap_major(arrays)
    expected, found = results(config_of(LSTM, "float64"), arrays, False, static_shapes)
    assert_close(found, expected, 0.0, "no steps")


def test_longer_params():
    """As the fused ops, the plain ones use the front of a longer buffer."""
    model = LSTM._replace(rnn_mode="gru")
    arrays = arrays_for(model, LENGTHS["full"])
    arrays["params"] = np.concatenate([arrays["params"], np.full([3], np.nan)])
    expected, found = results(config_of(model, "float64"), arrays, True, True)
    assert_close(found, expected, TOLERANCES["float64"], "longer")
    assert not found["d_params"][-3:].any()


def node_types():
    """Returns the types of the RNN nodes in the default graph."""
    graph_def = tf.get_default_graph().as_graph_def()
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes += function.node_def
    return {node.op for node in nodes if node.op.startswith("Cudnn")}


def run_op_level():
    model = cudnn_rnn.CudnnLSTM(2, 3, 4)
    params = tf.zeros([model.params_size()])
    model(tf.zeros([5, 2, 4]), tf.zeros([2, 2, 3]), tf.zeros([2, 2, 3]), params)
    weights, biases = model.params_to_canonical(params)
    model.canonical_to_params(weights, biases)


def run_function():
    cudnn_rnn.cudnn_rnn_ops.cudnn_gru(
        tf.zeros([5, 2, 4]), tf.zeros([1, 2, 3]), tf.zeros([81]), True
    )


def run_layer():
    layer = cudnn_rnn.layers.CudnnRNNTanh(2, 3, direction="bidirectional")
    layer(tf.zeros([5, 2, 4]), training=tf.placeholder(tf.bool, []))
    layer.saveable.specs  # noqa: B018


def run_keras_layer():
    from cudnn_rnn.keras import GRU

    GRU(3, reset_after=True, recurrent_activation="sigmoid")(tf.zeros([2, 5, 4]))


@pytest.mark.parametrize("build", [run_op_level, run_function, run_layer, run_keras_layer])
def test_every_interface(build):
    with tf.Graph().as_default():
        with cudnn_rnn.plain_ops():
            build()
        assert not node_types()
        build()
        assert "CudnnRNN" in {name[: len("CudnnRNN")] for name in node_types()}


def test_canonical_conversions():
    """They equal the ops' in both directions."""
    with tf.Graph().as_default(), tf.Session() as session:
        config = config_of(PROJECTED._replace(input_mode="skip_input", input_size=5), "float64")
        params = tf.constant(np.arange(layout.params_size(config), dtype=np.float64))
        with cudnn_rnn.plain_ops():
            parts = canonical.params_to_canonical(config, None, params)
            whole = canonical.canonical_to_params(config, None, *parts)
        expected = canonical.params_to_canonical(config, None, params)
        found, expected, whole = session.run([parts, expected, whole])
        for left, right in zip(sum(found, []), sum(expected, [])):
            np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(whole, np.arange(layout.params_size(config)))


def test_the_context_nests_and_belongs_to_a_thread():
    def build():
        with tf.Graph().as_default():
            run_function()
            return bool(node_types())

    in_thread = []
    with cudnn_rnn.plain_ops():
        with pytest.raises(KeyError), cudnn_rnn.plain_ops():
            raise KeyError
        assert not build()
        thread = threading.Thread(target=lambda: in_thread.append(build()))
        thread.start()
        thread.join()
    assert in_thread == [True] and build()


def test_unknown_sizes():
    with tf.Graph().as_default(), cudnn_rnn.plain_ops():
        model = cudnn_rnn.CudnnGRU(1, 3, 4)
        inputs = tf.placeholder(tf.float32, [None, None, None])
        model(inputs, tf.placeholder(tf.float32), tf.zeros([81]))  # the config has the sizes
        with pytest.raises(ValueError, match=r"unknown are num_layers \(.*\) and num_units"):
            cudnn_rnn.cudnn_rnn_ops.cudnn_gru(
                inputs, tf.placeholder(tf.float32), tf.zeros([81]), is_training=False
            )


@pytest.mark.parametrize(
    "input_mode, num_params, input_size",
    [
        ("linear_input", 81, 4),
        ("linear_input", 82, None),
        # The first layer has no input weights if input_size is 3.
        ("auto_select", 45, 3),
        ("auto_select", 46, None),
    ],
)
def test_input_size_from_the_number_of_parameters(input_mode, num_params, input_size):
    fields = dict(config_of(LSTM, "float32")._asdict(), rnn_mode="gru", input_mode=input_mode)
    fields.update(direction="unidirectional", num_layers=None, num_units=None, input_size=None)
    with tf.Graph().as_default():
        tensors = [tf.placeholder(tf.float32), tf.zeros([1, 2, 3]), tf.constant([])]
        found = model_sizes.with_sizes(RnnConfig(**fields), tensors + [tf.zeros([num_params])])
    assert (found.num_layers, found.num_units, found.input_size) == (1, 3, input_size)


@pytest.mark.parametrize("dropout", [0.25, 1.0])
def test_dropout(dropout):
    """With weights of one, an output of relu is the number of kept inputs, scaled."""
    units, batch = 50, 40
    with tf.Graph().as_default(), tf.Session() as session, cudnn_rnn.plain_ops():
        model = cudnn_rnn.CudnnRNNRelu(2, units, 1, dropout=dropout, input_mode="linear_input")
        sizes = [entry.shape for entry in layout.canonical_weights(model.config)]
        first, _, second, _ = (np.ones(size) for size in sizes)
        weights = [first, np.zeros([units, units]), second, np.zeros([units, units])]
        biases = [np.zeros([units])] * 4
        values = [value.astype(np.float32) for value in weights + biases]
        params = model.canonical_to_params(values[:4], values[4:])
        inputs = tf.ones([1, batch, 1])
        outputs = model(inputs, tf.zeros([2, batch, units]), params, is_training=True)[0]
        kept, again = (session.run(outputs)[0, :, 0] for _ in range(2))
    if dropout == 1.0:
        assert not kept.any()
        return
    assert (kept != again).any()
    kept = kept * (1 - dropout)
    np.testing.assert_allclose(kept, np.round(kept), atol=1e-4)
    assert abs(kept.mean() / units - (1 - dropout)) < 0.05


@pytest.mark.sampled(3)
@needs_tensorflow_2
@pytest.mark.parametrize("model, known", [(LSTM, True), (LSTM, False), (PROJECTED, True)])
def test_xla(model, known):
    """The forward pass and the gradients compile, with known and with unknown sizes."""
    arrays = {k: tf.constant(v) for k, v in arrays_for(model, LENGTHS["mixed"]).items()}
    names = ("input", "input_h", "input_c", "params")
    config = config_of(model, "float64")

    def run(*inputs):
        lengths = arrays["sequence_lengths"]
        with tensorflow.GradientTape() as tape:
            tape.watch(inputs)
            outputs = nodes.rnn(config, *inputs, True, sequence_lengths=lengths)
            backprops = [
                tf.where(tf.math.is_nan(b), tf.zeros_like(b), b)
                for b in (arrays[name + "_backprop"] for name in ("output", "output_h", "output_c"))
            ]
        return (*outputs, *tape.gradient(outputs, inputs, backprops))

    signature = None
    if not known:
        shapes = [[None, None, 4], [4, None, 5], [4, None, 5], [None]]
        signature = [tensorflow.TensorSpec(shape, tf.float64) for shape in shapes]
    compiled = tensorflow.function(run, jit_compile=True, input_signature=signature)
    inputs = [arrays[name] for name in names]
    expected = run(*inputs)
    with cudnn_rnn.plain_ops():
        found = compiled(*inputs)
        eager = run(*inputs)
    for results_of_plain in (found, eager):
        pairs = zip(results_of_plain, expected)
        found_by_place, expected_by_place = zip(*((a.numpy(), b.numpy()) for a, b in pairs))
        assert_close(
            dict(enumerate(found_by_place)), dict(enumerate(expected_by_place)), 1e-11, "XLA"
        )
