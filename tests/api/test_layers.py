"""The layers in graph mode: values, nodes, names, sharing, and refused arguments."""

import functools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import layers
from cudnn_rnn.tf1_layers.layer_base import Layer
from helpers.layer_models import (
    BATCH,
    LAYER_COUNT,
    LAYERS,
    STEPS,
    UNITS,
    WIDTH,
    assert_like_reference,
    built_layer,
    make_inputs,
    make_states,
    set_params,
)
from helpers.rnn_models import DIRECTIONS, initialize, keys, params_size
from helpers.versions import needs_tensorflow_2


def make_layer(rnn_mode="lstm", direction="unidirectional", **named):
    return LAYERS[rnn_mode](LAYER_COUNT, UNITS, direction=direction, **named)


@pytest.mark.parametrize("with_states", [False, True])
def test_outputs_match_the_reference(session, rnn_mode, direction, with_states):
    layer = make_layer(rnn_mode, direction)
    inputs = make_inputs()
    states = make_states(layer) if with_states else None
    outputs, new_states = layer(tf.constant(inputs), initial_state=states, training=False)
    assert isinstance(new_states, tuple) and len(new_states) == (2 if rnn_mode == "lstm" else 1)
    params = set_params(session, layer)
    found = session.run([outputs, *new_states])
    assert_like_reference(found, layer, params, inputs, states=states)
    assert outputs.shape.as_list() == list(found[0].shape)
    assert [state.shape.as_list() for state in new_states] == list(layer.state_shape(BATCH))


@pytest.mark.parametrize("lengths", [None, [0, 5, 2]])
def test_batch_major_and_lengths(session, rnn_mode, lengths):
    """A batch-major layer's default state has the batch dimension first, unlike in the original."""
    layer = make_layer(rnn_mode, "bidirectional")
    inputs = make_inputs()
    by_batch, states_by_batch = layer(
        tf.constant(inputs.swapaxes(0, 1)), sequence_lengths=lengths, time_major=False
    )
    by_time, states_by_time = layer(tf.constant(inputs), sequence_lengths=lengths)
    assert by_batch.shape.as_list() == [BATCH, STEPS, 2 * UNITS]
    params = set_params(session, layer)
    found = session.run([by_time, *states_by_time])
    assert_like_reference(found, layer, params, inputs, lengths=lengths)
    for left, right in zip(session.run([by_batch, *states_by_batch]), found):
        np.testing.assert_array_equal(left.swapaxes(0, 1), right)


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("width", [None, WIDTH])
def test_unknown_dimensions(session, time_major, width):
    """A built layer knows the last dimension."""
    layer = built_layer("lstm", LAYER_COUNT)
    placeholder = tf.placeholder(tf.float32, [None, None, width])
    results = layer(placeholder, time_major=time_major)
    initialize(session)
    inputs = make_inputs(batch_major=not time_major)
    found, (h, c) = session.run(results, {placeholder: inputs})
    assert found.shape == inputs.shape[:2] + (UNITS,)
    expected = (LAYER_COUNT, BATCH, UNITS) if time_major else (BATCH, LAYER_COUNT, UNITS)
    assert h.shape == c.shape == expected


def test_the_oldest_possible_op_is_used(session):
    layer = make_layer("gru")
    layer(make_inputs())
    layer(make_inputs(), sequence_lengths=[1, 2, 3])
    layer(make_inputs(batch_major=True), time_major=False)
    types = [op.type for op in tf.get_default_graph().get_operations() if "CudnnRNN" in op.type]
    assert [name for name in types if "Params" not in name] == ["CudnnRNN"] + ["CudnnRNNV3"] * 2
    assert {op.device for op in tf.get_default_graph().get_operations()} == {""}


