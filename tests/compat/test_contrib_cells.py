"""The block cells of `tf.contrib.rnn`: variables, results and gradients of TensorFlow 1.15.

`tests/golden/contrib_cells` is what TensorFlow 1.15's own cells saved and computed.
"""

import os
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import ops

from cudnn_rnn.cells.compatible import LSTMStateTuple, MultiRNNCell
from cudnn_rnn.contrib import block_cells, block_gradients, fused_cells
from helpers.arrays import assert_equal
from helpers.contrib_cells import BATCH, CASES, STEPS, UNITS, WIDTH, Network, random_inputs
from helpers.paths import GOLDEN
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2, needs_the_original

pytestmark = pytest.mark.skipif(
    not hasattr(tf.raw_ops, "LSTMBlockCell"),
    reason="TensorFlow 1.14 has these ops only in tf.contrib, with its own cells",
)

FOLDER = os.path.join(GOLDEN, "contrib_cells")
CELLS = types.SimpleNamespace(
    MultiRNNCell=MultiRNNCell,
    **{name: getattr(block_cells, name) for name in block_cells.__all__},
    **{name: getattr(fused_cells, name) for name in fused_cells.__all__},
)
OPS = ["LSTMBlockCell", "GRUBlockCell"]

if IS_TENSORFLOW_1:  # registers the gradients in TensorFlow 1
    from tensorflow.contrib import rnn as original
tf.RegisterGradient("LSTMBlockCellOfThisTest")(block_gradients.gradient_of_lstm_block_cell)
tf.RegisterGradient("GRUBlockCellOfThisTest")(block_gradients.gradient_of_gru_block_cell)
OWN_GRADIENTS = {name: name + "OfThisTest" for name in OPS}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_checkpoint_of_tensorflow_1_15(session, name):
    expected = np.load(os.path.join(FOLDER, "expected.npz"))
    path = os.path.join(FOLDER, "model.ckpt")
    network = Network(name, CELLS)
    saved = dict(tf.train.list_variables(path))
    wanted = {key: shape for key, shape in saved.items() if key.startswith(name + "/")}
    assert dict(network.names_and_shapes()) == wanted
    tf.train.Saver().restore(session, path)
    found = network.run(session, expected["inputs"])
    assert {"%s/%s" % (name, key) for key in found} == {
        key for key in expected.files if key.startswith(name + "/")
    }
    for key, value in found.items():
        np.testing.assert_allclose(
            value, expected["%s/%s" % (name, key)], rtol=2e-5, atol=2e-6, err_msg=key
        )


# The seed of an initializer follows from the number of nodes before it, which is another one behind
# a cell that computes whole sequences.
OTHER_SEEDS = ("both_ways", "shared_and_unique")


@needs_the_original
@pytest.mark.parametrize("name", sorted(CASES))
def test_like_the_original(name):
    """Names, initial values and results are equal, gradients up to rounding."""
    values = None
    runs = []
    for rnn, gradients in ((original, {}), (CELLS, OWN_GRADIENTS)):
        with tf.Graph().as_default() as graph, tf.Session() as session:
            tf.set_random_seed(5)
            with graph.gradient_override_map(gradients):
                network = Network(name, rnn)
            session.run(tf.global_variables_initializer())
            initial = session.run(network.variables)
            values = values or initial
            for variable, value in zip(network.variables, values):
                variable.load(value, session)
            runs.append(
                (network.names_and_shapes(), initial, network.run(session, random_inputs()))
            )
    (names, values, expected), (own_names, own_values, found) = runs
    assert own_names == names
    if name not in OTHER_SEEDS:
        assert_equal(own_values, values)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if key.startswith("result"):
            np.testing.assert_array_equal(found[key], value, err_msg=key)
        np.testing.assert_allclose(found[key], value, rtol=2e-6, atol=2e-7, err_msg=key)


def lstm_step(inputs, state, kernel, bias, peepholes, forget_bias):
    """The formulas of an LSTM step, in TensorFlow's ops."""
    memory, output = state
    of_input, of_forget, of_output = peepholes or [tf.zeros([UNITS])] * 3
    gates = tf.split(tf.matmul(tf.concat([inputs, output], 1), kernel) + bias, 4, axis=1)
    i, new, f, o = gates
    kept = tf.sigmoid(f + forget_bias + of_forget * memory) * memory
    memory = kept + tf.sigmoid(i + of_input * memory) * tf.tanh(new)
    return memory, tf.sigmoid(o + of_output * memory) * tf.tanh(memory)


