"""Subclasses of the layers that create variables of their own, and private names they reach."""

import inspect

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import layers
from helpers.versions import needs_tensorflow_1

LAYERS = ["CudnnLSTM", "CudnnGRU", "CudnnRNNRelu", "CudnnRNNTanh"]


def scaled(name, method):
    """Returns a subclass whose outputs are scaled by a variable of its own, and shifted by 0."""

    class Scaled(getattr(layers, name)):
        def build(self, shape):
            add = getattr(self, method)
            self.scale = add("scale", [self.num_units], initializer=tf.ones_initializer())
            self.shift = add("shift", shape=[], dtype=tf.float32, trainable=False)
            super().build(shape)

        def call(self, inputs, **named):
            outputs, states = super().call(inputs, **named)
            return outputs * self.scale + 0 * self.shift, states

    Scaled.__name__ = name
    return Scaled


@pytest.mark.parametrize("method", ["add_variable", "add_weight"])
@pytest.mark.parametrize("name", LAYERS)
def test_variables_of_subclasses(session, name, method):
    layer = scaled(name, method)(1, 3)
    with tf.variable_scope("outer"):
        outputs, _ = layer(tf.ones([4, 2, 5]))
    scope = layer.kernel.name.rpartition("/")[0]
    assert scope.startswith("outer/cudnn_")
    assert [v.name for v in (layer.scale, layer.shift)] == [scope + "/scale:0", scope + "/shift:0"]
    by_name = {v.name: v for v in layer.trainable_variables}
    assert set(by_name) == {layer.scale.name, layer.kernel.name}
    assert [v.name for v in layer.non_trainable_variables] == [layer.shift.name]
    assert tf.trainable_variables() == [layer.scale, layer.kernel]
    gradients = tf.gradients(outputs, [layer.scale, layer.kernel])
    session.run(tf.global_variables_initializer())
    before, found = session.run([outputs, gradients])
    session.run(layer.scale.assign([2.0, 2.0, 2.0]))
    np.testing.assert_array_equal(session.run(outputs), 2 * before)
    np.testing.assert_allclose(found[0], before.sum((0, 1)), rtol=1e-5)


def test_variables_of_a_subclass_that_is_built_by_hand(session):
    layer = scaled("CudnnGRU", "add_weight")(1, 3, name="named")
    layer.build([None, None, 5])
    assert layer.scale.name == "named/scale:0"
    assert layer.kernel.name == "named/opaque_kernel:0"
    layer(tf.ones([4, 2, 5]))
    assert len(layer.variables) == len(tf.global_variables()) == 3


def added(layer, **named):
    """Returns a variable that the layer adds with these arguments, and whether it is trained."""
    variable = layer.add_weight("w", [3], **named)
    return variable, variable in layer.trainable_weights


@pytest.mark.parametrize("make", [lambda: layers.CudnnGRU(1, 3), lambda: cudnn_rnn.BasicRNNCell(3)])
@pytest.mark.parametrize(
    "named, is_trained",
    [
        ({}, True),
        ({"trainable": None}, True),
        ({"trainable": False}, False),
        ({"use_resource": True}, True),
        ({"aggregation": tf.VariableAggregation.MEAN}, True),
        ({"synchronization": tf.VariableSynchronization.ON_READ}, False),
        ({"synchronization": tf.VariableSynchronization.ON_READ, "trainable": None}, False),
    ],
)
def test_arguments_of_tensorflow_1_15(session, make, named, is_trained):
    variable, found = added(make(), **named)
    assert found is is_trained
    assert tf.trainable_variables() == [variable] * is_trained
    for argument in ("aggregation", "synchronization"):
        if argument in named:
            assert getattr(variable, argument) == named[argument]


@pytest.mark.parametrize("make", [lambda: layers.CudnnGRU(1, 3), lambda: cudnn_rnn.BasicRNNCell(3)])
def test_a_partitioned_variable(session, make):
    variable, _ = added(make(), partitioner=tf.fixed_size_partitioner(3))
    assert [part.shape.as_list() for part in variable] == [[1]] * 3


@pytest.mark.parametrize("name", LAYERS)
def test_zero_state(session, name):
    layer = getattr(layers, name)(2, 3, direction="bidirectional")
    states = layer._zero_state(7)
    assert isinstance(states, tuple)
    assert [state.shape.as_list() for state in states] == [[4, 7, 3]] * (2 if "LSTM" in name else 1)
    outputs, _ = layer(tf.ones([4, 7, 5]), initial_state=states)
    default, _ = layer(tf.ones([4, 7, 5]))
    session.run(tf.global_variables_initializer())
    np.testing.assert_array_equal(*session.run([outputs, default]))


def test_conversion_of_1_4_to_1_12(session):
    variable = tf.get_variable("v", initializer=tf.range(cudnn_rnn.CudnnGRU(1, 2, 3)._num_params()))
    params = tf.cast(variable, tf.float32)
    saveable = cudnn_rnn.CudnnGRUSaveable(params, 1, 2, 3, scope="s")
    (weights, weight_names), (biases, bias_names) = saveable._TransformCanonical(
        *saveable._OpaqueParamsToCanonical()
    )
    assert ["s/" + name for name in weight_names + bias_names] == [s.name for s in saveable.specs]
    session.run(tf.global_variables_initializer())
    expected = session.run([spec.tensor for spec in saveable.specs])
    for one, other in zip(session.run(weights + biases), expected):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", LAYERS)
def test_the_call_of_the_op_level_class(name):
    """A program of TensorFlow 1.0 to 1.4 learns of that class, and of the release to choose."""
    make = getattr(layers, name)
    advice = (
        "%s got the input size, 5%s.*this call is of TensorFlow 1.3 or 1.4, or older"
        ".*--tf-contrib-version 1.3.*contrib.install..1.3...*that class is cudnn_rnn.%s"
    )
    with pytest.raises(TypeError, match=advice % (name, "", name)):
        make(num_layers=2, num_units=3, input_size=5)
    with pytest.raises(ValueError, match=advice % (name, " in place of input_mode", name)):
        make(2, 3, 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_unit'"):
        make(2, 3, num_unit=5)
    parameters = list(inspect.signature(make).parameters)
    assert parameters[:3] == ["num_layers", "num_units", "input_mode"]


ARGUMENTS = "self num_layers num_units input_mode direction dropout seed dtype kernel_initializer"
ARGUMENTS += " bias_initializer name"


@pytest.mark.parametrize("name", LAYERS)
def test_arguments_that_inspect_finds(name):
    made = getattr(layers, name)
    assert inspect.getfullargspec(made.__init__).args[:11] == ARGUMENTS.split()
    expected = ["self", "inputs", "initial_state", "sequence_lengths", "time_major", "training"]
    assert inspect.getfullargspec(made.call).args == expected
    assert inspect.getfullargspec(made(1, 3).call).args == expected
    assert inspect.getfullargspec(made.__call__).args == ["self", "inputs"]


@needs_tensorflow_1
@pytest.mark.parametrize("name", LAYERS)
def test_config_is_refused(name):
    """The config of the base class would lack the layer's arguments."""
    with pytest.raises(NotImplementedError, match="must override `get_config`"):
        getattr(layers, name)(1, 3).get_config()


@pytest.mark.parametrize("dtype", [tf.float32, "float64", np.float16])
def test_plain_dtype(dtype):
    layer = layers.CudnnLSTM(1, 3, dtype=dtype, compute_dtype=tf.float32)
    assert layer._plain_dtype is tf.as_dtype(dtype)
