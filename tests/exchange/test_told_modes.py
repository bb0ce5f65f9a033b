"""Facts that weights do not have, such as the activation of a simple RNN: told, given, unknown."""

import os

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import exchange
from cudnn_rnn.exchange import RnnWeights, checkpoint_format, graph_nodes, torch_format
from cudnn_rnn.model import layout
from helpers.exchange_models import assert_same, random_rnn
from helpers.layer_models import LAYERS, run_cells
from helpers.restoring import random_values
from helpers.rnn_models import CLASSES
from helpers.versions import needs_projection, needs_tensorflow_2

pytestmark = pytest.mark.ci

SIMPLE = ("rnn_relu", "rnn_tanh")
UNKNOWN = "rnn_tanh or rnn_relu"
simple_modes = pytest.mark.parametrize("rnn_mode", SIMPLE)


def save(build, path, meta_graph=False):
    """Saves the graph that `build()` makes, with the Saver that it returns."""
    with tf.Graph().as_default(), tf.Session() as session:
        saver = build() or tf.train.Saver()
        session.run(tf.global_variables_initializer())
        saver.save(session, str(path), write_meta_graph=meta_graph)


def modes(path, **facts):
    """Returns the modes of the RNNs in a file by scope."""
    return {rnn.scope: rnn.rnn_mode for rnn in exchange.read(path, **facts).rnns}


def unknown_rnn(scope="model", **named):
    return random_rnn("rnn_relu", scope=scope, **named).with_rnn_mode(UNKNOWN)


# Names


@simple_modes
@pytest.mark.parametrize("is_called", [False, True])
def test_the_default_name_of_a_layer(tmp_path, rnn_mode, is_called):
    """If the first call builds the layer, the keys of the cells have its name too."""

    def build():
        for _ in range(2):
            layer = LAYERS[rnn_mode](2, 4)
            layer(tf.zeros([3, 2, 3])) if is_called else layer.build([None, None, 3])
            if not is_called:
                return

    save(build, tmp_path / "model")
    names = ["cudnn_" + rnn_mode, "cudnn_%s_1" % rnn_mode] if is_called else [""]
    assert modes(tmp_path / "model") == dict.fromkeys(names, rnn_mode)


def test_a_converted_relu_rnn_is_a_relu_rnn(tmp_path):
    """It computed tanh in ONNX and Keras."""
    save(lambda: LAYERS["rnn_relu"](1, 4).build([None, None, 3]), tmp_path / "model")
    done = exchange.convert(tmp_path / "model", tmp_path / "rnn.npz", "npz")
    assert done.source.notes == []
    assert modes(tmp_path / "rnn.npz") == {"": "rnn_relu"}


def test_names_that_only_resemble_the_default(tmp_path):
    for scope in ("cudnn_rnn_relu_cell", "my_cudnn_rnn_relu", "cudnn_rnn_relu/decoder", "relu"):
        exchange.write(
            tmp_path / "model", [random_rnn("rnn_relu", scope=scope)], "1.15", force=True
        )
        assert modes(tmp_path / "model") == {scope: UNKNOWN}


@needs_tensorflow_2
@pytest.mark.parametrize("name, found", [("cudnn_rnn_relu", "rnn_relu"), ("encoder", UNKNOWN)])
def test_object_based_checkpoints(tmp_path, name, found):
    with tf.Graph().as_default(), tf.Session() as session:
        layer = LAYERS["rnn_relu"](2, 4)
        layer.build([None, None, 3])
        session.run(tf.global_variables_initializer())
        path = tf.train.Checkpoint(**{name: layer}).save(str(tmp_path / "m"), session=session)
    assert modes(path) == {name: found}