def gru_step(inputs, state, w_ru, b_ru, w_c, b_c):
    """The formulas of a GRU step, in TensorFlow's ops."""
    gates = tf.sigmoid(tf.matmul(tf.concat([inputs, state], 1), w_ru) + b_ru)
    r, u = tf.split(gates, 2, axis=1)
    candidate = tf.tanh(tf.matmul(tf.concat([inputs, r * state], 1), w_c) + b_c)
    return (1 - u) * candidate + u * state


@pytest.mark.parametrize("kind", ["lstm", "peephole", "gru"])
@pytest.mark.parametrize("batch", [BATCH, None])
def test_gradients_of_one_step(session, kind, batch):
    """The gradients of all inputs and parameters are those of the formulas."""
    inputs = tf.placeholder(tf.float32, [batch, WIDTH])
    states = [tf.placeholder(tf.float32, [batch, UNITS]) for _ in range(1 if kind == "gru" else 2)]
    random = np.random.RandomState(3)
    with tf.get_default_graph().gradient_override_map(OWN_GRADIENTS):
        if kind == "gru":
            cell = block_cells.GRUBlockCell(UNITS)
            found = [cell(inputs, states[0])[1]]
        else:
            cell = block_cells.LSTMBlockCell(UNITS, 0.5, use_peephole=kind == "peephole")
            found = list(cell(inputs, LSTMStateTuple(*states))[1])
    variables = [tf.convert_to_tensor(variable) for variable in cell.variables]
    if kind == "gru":
        expected = [gru_step(inputs, states[0], *variables)]
    else:
        expected = lstm_step(inputs, states, *variables[:2], variables[2:], forget_bias=0.5)
    weights = [random.uniform(-1, 1, [BATCH, UNITS]) for _ in found]
    results = []
    for outputs in (found, expected):
        loss = tf.add_n([tf.reduce_sum(part * w) for part, w in zip(outputs, weights)])
        sources = [inputs, *states, *(cell.variables if outputs is found else variables)]
        results.append((list(outputs), tf.gradients(loss, sources)))
    session.run(tf.global_variables_initializer())
    feed = {inputs: random.uniform(-1, 1, [BATCH, WIDTH])}
    feed.update({state: random.uniform(-1, 1, [BATCH, UNITS]) for state in states})
    for left, right in zip(*map(tf.nest.flatten, session.run(results, feed))):
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-6)


@needs_tensorflow_2
@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", ["LSTMBlockCell", "GRUBlockCellV2", "LSTMBlockFusedCell"])
def test_eagerly_and_in_a_function(name, in_function):
    """Results and gradients are those of a graph."""
    import tensorflow

    inputs = random_inputs()
    is_whole = name == "LSTMBlockFusedCell"

    def outputs_of(cell, inputs):
        if is_whole:
            return cell(inputs, dtype=tf.float32)[0]
        state, outputs = cell.zero_state(BATCH, tf.float32), []
        for step in tf.unstack(inputs):
            output, state = cell(step, state)
            outputs.append(output)
        return tf.stack(outputs)

    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        cell = getattr(CELLS, name)(UNITS)
        outputs = outputs_of(cell, tf.constant(inputs))
        gradients = tf.gradients(tf.square(outputs), cell.variables)
        session.run(tf.global_variables_initializer())
        values, expected = session.run([cell.variables, [outputs, gradients]])

    def compute(inputs):
        with tensorflow.GradientTape() as tape:
            outputs = outputs_of(cell, inputs)
            loss = tf.square(outputs)
        return outputs, tape.gradient(loss, cell.variables)

    assert tf.executing_eagerly()
    cell = getattr(CELLS, name)(UNITS)
    outputs_of(cell, tf.constant(inputs))
    for variable, value in zip(cell.variables, values):
        variable.assign(value)
    found = (tensorflow.function(compute) if in_function else compute)(tf.constant(inputs))
    for left, right in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-6)


@needs_tensorflow_2
def test_the_first_registration_of_a_gradient_stays():
    """`register` leaves alone what is registered, also by another library."""
    registry = getattr(ops, "gradient_registry", None) or ops._gradient_registry
    before = [registry.lookup(name) for name in OPS]
    assert None not in before
    block_gradients.register()
    assert [registry.lookup(name) for name in OPS] == before


