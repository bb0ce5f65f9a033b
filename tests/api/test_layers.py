"""The layers in graph mode: values, nodes, names, sharing, and refused arguments."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import layers
from helpers.layer_models import (
    BATCH,
    LAYER_COUNT,
    LAYERS,
    STEPS,
    UNITS,
    WIDTH,
    expected_results,
    make_inputs,
    set_params,
)
from helpers.op_harness import TOLERANCES, assert_close
from helpers.rnn_models import DIRECTIONS, initialize, params_size


def make_states(layer, dtype=np.float32):
    random = np.random.RandomState(2)
    return tuple(random.uniform(-1, 1, shape).astype(dtype) for shape in layer.state_shape(BATCH))


def make_layer(rnn_mode="lstm", direction="unidirectional", **named):
    return LAYERS[rnn_mode](LAYER_COUNT, UNITS, direction=direction, **named)


def check(found, expected, dtype="float32"):
    names = ["outputs", "h", "c"]
    assert_close(dict(zip(names, found)), dict(zip(names, expected)), TOLERANCES[dtype], "layer")


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_outputs_match_the_reference(session, rnn_mode, direction, with_states):
    layer = make_layer(rnn_mode, direction)
    inputs = make_inputs()
    states = make_states(layer) if with_states else None
    outputs, new_states = layer(tf.constant(inputs), initial_state=states, training=False)
    assert isinstance(new_states, tuple) and len(new_states) == (2 if rnn_mode == "lstm" else 1)
    initialize(session)
    set_params(session, layer)
    found = session.run([outputs] + list(new_states))
    check(found, expected_results(layer, session.run(layer.kernel), inputs, states))
    assert outputs.shape.as_list() == list(found[0].shape)
    shapes = [state.shape.as_list() for state in new_states]
    assert shapes == list(layer.state_shape(BATCH))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(session, dtype):
    layer = make_layer("gru", dtype=tf.as_dtype(dtype))
    inputs = make_inputs(dtype)
    outputs, states = layer(tf.constant(inputs), training=False)
    initialize(session)
    set_params(session, layer)
    assert layer.kernel.dtype.base_dtype == outputs.dtype == dtype
    assert layer.dtype == dtype
    params = session.run(layer.kernel)
    found = session.run([outputs] + list(states))
    expected = expected_results(layer, params.astype("f8"), inputs.astype("f8"))
    check(found, expected, dtype)


@pytest.mark.parametrize("lengths", [None, [0, 5, 2]])
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_batch_major_and_lengths(session, rnn_mode, lengths):
    """A batch-major layer's default state has the batch dimension first, unlike in the original."""
    layer = make_layer(rnn_mode, "bidirectional")
    inputs = make_inputs()
    by_batch, states_by_batch = layer(
        tf.constant(inputs.swapaxes(0, 1)), sequence_lengths=lengths, time_major=False
    )
    by_time, states_by_time = layer(tf.constant(inputs), sequence_lengths=lengths)
    assert by_batch.shape.as_list() == [BATCH, STEPS, 2 * UNITS]
    initialize(session)
    set_params(session, layer)
    found = session.run([by_time] + list(states_by_time))
    check(found, expected_results(layer, session.run(layer.kernel), inputs, lengths=lengths))
    for left, right in zip(session.run([by_batch] + list(states_by_batch)), found):
        np.testing.assert_array_equal(left.swapaxes(0, 1), right)


def test_unknown_batch_and_time(session):
    layer = make_layer("lstm")
    placeholder = tf.placeholder(tf.float32, [None, None, WIDTH])
    for time_major in (True, False):
        outputs, states = layer(placeholder, time_major=time_major)
        initialize(session)
        inputs = make_inputs(batch_major=not time_major)
        found, (h, c) = session.run([outputs, states], {placeholder: inputs})
        assert found.shape == inputs.shape[:2] + (UNITS,)
        expected = (LAYER_COUNT, BATCH, UNITS) if time_major else (BATCH, LAYER_COUNT, UNITS)
        assert h.shape == c.shape == expected


