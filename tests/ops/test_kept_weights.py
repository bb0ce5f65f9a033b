"""Packed weights that a kernel keeps between inference calls: never those of older parameters.

Every test compares a node that keeps weights with one that cannot, because its parameters are
computed in each call. The results must be the same bits after every kind of update.
"""

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from cudnn_rnn.graph.kept_weights import ATTRIBUTE
from helpers.versions import needs_tensorflow_2

VARIABLE = "CUDNN_RNN_KEEP_WEIGHTS"
UNITS, WIDTH = 20, 7
# Weights are packed by tiles for a single step of 12 sequences, as a whole for many steps; those of
# half for a step of 2 sequences are only converted to float.
SHAPES = [(1, 12, tf.float32), (3, 2, tf.float32), (1, 2, tf.float16)]
every_shape = pytest.mark.parametrize("steps, batch, dtype", SHAPES)
# Enough calls to pack the weights and to use them, also after sets that were hardly used.
CALLS = 6


def model_of(dtype):
    return cudnn_rnn.CudnnLSTM(2, UNITS, WIDTH, dtype=dtype)


def params_size():
    return 4 * UNITS * ((WIDTH + UNITS + 2) + (2 * UNITS + 2))


def random(*shape, seed=0):
    return np.random.RandomState(seed).uniform(-0.5, 0.5, shape)


def kept_and_expected(x, state, params):
    """Returns the outputs of a node with these parameters and of one that computes them anew."""
    half = params_size() // 2
    computed = tf.concat([params[:half], params[half:]], 0)
    model = model_of(x.dtype)
    return [model(x, state, state, one, is_training=False)[0] for one in (params, computed)]


class Pair:
    """A node whose parameters are `params`, and one whose parameters are computed from them."""

    def __init__(self, params, steps, batch, dtype):
        x = tf.constant(random(steps, batch, WIDTH), dtype)
        state = tf.constant(random(2, batch, UNITS, seed=1), dtype)
        self.kept, self.expected = kept_and_expected(x, state, params)

    def is_marked(self):
        return [ATTRIBUTE in tensor.op.node_def.attr for tensor in (self.kept, self.expected)]

    def check(self, session, calls=CALLS):
        """Runs both nodes several times; returns the result."""
        for _ in range(calls):
            kept, expected = session.run([self.kept, self.expected])
            np.testing.assert_array_equal(kept, expected)
        return expected


def resource_variable(dtype, seed=2):
    values = random(params_size(), seed=seed).astype(dtype.as_numpy_dtype)
    return tf.Variable(values, use_resource=True)


def rows(variable):
    """Returns indices of some elements, and new values for them."""
    return [1, 5, 300], tf.constant([0.5, -0.5, 0.25], variable.dtype)


def optimizer_updates(variable, use_locking=False):
    gradients = [(tf.constant(random(params_size(), seed=3), variable.dtype), variable)]
    locking = {"use_locking": use_locking}
    optimizers = [
        tf.train.GradientDescentOptimizer(0.5, **locking),
        tf.train.MomentumOptimizer(0.5, 0.9, **locking),
        tf.train.MomentumOptimizer(0.5, 0.9, use_nesterov=True, **locking),
        tf.train.AdamOptimizer(0.1, **locking),
        tf.train.AdagradOptimizer(0.5, **locking),
        tf.train.AdadeltaOptimizer(100.0, **locking),
        tf.train.FtrlOptimizer(0.5, **locking),
        tf.train.RMSPropOptimizer(0.1, **locking),
        tf.train.RMSPropOptimizer(0.1, centered=True, **locking),
        tf.train.ProximalGradientDescentOptimizer(0.5, **locking),
        tf.train.ProximalAdagradOptimizer(0.5, **locking),
    ]
    return {
        "%d %s" % (i, type(optimizer).__name__): optimizer.apply_gradients(gradients)
        for i, optimizer in enumerate(optimizers)
    }


def locking_optimizer_updates(variable):
    return optimizer_updates(variable, use_locking=True)


def sparse_optimizer_updates(variable):
    indices, values = rows(variable)
    gradients = [(tf.IndexedSlices(values, indices, [params_size()]), variable)]
    optimizers = [
        tf.train.GradientDescentOptimizer(0.5),
        tf.train.MomentumOptimizer(0.5, 0.9),
        tf.train.AdamOptimizer(0.1),
        tf.train.AdagradOptimizer(0.5),
        tf.train.FtrlOptimizer(0.5),
    ]
    return {
        "sparse " + type(optimizer).__name__: optimizer.apply_gradients(gradients)
        for optimizer in optimizers
    }


