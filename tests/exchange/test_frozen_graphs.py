"""Frozen graphs, and SavedModels whose weights are constants."""

import os
import shutil

import numpy as np
import pytest
import tensorflow
from google.protobuf import text_format
from tensorflow.python.eager import context
from tensorflow.python.framework import convert_to_constants

from cudnn_rnn import exchange
from cudnn_rnn._compat import gen_cudnn_rnn_ops, tf
from cudnn_rnn.cli.main import main
from cudnn_rnn.exchange import RnnWeights, keras_format
from helpers.exchange_models import assert_refused, assert_same, make_module, random_rnn, run_op
from helpers.golden import read_case
from helpers.keras_layers import IS_KERAS_3
from helpers.paths import GOLDEN
from helpers.processes import status_and_text
from helpers.versions import needs_projection, needs_tensorflow_2

pytestmark = [pytest.mark.ci, needs_projection]

GRAPHS = os.path.join(GOLDEN, "graphs")
LAYERS = ["layer_tanh", "layer_v2_gru"]
COMPUTED = ["projection", "raw_v1_gru", "raw_v1_lstm", "raw_v2_gru", "raw_v3_lstm"]


def golden(name):
    """Returns the path of a golden graph, its RNN and its arrays."""
    case, arrays = read_case(os.path.join(GRAPHS, name))
    sizes = [case[size] for size in ("num_layers", "num_units", "input_size")]
    is_both_ways = case["direction"] == "bidirectional"
    options = dict(bidirectional=is_both_ways, num_proj=case["num_proj"])
    rnn = RnnWeights.from_opaque(arrays["params"], case["rnn_mode"], *sizes, **options)
    return os.path.join(GRAPHS, name, "frozen.pb"), rnn, arrays


def graph_def_of(path):
    with open(path, "rb") as file:
        return tf.GraphDef.FromString(file.read())


def written(path, graph_def):
    with open(str(path), "wb") as file:
        file.write(graph_def.SerializeToString())
    return str(path)


def forward_node(rnn, x, params, states=None, version="", **attributes):
    """Adds the node of an RNN; `params` may be that of another RNN."""
    if states is None:
        states = [rnn.num_layers * rnn.num_directions, tf.shape(x)[1], rnn.num_units]
        states = [tf.zeros(states), tf.zeros(states)]
    named = dict(input_mode="linear_input", direction=rnn.layout.direction)
    named.update(rnn_mode=rnn.rnn_mode, is_training=False, **attributes)
    op = getattr(gen_cudnn_rnn_ops, "cudnn_rnn" + version)
    return op(input=x, input_h=states[0], input_c=states[1], params=params, **named)


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def frozen(graph, path):
    """Writes the graph, which has constants only; returns the path."""
    return written(path, graph.as_graph_def())


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(tmp_path, name):
    path, expected, arrays = golden(name)
    contents = exchange.read(path)
    assert (contents.format, contents.notes, contents.problems) == ("frozen graph", [], [])
    (rnn,) = contents.rnns
    assert rnn.scope == "encoder" and contents.others == []
    assert_same(rnn, expected)
    rows = [rnn.num_layers * rnn.num_directions, arrays["inputs"].shape[1], rnn.num_units]
    for to, target in (("npz", "rnn.npz"), ("1.15", "model"), ("torch", "rnn.pt")):
        if to == "torch":
            pytest.importorskip("torch", reason="requires TensorFlow 2")
        exchange.convert(path, tmp_path / target, to)
        (again,) = exchange.read(tmp_path / target, rnn_mode=rnn.rnn_mode).rnns
        assert_same(again, expected)
        inputs = {"input": arrays["inputs"], "input_h": np.zeros(rows, np.float32)}
        found = run_op(again, inputs)["output"]
        np.testing.assert_allclose(found, arrays["result_0"], rtol=0, atol=1e-5)


