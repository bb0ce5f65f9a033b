"""Small programs that use the classes as programs in public repositories do.

Each runs as written for its release, through `cudnn_rnn.contrib.install`, and includes the code
around the RNN: towers that share variables, meta graphs, initializers made of canonical tensors,
lengths, custom converters, Estimators.
"""

import functools
import itertools
import re

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import contrib
from helpers.checkpoints import assert_round_trip
from helpers.rnn_models import initialize
from helpers.versions import needs_estimators, needs_tensorflow_2

RANDOM = np.random.RandomState(3)


@pytest.fixture
def session(session):
    tf.set_random_seed(1)
    return session


@pytest.fixture(autouse=True)
def uninstalled():
    yield
    contrib.uninstall()


@pytest.fixture
def namespace(request):
    """Installs and returns `tf.contrib.cudnn_rnn` of the release that the test is marked with."""
    contrib.install(request.param)
    return tensorflow.contrib.cudnn_rnn


def of_release(version):
    return pytest.mark.parametrize("namespace", [version], indirect=True)


def train(session, loss, feed, steps=5):
    """Trains for `steps` steps; returns the losses."""
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    initialize(session)
    return [session.run([loss, step], feed)[0] for _ in range(steps)]


def assert_falls(losses):
    assert np.isfinite(losses).all() and losses[-1] < losses[0], losses


def assert_restored(session, tmp_path, fetches, feed):
    """Saves and restores everything, which must not change the results; returns the path."""
    expected = session.run(fetches, feed)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    initialize(session)
    tf.train.Saver().restore(session, path)
    np.testing.assert_array_equal(session.run(fetches, feed), expected)
    return path


@of_release("1.3")
def test_language_model(session, namespace, tmp_path):
    """Training and evaluation towers are rebuilt from a meta graph; the states are fed."""
    units, layers, vocabulary = 6, 2, 11
    words = RANDOM.randint(0, vocabulary, [4, 7])

    def tower(is_training, batch, steps):
        ids = tf.placeholder(tf.int32, [batch, steps])
        table = tf.get_variable("table", [vocabulary, units])
        embedded = tf.nn.embedding_lookup(table, ids)
        sizes = dict(num_layers=layers, num_units=units, input_size=units)
        rnn = namespace.CudnnLSTM(dropout=0.1 if is_training else 0, **sizes)
        initial = tf.random_uniform([rnn.params_size()], -0.1, 0.1)
        params = tf.get_variable("params", initializer=initial, validate_shape=False)
        h = c = tf.zeros([layers, batch, units], tf.float32)
        outputs, h, c = rnn(tf.transpose(embedded, [1, 0, 2]), h, c, params, is_training)
        logits = tf.einsum("tbu,vu->btv", outputs, table)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits)
        tf.add_to_collection("params", params)
        for tensor in (ids, tf.reduce_mean(loss), h):
            tf.add_to_collection("training" if is_training else "evaluation", tensor)
        return rnn

    with tf.Graph().as_default():
        with tf.variable_scope("model"):
            rnn = tower(True, 4, 7)
        with tf.variable_scope("model", reuse=True):
            tower(False, 1, 1)
        meta_graph = tf.train.export_meta_graph()

    tf.train.import_meta_graph(meta_graph)
    functions = (rnn.params_to_canonical, rnn.canonical_to_params)
    params = tf.get_collection_ref("params")[:1]
    saveable = namespace.RNNParamsSaveable(rnn, *functions, params, base_variable_scope="model/rnn")
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    ids, loss, _ = tf.get_collection("training")
    assert_falls(train(session, loss, {ids: words}, steps=20))
    ids, loss, _ = tf.get_collection("evaluation")
    assert_restored(session, tmp_path, loss, {ids: [[3]]})