def test_only_the_last_dimension_is_known(session):
    layer = make_layer("gru")
    placeholder = tf.placeholder(tf.float32, [None, None, None])
    layer.build([None, None, WIDTH])
    outputs, _ = layer(placeholder)
    initialize(session)
    assert session.run(outputs, {placeholder: make_inputs()}).shape == (STEPS, BATCH, UNITS)


def test_the_oldest_possible_op_is_used(session):
    layer = make_layer("gru")
    inputs = tf.constant(make_inputs())
    layer(inputs)
    layer(inputs, sequence_lengths=[1, 2, 3])
    layer(tf.constant(make_inputs(batch_major=True)), time_major=False)
    types = [op.type for op in tf.get_default_graph().get_operations() if "CudnnRNN" in op.type]
    assert [name for name in types if "Params" not in name] == ["CudnnRNN"] + ["CudnnRNNV3"] * 2
    devices = {op.device for op in tf.get_default_graph().get_operations()}
    assert devices == {""}


def test_training_positions_of_earlier_releases(session):
    """In generation D (1.5 to 1.12), `training` comes third, where `sequence_lengths` is now."""
    layer = make_layer("gru", dropout=0.5)
    inputs = tf.constant(make_inputs())
    calls = [
        (layer(inputs, None, False), False),
        (layer(inputs, None, True), True),
        (layer(inputs, training=False), False),
        (layer(inputs), True),
    ]
    for (outputs, _), expected in calls:
        assert outputs.op.type == "CudnnRNN"
        assert outputs.op.get_attr("is_training") is expected


def test_is_training_as_a_tensor(session, fixed_dropout_pattern):
    """tensorflow#13860: `training` can be a tensor."""
    layer = make_layer("lstm", dropout=0.9)
    inputs = tf.constant(make_inputs())
    training = tf.placeholder(tf.bool, [])
    outputs, _ = layer(inputs, training=training)
    plain, _ = layer(inputs, training=False)
    initialize(session)
    without, expected = session.run([outputs, plain], {training: False})
    np.testing.assert_array_equal(without, expected)
    assert (session.run(outputs, {training: True}) != expected).any()


def test_gradient_and_optimizer_slots(session):
    """tensorflow#6620, #9422, #20571: slots need a static shape."""
    layer = make_layer("lstm", "bidirectional")
    outputs, _ = layer(tf.constant(make_inputs()))
    loss = tf.reduce_sum(tf.square(outputs))
    averages = tf.train.ExponentialMovingAverage(0.9)
    optimizer = tf.train.AdamOptimizer(0.1)
    train = optimizer.minimize(loss)
    with tf.control_dependencies([train]):
        train = averages.apply(layer.trainable_variables)
    slot = optimizer.get_slot(layer.kernel, "m")
    assert slot.shape.as_list() == layer.kernel.shape.as_list()
    assert averages.average(layer.kernel).shape.as_list() == layer.kernel.shape.as_list()
    initialize(session)
    before = session.run(loss)
    for _ in range(10):
        session.run(train)
    assert session.run(loss) < before


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_name_and_size_of_the_variable(session, rnn_mode, direction):
    layer = make_layer(rnn_mode, direction)
    assert layer.saveable is None
    layer.build([None, None, WIDTH])
    scope = {"lstm": "cudnn_lstm", "gru": "cudnn_gru"}.get(
        rnn_mode, "cudnn_rnn_" + rnn_mode.split("_")[-1]
    )
    assert layer.kernel.name == scope + "/opaque_kernel:0"
    directions = DIRECTIONS.index(direction) + 1
    size = params_size(rnn_mode, LAYER_COUNT, UNITS, WIDTH, directions)
    assert layer.kernel.shape.as_list() == [size]
    layer.kernel.set_shape([size])
    assert layer.trainable_variables == [layer.kernel] == tf.trainable_variables()
    assert {layer.trainable_variables[0]: 1}
    assert layer.input_size == WIDTH and layer.num_dirs == directions
    weights, biases = layer.canonical_weight_shapes, layer.canonical_bias_shapes
    assert len(weights) == len(biases) == layer._num_params_per_layer * LAYER_COUNT * directions
    for shapes, of_layer in (
        (weights, layer._canonical_weight_shape),
        (biases, layer._canonical_bias_shape),
    ):
        assert sum((of_layer(number) for number in range(LAYER_COUNT)), []) == shapes
    assert weights[0] == (UNITS, WIDTH) and biases[0] == [UNITS]
    assert weights[-1] == (UNITS, UNITS) and weights[0][0] == biases[0][0] == UNITS
    assert sum(rows * columns for rows, columns in weights) + len(biases) * UNITS == size
    layer.build([None, None, WIDTH])  # no effect
    assert len(tf.global_variables()) == 1