def test_training_positions_of_earlier_releases(session):
    """In generation D (1.5 to 1.12), `training` comes third, where `sequence_lengths` is now."""
    layer = make_layer("gru", dropout=0.5)
    inputs = tf.constant(make_inputs())
    calls = layer(inputs, None, False), layer(inputs, None, True), layer(inputs, training=False)
    for (outputs, _), expected in zip(calls + (layer(inputs),), (False, True, False, True)):
        assert outputs.op.type == "CudnnRNN"
        assert outputs.op.get_attr("is_training") is expected


def test_name_and_size_of_the_variable(session, rnn_mode, direction):
    layer = make_layer(rnn_mode, direction)
    assert layer.saveable is None
    layer.build([None, None, WIDTH])
    assert layer.kernel.name == "cudnn_%s/opaque_kernel:0" % rnn_mode
    directions = DIRECTIONS.index(direction) + 1
    size = params_size(rnn_mode, LAYER_COUNT, UNITS, WIDTH, directions)
    assert layer.kernel.shape.as_list() == [size]
    layer.kernel.set_shape([size])
    with pytest.raises(RuntimeError, match="Cudnn saveable already created"):
        layer._create_saveable()
    assert layer.trainable_variables == [layer.kernel] == tf.trainable_variables()
    assert {layer.trainable_variables[0]: 1}
    assert layer.input_size == WIDTH and layer.num_dirs == directions
    states = 2 if rnn_mode == "lstm" else 1
    assert layer.state_shape(7) == ([LAYER_COUNT * directions, 7, UNITS],) * states
    weights, biases = layer.canonical_weight_shapes, layer.canonical_bias_shapes
    assert len(weights) == len(biases) == layer._num_params_per_layer * LAYER_COUNT * directions
    numbers = range(LAYER_COUNT)
    assert sum((layer._canonical_weight_shape(number) for number in numbers), []) == weights
    assert sum((layer._canonical_bias_shape(number) for number in numbers), []) == biases
    assert weights[0] == (UNITS, WIDTH) and biases[0] == [UNITS]
    assert weights[-1] == (UNITS, UNITS) and weights[0][0] == biases[0][0] == UNITS
    assert sum(rows * columns for rows, columns in weights) + len(biases) * UNITS == size
    layer.build([None, None, WIDTH])  # no effect
    assert len(tf.global_variables()) == 1


def canonical(session, layer):
    """Builds and initializes a layer; returns the values of its matrices and of its biases."""
    layer.build([None, None, WIDTH])
    initialize(session)
    return session.run(layer.saveable.format_converter._opaque_to_cu_canonical(layer.kernel))


def test_initializers(session):
    calls = []

    def kernel_initializer(shape, dtype=None):
        calls.append((list(shape), dtype))
        return tf.fill(shape, tf.constant(float(len(calls)), dtype))

    two = tf.constant_initializer(2.0)
    layer = make_layer("gru", kernel_initializer=kernel_initializer, bias_initializer=two)
    weights, biases = canonical(session, layer)
    assert len(calls) == 12 and calls[0] == ([UNITS, WIDTH], tf.float32)
    assert all((weight == number).all() for number, weight in enumerate(weights, 1))
    assert all((bias == 2.0).all() for bias in biases)


def test_default_initializers(session):
    weights, biases = canonical(session, make_layer("lstm", bias_initializer=None))
    limit = np.sqrt(6.0 / (UNITS + WIDTH))
    assert all(np.abs(weight).max() <= limit and weight.std() > 0 for weight in weights)
    assert all((bias == 0).all() for bias in biases)


def test_skip_input(session, rnn_mode):
    """tensorflow#12284, #16042: skip_input did not run on any device and could not be saved."""
    layer = LAYERS[rnn_mode](LAYER_COUNT, WIDTH, input_mode="skip_input")
    inputs = make_inputs()
    outputs, states = layer(tf.constant(inputs))
    assert layer.canonical_weight_shapes[0] == (WIDTH, 0)
    params = set_params(session, layer)
    found = session.run([outputs, *states])
    assert_like_reference(found, layer, params, inputs, input_mode="skip_input")


