"""`plain_function` on functions that call others: branches, loops and loaded signatures."""

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn
from helpers.keras_layers import KINDS, keras
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.usefixtures("eager"), needs_tensorflow_2]

BATCH, WIDTH = 2, 3
SIGNATURE = tf.TensorSpec([None, BATCH, WIDTH], tf.float64)
INPUTS = np.random.RandomState(5).uniform(-1, 1, [4, BATCH, WIDTH])


class Model:
    """A GRU with a variable, of the width of its inputs."""

    def __init__(self):
        self._gru = cudnn_rnn.CudnnGRU(1, WIDTH, WIDTH, dtype=tf.float64)
        size = int(self._gru.params_size())
        self.params = tf.Variable(np.random.RandomState(6).uniform(-0.5, 0.5, [size]))
        self._state = tf.zeros([1, BATCH, WIDTH], tf.float64)

    def __call__(self, inputs):
        return self._gru(inputs, self._state, self.params, is_training=True)[0]


def halved(value):
    return tf.function(lambda tensor: tensor / 2.0, autograph=False)(value)


def loop(model, inputs):
    """Runs the model three times."""
    return tf.while_loop(
        lambda index, _: index < 3, lambda index, value: (index + 1, model(value)), (0, inputs)
    )[1]


def branch(model, inputs):
    return tf.cond(tf.reduce_sum(inputs) > 0, lambda: model(inputs), lambda: 2.0 * inputs)


IN_A_FUNCTION = "in a function"
FUNCTIONS = {
    "a branch before": lambda model, inputs: model(
        tf.cond(tf.reduce_sum(inputs) > 0, lambda: inputs, lambda: inputs[::-1])
    ),
    "a loop before": lambda model, inputs: model(tf.map_fn(lambda step: step + 1.0, inputs)),
    "a function before": lambda model, inputs: model(halved(inputs)),
    IN_A_FUNCTION: lambda model, inputs: tf.function(model, autograph=False)(halved(inputs)),
    "in a branch": branch,
    "in a loop": loop,
}


def outputs_and_gradients(function, inputs, variable):
    inputs = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = function(inputs)
        loss = tf.reduce_sum(outputs * outputs)
    return [outputs, *map(tf.convert_to_tensor, tape.gradient(loss, [inputs, variable]))]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_call_others(name):
    model = Model()
    function = tf.function(lambda inputs: FUNCTIONS[name](model, inputs), autograph=False)
    concrete = function.get_concrete_function(SIGNATURE)
    cudnn_rnn.plain_function(concrete, training=True)
    plain = cudnn_rnn.plain_function(concrete, training=True)  # the second has names of its own
    graph_def = plain.graph.as_graph_def()
    functions = [each.node_def for each in graph_def.library.function]
    for nodes in [graph_def.node, *functions]:
        assert not [node.name for node in nodes if node.op.startswith("CudnnRNN")]
    for inputs in (INPUTS + 1.0, INPUTS - 1.0):
        outputs = [function(tf.constant(inputs)) for function in (plain, concrete)]
        np.testing.assert_allclose(*outputs, rtol=0, atol=1e-12)
        if name == IN_A_FUNCTION:
            with pytest.raises((tf.errors.OpError, LookupError)):
                outputs_and_gradients(plain, inputs, model.params)
            continue
        expected = outputs_and_gradients(concrete, inputs, model.params)
        for left, right in zip(expected, outputs_and_gradients(plain, inputs, model.params)):
            np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signature_of_a_loaded_model(tmp_path, kind):
    """The mask of a Keras layer brings a branch into the function."""
    inputs = keras.Input((4, WIDTH))
    layer = getattr(cudnn_rnn.keras, kind)(WIDTH, return_sequences=True)
    model = keras.Model(inputs, layer(keras.layers.Masking()(inputs)))
    serve = tf.function(lambda inputs: {"outputs": model(inputs, training=False)})
    specification = tf.TensorSpec([None, 4, WIDTH], tf.float32, name="inputs")
    signature = serve.get_concrete_function(specification)
    tf.saved_model.save(model, str(tmp_path / "model"), signature)
    array = INPUTS.transpose([1, 0, 2]).repeat(2, axis=0).astype("float32")
    array[1, 2:] = 0.0
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for function in (signature, loaded.signatures["serving_default"]):
        found = cudnn_rnn.plain_function(function)(inputs=tf.constant(array))["outputs"]
        expected = model(array, training=False)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