def scatter_updates(variable):
    indices, values = rows(variable)
    points = [[index] for index in indices]
    updates = {
        name: getattr(tf.raw_ops, "ResourceScatter" + name)(
            resource=variable.handle, indices=indices, updates=values
        )
        for name in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")
    }
    for name in ("NdAdd", "NdSub", "NdUpdate"):
        scatter = getattr(tf.raw_ops, "ResourceScatter" + name)
        updates[name] = scatter(ref=variable.handle, indices=points, updates=values)
    return updates


def dense_updates(variable):
    delta = tf.constant(random(params_size(), seed=4), variable.dtype)
    return {
        "assign": variable.assign(delta).op,
        "assign a computed value": variable.assign(delta * 2).op,
        "assign_add": variable.assign_add(delta).op,
        "assign_sub": variable.assign_sub(delta).op,
        "assign its own value": variable.assign(variable.read_value()).op,
        "assign its changed value": variable.assign(variable.read_value() * 0.5).op,
        "slice": variable[3:9].assign(tf.zeros([6], variable.dtype)),
        "gradient descent": tf.raw_ops.ResourceApplyGradientDescent(
            var=variable.handle,
            alpha=tf.constant(0.5, variable.dtype),
            delta=delta,
            use_locking=True,
        ),
        "initializer": variable.initializer,
    }


OPTIMIZER_GROUPS = [optimizer_updates, sparse_optimizer_updates]
GROUPS = OPTIMIZER_GROUPS + [dense_updates, scatter_updates]
UPDATES_WITHOUT_EFFECT = ("assign its own value", "initializer", "Min", "Max")


@every_shape
@pytest.mark.parametrize("group", GROUPS + [locking_optimizer_updates])
def test_every_update_of_a_resource_variable(steps, batch, dtype, group):
    if dtype == tf.float16 and group in OPTIMIZER_GROUPS + [locking_optimizer_updates]:
        dtype = tf.float32  # some of these underflow in half
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(dtype)
        pair = Pair(variable, steps, batch, dtype)
        assert pair.is_marked() == [True, False]
        updates = group(variable)
        session.run(tf.global_variables_initializer())
        before = pair.check(session)
        for name, update in sorted(updates.items()):
            session.run(update)
            # Sometimes the next update follows the first call, sometimes later ones.
            after = pair.check(session, calls=CALLS)
            if name not in UPDATES_WITHOUT_EFFECT:
                assert not np.array_equal(before, after), name
            session.run(update)
            before = pair.check(session, calls=1)


def run_and_list_ops(session, operation):
    """Runs an operation; returns the types of the nodes that TensorFlow made of the graph."""
    options, metadata = tf.RunOptions(output_partition_graphs=True), tf.RunMetadata()
    session.run(operation, options=options, run_metadata=metadata)
    return {node.op for graph in metadata.partition_graphs for node in graph.node}


@pytest.mark.parametrize("group", GROUPS)
def test_every_update_compiled_by_xla(group):
    """XLA writes to the variable's own buffer if nobody else holds it."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(tf.float32)
        pair = Pair(variable, 1, 12, tf.float32)
        with tf.xla.experimental.jit_scope():
            updates = group(variable)
        session.run(tf.global_variables_initializer())
        before, compiled = pair.check(session), set()
        for name, update in sorted(updates.items()):
            if "_XlaRun" in run_and_list_ops(session, update):
                compiled.add(name)
            after = pair.check(session)
            if name not in UPDATES_WITHOUT_EFFECT:
                assert not np.array_equal(before, after), name
            session.run(update)
            before = pair.check(session, calls=1)
        assert len(compiled) > len(updates) / 2, compiled


@every_shape
def test_updates_between_all_calls(steps, batch, dtype):
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(dtype)
        pair = Pair(variable, steps, batch, dtype)
        update = variable.assign_add(tf.constant(random(params_size(), seed=5) * 0.01, dtype)).op
        session.run(tf.global_variables_initializer())
        for calls in [1] * 20 + [2, 3, 5] * 3 + [1] * 5:
            session.run(update)
            pair.check(session, calls)


def test_restoring_and_feeding(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(tf.float32)
        pair = Pair(variable, 1, 12, tf.float32)
        value = tf.placeholder(tf.float32, [params_size()])
        assign = variable.assign(value).op
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver([variable])
        path = saver.save(session, str(tmp_path / "model"))
        first = pair.check(session)
        array = np.float32(random(params_size(), seed=6))
        for _ in range(CALLS):
            session.run(assign, {value: array})
            second = pair.check(session)
            assert not np.array_equal(first, second)
            saver.restore(session, path)
            np.testing.assert_array_equal(pair.check(session), first)
            array *= 0.5


def test_fed_parameters():
    """A feed replaces any tensor, also the value of a variable, and reuses the array's memory."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(tf.float32)
        params = variable.read_value()
        pair = Pair(params, 1, 12, tf.float32)
        session.run(tf.global_variables_initializer())
        array = np.float32(random(params_size(), seed=7))
        for _ in range(3 * CALLS):
            kept, expected = session.run([pair.kept, pair.expected], {params: array})
            np.testing.assert_array_equal(kept, expected)
            array *= 0.9