def test_default_scopes_have_numbers(session):
    inputs = tf.constant(make_inputs())
    for rnn_mode, scope in ("gru", "cudnn_gru"), ("gru", "cudnn_gru_1"), ("lstm", "cudnn_lstm"):
        layer = make_layer(rnn_mode)
        layer(inputs)
        assert layer.kernel.op.name == scope + "/opaque_kernel"
    tf.train.Saver()  # tensorflow#13254, #22723: distinct keys


def test_scope_of_the_keys(session):
    """Keys use the scope of build()'s caller, or the layer's own scope if a call builds the layer.

    TensorFlow 1.15.5 does the same, so existing checkpoints have either form.
    """
    suffix = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel"
    with tf.variable_scope("outer"):
        built = built_layer("lstm", LAYER_COUNT, name="a")
        called = make_layer("lstm", name="b")
        called(tf.constant(make_inputs()))
    assert built.saveable.specs[0].name == "outer/" + suffix
    assert called.saveable.specs[0].name == "outer/b/" + suffix
    assert built.saveable.name == "outer/a/opaque_kernel_saveable"
    with tf.variable_scope("encoder") as scope:
        pass
    layer = make_layer("gru", name=scope)
    layer(inputs=make_inputs())
    assert layer.kernel.op.name == "encoder_1/opaque_kernel" and layer.scope_name == "encoder_1"
    saveables = [built.saveable, called.saveable, layer.saveable]
    assert tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) == saveables


@pytest.mark.parametrize("reuse", [True, tf.AUTO_REUSE])
def test_reuse_makes_one_saveable(session, reuse):
    made = []
    for reuse_here in (reuse if reuse is tf.AUTO_REUSE else False, reuse):
        with tf.variable_scope("main", reuse=reuse_here):
            made.append(make_layer("lstm", name="rnn"))
            made[-1](tf.constant(make_inputs()))
    first, second = made
    assert second.kernel is first.kernel
    assert second.saveable is (first.saveable if reuse is tf.AUTO_REUSE else None)
    assert tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) == [first.saveable]
    tf.train.Saver()


def test_reuse_by_a_build_and_by_a_call_makes_two_saveables(session):
    """A call builds its layer in the layer's own scope, which is part of the keys."""
    with tf.variable_scope("main", reuse=tf.AUTO_REUSE):
        with tf.variable_scope("rnn"):
            called = make_layer("lstm", name="rnn")
            called(tf.constant(make_inputs()))
        built = make_layer("lstm", name="rnn/rnn")
        built.build([None, None, WIDTH])
    assert built.kernel is called.kernel
    assert tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) == [called.saveable, built.saveable]
    assert not set(keys(built.saveable)) & set(keys(called.saveable))
    tf.train.Saver()


def test_reuse_of_another_size_is_refused(session):
    with tf.variable_scope("main"):
        built_layer("lstm", LAYER_COUNT, name="rnn")
    with tf.variable_scope("main", reuse=True):
        layer = layers.CudnnLSTM(1, 9, name="rnn")
        with pytest.raises(ValueError, match=r"main/rnn/opaque_kernel:0.* must have 504 elements"):
            layer.build([None, None, 3])


def test_partitioner_and_custom_getter(session):
    seen = []

    def getter(original, name, *arguments, **named):
        seen.append(name)
        return original(name, *arguments, **named)

    with tf.variable_scope("main", partitioner=tf.fixed_size_partitioner(3), custom_getter=getter):
        layer = built_layer("gru", name="rnn")
    assert seen == ["main/rnn/opaque_kernel"] and layer.kernel.op.name == seen[0]


def test_called_in_a_loop_and_outside(session):
    layer = make_layer("gru")

    def body(step, total):
        outputs, _ = layer(make_inputs())
        return step + 1, total + tf.reduce_sum(outputs)

    _, total = tf.while_loop(lambda step, _: step < 3, body, [0, 0.0])
    calls = [tf.reduce_sum(layer(make_inputs())[0]) for _ in range(2)]
    assert len(tf.global_variables()) == 1
    assert len(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)) == 1
    initialize(session)
    found, (first, second) = session.run([total, calls])
    assert first == second
    np.testing.assert_allclose(found, 3 * first, rtol=1e-5)