@of_release("1.3")
def test_stack_of_grus_that_reads_both_ways(session, namespace, tmp_path):
    """One GRU per layer and direction, with lengths by reversing and dropout masks over time."""
    batch, steps, size, units = 3, 5, 4, 6
    inputs = tf.placeholder(tf.float32, [batch, steps, size])
    lengths = tf.placeholder(tf.int32, [batch])
    is_training = tf.placeholder_with_default(False, [])

    def run(values, name):
        width = values.shape.as_list()[-1]
        rnn = namespace.CudnnGRU(num_layers=1, num_units=units, input_size=width)
        initial = tf.random_uniform([rnn.params_size()], -0.1, 0.1)
        params = tf.Variable(initial, validate_shape=False, name=name)
        ones = tf.ones([1, batch, width])
        mask = tf.cond(is_training, lambda: tf.nn.dropout(ones, rate=0.2), lambda: ones)
        state = tf.tile(tf.Variable(tf.zeros([1, 1, units])), [1, batch, 1])
        return rnn(values * mask, state, params)[0]

    outputs = [tf.transpose(inputs, [1, 0, 2])]
    for layer in range(2):
        named = dict(seq_lengths=lengths, seq_dim=0, batch_dim=1)
        reverse = functools.partial(tf.reverse_sequence, **named)
        forward = run(outputs[-1], "forward_%d" % layer)
        backward = reverse(run(reverse(outputs[-1]), "backward_%d" % layer))
        outputs.append(tf.concat([forward, backward], axis=2))
    result = tf.concat(outputs[1:], axis=2)
    loss = tf.reduce_mean(tf.square(result - 0.3))
    feed = {inputs: RANDOM.randn(batch, steps, size), lengths: [5, 2, 3]}
    assert_falls(train(session, loss, {**feed, is_training: True}))
    assert_restored(session, tmp_path, result, feed)


@of_release("1.4")
@pytest.mark.parametrize("kind, num_weights", [("CudnnLSTM", 8), ("CudnnGRU", 6)])
def test_initializer_of_canonical_tensors(session, namespace, kind, num_weights):
    """The size and the canonical shapes come from `eval`; a mask then removes the input weights."""
    units, size = 5, 7
    inputs = tf.placeholder(tf.float32, [None, None, size])
    rnn = getattr(namespace, kind)(1, units, size, input_mode="linear_input")
    num_params = rnn.params_size().eval()
    weights, biases = rnn.params_to_canonical(tf.zeros([num_params]))
    assert len(weights) == len(biases) == num_weights

    def initializer(shape, dtype=None, partition_info=None):
        assert shape == [num_params] or shape == (num_params,)
        values = [tf.fill(tf.shape(w).eval(), i + 1.0) for i, w in enumerate(weights)]
        halves = [tf.constant(0.5, tf.float32, (units,)) for _ in biases]
        params = rnn.canonical_to_params(values, halves)
        params.set_shape((num_params,))
        return params

    params = tf.get_variable("params", num_params, tf.float32, initializer=initializer)
    half = len(weights) // 2
    keep = rnn.canonical_to_params(
        [tf.zeros_like(w) for w in weights[:half]] + [tf.ones_like(w) for w in weights[half:]],
        [tf.ones_like(b) for b in biases],
    )
    state = tf.zeros((1, tf.shape(inputs)[1], units), tf.float32)
    states = [state] * (2 if kind == "CudnnLSTM" else 1)
    outputs = rnn(inputs, *(states + [params * keep, True]))[0]
    initialize(session)
    matrices = session.run(rnn.params_to_canonical(params)[0])
    assert len(matrices) == num_weights
    assert all((matrix == i + 1.0).all() for i, matrix in enumerate(matrices))
    # Without input weights, the results are equal for all batch entries and inputs.
    found = session.run(outputs, {inputs: RANDOM.randn(4, 3, size)})
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1, :1], found.shape), rtol=1e-5)
    (gradient,) = session.run(tf.gradients(outputs, params), {inputs: np.ones([4, 3, size])})
    assert (gradient[: 4 * units] == 0).all() and (gradient != 0).any()