# Graphs


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("saved", ["all", "variables", "renamed", "sharded"])
def test_the_graph_beside_the_checkpoint(tmp_path, saved, use_resource):
    """Two RNNs of different modes, whose names do not tell."""

    def build():
        kernels = []
        for scope, rnn_mode in (("a", "rnn_relu"), ("b", "rnn_tanh")):
            with tf.variable_scope(scope, use_resource=use_resource):
                layer = LAYERS[rnn_mode](2, 4, name="layer")
                layer(tf.zeros([3, 2, 3]))
                kernels.append(layer.kernel)
        if saved == "variables":
            return tf.train.Saver(kernels)
        if saved == "renamed":
            return tf.train.Saver({"x/opaque_kernel": kernels[0], "y/opaque_kernel": kernels[1]})
        return tf.train.Saver(sharded=saved == "sharded")

    save(build, tmp_path / "model", meta_graph=True)
    names = {"renamed": ("x", "y")}.get(saved, ("a/layer", "b/layer"))
    expected = dict(zip(names, SIMPLE))
    facts = dict(num_units=4, num_layers=2) if saved in ("variables", "renamed") else {}
    assert modes(tmp_path / "model", **facts) == expected
    os.remove(str(tmp_path / "model.meta"))
    if not facts:
        assert modes(tmp_path / "model") == dict.fromkeys(names, UNKNOWN)


@simple_modes
@pytest.mark.parametrize("arguments", [(), ("model/rnn",)])
def test_the_graph_of_an_op_level_model(tmp_path, rnn_mode, arguments):
    """The saveable computes the tensors that have keys."""

    def build():
        model = CLASSES[rnn_mode](2, 4, 3, direction="bidirectional")
        params = tf.get_variable("params", initializer=tf.zeros([model.params_size()]))
        functions = model.params_to_canonical, model.canonical_to_params, [params]
        saveable = cudnn_rnn.RNNParamsSaveable(
            *([model] if arguments else []), *functions, *arguments, name="rnn"
        )
        return tf.train.Saver([saveable])

    save(build, tmp_path / "model", meta_graph=True)
    assert list(modes(tmp_path / "model").values()) == [rnn_mode]


@pytest.mark.sampled(2)
@simple_modes
@pytest.mark.usefixtures("control_flow_of_tensorflow_1")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_graph_of_cells(tmp_path, rnn_mode, bidirectional):
    def build():
        with tf.variable_scope("model"):
            run_cells(rnn_mode, 2, 4, bidirectional, tf.zeros([3, 2, 3]))

    save(build, tmp_path / "model", meta_graph=True)
    assert modes(tmp_path / "model") == {"model": rnn_mode}
    os.remove(str(tmp_path / "model.meta"))
    assert modes(tmp_path / "model") == {"model": UNKNOWN}


def test_the_graph_is_more_certain_than_a_name(tmp_path):
    def build():
        LAYERS["rnn_relu"](1, 4, name="cudnn_rnn_tanh").build([None, None, 3])

    save(build, tmp_path / "model", meta_graph=True)
    assert modes(tmp_path / "model") == {"": "rnn_relu"}


def test_parameters_that_both_modes_use(tmp_path):
    def build():
        params = tf.get_variable("params/opaque_kernel", [32], tf.float32)
        for rnn_mode in SIMPLE:
            CLASSES[rnn_mode](1, 4, 2)(tf.zeros([3, 2, 2]), tf.zeros([1, 2, 4]), params)

    save(build, tmp_path / "model", meta_graph=True)
    assert modes(tmp_path / "model") == {}
    assert modes(tmp_path / "model", rnn_mode="rnn_relu", num_units=4) == {"params": "rnn_relu"}


@simple_modes
def test_saved_models_of_tensorflow_1(tmp_path, rnn_mode):
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [None, 2, 3])
        with tf.variable_scope("model"):
            outputs, _ = LAYERS[rnn_mode](1, 4, name="layer")(inputs)
        session.run(tf.global_variables_initializer())
        folder = str(tmp_path / "exported")
        tf.saved_model.simple_save(session, folder, {"x": inputs}, {"y": outputs})
    assert modes(folder) == {"model/layer": rnn_mode}


