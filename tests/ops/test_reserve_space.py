"""What the reserve space of a CPU holds: finite numbers that tools can search for NaN, and the
attributes that a gradient without them needs."""

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import gen_cudnn_rnn_ops

from helpers import networks, reference
from helpers.op_harness import BACKWARD_OPS, FORWARD, call, model_attributes
from helpers.sequence_cases import DTYPES, GRU, LSTM
from helpers.versions import IS_TENSORFLOW_1

BATCH, STEPS = 4, 3
# The hash in the headers of these models once read as NaN.
GRUS = [
    reference.Configuration("gru", "linear_input", "unidirectional", 1, units, 8)
    for units in (105, 157, 176)
]
MODELS = GRUS + [
    LSTM,
    GRU,
    # Gates in rows with gaps between them.
    reference.Configuration("lstm", "linear_input", "bidirectional", 2, 64, 3),
    reference.Configuration("rnn_relu", "linear_input", "unidirectional", 3, 20, 7),
]


def forward_arrays(configuration, dtype, scale=0.1):
    arrays = networks.forward_arrays(configuration, BATCH, STEPS, "float32")
    arrays = {name: array * scale for name, array in arrays.items()}
    arrays.setdefault("input_c", np.zeros([0], "float32"))
    return {name: array.astype(tf.as_dtype(dtype).as_numpy_dtype) for name, array in arrays.items()}


def forward_node(configuration, dtype):
    constants = {
        name: tf.constant(array) for name, array in forward_arrays(configuration, dtype).items()
    }
    node = gen_cudnn_rnn_ops.cudnn_rnn(**constants, **model_attributes(configuration))
    return constants, node


def training_call(configuration, dtype):
    """Returns the outputs of a training call and the gradients of its inputs."""
    constants, node = forward_node(configuration, dtype)
    inputs = [constants[name] for name in ("input", "input_h", "params")]
    return list(node) + tf.gradients([node.output, node.output_h], inputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numerics_checks_of_a_graph_pass(dtype):
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        results = [training_call(configuration, dtype) for configuration in MODELS]
        checks = tf.add_check_numerics_ops()
        with tf.Session() as session:
            session.run([results, checks])


def params_gradient(configuration, arrays):
    params = tf.convert_to_tensor(arrays["params"])
    with tf2.GradientTape() as tape:
        tape.watch(params)
        node = gen_cudnn_rnn_ops.cudnn_rnn(
            **dict(arrays, params=params), **model_attributes(configuration)
        )
    return tape.gradient(node[0], params)


@pytest.mark.skipif(IS_TENSORFLOW_1, reason="requires TensorFlow 2")
@pytest.mark.parametrize("dtype", DTYPES)
def test_numerics_checks_of_the_debugger_pass(dtype):
    # Eagerly, TensorFlow's check cannot read a scalar of bfloat16, such as output_c of a GRU.
    ways = [tf2.function] if dtype == "bfloat16" else [tf2.function, lambda function: function]
    with context.eager_mode(), tf.device("/cpu:0"):
        tf2.debugging.enable_check_numerics()
        try:
            for configuration in MODELS:
                arrays = forward_arrays(configuration, dtype)
                for way in ways:
                    gradient = way(params_gradient)(configuration, arrays)
                    assert np.any(gradient.numpy() != 0)
        finally:
            tf2.debugging.disable_check_numerics()


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_calls_return_equal_bytes(dtype):
    for configuration in MODELS:
        inputs = forward_arrays(configuration, dtype)
        first, second = (
            np.asarray(call("cudnn_rnn", inputs, **model_attributes(configuration))[3])
            for _ in range(2)
        )
        assert first.tobytes() == second.tobytes()
        assert np.isfinite(first.astype("float64")).all()


# The gradient that TensorFlow 1.0 registered has none of these attributes.
DROPOUT = dict(dropout=0.5, seed=3, seed2=4)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "attributes", [DROPOUT, dict(seed=3), dict(dropout=0.5), dict(dropout=1.0, seed2=9)]
)
def test_a_gradient_with_default_attributes(attributes, version):
    inputs = networks.forward_arrays(LSTM, BATCH, STEPS, "float32")
    if version == 3:
        inputs["sequence_lengths"] = np.array([3, 1, 2, 0], np.int32)
    own = dict(model_attributes(LSTM), **attributes)
    inputs = networks.backward_inputs(inputs, own, version)
    expected = call(BACKWARD_OPS[version], inputs, **own)
    found = call(BACKWARD_OPS[version], inputs, **model_attributes(LSTM))
    for array, right in zip(found, expected):
        np.testing.assert_array_equal(array, right)
    assert all(np.any(right) for right in expected)


def test_a_gradient_with_default_attributes_follows_the_calls_of_one_node():
    """Each call of the forward node has another pattern, and the gradient's kernel stays."""
    arrays = networks.forward_arrays(LSTM, BATCH, STEPS, "float32")
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        inputs = {name: tf.constant(array) for name, array in arrays.items()}
        rate = {}
        for dropout in (0.5, 0.25):
            rate[dropout] = gen_cudnn_rnn_ops.cudnn_rnn(
                dropout=dropout, seed=7, **inputs, **model_attributes(LSTM)
            )
        is_first = tf.placeholder(tf.bool, [])
        results = [tf.cond(is_first, lambda a=a: a, lambda b=b: b) for a, b in zip(*rate.values())]
        results = dict(zip(FORWARD + ("reserve_space",), results))
        ones = {name + "_backprop": tf.ones_like(results[name]) for name in FORWARD}
        given = dict(inputs, **results, **ones)
        default = gen_cudnn_rnn_ops.cudnn_rnn_backprop(**given, **model_attributes(LSTM))
        right = {
            dropout: gen_cudnn_rnn_ops.cudnn_rnn_backprop(
                dropout=dropout, seed=7, **given, **model_attributes(LSTM)
            )
            for dropout in rate
        }
        for dropout in (0.5, 0.25, 0.5):
            found, expected = session.run(
                [default.params_backprop, right[dropout].params_backprop],
                {is_first: dropout == 0.5},
            )
            np.testing.assert_array_equal(found, expected)