def test_shapes_alternate():
    """One node decodes and reads whole sequences: the layouts of packed weights differ."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(tf.float32)
        x = tf.placeholder(tf.float32, [None, None, WIDTH])
        state = tf.placeholder(tf.float32, [2, None, UNITS])
        outputs = kept_and_expected(x, state, variable)
        update = variable.assign_add(tf.ones_like(variable) * 0.01).op
        session.run(tf.global_variables_initializer())
        for i, (steps, batch) in enumerate([(1, 12), (4, 3), (1, 12), (1, 40), (1, 2)] * 4):
            feeds = {x: random(steps, batch, WIDTH), state: random(2, batch, UNITS)}
            for _ in range(i % 4 + 1):
                kept, expected = session.run(outputs, feeds)
                np.testing.assert_array_equal(kept, expected)
            if i % 3 == 0:
                session.run(update)


def test_while_loop():
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(tf.float32)
        x = tf.constant(random(1, 12, WIDTH), tf.float32)
        state = tf.constant(random(2, 12, UNITS, seed=1), tf.float32)
        nodes = []

        def loop(params):
            def body(time, h, c):
                _, *states = model_of(tf.float32)(x, h, c, params(), is_training=False)
                nodes.append(states[0].op)
                return [time + 1] + states

            return tf.while_loop(lambda time, *_: time < 8, body, [0, state, state])[1]

        half = params_size() // 2
        value = variable.read_value()
        found = loop(lambda: variable), loop(lambda: value)
        expected = loop(lambda: tf.concat([variable[:half], variable[half:]], 0))
        marks = [ATTRIBUTE in node.node_def.attr for node in nodes]
        assert marks[0] and not marks[-1]
        update = variable.assign_add(tf.ones_like(variable) * 0.01).op
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            for _ in range(2):
                results = session.run(found + (expected,))
                np.testing.assert_array_equal(results[0], results[2])
                np.testing.assert_array_equal(results[1], results[2])
            session.run(update)


def test_calls_and_updates_on_several_threads():
    """Each call must see the parameters of one update, which `check` of a copy cannot tell."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = resource_variable(tf.float32)
        pair = Pair(variable, 1, 12, tf.float32)
        value = tf.placeholder(tf.float32, [])
        start = variable.read_value()
        assign = variable.assign(tf.fill([params_size()], value)).op
        session.run(tf.global_variables_initializer())
        del start
        scales = [0.01 * i for i in range(8)]
        allowed = []
        for scale in scales:
            session.run(assign, {value: scale})
            allowed.append(pair.check(session, calls=1).tobytes())
        failures = []

        def read():
            for _ in range(60):
                if session.run(pair.kept).tobytes() not in allowed:
                    failures.append("parameters of no update")

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for i in range(60):
            session.run(assign, {value: scales[i % len(scales)]})
        for thread in threads:
            thread.join()
        assert not failures
        pair.check(session)


def check_function(updates_of):
    """Compares the results of a `tf.function` after each of some updates.

    `updates_of` returns the updates of a variable as functions. The array that it gets as well
    changes in place after each of them: the variable may share its memory.
    """
    with context.eager_mode():
        variable = resource_variable(tf.float32)
        nodes = []

        @tf.function(autograph=False)
        def run():
            pair = Pair(variable, 1, 12, tf.float32)
            nodes.append(pair.is_marked())
            return pair.kept, pair.expected

        array = np.float32(random(params_size(), seed=9))
        before = None
        for update in updates_of(variable, array) * 3:
            for _ in range(CALLS):
                kept, expected = (tensor.numpy() for tensor in run())
                np.testing.assert_array_equal(kept, expected)
            assert before is None or not np.array_equal(before, kept)
            before = kept
            update()
            array *= -0.9
        assert nodes == [[True, False]]


def eager_updates(variable, array):
    optimizer = tf.train.AdamOptimizer(0.1)

    @tf.function(autograph=False)
    def add():
        variable.assign_add(tf.ones_like(variable) * 0.01)

    return [
        lambda: variable.assign(array),
        lambda: variable.assign(tf.constant(array) * 3),
        lambda: variable.assign_add(array),
        lambda: variable.scatter_nd_update([[3]], [0.7]),
        lambda: optimizer.apply_gradients([(tf.constant(array), variable)]),
        add,
    ]