@needs_tensorflow_2
@pytest.mark.parametrize("rnn_mode", ["rnn_relu", "gru"])
def test_saved_models_of_tensorflow_2(tmp_path, rnn_mode):
    """Their nodes are in functions."""
    with tensorflow.init_scope():
        model, module = CLASSES[rnn_mode](1, 4, 3), tensorflow.Module()
        size = layout.params_size(random_rnn(rnn_mode, 1, 4, 3).layout)
        module.opaque_kernel = tensorflow.Variable(random_values(size))

        @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, 2, 3])])
        def call(inputs):
            return model(inputs, tf.zeros([1, 2, 4]), module.opaque_kernel, is_training=False)

        module.call = call
        tensorflow.saved_model.save(module, str(tmp_path / "exported"))
    contents = exchange.read(tmp_path / "exported")
    assert (
        "an RNN with rnn_mode %r that the file does not describe. Give num_units" % rnn_mode
        in (contents.notes[0])
    )
    facts = dict(num_units=4, num_layers=1, direction="unidirectional")
    assert modes(tmp_path / "exported", **facts) == {"": rnn_mode}
    other = "lstm" if rnn_mode == "gru" else "rnn_tanh"
    expected = "is %s according to the graph in .*saved_model.pb, but rnn_mode .* is %s"
    with pytest.raises(exchange.ExchangeError, match=expected % (rnn_mode, other)):
        exchange.read(tmp_path / "exported", rnn_mode=other, **facts)


# Damaged and hostile graphs


def meta_graph_of(*nodes):
    """Returns a MetaGraph of (op, name, inputs, mode)."""
    meta_graph = tf.MetaGraphDef()
    for operation, name, inputs, rnn_mode in nodes:
        node = meta_graph.graph_def.node.add(op=operation, name=name, input=inputs)
        if rnn_mode:
            node.attr["rnn_mode"].s = rnn_mode
    return meta_graph


def write_graph(tmp_path, content):
    exchange.write(tmp_path / "model", [random_rnn("rnn_relu", scope="model")], "1.15")
    (tmp_path / "model.meta").write_bytes(content)
    return exchange.read(tmp_path / "model")


def nested(depth):
    """Returns a MetaGraph whose attribute has so many levels of lists of functions."""
    content = b""
    for number in [2, 2, 9, 1] * depth + [2, 5, 1, 2]:  # fields that contain a message
        length = len(content)
        digits = []
        while True:
            digits.append(length & 127 | (128 if length > 127 else 0))
            length >>= 7
            if not length:
                break
        content = bytes([number << 3 | 2]) + bytes(digits) + content
    return content


@pytest.mark.parametrize(
    "content",
    [
        b"Hello",
        b"\x12\xff\xff\xff\xff\x07",  # a graph_def of 2 GiB
        b"\x12\x04\x0a\x02\x0a\xff",  # a name that is cut off
        nested(2000),
    ],
    ids=["text", "huge", "cut", "nested"],
)
def test_damaged_graphs_are_not_used(tmp_path, content):
    contents = write_graph(tmp_path, content)
    assert contents.rnns[0].rnn_mode == UNKNOWN
    assert "model.meta cannot be read as a graph: " in contents.notes[0]
    assert "It is not used." in contents.notes[0]


def test_a_pipe_in_place_of_a_graph(tmp_path):
    exchange.write(tmp_path / "model", [random_rnn("rnn_relu", scope="model")], "1.15")
    os.mkfifo(str(tmp_path / "model.meta"))
    assert modes(tmp_path / "model") == {"model": UNKNOWN}


def test_graphs_without_sense(tmp_path):
    """Cycles, missing nodes and inputs, unknown modes, and savers without keys."""
    variable = ("VariableV2", "model/opaque_kernel", [], None)
    read = ("Identity", "read", ["model/opaque_kernel"], None)
    nonsense = [
        ("Identity", "a", ["b:0"], None),
        ("Identity", "b", ["a"], None),
        ("CudnnRNN", "cycle", ["", "", "", "a"], b"rnn_tanh"),
        ("CudnnRNN", "missing", ["x", "x", "x", "x"], b"rnn_tanh"),
        ("CudnnRNN", "short", ["x"], b"rnn_tanh"),
        ("CudnnRNN", "unknown", ["x", "x", "x", "read"], b"\xff\xfe"),
        ("CudnnRNNParamsToCanonical", "loop", ["x", "x", "x", "loop"], b"rnn_tanh"),
        ("Transpose", "around", ["loop:0", "around"], None),
        ("Relu", "relu", [], None),
        ("SaveV2", "save", ["x"], None),
        ("SaveV2", "save_2", ["x", "read", "x", "around", "^x"], None),
        ("", "", [""], b"lstm"),
    ]
    contents = write_graph(tmp_path, meta_graph_of(variable, read, *nonsense).SerializeToString())
    assert (contents.rnns[0].rnn_mode, contents.notes[1:]) == (UNKNOWN, [])
    told = ("CudnnRNNV3", "rnn", ["", "", "", "read"], b"rnn_relu")
    meta_graph = meta_graph_of(variable, read, *nonsense, told)
    (tmp_path / "model.meta").write_bytes(meta_graph.SerializeToString())
    assert modes(tmp_path / "model") == {"model": "rnn_relu"}