@needs_tensorflow_2  # TensorFlow 1's base class refuses lists
def test_lists_of_steps(session):
    inputs = tf.constant(random_inputs())
    cell = fused_cells.LSTMBlockFusedCell(UNITS)
    tensor, state = fused_cells.TimeReversedFusedRNN(cell)(inputs, dtype=tf.float32)
    steps, same = fused_cells.TimeReversedFusedRNN(cell)(tf.unstack(inputs), dtype=tf.float32)
    assert isinstance(steps, list) and len(steps) == STEPS
    session.run(tf.global_variables_initializer())
    for left, right in session.run([(tensor, tf.stack(steps)), (state.c, same.c)]):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32])
def test_dtypes(session, dtype):
    """As the ops: half and float. The variables have the dtype of the inputs."""
    inputs = tf.cast(random_inputs(), dtype)
    cell = block_cells.LSTMBlockCell(UNITS, use_peephole=True)
    whole = fused_cells.LSTMBlockFusedCell(UNITS, use_peephole=True)
    step, _ = cell(inputs[0], cell.zero_state(BATCH, dtype))
    outputs, _ = whole(inputs, dtype=dtype, sequence_length=[1, 2, 3])
    assert {variable.dtype.base_dtype for variable in tf.global_variables()} == {dtype}
    session.run(tf.global_variables_initializer())
    assert np.isfinite(session.run(step)).all()
    assert not session.run(outputs)[3].any()


WRONG_ARGUMENTS = [
    ("LSTMBlockCell", dict(num_units=0), ValueError, "num_units must be between 1 and .* is 0"),
    ("LSTMBlockCell", dict(num_units=2.5), TypeError, "num_units must be .*2.5"),
    ("LSTMBlockCell", dict(num_units=2, forget_bias="one"), TypeError, "forget_bias.*'one'"),
    ("LSTMBlockCell", dict(num_units=2, cell_clip=True), TypeError, "cell_clip.*None for no.*True"),
    ("LSTMBlockFusedCell", dict(num_units=-1), ValueError, "num_units must be between 1.* is -1"),
    ("LSTMBlockFusedCell", dict(num_units=2, cell_clip="x"), TypeError, "cell_clip must be.*'x'"),
    ("GRUBlockCell", dict(), ValueError, "Exactly one of num_units and cell_size.*None.*None"),
    (
        "GRUBlockCellV2",
        dict(num_units=2, cell_size=3),
        ValueError,
        "num_units is 2.*cell_size is 3",
    ),
    ("TimeReversedFusedRNN", dict(cell=3), TypeError, "cell must be callable.*is 3"),
]


@pytest.mark.parametrize("name, arguments, kind, message", WRONG_ARGUMENTS)
def test_wrong_arguments(name, arguments, kind, message):
    with pytest.raises(kind, match=message):
        getattr(CELLS, name)(**arguments)


def test_wrong_tensors(session):
    lstm, gru = block_cells.LSTMBlockCell(UNITS), block_cells.GRUBlockCell(UNITS)
    inputs, state = tf.zeros([BATCH, WIDTH]), tf.zeros([BATCH, UNITS])
    for cell, given, message in (
        (lstm, (inputs, state), r"state of LSTMBlockCell must be a pair \(c, h\)"),
        (lstm, (inputs, (state, tf.zeros([BATCH, 5]))), r"state.h of LSTM.*\[3, 3\].*\(3, 5\)"),
        (
            lstm,
            (tf.zeros([2, 3, 4]), (state, state)),
            r"inputs.*\[batch, input_size\].*\(2, 3, 4\)",
        ),
        (gru, (inputs, (state, state)), "state of GRUBlockCell must be one tensor"),
        (gru, (inputs, tf.zeros([BATCH, 5])), r"state of GRUBlockCell must.*\[3, 3\].*\(3, 5\)"),
    ):
        with pytest.raises(ValueError, match=message):
            cell(*given)


def test_wrong_tensors_of_sequences(session):
    inputs, state = tf.zeros([STEPS, BATCH, WIDTH]), tf.zeros([BATCH, UNITS])
    unknown = tf.placeholder(tf.float32, [STEPS, BATCH, None])
    for given, named, message in (
        (inputs, {}, "Neither initial_state nor dtype.*dtype=inputs.dtype"),
        (inputs[0], dict(dtype=tf.float32), r"inputs.*\[time, batch, input_size\].*\(3, 2\)"),
        (unknown, dict(dtype=tf.float32), r"an input_size that is known"),
        (inputs, dict(initial_state=state), r"initial_state of LSTMBlockFusedCell must be a pair"),
        (inputs, dict(initial_state=(state, inputs)), r"initial_state.h.*\(4, 3, 2\).*\[3, 3\]"),
    ):
        with pytest.raises(ValueError, match=message):
            fused_cells.LSTMBlockFusedCell(UNITS)(given, **named)
