"""The dropout of `RNNStack`: which calls drop the same outputs, and which do not."""

import random

import numpy as np
import pytest
import tensorflow as tf

from cudnn_rnn.keras import RNNStack
from cudnn_rnn.keras._dropout_seeds import DropoutSeeds
from helpers.keras_layers import keras, make_inputs

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(autouse=True)
def global_seeds():
    """Restores the seeds that a test sets."""
    state = random.getstate()
    yield
    random.setstate(state)
    tf.compat.v1.set_random_seed(None)


def make_stack(cell="gru", **named):
    """Returns a built stack whose weights do not depend on any seed."""
    stack = RNNStack(cell, 2, 20, dropout=0.5, **named)
    stack.build((3, 6, 4))
    weights = np.random.RandomState(1)
    stack.set_weights([weights.uniform(-0.6, 0.6, one.shape) for one in stack.get_weights()])
    return stack


def in_a_graph(*stacks):
    """Returns a list of what the stacks compute in training, in two runs of one new graph."""

    @tf.function
    def run(inputs):
        return [stack(inputs, training=True) for stack in stacks]

    inputs = tf.constant(make_inputs())
    return [result.numpy() for _ in range(2) for result in run(inputs)]


def all_differ(results):
    return len({result.tobytes() for result in results}) == len(results)


@pytest.mark.parametrize("cell", ["lstm", "gru", "relu", "tanh"])
def test_stacks_and_calls_of_one_graph_drop_different_outputs(cell):
    one, other = make_stack(cell), make_stack(cell)
    assert all_differ(in_a_graph(one, other, one))


def test_eager_calls_drop_different_outputs():
    stacks, inputs = [make_stack(), make_stack()], tf.constant(make_inputs())
    assert all_differ([stack(inputs, training=True).numpy() for stack in stacks * 2])


def test_gradients_see_what_the_call_dropped():
    """With relu, without biases and states, the output is homogeneous in the inputs."""
    stack, inputs = make_stack("relu", return_sequences=True), tf.constant(np.abs(make_inputs()))
    stack.set_weights([np.abs(one) * (one.ndim > 1) for one in stack.get_weights()])

    @tf.function
    def run():
        totals = []
        for _ in range(2):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                total = tf.reduce_sum(stack(inputs, training=True))
            totals.append((total, tf.reduce_sum(tape.gradient(total, inputs) * inputs)))
        return totals

    (first, first_again), (second, second_again) = run()
    np.testing.assert_allclose([first, second], [first_again, second_again], rtol=1e-4)
    assert first.numpy() != second.numpy()


def test_the_seed_decides():
    first, again, other = [in_a_graph(make_stack(seed=seed)) for seed in (5, 5, 6)]
    np.testing.assert_array_equal(first, again)
    assert all_differ([*first, *other])


SETTERS = {"TensorFlow": tf.compat.v1.set_random_seed, "Python": random.seed}
if hasattr(keras.utils, "set_random_seed"):
    SETTERS["Keras"] = keras.utils.set_random_seed


@pytest.mark.parametrize("of", sorted(SETTERS))
def test_seeds_of_the_program(of):
    def results(seed):
        SETTERS[of](seed)
        return in_a_graph(make_stack(), make_stack())

    first, again, other = results(1), results(1), results(2)
    np.testing.assert_array_equal(first, again)
    assert all_differ(first + other)


def test_without_dropout_no_seed_is_drawn(monkeypatch):
    monkeypatch.delattr(DropoutSeeds, "draw")
    stack = RNNStack("gru", 2, 20)
    stack(tf.constant(make_inputs()), training=True)


def test_configurations():
    stack = make_stack(seed=7)
    assert RNNStack.from_config(stack.get_config()).seed == 7
    assert RNNStack.from_config(make_stack().get_config()).seed is None
    old = {key: value for key, value in stack.get_config().items() if key != "seed"}
    assert RNNStack.from_config(old).seed is None


@pytest.mark.parametrize("seed", ["1", 1.5, [1]])
def test_a_seed_that_is_no_integer(seed):
    with pytest.raises(TypeError, match="seed must be an integer or None, but is"):
        RNNStack("gru", 2, 5, seed=seed)