@of_release("1.2")
def test_size_from_a_session_thrown_away(session, namespace):
    """The size is a number, for a variable of another graph; `tf.cond` adds weight noise."""

    def size_of(*arguments, **named):
        with tf.Graph().as_default(), tf.Session() as session:
            return int(session.run(namespace.CudnnLSTM(*arguments, **named).params_size()))

    size = size_of(2, 4, 3, direction="bidirectional")
    rnn = namespace.CudnnLSTM(2, 4, 3, direction="bidirectional")
    params = tf.get_variable("params", [size], initializer=tf.random_normal_initializer(0.0, 0.2))
    is_training = tf.placeholder(tf.bool, [])
    noisy = tf.cond(is_training, lambda: params + 0.5, lambda: params)
    inputs = [tf.ones([5, 3]), tf.zeros([5, 3])]  # one tensor per step
    states = tf.zeros([4, 5, 4])
    call = functools.partial(rnn, input_h=states, input_c=states)
    assert tf.zeros([rnn.params_size(), 2]).shape == (size, 2)
    with tf.control_dependencies([tf.assert_equal(rnn.params_size(), [size])]):
        outputs, _, _ = call(inputs, params=noisy, is_training=is_training)
    initialize(session)
    trained, inferred = (session.run(outputs, {is_training: flag}) for flag in (True, False))
    assert trained.shape == inferred.shape == (2, 5, 8)
    assert np.abs(trained - inferred).min() > 0


@of_release("1.3")
def test_script_that_parses_the_names_of_specs(session, namespace, tmp_path):
    """Collects an LSTM's matrices by parsing the spec names, and computes the LSTM with them."""
    units, size = 4, 3
    rnn = namespace.CudnnLSTM(2, units, size)
    params = tf.Variable(tf.random_uniform([rnn.params_size()], -1, 1), validate_shape=False)
    saveable = namespace.RNNParamsSaveable(
        rnn, rnn.params_to_canonical, rnn.canonical_to_params, [params], "lm/rnn"
    )
    inputs = tf.constant(RANDOM.randn(1, 2, size), tf.float32)
    state = tf.zeros([2, 2, units])
    expected = rnn(inputs, state, state, params, False)[0]
    initialize(session)
    cells = {}
    for spec in saveable.specs:
        scope, cell, name = re.match(r"(.*)/cell_(\d+)/\w+/([^/]+)$", spec.name).groups()
        assert scope == "lm/rnn/multi_rnn_cell"
        cells.setdefault(int(cell), {})[name.split(":")[0]] = session.run(spec.tensor)
    assert sorted(cells) == [0, 1]
    values, expected = session.run([inputs[0], expected[0]])
    for _, cell in sorted(cells.items()):
        assert sorted(cell) == ["bias", "bias_cudnn_0", "bias_cudnn_1", "kernel"]
        np.testing.assert_allclose(cell["bias"], cell["bias_cudnn_0"] + cell["bias_cudnn_1"], 1e-6)
        first_step = np.concatenate([values, np.zeros([2, units])], axis=1)
        i, g, _, o = np.split(first_step.dot(cell["kernel"]) + cell["bias"], 4, axis=1)
        values = np.tanh(np.tanh(g) / (1 + np.exp(-i))) / (1 + np.exp(-o))
    np.testing.assert_allclose(values, expected, atol=1e-5)


@of_release("1.4")
def test_op_level_lstm_as_the_step_of_a_cell(session, namespace):
    """A cell around a one-step LSTM, in a loop, gives the results of the LSTM in one call."""
    units, size = 4, 3
    rnn = namespace.CudnnLSTM(1, units, size)
    params = tf.get_variable("params", [4 * units * (size + units + 2)], tf.float32)

    class Cell(cudnn_rnn.MultiRNNCell.__mro__[1]):
        state_size = (units, units)
        output_size = units

        def call(self, inputs, state):
            c, h = (tf.expand_dims(part, 0) for part in state)
            _, h, c = rnn(input_data=tf.expand_dims(inputs, 0), input_h=h, input_c=c, params=params)
            return tf.squeeze(h, [0]), (tf.squeeze(c, [0]), tf.squeeze(h, [0]))

    inputs = tf.constant(RANDOM.randn(5, 2, size), tf.float32)
    outputs, _ = tf.nn.dynamic_rnn(Cell(), inputs, dtype=tf.float32, time_major=True)
    zeros = tf.zeros([1, 2, units])
    expected, _, _ = rnn(inputs, zeros, zeros, params)
    gradients = [tf.gradients(tensor, params)[0] for tensor in (outputs, expected)]
    initialize(session)
    np.testing.assert_allclose(*session.run([outputs, expected]), atol=1e-6)
    np.testing.assert_allclose(*session.run(gradients), atol=1e-5)