def test_state_shape(session):
    assert make_layer("lstm", "bidirectional").state_shape(7) == ([4, 7, 4], [4, 7, 4])
    assert make_layer("gru").state_shape(7) == ([2, 7, 4],)


def test_initializers(session):
    calls = []

    def kernel_initializer(shape, dtype=None):
        calls.append((list(shape), dtype))
        return tf.fill(shape, tf.constant(float(len(calls)), dtype))

    layer = make_layer(
        "gru", kernel_initializer=kernel_initializer, bias_initializer=tf.constant_initializer(-2.0)
    )
    layer.build([None, None, WIDTH])
    initialize(session)
    weights, biases = session.run(
        layer.saveable.format_converter._opaque_to_cu_canonical(layer.kernel)
    )
    assert len(calls) == 12 and calls[0] == ([UNITS, WIDTH], tf.float32)
    for index, weight in enumerate(weights):
        np.testing.assert_array_equal(weight, index + 1.0)
    for bias in biases:
        np.testing.assert_array_equal(bias, -2.0)


def test_default_initializers(session):
    layer = make_layer("lstm", bias_initializer=None)
    layer.build([None, None, WIDTH])
    initialize(session)
    weights, biases = session.run(
        layer.saveable.format_converter._opaque_to_cu_canonical(layer.kernel)
    )
    limit = np.sqrt(6.0 / (UNITS + WIDTH))
    assert all(np.abs(weight).max() <= limit and weight.std() > 0 for weight in weights)
    assert all((bias == 0).all() for bias in biases)


@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_skip_input(session, rnn_mode):
    """tensorflow#12284, #16042: skip_input did not run on any device and could not be saved."""
    layer = LAYERS[rnn_mode](LAYER_COUNT, WIDTH, input_mode="skip_input")
    inputs = make_inputs()
    outputs, states = layer(tf.constant(inputs))
    assert layer.canonical_weight_shapes[0] == (WIDTH, 0)
    initialize(session)
    set_params(session, layer)
    expected = expected_results(layer, session.run(layer.kernel), inputs, input_mode="skip_input")
    check(session.run([outputs] + list(states)), expected)


def test_default_scopes_have_numbers(session):
    inputs = tf.constant(make_inputs())
    made = [make_layer("gru"), make_layer("gru"), make_layer("lstm")]
    for layer in made:
        layer(inputs)
    assert [layer.kernel.op.name for layer in made] == [
        "cudnn_gru/opaque_kernel",
        "cudnn_gru_1/opaque_kernel",
        "cudnn_lstm/opaque_kernel",
    ]
    tf.train.Saver()  # tensorflow#13254, #22723: distinct keys


def test_scope_of_the_keys(session):
    """Keys use the scope of build()'s caller, or the layer's own scope if a call builds the layer.

    TensorFlow 1.15.5 does the same, so existing checkpoints have either form.
    """
    suffix = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel"
    with tf.variable_scope("outer"):
        built = make_layer("lstm", name="a")
        built.build([None, None, WIDTH])
        called = make_layer("lstm", name="b")
        called(tf.constant(make_inputs()))
    assert built.saveable.specs[0].name == "outer/" + suffix
    assert called.saveable.specs[0].name == "outer/b/" + suffix
    assert built.saveable.name == "outer/a/opaque_kernel_saveable"
    assert tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS) == [built.saveable, called.saveable]


def test_name_as_a_variable_scope(session):
    with tf.variable_scope("encoder") as scope:
        pass
    layer = make_layer("gru", name=scope)
    layer(inputs=tf.constant(make_inputs()))
    assert layer.kernel.op.name == "encoder_1/opaque_kernel" and layer.scope_name == "encoder_1"


