"""The functional API compared with the original API of TensorFlow 1.15, on the same kernels.

Nodes, attributes, values and gradients must be equal. Only TensorFlow 1.15 has the original.
"""

import importlib
import inspect
import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import cudnn_rnn_ops
from helpers.arrays import assert_equal
from helpers.rnn_models import CLASSES, DIRECTIONS
from helpers.versions import needs_the_original

pytestmark = needs_the_original

STEPS, BATCH, INPUT_SIZE, NUM_UNITS, NUM_LAYERS = 4, 3, 4, 5, 2


@pytest.fixture
def original():
    return importlib.import_module("tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops")


# Every combination of the arguments that affect the node.
CALLS = [
    (*mode, *others)
    for mode in [("lstm", 0), ("lstm", 3)] + [(rnn_mode, None) for rnn_mode in sorted(CLASSES)]
    for others in itertools.product(DIRECTIONS, [True, False], [None, [4, 2, 1]], [0, 7])
]


def build(module, call, session):
    """Returns (node type, attributes, values) of one call to the functions of `module`."""
    rnn_mode, num_proj, direction, time_major, lengths, seed = call
    of_projection = {} if num_proj is None else {"num_proj": num_proj}
    shared = dict(direction=direction, dropout=0.5, seed=seed, **of_projection)
    sizes = (rnn_mode, NUM_LAYERS, NUM_UNITS, INPUT_SIZE)
    size = session.run(module.cudnn_rnn_opaque_params_size(*sizes, **shared))
    params = tf.constant(np.linspace(-1, 1, size), tf.float32)
    weights, biases = module.cudnn_rnn_opaque_params_to_canonical(*sizes, params, **shared)
    together = module.cudnn_rnn_canonical_to_opaque_params(*sizes, weights, biases, **shared)

    num_states = NUM_LAYERS * (2 if direction == "bidirectional" else 1)
    states = [np.ones([num_states, BATCH, num_proj or NUM_UNITS])]
    if rnn_mode == "lstm":
        states.append(np.full([num_states, BATCH, NUM_UNITS], 0.5))
    numbers = np.linspace(-1, 1, STEPS * BATCH * INPUT_SIZE)
    arrays = [numbers.reshape(STEPS, BATCH, INPUT_SIZE)] + states
    if not time_major:
        arrays = [np.swapaxes(array, 0, 1) for array in arrays]
    inputs = [tf.constant(array, tf.float32) for array in arrays] + [params]
    outputs = getattr(module, "cudnn_" + rnn_mode)(
        *inputs, is_training=True, sequence_lengths=lengths, time_major=time_major, **shared
    )
    node = outputs[0].op
    names = [name for name in node.node_def.attr if not name.startswith("_")]
    attributes = {name: node.get_attr(name) for name in names}
    tensors = list(weights) + list(biases) + [together] + list(outputs)
    return node.type, attributes, session.run(tensors + tf.gradients(outputs, inputs))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_nodes_values_and_gradients(original, call, fixed_dropout_pattern):
    results = []
    for module in (original, cudnn_rnn_ops):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(5)
            results.append(build(module, call, session))
    expected, found = results
    assert found[:2] == expected[:2]
    assert_equal(found[2], expected[2])


@pytest.mark.parametrize("name", sorted(cudnn_rnn_ops.__all__) + ["_cudnn_rnn"])
def test_signatures(original, name):
    found, expected = (
        [(p.name, p.default) for p in inspect.signature(function).parameters.values()]
        for function in (getattr(cudnn_rnn_ops, name), getattr(original, name))
    )
    assert found == expected