@of_release("1.14")
def test_speech_model(session, namespace, tmp_path):
    """Two towers share one layer, with lengths; inference runs step by step with the cell."""
    batch, steps, size, units, labels = 2, 6, 3, 5, 4
    layer = namespace.CudnnLSTM(num_layers=1, num_units=units, dtype=tf.float32)
    x = tf.placeholder(tf.float32, [batch, None, size])
    lengths = tf.placeholder(tf.int32, [None])
    y = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [0, 1, 2], [batch, 2])

    def dense(name, values, width):
        with tf.variable_scope(name):
            kernel = tf.get_variable("kernel", [values.shape.as_list()[-1], width])
        return tf.matmul(values, kernel)

    def model(run_rnn):
        values = tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, size])
        values = tf.reshape(dense("before", values, 7), [-1, batch, 7])
        outputs = run_rnn(values)
        logits = dense("after", tf.reshape(outputs, [-1, units]), labels)
        return tf.reshape(logits, [-1, batch, labels])

    losses = []
    for tower in range(2):
        with tf.variable_scope(tf.get_variable_scope(), reuse=tower > 0):
            logits = model(lambda values: layer(inputs=values, sequence_lengths=lengths)[0])
            loss = tf.nn.ctc_loss(labels=y, inputs=logits, sequence_length=lengths)
            losses.append(tf.reduce_mean(loss))
    assert len(tf.trainable_variables()) == 3
    feed = {x: RANDOM.randn(batch, steps, size), lengths: [6, 4]}
    assert_falls(train(session, tf.add_n(losses), feed))
    expected = session.run(logits, feed)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    one_longer = session.run(logits, {**feed, lengths: [6, 5]})
    assert (one_longer[4] != expected[4]).any()
    np.testing.assert_array_equal(one_longer[:4], expected[:4])

    features = feed[x]
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [batch, None, size])
        lengths = tf.placeholder(tf.int32, [None])

        def run_cell(values):
            with tf.variable_scope("cudnn_lstm/rnn/multi_rnn_cell/cell_0"):
                cell = namespace.CudnnCompatibleLSTMCell(units)
                state, outputs = cell.zero_state(batch, tf.float32), []
                for value in tf.unstack(tf.ensure_shape(values, [steps, batch, 7])):
                    output, state = cell(value, state)
                    outputs.append(output)
            counts = tf.transpose(tf.sequence_mask(lengths, steps, dtype=tf.float32))
            return tf.stack(outputs) * tf.expand_dims(counts, 2)

        logits = model(run_cell)
        tf.train.Saver().restore(session, path)
        found = session.run(logits, {x: features, lengths: [6, 4]})
        np.testing.assert_allclose(found, expected, atol=1e-5)


@of_release("1.15")
def test_cells_with_another_gate_order(session, namespace, tmp_path):
    """A framework's converter, for cells with the gates o, g, f, i, in a bidirectional layer."""

    class Converter(namespace.CudnnParamsFormatConverterLSTM):
        def _cudnn_to_tf_gate_params(self, *gates):
            return gates[::-1]

        _tf_to_cudnn_gate_params = _cudnn_to_tf_gate_params

    class Saveable(namespace.CudnnLSTMSaveable):
        _format_converter_cls = Converter

    numbers = itertools.cycle(range(4))  # the same for the two biases of a gate
    layer = namespace.CudnnLSTM(
        1,
        4,
        direction="bidirectional",
        bias_initializer=lambda shape, dtype: tf.fill(shape, tf.cast(next(numbers), dtype)),
    )
    layer._saveable_cls = Saveable
    layer.build([None, None, 3])
    initialize(session)
    path = assert_round_trip(session, tf.train.Saver([layer.saveable]), [layer.kernel], tmp_path)
    canonical = layer.saveable.format_converter._opaque_to_cu_canonical(layer.kernel)
    weights, _ = session.run(canonical)
    for direction, gates in (("fw", weights[:4]), ("bw", weights[8:12])):
        cell = "stack_bidirectional_rnn/cell_0/bidirectional_rnn/%s/cudnn_compatible_lstm_cell/"
        kernel, bias = (
            tf.train.load_variable(path, cell % direction + name) for name in ("kernel", "bias")
        )
        expected = np.concatenate([gate.T for gate in gates[::-1]], axis=1)
        np.testing.assert_array_equal(kernel[:3], expected)
        np.testing.assert_array_equal(bias, np.repeat([6, 4, 2, 0], 4))