def test_each_edge_is_followed_once():
    """A chain that each of many nodes would follow to its end, without a memory."""

    class Counting(graph_nodes.Nodes):
        calls = 0

        def input(self, node, number):
            Counting.calls += 1
            return super().input(node, number)

    count = 300
    chain = [("Identity", "i%d" % i, ["i%d" % (i + 1)], None) for i in range(count)]
    users = [("CudnnRNN", "r%d" % i, ["", "", "", "i0"], b"rnn_relu") for i in range(count)]
    canonical = ("CudnnRNNParamsToCanonical", "c", ["", "", "", "i0"], b"rnn_relu")
    rest = [("Transpose", "t%d" % i, ["c", "t%d" % (i - 1)], None) for i in range(count)]
    graph = Counting(meta_graph_of(*chain, *users, canonical, *rest).graph_def.node)
    for node in list(graph.by_name.values()):
        graph.variable(graph.input(node, 3))
    assert Counting.calls < 5 * (len(chain) + len(users))
    assert len(graph.reached(["c"])) == 1 + count


# What nothing tells


@pytest.fixture
def unknown(tmp_path):
    """Returns the path of a checkpoint with an RNN of unknown activation."""
    exchange.write(tmp_path / "model", [random_rnn("rnn_relu", scope="model")], "1.4")
    return tmp_path / "model"


@pytest.mark.parametrize("to, name", [("npz", "r.npz"), ("onnx", "r.onnx"), ("keras", "r.h5")])
def test_formats_with_the_activation_are_refused(tmp_path, unknown, to, name):
    if to == "onnx":
        pytest.importorskip("onnx", reason="requires TensorFlow 2")
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.convert(unknown, tmp_path / name, to)
    assert "The RNN 'model' may be rnn_tanh or rnn_relu: nothing in its file tells" in (
        str(caught.value)
    )
    assert "--rnn-mode rnn_tanh or --rnn-mode rnn_relu" in str(caught.value)
    assert not (tmp_path / name).exists()
    exchange.convert(unknown, tmp_path / name, to, rnn_mode="rnn_relu")
    (found,) = exchange.read(tmp_path / name).rnns
    assert found.rnn_mode == "rnn_relu"


@pytest.mark.parametrize("to", ["cells", "1.1", "1.3", "1.4", "1.15"])
def test_formats_without_the_activation_go_on(tmp_path, unknown, to):
    done = exchange.convert(unknown, tmp_path / "new", to)
    assert done.notes[0] == (
        "The RNN 'model' may be rnn_tanh or rnn_relu: nothing tells the activation. Formats that "
        "contain it need rnn_mode= (--rnn-mode)."
    )
    assert list(modes(tmp_path / "new").values()) == [UNKNOWN]


def test_a_layer_does_not_get_the_name_of_an_unknown_activation(tmp_path, unknown):
    """Without a scope, the key would be that of CudnnRNNTanh."""
    with pytest.raises(exchange.ExchangeError, match="may be rnn_tanh or rnn_relu.*--variable"):
        exchange.convert(unknown, tmp_path / "new", "1.15", target_scope="")
    exchange.convert(unknown, tmp_path / "new", "1.15", target_scope="", variable="kernel")
    assert modes(tmp_path / "new") == {"": UNKNOWN}


def test_a_state_dict_does_not_tell(tmp_path):
    state = torch_format.to_state_dict([unknown_rnn("")])
    for facts, rnn_mode in ((exchange.Facts(), UNKNOWN), (exchange.Facts("rnn_relu"), "rnn_relu")):
        (found,) = torch_format.from_state_dict(state, facts).rnns
        assert found.rnn_mode == rnn_mode
    (found,) = torch_format.from_state_dict(state, exchange.Facts("gru")).rnns
    assert found.rnn_mode == UNKNOWN