def compiled_updates(variable, array):
    optimizer = tf.train.AdamOptimizer(0.1)

    def add_in_loop():
        def body(i):
            variable.assign_add(tf.ones_like(variable) * 0.01)
            return i + 1

        tf.while_loop(lambda i: i < 3, body, [0])

    def add_if(value):
        tf.cond(value[0] > 0, lambda: variable.assign_add(value), lambda: variable.assign(value))

    updates = [
        variable.assign,
        lambda value: variable.assign(value * 3),
        variable.assign_add,
        variable.assign_sub,
        lambda value: variable.assign(variable * 0.5),
        lambda value: variable.scatter_nd_update([[3]], value[:1] + 0.7),
        lambda value: optimizer.apply_gradients([(value, variable)]),
        lambda value: add_in_loop(),
        add_if,
    ]

    def compiled(update):
        @tf.function(autograph=False, jit_compile=True)
        def run(value):
            update(value)
            return variable.read_value()  # an output of XLA with the variable's value

        return lambda: run(tf.constant(array))

    return [compiled(update) for update in updates]


def test_functions_with_eager_updates():
    check_function(eager_updates)


def test_functions_with_relaxed_shapes():
    with context.eager_mode():
        variable = resource_variable(tf.float32)
        traced = []

        @tf.function(autograph=False, experimental_relax_shapes=True)
        def run(x, state):
            traced.append(x.shape.as_list())
            return kept_and_expected(x, state, variable)

        for i, batch in enumerate([9, 10, 11, 12, 12, 13, 12, 40]):
            x = tf.constant(random(1, batch, WIDTH), tf.float32)
            state = tf.constant(random(2, batch, UNITS), tf.float32)
            for _ in range(CALLS):
                kept, expected = run(x, state)
                np.testing.assert_array_equal(kept.numpy(), expected.numpy())
            if i % 3 > 0:
                variable.assign_add(tf.ones_like(variable) * 0.01)
        assert traced[-1] == [1, None, WIDTH], traced


@needs_tensorflow_2
def test_functions_with_updates_compiled_by_xla():
    check_function(compiled_updates)


def results_after_update_in_place(session, steps=1, batch=12):
    """Returns the results of a marked node with a reference variable, before and after an update.

    An update in place is what a kernel that keeps weights cannot see.
    """
    values = np.float32(random(params_size(), seed=8))
    variable = tf.Variable(values, use_resource=False)
    pair = Pair(variable, steps, batch, tf.float32)
    assert pair.is_marked() == [False, False]
    names = tf.AttrValue.ListValue(s=[pair.kept.op.inputs[3].op.name.encode()])
    pair.kept.op._set_attr(ATTRIBUTE, tf.AttrValue(list=names))
    session.run(tf.global_variables_initializer())
    before = [session.run(pair.kept) for _ in range(CALLS)][-1]
    session.run(tf.assign(variable, values * 0.5).op)
    after, expected = session.run([pair.kept, pair.expected])
    return before, after, expected


def test_marked_nodes_keep_weights():
    """The tests above would pass if nothing were kept; reference variables show that it is."""
    with tf.Graph().as_default(), tf.Session() as session:
        before, after, expected = results_after_update_in_place(session)
    assert not np.array_equal(after, expected)


def test_environment_variable(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    with tf.Graph().as_default(), tf.Session() as session:
        before, after, expected = results_after_update_in_place(session)
    np.testing.assert_array_equal(after, expected)
    assert not np.array_equal(before, after)
    monkeypatch.setenv(VARIABLE, "maybe")
    with tf.Graph().as_default(), tf.Session() as session:
        pair = Pair(resource_variable(tf.float32), 1, 12, tf.float32)
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match=VARIABLE + ".*'maybe'"):
            session.run(pair.kept)


def test_which_nodes_are_marked():
    with tf.Graph().as_default():
        variable = resource_variable(tf.float32)
        constant = tf.constant(random(params_size()), tf.float32)
        fed = tf.placeholder(tf.float32, [params_size()])
        reference = tf.Variable(constant, use_resource=False)
        x, state = tf.zeros([1, 12, WIDTH]), tf.zeros([2, 12, UNITS])

        def is_marked(params, is_training=False):
            output = model_of(tf.float32)(x, state, state, params, is_training=is_training)[0]
            return ATTRIBUTE in output.op.node_def.attr

        for params in (variable, variable.read_value(), tf.identity(variable), constant):
            assert is_marked(params), params
            assert not is_marked(params, is_training=True), params
        for params in (reference, tf.identity(reference), fed, constant * 2):
            assert not is_marked(params), params


def test_nodes_share_packed_weights():
    """Kernels with the same parameters have one set, which outlives the first of them."""
    with tf.Graph().as_default():
        variable = resource_variable(tf.float32)
        pairs = [Pair(variable, 1, batch, tf.float32) for batch in (12, 12, 20)]
        update = variable.assign_add(tf.ones_like(variable) * 0.01).op
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                for pair in pairs * 3:
                    pair.check(session, calls=2)
                session.run(update)