@of_release("1.15")
def test_weights_as_arrays(session, namespace):
    """Reads the layer's arrays, changes a bias in the cells' format, and writes them back."""
    units, size = 4, 3
    converter = namespace.CudnnParamsFormatConverterLSTM(1, units, size)
    h, c = (tf.placeholder(tf.float32, [1, None, units]) for _ in range(2))
    inputs = tf.placeholder(tf.float32, [None, None, size])
    with tf.variable_scope("name", reuse=tf.AUTO_REUSE):
        layer = namespace.CudnnLSTM(1, units)
        layer.build([None, None, size])
        outputs, state = layer(inputs, initial_state=(h, c), training=True)
    initialize(session)
    (opaque,) = layer.get_weights()
    (kernel,), (bias,) = session.run(converter.opaque_to_tf_canonical(opaque))
    bias = np.where(np.arange(4 * units) // units == 2, 1.0, bias).astype(np.float32)
    changed = session.run(converter.tf_canonical_to_opaque((kernel, bias)))
    layer.set_weights([changed])
    np.testing.assert_array_equal(layer.get_weights()[0], changed)
    assert (changed != opaque).sum() == 2 * units
    last = (np.zeros([1, 2, units]), np.zeros([1, 2, units]))
    for _ in range(2):  # the returned tuple is fed back
        feed = {inputs: np.ones([3, 2, size]), (h, c): last}
        found, last = session.run([outputs, state], feed)
    np.testing.assert_array_equal(found[-1], last[0][0])
    for wrong in ([changed[1:]], [changed, changed]):
        with pytest.raises(ValueError):
            layer.set_weights(wrong)


@needs_tensorflow_2
def test_weights_as_arrays_need_a_session():
    """TensorFlow 1 uses Keras's session."""
    with tf.Graph().as_default():
        layer = cudnn_rnn.layers.CudnnGRU(1, 2)
        layer.build([None, None, 3])
        with pytest.raises(RuntimeError, match="get_weights .*default session"):
            layer.get_weights()
        with pytest.raises(RuntimeError, match="set_weights .*default session"):
            layer.set_weights([np.zeros(42)])


@of_release("1.12")
def test_saver_of_a_dict_of_saveables(session, namespace, tmp_path):
    """Layers of different kinds, built in their scopes, are saved together and one by one."""
    inputs = tf.placeholder(tf.float32, [None, None, 5])
    values, layers, updates = inputs, [], []
    for number, (kind, units) in enumerate([("CudnnLSTM", 4), ("CudnnGRU", 3)]):
        layer = getattr(namespace, kind)(1, units, name="rnn_%d" % number)
        with tf.variable_scope("module_%d" % number):
            layer.build((None, None, values.shape.as_list()[-1]))
        states = tuple(
            tf.Variable(tf.zeros([1, 2, units]), trainable=False, validate_shape=False)
            for _ in layer.state_shape(2)
        )
        values, new_states = layer(values, initial_state=states, training=True)
        updates += [tf.assign(*pair, validate_shape=False) for pair in zip(states, new_states)]
        layers.append(layer)
    with tf.control_dependencies(updates):
        loss = tf.reduce_sum(tf.square(values - 0.2))
    with tf.device("/cpu:0"):
        saver = tf.train.Saver({"rnn_%d" % i: layer.saveable for i, layer in enumerate(layers)})
        first = tf.train.Saver({"first": layers[0].saveable}, max_to_keep=None)
    feed = {inputs: RANDOM.randn(3, 2, 5)}
    losses = train(session, loss, feed, steps=20)
    assert_falls([losses[1], losses[-1]])  # the first step has other states
    outputs = layers[0](inputs)[0]
    expected = session.run(outputs, feed)
    path = saver.save(session, str(tmp_path / "all"))
    path_of_first = first.save(session, str(tmp_path / "first"))
    keys = {name for name, _ in tf.train.list_variables(path)}
    assert len(keys) == 8 and {key.split("/")[0] for key in keys} == {"module_0", "module_1"}
    initialize(session)
    first.restore(session, path_of_first)
    np.testing.assert_allclose(session.run(outputs, feed), expected, atol=1e-6)


@needs_estimators
@pytest.mark.release
@pytest.mark.parametrize("kind", ["CudnnGRU", "CudnnRNNRelu"])
@of_release("1.15")
def test_estimator(session, namespace, kind, tmp_path):
    """tensorflow#20972: an Estimator trains, evaluates, resumes, exports; no soft placement."""
    data = {"x": RANDOM.randn(8, 6, 3).astype(np.float32)}
    labels = RANDOM.randint(0, 3, 8)

    def model_fn(features, labels, mode):
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        values = tf.transpose(features["x"], [1, 0, 2])
        values, _ = getattr(namespace, kind)(1, 4, name="first")(values, training=is_training)
        layer = namespace.CudnnLSTM(2, 4, direction="bidirectional", name="second")
        values, _ = layer(values, training=is_training)
        logits = tf.matmul(tf.reduce_sum(values, 0), tf.get_variable("dense/kernel", [8, 3]))
        spec = functools.partial(tf.estimator.EstimatorSpec, mode, {"logits": logits})
        if labels is None:
            return spec()
        loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
        if not is_training:
            return spec(loss=loss)
        step = tf.train.get_global_step()
        return spec(loss=loss, train_op=tf.train.AdamOptimizer(0.05).minimize(loss, step))

    def examples():
        return tf.data.Dataset.from_tensor_slices((data, labels)).repeat().batch(4)

    def inputs():
        return tf.data.Dataset.from_tensor_slices(data).batch(4)

    config = tf.estimator.RunConfig(
        save_checkpoints_steps=10, session_config=tf.ConfigProto(allow_soft_placement=False)
    )
    estimator = tf.estimator.Estimator(model_fn, str(tmp_path / "model"), config)
    estimator.train(examples, steps=3)
    before = estimator.evaluate(examples, steps=2)
    estimator.train(examples, steps=10)
    after = estimator.evaluate(examples, steps=2)
    assert (before["global_step"], after["global_step"]) == (3, 13)
    assert after["loss"] < before["loss"]
    again = tf.estimator.Estimator(model_fn, str(tmp_path / "model"), config)  # from its folder
    expected = np.array([each["logits"] for each in again.predict(inputs)], np.float64)
    of_labels = expected[np.arange(8), labels]
    loss = np.mean(np.log(np.exp(expected).sum(1)) - of_labels)
    # The op's logarithm is of a sum near 1, which float32 rounds to 1e-7, however small the loss.
    np.testing.assert_allclose(loss, after["loss"], rtol=1e-5, atol=1e-7)
    with tf.Graph().as_default():
        features = {"x": tf.placeholder(tf.float32, [None, 6, 3])}
        receiver = tf.estimator.export.build_raw_serving_input_receiver_fn(features)
    folder = estimator.export_saved_model(str(tmp_path / "export"), receiver).decode()
    signature = tf.saved_model.load(session, ["serve"], folder).signature_def["serving_default"]
    feed = {signature.inputs["x"].name: data["x"]}
    found = session.run(signature.outputs["logits"].name, feed)
    np.testing.assert_allclose(found, expected, atol=1e-5)