@needs_tensorflow_2
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_in_other_libraries(tmp_path, name):
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    path, expected, arrays = golden(name)
    assert main(["convert", path, str(tmp_path / "rnn.onnx"), "--to", "onnx"]) == 0
    session = runtime.InferenceSession(str(tmp_path / "rnn.onnx"))
    (found,) = session.run(["output"], {"input": arrays["inputs"]})
    np.testing.assert_allclose(found, arrays["result_0"], rtol=0, atol=1e-5)
    assert main(["convert", path, str(tmp_path / "rnn.pt"), "--to", "torch"]) == 0
    module = make_module(expected)
    module.load_state_dict(torch.load(str(tmp_path / "rnn.pt")))
    with torch.no_grad():
        found = module(torch.from_numpy(arrays["inputs"]))[0].numpy()
    np.testing.assert_allclose(found, arrays["result_0"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", COMPUTED)
def test_parameters_through_canonical_tensors(tmp_path, name):
    """The graphs compute their parameters; here, a constant has the result."""
    path, expected, arrays = golden(name)
    assert_refused(path, "not constants of the graph: they are computed by the node 'truediv'")
    graph_def = graph_def_of(path)
    (computed,) = [node for node in graph_def.node if node.name == "truediv"]
    computed.Clear()
    computed.name, computed.op = "truediv", "Const"
    computed.attr["dtype"].type = tf.float32.as_datatype_enum
    computed.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(arrays["params"]))
    (rnn,) = exchange.read(written(tmp_path / "model.pb", graph_def)).rnns
    assert_same(rnn, expected)
    has_sizes = ("Placeholder", "Fill", "Shape")
    for node in graph_def.node:  # the sizes are also those of the conversion
        if node.op in has_sizes:
            node.op = "Unknown"
    (rnn,) = exchange.read(written(tmp_path / "model.pb", graph_def)).rnns
    assert_same(rnn, expected)


@pytest.mark.parametrize("name", ["model.pbtxt", "model"])
def test_text_and_names_without_a_suffix(tmp_path, name):
    path, expected, _ = golden("layer_tanh")
    target = str(tmp_path / name)
    if name.endswith("txt"):
        with open(target, "w") as file:
            file.write(text_format.MessageToString(graph_def_of(path)))
    else:
        shutil.copy(path, target)
    assert_same(exchange.read(target).rnns[0], expected)


def test_several_rnns(graph, tmp_path):
    """The input size of the second is the width of the first's output; one is there twice."""
    first = random_rnn("lstm", 1, bidirectional=True)
    second = random_rnn("gru", 1, num_units=3, input_size=10, seed=1)
    x = tf.placeholder(tf.float32, [None, None, 4])
    with tf.name_scope("a"):
        params = tf.constant(first.to_opaque(), name="opaque_kernel")
        for name in ("train", "serve"):
            with tf.name_scope(name):
                y = forward_node(first, x, tf.identity(params))[0]
    with tf.name_scope("b"):
        forward_node(second, tf.nn.relu(y), tf.constant(second.to_opaque()), version="v2")
    tf.constant(np.ones([2, 3]), name="embedding")
    contents = exchange.read(frozen(graph, tmp_path / "model.pb"))
    assert [rnn.scope for rnn in contents.rnns] == ["a", "b"]
    assert_same(contents.rnns[0], first)
    assert_same(contents.rnns[1], second)
    assert contents.others == ["embedding"]


@pytest.mark.parametrize("input_mode", ["skip_input", "auto_select"])
def test_skipped_inputs(graph, tmp_path, input_mode):
    random = np.random.RandomState(0)
    params = random.uniform(-1, 1, 3 * 4 * 4 + 6 * 4).astype(np.float32)
    expected = RnnWeights.from_opaque(params, "gru", 1, 4, 4, skip_input=True)
    x = tf.placeholder(tf.float32, [None, None, 4])
    forward_node(expected, x, tf.constant(params))
    graph_def = graph.as_graph_def()
    for node in graph_def.node:
        if node.op == "CudnnRNN":
            node.attr["input_mode"].s = input_mode.encode()
    assert_same(exchange.read(written(tmp_path / "model.pb", graph_def)).rnns[0], expected)


def unknown_shapes(rnn):
    """Adds an RNN whose inputs have unknown shapes."""
    x, h, c = [tf.placeholder(tf.float32) for _ in range(3)]
    return forward_node(rnn, x, tf.constant(rnn.to_opaque()), [h, c])


def test_sizes_that_the_graph_does_not_tell(graph, tmp_path):
    expected = random_rnn("lstm", 3)
    unknown_shapes(expected)
    path = frozen(graph, tmp_path / "model.pb")
    assert_refused(path, "does not tell its num_units", "(--num-units, --num-layers)")
    assert_same(exchange.read(path, num_layers=3, num_units=5).rnns[0], expected)
    message = "may be any of these RNNs:\n  lstm, num_layers 1"
    assert_refused(path, message, "Give num_layers (--num-layers)", num_units=5)
    message = "are those of no RNN with rnn_mode 'lstm', unidirectional, num_layers 3"
    assert_refused(path, message, num_layers=3, num_units=6)
    sizes = dict(num_layers=3, num_units=5, input_size=4)
    attributes = dict(rnn_mode="lstm", input_mode="linear_input", direction="unidirectional")
    gen_cudnn_rnn_ops.cudnn_rnn_params_size(T=tf.float32, S=tf.int32, **attributes, **sizes)
    path = frozen(graph, tmp_path / "model.pb")
    assert_same(exchange.read(path).rnns[0], expected)


@pytest.mark.parametrize("num_units, input_size", [(5, 4), (4, 9), (3, 3)])
def test_num_units_follow_from_the_other_sizes(graph, tmp_path, num_units, input_size):
    expected = random_rnn("gru", 2, num_units, input_size)
    x = tf.placeholder(tf.float32, [None, None, input_size])
    state = tf.placeholder(tf.float32, [2, None, None])
    forward_node(expected, x, tf.constant(expected.to_opaque()), [state, tf.constant([])])
    assert_same(exchange.read(frozen(graph, tmp_path / "model.pb")).rnns[0], expected)


def test_shapes_in_attributes(graph, tmp_path):
    expected = random_rnn("rnn_relu", 1)
    x = tf.placeholder(tf.float32, [None, None, 2])
    x = tf.concat([x, x], 2)
    forward_node(expected, x, tf.constant(expected.to_opaque()))
    for add_shapes in (False, True):
        graph_def = graph.as_graph_def(add_shapes=add_shapes)
        assert_same(exchange.read(written(tmp_path / "a.pb", graph_def)).rnns[0], expected)


@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
@pytest.mark.parametrize("depth", [1, 2])
def test_branches_with_the_same_parameters(
    graph, tmp_path, control_flow_of_tensorflow_1, rnn_mode, depth
):
    """With a placeholder is_training, there is a node in each branch of a tf.cond."""
    expected = random_rnn(rnn_mode, 2, bidirectional=True)
    x = tf.placeholder(tf.float32, [None, None, 4])
    is_training = tf.placeholder(tf.bool, [])
    states = [tf.zeros([4, tf.shape(x)[1], 5]) for _ in range(2)]
    with tf.name_scope("rnn"):
        params = tf.identity(tf.constant(expected.to_opaque(), name="opaque_kernel"))

        def branch(version):
            return lambda: forward_node(expected, x, params, states, version)[0]

        def choose(depth):
            other = (lambda: choose(depth - 1)) if depth > 1 else branch("v2")
            return tf.cond(is_training, branch(""), other)

        choose(depth)
    graph_def = graph.as_graph_def()
    assert {"Switch", "Merge"} <= {node.op for node in graph_def.node}
    assert sum(node.op.startswith("CudnnRNN") for node in graph_def.node) == depth + 1
    path = written(tmp_path / "model.pb", graph_def)
    contents = exchange.read(path)
    assert contents.problems == [] and contents.others == []
    (rnn,) = contents.rnns
    assert rnn.scope == "rnn"
    assert_same(rnn, expected)
    exchange.convert(path, tmp_path / "rnn.npz", "npz")
    assert_same(exchange.read(tmp_path / "rnn.npz").rnns[0], expected)


def test_branches_with_different_parameters(graph, tmp_path, control_flow_of_tensorflow_1):
    """They are different RNNs; what is chosen from their parameters is no constant."""
    both = [random_rnn("gru", 1, seed=seed) for seed in range(2)]
    x = tf.placeholder(tf.float32, [None, None, 4])
    condition = tf.placeholder(tf.bool, [])
    params = []
    for scope, rnn in zip("ab", both):
        with tf.name_scope(scope):
            params.append(tf.constant(rnn.to_opaque(), name="opaque_kernel"))

    def branch(number):
        return lambda: forward_node(both[number], x, params[number])[0]

    tf.cond(condition, branch(0), branch(1))
    contents = exchange.read(frozen(graph, tmp_path / "model.pb"))
    assert contents.problems == []
    assert [rnn.scope for rnn in contents.rnns] == ["a", "b"]
    for found, expected in zip(contents.rnns, both):
        assert_same(found, expected)
    chosen = tf.cond(condition, lambda: params[0], lambda: params[1])
    with tf.name_scope("chosen"):
        forward_node(both[0], x, chosen)
    contents = exchange.read(frozen(graph, tmp_path / "model.pb"))
    assert len(contents.rnns) == 2
    (problem,) = contents.problems
    assert "The parameters of the node 'chosen/CudnnRNN'" in problem and "op Merge" in problem


@needs_tensorflow_2
@pytest.mark.parametrize("is_argument", [False, True])
def test_functions(graph, tmp_path, is_argument):
    expected = random_rnn("lstm", 2)

    @tensorflow.function
    def inner(x, params=None):
        params = tf.constant(expected.to_opaque()) if params is None else tf.identity(params)
        return forward_node(expected, tf.transpose(x, [1, 0, 2]), params, version="v2")[0]

    @tensorflow.function
    def outer(*given):
        return inner(*given)

    x = tf.placeholder(tf.float32, [None, None, 4])
    params = [tf.constant(expected.to_opaque())] * is_argument
    for _ in range(2):
        outer(x, *params)
    graph_def = graph.as_graph_def()
    assert not [node for node in graph_def.node if node.op.startswith("CudnnRNN")]
    (rnn,) = exchange.read(written(tmp_path / "model.pb", graph_def)).rnns
    assert_same(rnn, expected)
    if is_argument:
        outer(x, tf.constant(random_rnn("lstm", 2, seed=1).to_opaque()))
        graph_def = graph.as_graph_def()
        assert_refused(written(tmp_path / "model.pb", graph_def), "which gets different values")


@needs_tensorflow_2
@pytest.mark.skipif(not IS_KERAS_3, reason="requires Keras 3")
def test_layers_of_keras(tmp_path):
    import cudnn_rnn.keras

    layers = cudnn_rnn.keras
    model = tensorflow.keras.Sequential(
        [
            tensorflow.keras.Input((None, 3)),
            layers.LSTM(5, return_sequences=True, bias_initializer="uniform"),
            tensorflow.keras.layers.Bidirectional(layers.GRU(4, bias_initializer="uniform")),
        ]
    )
    path = str(tmp_path / "model.pb")
    written(path, frozen_keras(model))
    lstm, forward, backward = exchange.read(path).rnns
    assert [one.scope.split("/")[-1].split("_")[0] for one in (lstm, forward, backward)] == [
        "lstm",
        "forward",
        "backward",
    ]
    expected = [
        rnn.layers[0][way]
        for rnn in keras_format.from_model(model).rnns
        for way in range(rnn.num_directions)
    ]
    for found, one in zip((lstm, forward, backward), expected):
        ((found,),) = found.layers
        for part in ("input_weights", "recurrent_weights"):
            np.testing.assert_array_equal(getattr(found, part), getattr(one, part))
        sums = [weights.input_bias + weights.recurrent_bias for weights in (found, one)]
        np.testing.assert_array_equal(*sums)
        assert sums[0].any()


def frozen_keras(model):
    """Returns a frozen graph of a Keras model."""
    spec = tensorflow.TensorSpec([None, *model.input_shape[1:]])
    with context.eager_mode():
        function = tensorflow.function(lambda x: model(x, training=False))
        concrete = function.get_concrete_function(spec)
        return convert_to_constants.convert_variables_to_constants_v2(concrete).graph.as_graph_def()


@pytest.mark.parametrize("has_variable", [False, True])
def test_a_saved_model_of_constants(graph, tmp_path, has_variable):
    expected = random_rnn("gru", 2)
    x = tf.placeholder(tf.float32, [None, None, 4])
    with tf.name_scope("encoder"):
        y = forward_node(expected, x, tf.constant(expected.to_opaque()))[0]
    folder = str(tmp_path / "saved_model")
    with tf.Session() as session:
        if has_variable:
            y += tf.get_variable("offset", [])
            session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, folder, {"x": x}, {"y": y})
    for path in (folder, os.path.join(folder, "saved_model.pb")):
        contents = exchange.read(path)
        assert contents.format == "SavedModel with constants"
        assert contents.others == ["offset"] * has_variable
        (rnn,) = contents.rnns
        assert rnn.scope == "encoder"
        assert_same(rnn, expected)
    exchange.convert(folder, tmp_path / "rnn.npz", "npz")
    assert_same(exchange.read(tmp_path / "rnn.npz").rnns[0], expected)