def test_weights_of_an_unknown_activation():
    rnn, known = unknown_rnn(), random_rnn("rnn_tanh")
    assert (rnn.gates, rnn.num_gates) == (("only gate",), 1)
    assert rnn.layout == known.config and rnn.with_scope("x").rnn_mode == UNKNOWN
    assert exchange.describe(rnn).startswith("The RNN 'model': rnn_tanh or rnn_relu, 2 layers")
    assert len(exchange.statistics(rnn)) == 2 * 4
    with pytest.raises(ValueError, match="'model' may be rnn_tanh or .*RnnWeights.with_rnn_mode"):
        rnn.config  # noqa: B018
    assert_same(rnn.with_rnn_mode("rnn_tanh"), random_rnn("rnn_relu").with_rnn_mode("rnn_tanh"))
    sizes = (rnn.num_layers, rnn.num_units, rnn.input_size)
    assert_same(RnnWeights.from_opaque(rnn.to_opaque(), UNKNOWN, *sizes), rnn)
    with pytest.raises(ValueError, match="expected"):
        rnn.with_rnn_mode("gru")


# Contradictions


def test_an_option_that_contradicts_the_file(tmp_path):
    rnns = [random_rnn("rnn_relu", scope=scope) for scope in ("a/cudnn_rnn_relu", "b")]
    path = tmp_path / "model"
    exchange.write(path, rnns, "1.15")
    message = (
        r"The RNN 'a/cudnn_rnn_relu' is rnn_relu according to the name cudnn_rnn_relu, but "
        r"rnn_mode \(--rnn-mode\) is rnn_tanh"
    )
    facts = dict(rnn_mode="rnn_tanh")
    for scope in (None, "a/cudnn_rnn_relu"):
        with pytest.raises(exchange.ExchangeError, match=message):
            exchange.convert(path, tmp_path / "x", "npz", scope=scope, **facts)
    # The option is meant for the RNN that the file does not tell.
    exchange.convert(path, tmp_path / "x.npz", "npz", scope="b", **facts)
    assert modes(tmp_path / "x.npz") == {"b": "rnn_tanh"}
    exchange.write(path, rnns[:1], "1.15", force=True)
    with pytest.raises(exchange.ExchangeError, match=message):
        exchange.read(path, **facts)
    assert modes(path, rnn_mode="rnn_relu") == {"a/cudnn_rnn_relu": "rnn_relu"}


def test_an_option_that_contradicts_one_of_the_rnns_of_an_archive(tmp_path):
    rnns = [random_rnn(rnn_mode, scope=rnn_mode) for rnn_mode in SIMPLE]
    exchange.write(tmp_path / "rnns.npz", rnns, "npz")
    with pytest.raises(
        exchange.ExchangeError, match="'rnn_relu' is rnn_relu .*npz, but .* is rnn_t"
    ):
        exchange.read(tmp_path / "rnns.npz", rnn_mode="rnn_tanh")


# Opaque vectors alone


def save_vector(path, size, name):
    save(lambda: tf.train.Saver([tf.Variable(random_values(size), name=name)]), path)


@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_relu"])
def test_a_vector_with_skip_input_is_not_taken_for_another(tmp_path, rnn_mode):
    """Two layers of it have the size of one layer with linear input."""
    layers = random_rnn(rnn_mode, 2, 4, 4)
    size = layout.params_size(layers.layout._replace(input_mode="skip_input"))
    save_vector(tmp_path / "model", size, "x/opaque_kernel")
    facts = dict(rnn_mode=rnn_mode, num_units=4, direction="unidirectional")
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.read(tmp_path / "model", **facts)
    for line in ("num_layers 1,", "num_layers 2, num_units 4, unidirectional, input_size 4, skip_"):
        assert line in str(caught.value)
    contents = exchange.read(tmp_path / "model", num_layers=2, **facts)
    assert "has input_mode skip_input" in contents.notes[0]
    expected = RnnWeights.from_opaque(
        random_values(size), rnn_mode, 2, 4, 4, skip_input=True, scope="x"
    )
    assert_same(contents.rnns[0], expected)


