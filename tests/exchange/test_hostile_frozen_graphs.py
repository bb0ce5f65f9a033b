"""Frozen graphs from strangers are refused before they exhaust memory or time."""

import pytest

from cudnn_rnn._compat import tf
from helpers.exchange_models import assert_refused

pytestmark = pytest.mark.ci


def constant(graph_def, name, **fields):
    node = graph_def.node.add(name=name, op="Const")
    tensor = node.attr["value"].tensor
    tensor.dtype = tf.float32.as_datatype_enum
    for length in fields.pop("shape", []):
        tensor.tensor_shape.dim.add(size=length)
    for field, value in fields.items():
        if field == "content":
            tensor.tensor_content = value
        else:
            getattr(tensor, field).extend(value)
    return node


def forward(graph_def, params, rnn_mode=b"gru"):
    inputs = ["", "", "", params]
    node = graph_def.node.add(name="rnn_%d" % len(graph_def.node), op="CudnnRNN", input=inputs)
    node.attr["rnn_mode"].s = rnn_mode


def assert_graph_refused(tmp_path, graph_def, *messages):
    path = tmp_path / "model.pb"
    path.write_bytes(graph_def.SerializeToString())
    assert_refused(path, *messages)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_constants_larger_than_the_file(tmp_path, values):
    graph_def = tf.GraphDef()
    constant(graph_def, "a", shape=[2**20, 2**20], float_val=values)
    forward(graph_def, "a")
    assert_graph_refused(tmp_path, graph_def, "larger than is possible for a file of this size")


def test_copies_larger_than_the_file(tmp_path):
    graph_def = tf.GraphDef()
    constant(graph_def, "a0", shape=[2**16], float_val=[1.0])
    axis = constant(graph_def, "axis", int_val=[0])
    axis.attr["value"].tensor.dtype = tf.int32.as_datatype_enum
    for number in range(40):
        inputs = ["a%d" % number] * 2 + ["axis"]
        graph_def.node.add(name="a%d" % (number + 1), op="ConcatV2", input=inputs)
    forward(graph_def, "a40")
    assert_graph_refused(tmp_path, graph_def, "larger than is possible for a file of this size")


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(shape=[3], content=b"\0" * 8), "has 8 bytes; expected shape [3], dtype float32"),
        (dict(shape=[-1], content=b""), "has no valid shape"),
        (dict(shape=[1] * 40, float_val=[1.0]), "has no valid shape"),
        (dict(shape=[1], float_val=[1.0, 2.0]), "has 2 values; expected shape [1]"),
        (dict(shape=[1, 1], float_val=[1.0]), "they have shape [1, 1], dtype float32"),
        (dict(shape=[0, 2**62]), "is damaged (array is too big"),
    ],
)
def test_damaged_constants(tmp_path, fields, message):
    graph_def = tf.GraphDef()
    constant(graph_def, "a", **fields)
    forward(graph_def, "a")
    assert_graph_refused(tmp_path, graph_def, message)


@pytest.mark.parametrize("op", ["Identity", "Reshape", "Switch", "Transpose"])
def test_cycles(tmp_path, op):
    graph_def = tf.GraphDef()
    graph_def.node.add(name="a", op=op, input=["b", "b"])
    graph_def.node.add(name="b", op="Identity", input=["a"])
    forward(graph_def, "a")
    assert_graph_refused(tmp_path, graph_def, "is part of a cycle")


@pytest.mark.parametrize("params", ["", "missing", "a:1:2:3", "a:" + "9" * 20])
def test_edges_from_no_node(tmp_path, params):
    graph_def = tf.GraphDef()
    forward(graph_def, params)
    assert_graph_refused(tmp_path, graph_def, "are not constants of the graph")


def test_long_chains_that_many_nodes_end(tmp_path):
    """Each node is looked at once: otherwise this takes many minutes."""
    graph_def = tf.GraphDef()
    previous = "missing"
    for number in range(5000):
        graph_def.node.add(name="n%d" % number, op="Identity", input=[previous])
        previous = "n%d" % number
        forward(graph_def, previous)
    assert_graph_refused(tmp_path, graph_def, "there is no node 'missing'")


def test_a_constant_as_many_rnns(tmp_path):
    graph_def = tf.GraphDef()
    constant(graph_def, "a", shape=[8], float_val=[1.0])
    modes = (b"gru", b"lstm", b"rnn_relu", b"rnn_tanh")
    for rnn_mode in modes:
        for direction in (b"unidirectional", b"bidirectional"):
            forward(graph_def, "a", rnn_mode)
            graph_def.node[-1].attr["direction"].s = direction
    assert_graph_refused(tmp_path, graph_def, "8 different RNNs have the same parameters")


def test_sizes_that_no_parameters_have(tmp_path):
    graph_def = tf.GraphDef()
    constant(graph_def, "a", shape=[100], float_val=[1.0])
    x = graph_def.node.add(name="x", op="Placeholder").attr["shape"].shape
    for size in (1, 1, 2**31 - 1):
        x.dim.add(size=size)
    h = graph_def.node.add(name="h", op="Placeholder").attr["shape"].shape
    for size in (2**31 - 1, 1, -1):
        h.dim.add(size=size)
    forward(graph_def, "a")
    graph_def.node[-1].input[:2] = ["x", "h"]
    assert_graph_refused(tmp_path, graph_def, "are those of no RNN with rnn_mode 'gru'")


def test_an_unknown_mode(tmp_path):
    graph_def = tf.GraphDef()
    constant(graph_def, "a", shape=[8], float_val=[1.0])
    forward(graph_def, "a", b"peephole")
    assert_graph_refused(tmp_path, graph_def, "rnn_mode must be one of")


@pytest.mark.parametrize("content", [b"", b"\x0a\xff\xff\xff\xff\x7f", b"text\n"])
@pytest.mark.parametrize("name", ["model.pb", "model.pbtxt"])
def test_files_that_are_no_graphs(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert_refused(tmp_path / name, "is no frozen graph" if not content else "cannot be read as a")
