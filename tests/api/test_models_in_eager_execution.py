"""The op-level classes in eager execution and in `tf.function`: as in a graph, bit for bit."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers.arrays import assert_equal
from helpers.rnn_models import CLASSES, call_arguments, params_size

pytestmark = pytest.mark.usefixtures("eager")

LAYERS, UNITS, WIDTH = 2, 5, 3
OPTIONS = {
    "training": {},
    "inference": {"is_training": False},
    "lengths": {"sequence_lengths": [4, 1]},
    "batch first": {"sequence_lengths": [0, 3], "time_major": False},
}


def random_arrays(model):
    """Returns the arguments of a call as arrays: 2 sequences of 4 steps."""
    random = np.random.RandomState(3)
    shapes = {name: tensor.shape for name, tensor in call_arguments(model).items()}
    return {
        name: random.uniform(-1, 1, shape.as_list()).astype(np.float32)
        for name, shape in shapes.items()
    }


def outputs_and_gradients(model, arrays, options):
    """Returns the outputs and, for training, the gradients of every tensor."""
    names, tensors = zip(*[(name, tf.constant(array)) for name, array in arrays.items()])
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = model(**dict(zip(names, tensors), **options))
        loss = tf.add_n([tf.reduce_sum(output * output) for output in outputs])
    if options.get("is_training", True):
        return (*outputs, *tape.gradient(loss, tensors))
    return outputs


@pytest.mark.parametrize("options", sorted(OPTIONS))
def test_results_are_those_of_a_graph(rnn_mode, direction, options):
    model = CLASSES[rnn_mode](LAYERS, UNITS, WIDTH, direction=direction)
    arrays, options = random_arrays(model), OPTIONS[options]
    if options.get("time_major") is False:
        arrays = {
            name: array if name == "params" else array.swapaxes(0, 1).copy()
            for name, array in arrays.items()
        }
    with tf.Graph().as_default(), tf.Session() as session:
        expected = session.run(outputs_and_gradients(model, arrays, options))
    assert all(array.any() for array in expected)

    def compute():
        return outputs_and_gradients(model, arrays, options)

    for function in (compute, tf.function(compute, autograph=False)):
        assert_equal([tensor.numpy() for tensor in function()], expected)


def test_conversions(rnn_mode, direction):
    model = CLASSES[rnn_mode](LAYERS, UNITS, WIDTH, direction=direction)
    size = model.params_size()
    assert int(size) == params_size(rnn_mode, LAYERS, UNITS, WIDTH, model.config.num_directions)
    params = tf.Variable(tf.random_uniform([size], seed=1))
    weights, biases = model.params_to_canonical(params)
    assert {weight.shape.as_list()[0] for weight in weights + biases} == {UNITS}
    assert sum(tensor.shape.num_elements() for tensor in weights + biases) == int(size)
    np.testing.assert_array_equal(model.canonical_to_params(weights, biases), params.numpy())


def test_training(rnn_mode):
    """A loop of calls lowers the loss, with dropout too, in a function and without."""
    model = CLASSES[rnn_mode](LAYERS, UNITS, WIDTH, dropout=0.1, seed=4)
    arguments = random_arrays(model)
    initial = 0.1 * arguments.pop("params")
    for wrapped in (lambda function: function, tf.function):
        params = tf.Variable(initial)

        @wrapped
        def step(params=params):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(params=params, **arguments)[0] - 0.2))
            params.assign_sub(0.1 * tape.gradient(loss, params))
            return loss

        losses = [float(step()) for _ in range(60)]
        assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_errors_name_the_argument(rnn_mode):
    model = CLASSES[rnn_mode](1, 4, 3)
    arguments = call_arguments(model)
    for name, wrong, message in [
        ("input_data", tf.ones([4, 2, 7]), r"input_data must .* but has shape \[4, 2, 7\]"),
        ("input_h", tf.ones([1, 3, 4]), r"input_h must have shape \[1, 2, 4\]"),
        ("params", tf.ones([7]), "params must have at least"),
    ]:
        with pytest.raises(ValueError, match=message):
            model(**dict(arguments, **{name: wrong}))
    with pytest.raises(tf.errors.InvalidArgumentError, match="sequence_lengths"):
        model(sequence_lengths=[5, 1], **arguments)
