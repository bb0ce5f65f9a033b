"""Layers whose variable a custom getter of the variable scope replaces.

The original builds and trains with such getters, but fails as soon as a default Saver is made.
"""

import contextlib
import functools
import re
import warnings

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from cudnn_rnn._compat import IS_TENSORFLOW_1
from helpers.checkpoints import assert_all_equal, zeroed_and_restored
from helpers.golden import read_checkpoint
from helpers.layer_models import LAYER_COUNT, LAYERS, SAVEABLES, UNITS, WIDTH, make_inputs
from helpers.restoring import random_values
from helpers.rnn_models import initialize, keys
from helpers.versions import needs_tensorflow_2


def noise(getter, *arguments, **named):
    variable = getter(*arguments, **named)
    return variable + tf.random_normal([tf.size(variable)], stddev=0.01)


def stored_in_float32(getter, name, shape=None, dtype=None, initializer=None, **named):
    """Mixed precision: the variable is a cast of the layer's parameters."""
    initializer = tf.cast(initializer, tf.float32)
    return tf.cast(getter(name, shape, tf.float32, initializer, **named), dtype)


def published(getter, name, shape=None, dtype=None, initializer=None, trainable=True, **named):
    """The getter of many programs; the dtype of an initial value overrides its float32."""
    variable = getter(name, shape, tf.float32, initializer, trainable=trainable, **named)
    return tf.cast(variable, dtype)


def through(function):
    return lambda getter, *arguments, **named: function(getter(*arguments, **named))


@tf.custom_gradient
def with_scaled_gradient(value):
    return tf.identity(value), lambda gradient: 0.5 * gradient


def autocast(variable):
    if IS_TENSORFLOW_1:
        from tensorflow.python.keras.mixed_precision.experimental import autocast_variable

        return autocast_variable.AutoCastVariable(variable)
    from tensorflow.python.keras.mixed_precision import autocast_variable

    return autocast_variable.create_autocast_variable(variable)


# Getters whose result has the values of one variable.
SAME_VALUES = {
    "identity": through(tf.identity),
    "read": through(lambda variable: variable.read_value()),
    "stop_gradient": through(tf.stop_gradient),
    "scaled_gradient": through(with_scaled_gradient),
    "check_numerics": through(lambda variable: tf.debugging.check_numerics(variable, "kernel")),
    "two": through(lambda variable: tf.identity(tf.stop_gradient(variable))),
}


def make_layer(getter, rnn_mode="lstm", dtype=tf.float32, use_resource=None, **named):
    """Returns a called layer in the scope `model`, and its outputs."""
    with tf.variable_scope("model", custom_getter=getter, use_resource=use_resource):
        layer = LAYERS[rnn_mode](LAYER_COUNT, UNITS, dtype=dtype, name="rnn", **named)
        inputs = tf.constant(make_inputs(dtype.as_numpy_dtype))
        return layer, layer(inputs)[0]


@contextlib.contextmanager
def no_warnings():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*custom getter")
        yield