@needs_projection
def test_a_vector_with_a_projection_is_not_taken_for_another(tmp_path):
    """With num_proj 4 and input_size 4, it has the size without a projection of input_size 1."""
    rnn = random_rnn("lstm", 1, 8, 4, num_proj=4)
    assert layout.params_size(rnn.config) == layout.params_size(random_rnn("lstm", 1, 8, 1).config)
    facts = dict(rnn_mode="lstm", num_units=8, num_layers=1, direction="unidirectional")
    save_vector(tmp_path / "model", layout.params_size(rnn.config), "params")
    with pytest.raises(exchange.ExchangeError, match=r"\(--num-proj; 0 without a projection\)"):
        exchange.read(tmp_path / "model", **facts)
    for num_proj, input_size in ((0, 1), (4, 4)):
        (found,) = exchange.read(tmp_path / "model", num_proj=num_proj, **facts).rnns
        assert (found.num_proj, found.input_size) == (num_proj, input_size)
    # Layers have no projection.
    save_vector(tmp_path / "layer", layout.params_size(rnn.config), "x/opaque_kernel")
    assert exchange.read(tmp_path / "layer", **facts).rnns[0].input_size == 1


def test_the_vector_of_a_layer_with_the_default_name(tmp_path):
    size = layout.params_size(random_rnn("gru", 1, 4, 3).config)
    save_vector(tmp_path / "model", size, "model/cudnn_gru_1/opaque_kernel")
    facts = dict(num_units=4, num_layers=1, direction="unidirectional")
    assert modes(tmp_path / "model", **facts) == {"model/cudnn_gru_1": "gru"}
    with pytest.raises(exchange.ExchangeError, match="is gru according to the name cudnn_gru_1"):
        exchange.read(tmp_path / "model", rnn_mode="lstm", **facts)


def test_a_vector_that_the_graph_names(tmp_path):
    """Another vector of fitting size is no RNN."""

    def build():
        model = CLASSES["gru"](1, 4, 3)
        params = tf.Variable(random_values(layout.params_size(random_rnn("gru", 1, 4, 3).config)))
        tf.Variable(tf.zeros(params.shape), name="other")
        model(tf.zeros([3, 2, 3]), tf.zeros([1, 2, 4]), params)
        return tf.train.Saver({"params": params, "other": tf.global_variables("other")[0]})

    save(build, tmp_path / "model", meta_graph=True)
    facts = dict(num_units=4, num_layers=1, direction="unidirectional")
    assert modes(tmp_path / "model", **facts) == {"params": "gru"}
    assert (
        "params, [108], is the opaque vector of an RNN with rnn_mode 'gru'"
        in (exchange.read(tmp_path / "model").notes[0])
    )


def test_facts_about_canonical_tensors_come_from_the_graph(tmp_path):
    """With equal sizes, 3 layers of an LSTM have as many tensors as 4 of a GRU."""

    def build():
        model = CLASSES["gru"](4, 4, 4)
        params = tf.get_variable("params", initializer=tf.zeros([model.params_size()]))
        functions = model.params_to_canonical, model.canonical_to_params, [params]
        return tf.train.Saver([cudnn_rnn.RNNParamsSaveable(*functions)])

    save(build, tmp_path / "model", meta_graph=True)
    (found,) = exchange.read(tmp_path / "model").rnns
    assert (found.rnn_mode, found.num_layers) == ("gru", 4)


def test_slots_of_an_unknown_activation(tmp_path):
    """They do not depend on it."""
    rnn = unknown_rnn("model", equal_biases=True)
    slots = {"model": {("", "Adam"): rnn.to_opaque()}}
    exchange.write(tmp_path / "model", exchange.Contents("", "", [rnn], slots=slots), "1.15")
    exchange.convert(tmp_path / "model", tmp_path / "cells", "cells")
    assert list(exchange.read(tmp_path / "cells").slots["model"]) == [("", "Adam")]
    planned = checkpoint_format.plan([rnn], "cells").arrays
    np.testing.assert_array_equal(
        *[
            planned["model/rnn/multi_rnn_cell/cell_0/basic_rnn_cell/bias"],
            2 * rnn.layers[0][0].input_bias,
        ]
    )