def test_the_file_of_a_saved_model_with_variables():
    folder = os.path.join(GRAPHS, "layer_v1_lstm", "saved_model")
    (expected,) = exchange.read(folder, num_units=4).rnns
    (found,) = exchange.read(os.path.join(folder, "saved_model.pb"), num_units=4).rnns
    assert_same(found, expected)


def test_a_graph_that_is_not_frozen(graph, tmp_path):
    rnn = random_rnn("gru", 1)
    variable = tf.get_variable("kernel", initializer=rnn.to_opaque())
    forward_node(rnn, tf.placeholder(tf.float32, [None, None, 4]), variable.read_value())
    message = "is a variable, so the graph is not frozen: give the checkpoint"
    assert_refused(frozen(graph, tmp_path / "model.pb"), message)


@pytest.mark.sampled(4)
def test_commands(tmp_path, capsys):
    path, _, _ = golden("layer_tanh")
    assert main(["inspect", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith("%s: frozen graph\n" % path)
    assert "The RNN 'encoder': rnn_tanh, 1 layer of 4 units, bidirectional, input size 3" in out
    target = tmp_path / "plain"
    status, text = status_and_text("-m", "cudnn_rnn", "export", path, target)
    assert status == 1 and not target.exists()
    assert "is a file, not the folder of a SavedModel. A frozen graph can become an OUT" in text
    assert "cudnn_rnn.plain_graph_def" in text


def test_a_graph_without_an_rnn(graph, tmp_path):
    tf.constant(np.ones(3), name="other")
    contents = exchange.read(frozen(graph, tmp_path / "model.pb"))
    assert contents.rnns == [] and contents.others == ["other"]
