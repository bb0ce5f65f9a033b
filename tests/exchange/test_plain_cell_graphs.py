"""The graphs beside checkpoints of plain LSTM cells: constants, contradictions, and strangers."""

import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import exchange
from cudnn_rnn.exchange import graph_cells, graph_nodes
from cudnn_rnn.exchange.graph_cells import ToldCell
from helpers.exchange_models import assert_refused
from helpers.plain_cells import without_graph

pytestmark = pytest.mark.ci


def graph_of(*nodes):
    """Returns a MetaGraph of (op, name, inputs, attributes)."""
    meta_graph = tf.MetaGraphDef()
    for operation, name, inputs, attributes in nodes:
        node = meta_graph.graph_def.node.add(op=operation, name=name, input=inputs)
        for key, (field, value) in attributes.items():
            setattr(node.attr[key], field, value)
    return meta_graph


def constant(graph, name, **fields):
    """Adds a constant whose tensor has these fields."""
    tensor = graph.graph_def.node.add(op="Const", name=name).attr["value"].tensor
    for field, value in fields.items():
        if isinstance(value, list):
            getattr(tensor, field).extend(value)
        else:
            setattr(tensor, field, value)
    return tensor


CELL = [
    ("VariableV2", "v", [], {}),
    ("BiasAdd", "gates", ["x", "v"], {}),
    ("Split", "split", ["axis", "gates"], {"num_split": ("i", 4)}),
    ("Tanh", "tanh", ["split:1"], {}),
    ("Sigmoid", "input", ["split"], {}),
    ("Sigmoid", "output", ["split:3"], {}),
    ("Add", "sum", ["split:2", "bias"], {}),
]


@pytest.mark.parametrize(
    "fields, expected",
    [
        (dict(dtype=1, float_val=[1.5]), 1.5),
        (dict(dtype=1, tensor_content=b"\0\0\xc0?"), 1.5),
        (dict(dtype=2, double_val=[1.5]), 1.5),
        (dict(dtype=19, half_val=[0x3E00]), 1.5),
        (dict(dtype=1, tensor_content=b"\0\0\xc0?\0\0\xc0?"), None),
        (dict(dtype=1, float_val=[1.5, 2.5]), None),
        (dict(dtype=1, float_val=[float("nan")]), None),
        (dict(dtype=1), None),
        (dict(dtype=3, int_val=[1]), None),
        (dict(dtype=99), None),
    ],
)
def test_constants(fields, expected):
    graph = graph_of(*CELL)
    constant(graph, "bias", **fields)
    told = graph_cells.told_cells(graph_nodes.Nodes(graph.graph_def.node))
    assert told == {"v": {ToldCell(expected)}}


def test_a_constant_with_a_shape():
    graph = graph_of(*CELL)
    constant(graph, "bias", dtype=1, float_val=[1.0]).tensor_shape.dim.add(size=2**60)
    told = graph_cells.told_cells(graph_nodes.Nodes(graph.graph_def.node))
    assert told == {"v": {ToldCell(None)}}


def test_a_bias_of_two_cells(tmp_path):
    """One adds 1, the other 2, as a graph for training and one for inference may."""
    path = without_graph(tmp_path, "momentum")
    variable = b"rnn/lstm_cell/bias"
    graph = graph_of(*CELL, *CELL[1:])
    for number, node in enumerate(graph.graph_def.node):
        is_second = number >= len(CELL)
        for edge in list(node.input):
            node.input.append("v" if edge == "v" else "second_" * is_second + edge)
            del node.input[0]
        node.name = "second_" * is_second + node.name
    constant(graph, "bias", dtype=1, float_val=[1.0])
    constant(graph, "second_bias", dtype=1, float_val=[2.0])
    graph.graph_def.node[0].attr["shared_name"].s = variable
    with open(path + ".meta", "wb") as file:
        file.write(graph.SerializeToString())
    assert_refused(path, "the graph in %s.meta adds several to the same bias" % path)
    assert len(exchange.read(path, forget_bias=2.0).rnns) == 1


def test_graphs_without_sense(tmp_path):
    """Cycles, missing nodes and inputs, and attributes of other kinds."""
    path = without_graph(tmp_path, "momentum")
    nonsense = [
        ("BiasAdd", "loop", ["split", "loop"], {}),
        ("Split", "split", ["split", "loop"], {"num_split": ("i", 4)}),
        ("Split", "split_2", ["loop"], {"num_split": ("s", b"4")}),
        ("Tanh", "tanh", ["split:1", "tanh"], {}),
        ("Mul", "mul", ["tanh", "mul"], {}),
        ("Add", "add", ["mul", "add"], {}),
        ("Minimum", "minimum", ["add", "minimum"], {}),
        ("LSTMBlockCell", "short", ["x"], {"forget_bias": ("s", b"\xff")}),
        ("BlockLSTM", "missing", ["y"] * 9, {"cell_clip": ("f", float("nan"))}),
        ("MatMul", "product", ["a"], {}),
        ("Minimum", "clipped", ["product:0", "^product"], {}),
        ("Const", "empty", [], {}),
    ]
    with open(path + ".meta", "wb") as file:
        file.write(graph_of(*nonsense).SerializeToString())
    assert_refused(path, "it was not found in the graph in")
    assert len(exchange.read(path, forget_bias=1.0).rnns) == 1


def test_the_work_is_linear_in_the_graph():
    """Nodes that all have the same edges, in every position."""

    class Counting(graph_nodes.Nodes):
        calls = 0

        def users(self, node, output, operations):
            found = super().users(node, output, operations)
            Counting.calls += 1 + len(found)
            return found

    counts = []
    for count in (20, 200):
        splits = ["split_%d" % i for i in range(count)]
        nodes = [("VariableV2", "v", [], {}), ("BiasAdd", "gates", ["x", "v"], {})]
        nodes += [("Split", name, ["", "gates"], {"num_split": ("i", 4)}) for name in splits]
        nodes += [
            ("Tanh", "tanh_%d" % i, [name + ":1" for name in splits], {}) for i in range(count)
        ]
        tanhs = ["tanh_%d" % i for i in range(count)]
        nodes += [("Mul", "mul_%d" % i, tanhs, {}) for i in range(count)]
        for operation, end in (("Sigmoid", ""), ("Sigmoid", ":3")):
            nodes += [(operation, operation + name + end[1:], [name + end], {}) for name in splits]
        Counting.calls = 0
        graph = graph_of(*nodes)
        assert set(graph_cells.told_cells(Counting(graph.graph_def.node))) == {"v"}
        counts.append(Counting.calls)
    assert counts[1] < 15 * counts[0]