def test_called_several_times(session):
    layer = make_layer("gru")
    first, _ = layer(tf.constant(make_inputs()))
    second, _ = layer(tf.constant(make_inputs()))
    initialize(session)
    np.testing.assert_array_equal(*session.run([first, second]))
    assert len(tf.global_variables()) == 1
    assert len(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)) == 1


def test_reuse(session):
    with tf.variable_scope("main"):
        first = make_layer("lstm", name="rnn")
        first(tf.constant(make_inputs()))
    with tf.variable_scope("main", reuse=True):
        second = make_layer("lstm", name="rnn")
        second(tf.constant(make_inputs()))
    assert second.kernel is first.kernel and second.saveable is None
    assert len(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)) == 1


def test_auto_reuse_makes_one_saveable(session):
    towers = []
    for _ in range(2):
        with tf.variable_scope("main", reuse=tf.AUTO_REUSE):
            towers.append(make_layer("lstm", name="rnn"))
            towers[-1](tf.constant(make_inputs()))
    assert towers[0].kernel is towers[1].kernel
    assert towers[0].saveable is towers[1].saveable
    assert len(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)) == 1
    tf.train.Saver()


def test_reuse_of_another_size_is_refused(session):
    with tf.variable_scope("main"):
        make_layer("lstm", name="rnn").build([None, None, WIDTH])
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
        layer = make_layer("gru", name="rnn")
        layer.build([None, None, WIDTH])
    assert seen == ["main/rnn/opaque_kernel"] and layer.kernel.op.name == seen[0]


def test_built_in_a_loop(session):
    layer = make_layer("gru")
    inputs = tf.constant(make_inputs())

    def body(step, total):
        outputs, _ = layer(inputs)
        return step + 1, total + tf.reduce_sum(outputs)

    _, total = tf.while_loop(lambda step, _: step < 3, body, [0, 0.0])
    outside, _ = layer(inputs)
    initialize(session)
    found, once = session.run([total, tf.reduce_sum(outside)])
    np.testing.assert_allclose(found, 3 * once, rtol=1e-5)


def test_only_calls_draw_seeds(session):
    tf.set_random_seed(7)
    layer = make_layer("gru", dropout=0.5)
    seeds = []
    for _ in range(2):
        outputs, _ = layer(tf.constant(make_inputs()))
        seeds.append((outputs.op.get_attr("seed"), outputs.op.get_attr("seed2")))
    assert seeds[0][0] == seeds[1][0] == 7 and seeds[0] != seeds[1]
    fixed = make_layer("gru", dropout=0.5, seed=3)
    outputs, _ = fixed(tf.constant(make_inputs()))
    assert (outputs.op.get_attr("seed"), outputs.op.get_attr("seed2")) == (7, 3)


def test_create_saveable_twice(session):
    layer = make_layer("gru")
    layer.build([None, None, WIDTH])
    with pytest.raises(RuntimeError, match="Cudnn saveable already created"):
        layer._create_saveable()


def test_forward_of_an_unbuilt_layer(session):
    """`_forward` takes the signatures of up to 1.12 and of 1.15."""
    layer = make_layer("lstm")
    inputs, (h, c) = make_inputs(), make_states(layer)
    size = params_size("lstm", LAYER_COUNT, UNITS, WIDTH)
    params = np.random.RandomState(3).uniform(-1, 1, size).astype(np.float32)
    early = layer._forward(tf.constant(inputs), h, c, params, training=False)
    late = layer._forward(tf.constant(inputs), h, c, params, None, True, False)
    positional = layer._forward(tf.constant(inputs), h, c, params, False)
    expected = expected_results(layer, params, inputs, (h, c))
    for outputs, states in (early, late, positional):
        check(session.run([outputs] + list(states)), expected)
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
        def _tf_canonical_name_prefix(self, layer, is_fwd=True):
            return "cell_%d" % layer

    layer = make_layer("lstm")
    layer._saveable_cls = Renamed
    layer.build([None, None, WIDTH])
    assert [spec.name for spec in layer.saveable.specs] == [
        "cell_0/kernel",
        "cell_1/kernel",
        "cell_0/bias",
        "cell_1/bias",
    ]