def test_only_calls_draw_seeds(session):
    tf.set_random_seed(7)
    layer = make_layer("gru", dropout=0.5)
    fixed = make_layer("gru", dropout=0.5, seed=3)
    nodes = [each(make_inputs())[0].op for each in (layer, layer, fixed)]
    assert [node.get_attr("seed") for node in nodes] == [7, 7, 7]
    first, second, of_fixed = (node.get_attr("seed2") for node in nodes)
    assert first != second and of_fixed == 3


def test_forward_of_an_unbuilt_layer(session):
    """`_forward` takes the signatures of up to 1.12 and of 1.15."""
    layer = make_layer("lstm")
    inputs, (h, c) = make_inputs(), make_states(layer)
    size = params_size("lstm", LAYER_COUNT, UNITS, WIDTH)
    params = np.random.RandomState(3).uniform(-1, 1, size).astype(np.float32)
    early = layer._forward(tf.constant(inputs), h, c, params, training=False)
    late = layer._forward(tf.constant(inputs), h, c, params, None, True, False)
    positional = layer._forward(tf.constant(inputs), h, c, params, False)
    for outputs, states in (early, late, positional):
        found = session.run([outputs, *states])
        assert_like_reference(found, layer, params, inputs, states=(h, c))
    gru = make_layer("gru")
    params = np.zeros(params_size("gru", LAYER_COUNT, UNITS, WIDTH), np.float32)
    outputs, _ = gru._forward(tf.constant(inputs), h, [], params, training=True)
    assert session.run(outputs).shape == (STEPS, BATCH, UNITS)


def test_canonical_to_opaque(session):
    layer = make_layer("gru")
    with pytest.raises(RuntimeError, match="unknown before the layer is built"):
        layer._canonical_to_opaque([], [])
    layer.build([None, None, WIDTH])
    initialize(session)
    converter = layer.saveable.format_converter
    opaque = layer._canonical_to_opaque(*converter._opaque_to_cu_canonical(layer.kernel))
    np.testing.assert_array_equal(*session.run([opaque, layer.kernel]))


def test_replaced_saveable_class(session):
    class Renamed(layers.CudnnLSTM._saveable_cls):
        def __init__(self, cell_names, *arguments, **named):
            self._cell_names = cell_names
            super().__init__(*arguments, **named)

        def _tf_canonical_name_prefix(self, layer, is_fwd=True):
            return "%s_%d" % (self._cell_names[0 if is_fwd else 1], layer)

    layer = make_layer("lstm", "bidirectional")
    layer._saveable_cls = functools.partial(Renamed, ["ahead", "back"])
    with tf.variable_scope("model"):
        layer.build([None, None, WIDTH])
    cells = ["model/%s_%d" % (name, index) for index in range(2) for name in ("ahead", "back")]
    expected = ["%s/%s" % (cell, name) for name in ("kernel", "bias") for cell in cells]
    assert keys(layer.saveable) == expected


@pytest.mark.parametrize(
    "shape",
    [
        [24.0, 3, 6],
        (None, "time", 6),
        [24.5, float("nan"), 6],
        [-1, -1, 6],
        [None, None, 6.0],
        (object(), {}, np.int64(6)),
        np.array([24.0, 3.0, 6.0]),
        tf.TensorShape([None, None, 6]),
        tf.TensorShape([24, 3, 6]),
        [None, None, tf.TensorShape([6])[0]],
        lambda: [tf.shape(tf.zeros([2]))[0], tf.placeholder(tf.int32), 6],
    ],
)
def test_build_reads_only_the_last_dimension(session, rnn_mode, shape):
    layer = make_layer(rnn_mode)
    layer.build(shape() if callable(shape) else shape)
    assert layer.input_size == 6 and isinstance(layer.input_size, int)
    assert layer.kernel.shape.as_list() == [params_size(rnn_mode, LAYER_COUNT, UNITS, 6)]