def check_saver(session, layer, variable, tmp_path):
    """Saves and restores with a default Saver and the saveable; returns the cells' tensors."""
    initialize(session)
    values = random_values(variable.shape.num_elements())
    biases = sum(shape[0] for shape in layer.canonical_bias_shapes)
    values[-biases:] = 0.25  # halves of the sums are exact
    variable.load(values, session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    saved = read_checkpoint(path)
    np.testing.assert_array_equal(saved.pop(variable.op.name), values)
    assert set(saved) == set(keys(layer.saveable)) != set()
    for saver in tf.train.Saver([layer.saveable]), tf.train.Saver():
        assert_all_equal(zeroed_and_restored(session, saver, path, [variable]), [values])
    return saved


@pytest.mark.sampled(8)
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_float32_storage_of_half(session, tmp_path, rnn_mode, direction, use_resource):
    with no_warnings():
        layer, outputs = make_layer(
            stored_in_float32, rnn_mode, tf.float16, use_resource, direction=direction
        )
    (variable,) = tf.trainable_variables()
    assert outputs.dtype == tf.float16 and variable.dtype.base_dtype == tf.float32
    saved = check_saver(session, layer, variable, tmp_path)
    assert {value.dtype.name for value in saved.values()} == {"float32"}
    # A layer of float32 without a getter has the same keys and restores the same checkpoint.
    expected = session.run(variable)
    with tf.Graph().as_default(), tf.Session() as other:
        plain, _ = make_layer(None, rnn_mode, direction=direction)
        tf.train.Saver().restore(other, str(tmp_path / "model"))
        np.testing.assert_array_equal(other.run(plain.kernel), expected)


def test_half_trains_in_float32(session):
    layer, outputs = make_layer(stored_in_float32, "gru", tf.float16)
    train = tf.train.GradientDescentOptimizer(2.0**-12).minimize(tf.reduce_mean(outputs))
    initialize(session)
    before = session.run(tf.trainable_variables())[0]
    session.run(train)
    after = session.run(tf.trainable_variables())[0]
    assert np.any(after != before) and np.abs(after - before).max() < 2e-4
    np.testing.assert_array_equal(session.run(layer.kernel), after.astype(np.float16))


@pytest.mark.parametrize("use_resource", [False, True])
def test_the_published_getter_keeps_half(session, tmp_path, use_resource):
    """The variable has the dtype of its initial value, here as in the original."""
    with no_warnings():
        layer, _ = make_layer(published, "rnn_tanh", tf.float16, use_resource)
    (variable,) = tf.trainable_variables()
    assert variable.dtype.base_dtype == tf.float16
    initialize(session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    assert {value.dtype.name for value in read_checkpoint(path).values()} == {"float16"}
    assert set(keys(layer.saveable)) < set(read_checkpoint(path))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("name", sorted(SAME_VALUES))
def test_values_of_one_variable(session, tmp_path, name, use_resource):
    with no_warnings():
        layer, _ = make_layer(SAME_VALUES[name], "rnn_relu", use_resource=use_resource)
    (variable,) = tf.trainable_variables()
    check_saver(session, layer, variable, tmp_path)


def test_variables_of_keras_mixed_precision(session, tmp_path):
    """In TensorFlow 1 these are not instances of `tf.Variable`."""
    with no_warnings():
        layer, _ = make_layer(through(autocast), use_resource=True)
    (variable,) = tf.trainable_variables()
    check_saver(session, layer, variable, tmp_path)


@pytest.mark.parametrize("getter", [None, through(tf.identity)])
def test_mirrored_variables(session, tmp_path, getter):
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope(), no_warnings():
        layer, _ = make_layer(getter, use_resource=True)
    initialize(session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    (variable,) = tf.global_variables()
    expected = session.run(layer.kernel)
    session.run(variable.assign(tf.zeros_like(layer.kernel)))
    tf.train.Saver().restore(session, path)
    np.testing.assert_array_equal(session.run(layer.kernel), expected)
    assert set(keys(layer.saveable)) < set(read_checkpoint(path))


def other_shape(variable):
    return tf.reshape(variable, [1, -1])[0]


def quantized(getter, name, shape=None, initializer=None, **named):
    initializer = tf.cast(initializer, tf.int32)
    named.update(dtype=tf.int32, use_resource=False)
    return tf.cast(getter(name, shape, initializer=initializer, **named), tf.float32)


def partitioned(getter, *arguments, **named):
    return getter(*arguments, **dict(named, partitioner=tf.fixed_size_partitioner(2)))


def uncollected(getter, *arguments, **named):
    return tf.identity(getter(*arguments, **dict(named, collections=["mine"])))


# Getters whose result has not the values of one variable of the graph's collections.
OTHER_VALUES = {
    "noise": (noise, r"custom getter noise \(test_custom_getters.py:\d+\) returned the \w*Tensor"),
    "scaled": (through(lambda variable: 2 * variable), r"custom getter through.<locals>.<lambda>"),
    "reshaped": (through(other_shape), "custom getter through"),
    "quantized": (quantized, "custom getter quantized"),
    "partitioned": (partitioned, "custom getter partitioned .*the PartitionedVariable model/rnn"),
    "uncollected": (functools.partial(uncollected), "custom getter uncollected"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(OTHER_VALUES))
@pytest.mark.parametrize("rnn_mode", sorted(LAYERS))
def test_other_values_have_no_saveable(session, tmp_path, rnn_mode, name):
    """One warning, no saveable; the layer trains, and Savers hold the variables."""
    getter, message = OTHER_VALUES[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer, outputs = make_layer(getter, rnn_mode)
    (warning,) = [one for one in caught if "custom getter" in str(one.message)]
    cls = SAVEABLES[rnn_mode].__name__
    for part in (message, "variable model/rnn/opaque_kernel of %s" % type(layer).__name__, cls):
        assert re.search(part, str(warning.message)), str(warning.message)
    assert layer.saveable is None
    assert not tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
    if name == "uncollected":
        return
    variables = tf.global_variables()
    initialize(session)
    if name != "quantized":
        assert all(g is not None for g in tf.gradients(outputs, tf.trainable_variables()))
    saver = tf.train.Saver()
    path = saver.save(session, str(tmp_path / "model"))
    assert set(read_checkpoint(path)) == {"model/rnn/opaque_kernel"}
    expected = session.run(variables)
    assert_all_equal(zeroed_and_restored(session, saver, path, variables), expected)


def test_the_saveable_that_the_warning_advises(session, tmp_path):
    with pytest.warns(UserWarning, match="custom getter noise"):
        make_layer(noise)
    (variable,) = tf.trainable_variables()
    saveable = SAVEABLES["lstm"](variable, LAYER_COUNT, UNITS, WIDTH, scope="model/rnn")
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    initialize(session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default():
        layer, _ = make_layer(None)
        assert set(read_checkpoint(path)) == {"model/rnn/opaque_kernel"} | set(keys(layer.saveable))


def test_monitored_sessions(tmp_path):
    """They make a default Saver, and restore from its checkpoints."""
    values = []
    for _ in range(2):
        with tf.Graph().as_default():
            with pytest.warns(UserWarning, match="custom getter noise"):
                _, outputs = make_layer(noise)
            step = tf.train.get_or_create_global_step()
            optimizer = tf.train.GradientDescentOptimizer(0.1)
            train = optimizer.minimize(tf.reduce_sum(outputs), global_step=step)
            (variable,) = tf.trainable_variables()
            options = dict(checkpoint_dir=str(tmp_path), save_checkpoint_steps=1)
            with tf.train.MonitoredTrainingSession(**options) as session:
                values.append(session.run(variable))
                session.run(train)
                values.append(session.run(variable))
    assert np.any(values[0] != values[1])
    np.testing.assert_array_equal(values[1], values[2])


def test_all_getters_are_named(session):
    class Getter:
        def __call__(self, getter, *arguments, **named):
            return getter(*arguments, **named)

    with tf.variable_scope("a", custom_getter=noise), tf.variable_scope("b", custom_getter=noise):
        with pytest.warns(UserWarning, match=r"custom getters \S+Getter in noise .* in noise "):
            make_layer(Getter())
    with tf.variable_creator_scope(lambda create, **named: 2 * create(**named)):
        with pytest.warns(UserWarning, match="^A variable creator returned"):
            make_layer(None)


def test_reuse_needs_no_saveable(session):
    with pytest.warns(UserWarning, match="custom getter noise"):
        make_layer(noise)
    with no_warnings(), tf.variable_scope(tf.get_variable_scope(), reuse=True):
        layer, _ = make_layer(noise)
    assert layer.saveable is None and len(tf.global_variables()) == 1


@needs_tensorflow_2
def test_object_based_checkpoints_of_half(session, tmp_path):
    layer, _ = make_layer(stored_in_float32, "gru", tf.float16)
    (variable,) = tf.global_variables()
    initialize(session)
    checkpoint = tf.train.Checkpoint(rnn=layer)
    session.run(checkpoint.save_counter.initializer)
    matrices = session.run(layer.saveable.specs[0].tensor)
    path = checkpoint.save(str(tmp_path / "model"))
    saved = [value for key, value in read_checkpoint(path).items() if key.startswith("rnn/cell-0/")]
    assert [value.dtype for value in saved] == [np.float32] * 6
    session.run(variable.assign(tf.zeros_like(variable)))
    checkpoint.restore(path).assert_consumed().run_restore_ops(session)
    np.testing.assert_array_equal(session.run(layer.saveable.specs[0].tensor), matrices)


@pytest.mark.sampled(4)
def test_slots_of_cells_for_half(session, tmp_path):
    layer, outputs = make_layer(stored_in_float32, "lstm", tf.float16)
    optimizer = tf.train.AdamOptimizer()
    optimizer.minimize(tf.reduce_mean(tf.cast(outputs, tf.float32)))
    saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))
    initialize(session)
    saved = read_checkpoint(saver.save(session, str(tmp_path / "model")))
    for key in keys(layer.saveable):
        assert saved[key].dtype == saved[key + "/Adam"].dtype == np.float32


def test_a_tensor_is_refused_in_eager_execution():
    """It would be a constant: neither trained nor restored."""
    with context.eager_mode():
        with pytest.raises(TypeError, match="getter noise .* variable model/rnn/opaque_kernel"):
            make_layer(noise)


def test_a_variable_in_pieces_is_refused():
    """As with the variable_partitioner of a ParameterServerStrategy."""
    sharded_variable = pytest.importorskip(
        "tensorflow.python.distribute.sharded_variable",
        reason="requires TensorFlow 2 with a ParameterServerStrategy",
    )

    def pieces(getter, *arguments, **named):
        variable = getter(*arguments, **named)
        halves = [tf.Variable(half) for half in tf.split(variable, 2)]
        return sharded_variable.ShardedVariable(halves, name=variable.name)

    message = "split the variable model/rnn/opaque_kernel of CudnnGRU into 2 pieces; expected one"
    with context.eager_mode():
        with pytest.raises(ValueError, match=message):
            make_layer(pieces, "gru")