CONSTRUCTOR_ERRORS = [
    (dict(num_layers=0), ValueError, "num_layers must be between 1 and"),
    (dict(num_units=2.5), TypeError, "num_units must be a positive integer, but is 2.5"),
    (dict(input_mode="skip"), ValueError, "input_mode must be one of .* but is 'skip'"),
    (dict(direction="both"), ValueError, "direction must be one of .* but is 'both'"),
    (dict(dropout=1.5), ValueError, "dropout must be between 0 and 1"),
    (dict(dtype=tf.int32), ValueError, "dtype must be float16, float32.* but is tf.int32"),
    (dict(seed="1"), TypeError, "seed must be an integer or None, but is '1'"),
]


@pytest.mark.parametrize("named, error, message", CONSTRUCTOR_ERRORS)
def test_constructor_refuses(session, named, error, message):
    with pytest.raises(error, match=message):
        layers.CudnnLSTM(**dict(dict(num_layers=2, num_units=4), **named))


CALL_ERRORS = [
    (lambda layer: layer(tf.zeros([4, 3])), ValueError, r"inputs.* \[4, 3\]"),
    (
        lambda layer: layer(tf.placeholder(tf.float32, [None, None, None])),
        ValueError,
        r"must have three dimensions, the last of which is known .*\[\?, \?, \?\]",
    ),
    (lambda layer: layer.build([None, 3]), ValueError, "must have three dimensions"),
    (lambda layer: layer(tf.zeros([4, 2, 3]), [1]), TypeError, "initial_state must be a tuple"),
    (
        lambda layer: layer(tf.zeros([4, 2, 3]), (tf.zeros([2, 2, 4]),)),
        ValueError,
        "initial_state must be a tuple of 2 tensors, but has 1",
    ),
    (
        lambda layer: layer(tf.zeros([4, 2, 3]), (tf.zeros([1, 2, 4]), tf.zeros([2, 2, 4]))),
        ValueError,
        r"input_h must have shape \[2, 2, 4\]",
    ),
    (
        lambda layer: layer(tf.zeros([4, 2, 3], tf.float64)),
        TypeError,
        "inputs must be of dtype float32",
    ),
    (
        lambda layer: layer(tf.zeros([4, 2, 3]), sequence_lengths=[1, 2, 3]),
        ValueError,
        "sequence_lengths must have shape",
    ),
    (
        lambda layer: layer(tf.zeros([4, 2, 3]), training="no"),
        TypeError,
        r"\btraining must be a bool",
    ),
    (
        lambda layer: layer(tf.zeros([4, 2, 3]), None, True, training=False),
        TypeError,
        r"\bGot training",
    ),
    (
        lambda layer: layer._canonical_bias_shape(2),
        ValueError,
        "layer must be between 0 and 1, but",
    ),
    (lambda layer: layer.input_size, ValueError, "input_size of CudnnLSTM is unknown"),
    (lambda layer: layer.canonical_weight_shapes, RuntimeError, "unknown before the layer is"),
]


@pytest.mark.parametrize("call, error, message", CALL_ERRORS)
def test_call_refuses(session, call, error, message):
    with pytest.raises(error, match=message):
        call(make_layer("lstm"))


def test_inputs_of_another_size_are_refused(session):
    layer = make_layer("lstm")
    layer(tf.zeros([4, 2, 3]))
    with pytest.raises(ValueError, match=r"inputs must have shape \[\?, \?, 3\].* \[4, 2, 9\]"):
        layer(tf.zeros([4, 2, 9]))


def test_skip_input_of_another_size_is_refused(session):
    layer = layers.CudnnGRU(1, 4, input_mode="skip_input")
    with pytest.raises(ValueError, match="input_size is 3 and num_units is 4"):
        layer.build([None, None, 3])


def test_dropout_in_one_layer_is_warned_about(session):
    """tensorflow#6466: dropout in a single layer has no effect, so a warning is issued."""
    with pytest.warns(UserWarning, match="dropout=0.5 has no effect in a CudnnGRU of one layer"):
        layers.CudnnGRU(1, 4, dropout=0.5)