@pytest.mark.parametrize("last", [6.5, "width", -6, float("inf"), float("nan")])
def test_build_refuses_a_wrong_last_dimension(session, last):
    with pytest.raises(ValueError, match="^The last dimension of the input shape must be an integ"):
        make_layer().build([None, None, last])


def test_build_refuses(session):
    with pytest.raises(ValueError, match="must have three dimensions"):
        make_layer().build([None, 3])
    with pytest.raises(ValueError, match="must have three dimensions.* have shape <unknown>"):
        make_layer().build(None)
    with pytest.raises(ValueError, match=r"must have three dimensions.* have shape \[24, \?, \?\]"):
        make_layer().build([24, 3.5, None])
    with pytest.raises(ValueError, match=r"must have three dimensions.* have shape \[\]"):
        make_layer().build([])
    with pytest.raises(ValueError, match="input_size is 3 and num_units is 4"):
        layers.CudnnGRU(1, 4, input_mode="skip_input").build([None, None, 3])
    with pytest.raises(ValueError, match="layer must be between 0 and 1, but"):
        make_layer()._canonical_bias_shape(2)
    with pytest.raises(ValueError, match="input_size of CudnnLSTM is unknown"):
        make_layer().input_size  # noqa: B018
    with pytest.raises(ValueError, match="^cudnn_lstm has no scope_name before|not been used yet"):
        make_layer().scope_name  # noqa: B018
    with pytest.raises(RuntimeError, match="unknown before the layer is"):
        make_layer().canonical_weight_shapes  # noqa: B018


@needs_tensorflow_2
def test_a_layer_without_a_computation(session):
    class Unfinished(Layer):
        pass

    with pytest.raises(NotImplementedError, match="^Unfinished does not define call$"):
        Unfinished()(tf.zeros([4, 2, 3]))


def test_call_refuses(session):
    inputs, state = tf.zeros([4, 2, 3]), tf.zeros([2, 2, 4])

    def refused(error, message, *arguments, **named):
        with pytest.raises(error, match=message):
            make_layer()(*arguments, **named)

    refused(ValueError, r"inputs.* \[4, 3\]", tf.zeros([4, 3]))
    message = r"must have three dimensions, the last of which is known .*\[\?, \?, \?\]"
    refused(ValueError, message, tf.placeholder(tf.float32, [None, None, None]))
    refused(TypeError, "inputs must be of dtype float32", tf.cast(inputs, tf.float64))
    refused(TypeError, "initial_state must be a tuple", inputs, [1])
    refused(
        ValueError,
        r"be a tuple of 2 tensors, \(h, c\), but is a tuple of length 1",
        inputs,
        (state,),
    )
    message = r"initial_state must be a tuple of .*, but is a tensor of shape \[2, 2, 4\]\.$"
    refused(TypeError, message, inputs, state)
    message = "time and batch of inputs are exchanged: pass tf.transpose"
    refused(ValueError, message, tf.zeros([2, 4, 3]), (state, state))
    wrong = (tf.zeros([1, 2, 4]), state)
    refused(ValueError, r"input_h must have shape \[2, 2, 4\]", inputs, wrong)
    message = "sequence_lengths must have shape"
    refused(ValueError, message, inputs, sequence_lengths=[1, 2, 3])
    refused(TypeError, r"\btraining must be a bool", inputs, training="no")
    refused(TypeError, r"\bGot training", inputs, None, True, training=False)
    layer = built_layer("lstm")
    with pytest.raises(ValueError, match=r"inputs must have shape \[\?, \?, 3\].* \[4, 2, 9\]"):
        layer(tf.zeros([4, 2, 9]))
