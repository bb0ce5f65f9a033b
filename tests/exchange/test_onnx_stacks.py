"""Layers of ONNX models between which shapes are static or computed, as PyTorch writes them.

`torch.onnx.export(dynamo=True)` puts a Transpose and a Reshape between layers. The target of the
Reshape is a constant `[time, batch, width]` or, for dynamic axes, computed from the input's shape.
"""

import numpy as np
import pytest

from cudnn_rnn.exchange import onnx_format
from helpers.exchange_models import assert_same, random_rnn
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

TIME, BATCH = 6, 3
SEPARATE = "in an order of axes that stacked layers do not have"
UNCERTAIN = "but the order of its axes is not certain"


class Graph:
    """An ONNX graph under construction. Values are names."""

    def __init__(self, rnn):
        self.rnn = rnn
        self.width = rnn.num_directions * rnn.num_units
        self.nodes, self.initializers = [], []

    def add(self, operator, *inputs, **attributes):
        """Adds a node; inputs that are no names become constants. Returns the output's name."""
        import onnx

        names = [
            value if isinstance(value, str) else self.constant(np.array(value, np.int64))
            for value in inputs
        ]
        output = attributes.pop("output", "%s_%d" % (operator.lower(), len(self.nodes)))
        self.nodes.append(onnx.helper.make_node(operator, names, [output], **attributes))
        return output

    def constant(self, array):
        import onnx

        name = "number_%d" % len(self.initializers)
        self.initializers.append(onnx.numpy_helper.from_array(array, name))
        return name

    def layer(self, index, layer_input):
        arrays = [self.constant(array) for array in onnx_format.arrays_of_layer(self.rnn, index)]
        operator, attributes = onnx_format.operator_and_attributes(
            self.rnn.rnn_mode, self.rnn.num_units, self.rnn.num_directions
        )
        name = "layer_%d" % index
        return self.add(operator, layer_input, *arrays, output=name, name=name, **attributes)


def built(rnn, betweens, sizes=(TIME, BATCH), infos=True, check=True):
    """Returns a model.

    Args:
      betweens: for each pair of layers, a function `(graph, output)` that adds the nodes between
        them and returns the input of the upper layer.
      sizes: the time and batch axis of the input; int, str or None.
      infos: whether the model has the static shape of the first layer's output.
    """
    import onnx

    graph = Graph(rnn)
    declare = onnx.helper.make_tensor_value_info
    layer_input = "x"
    for index, between in enumerate([*betweens, transposed_only]):
        layer_input = between(graph, graph.layer(index, layer_input))
    shape = [sizes[0], rnn.num_directions, sizes[1], rnn.num_units]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "graph",
            [declare("x", 1, [*sizes, rnn.input_size])],
            [declare(layer_input, 1, [None] * 4)],
            graph.initializers,
            value_info=[declare("layer_0", 1, shape)] if infos else [],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)],
        ir_version=8,
    )
    if check:
        onnx.checker.check_model(model)
    return model


def transposed_only(graph, output):
    return graph.add("Transpose", output, perm=[0, 2, 1, 3])


def constant(*shape, perm=(0, 2, 1, 3), **attributes):
    """The constant target of a Reshape; "width" is directions * units."""

    def between(graph, output):
        moved = graph.add("Transpose", output, perm=list(perm))
        numbers = [graph.width if size == "width" else size for size in shape]
        return graph.add("Reshape", moved, numbers, **attributes)

    return between


def computed(order=(0, 1), perm=(0, 2, 1, 3)):
    """The target as PyTorch computes it, with the axes `order` of the input first."""

    def between(graph, output):
        moved = graph.add("Transpose", output, perm=list(perm))
        shape = graph.add("Shape", moved, start=0)
        axes = [graph.add("Slice", shape, [axis], [axis + 1]) for axis in range(4)]
        width = graph.add("Reshape", graph.add("Mul", *axes[2:]), [-1], allowzero=0)
        target = graph.add("Concat", *[axes[axis] for axis in order], width, axis=0)
        return graph.add("Reshape", moved, target, allowzero=0)

    return between


def gathered(of_input=False):
    """The target with sizes that Gather takes from the shape of the layer's output or input."""

    def between(graph, output):
        shape = graph.add("Cast", graph.add("Shape", "x" if of_input else output), to=7)
        axes = [
            graph.add("Unsqueeze", graph.add("Gather", shape, axis), [0])
            for axis in (0, 1 if of_input else 2)
        ]
        target = graph.add("Concat", *axes, [graph.width], axis=0)
        return graph.add("Reshape", graph.add("Transpose", output, perm=[0, 2, 1, 3]), target)

    return between


def parts_of_shapes(graph, output):
    """Shape with `start` and `end`, and one size that only runs tell."""
    moved = graph.add("Transpose", output, perm=[0, 2, 1, 3])
    batch = graph.add("Shape", moved, start=1, end=-2)
    unknown = graph.add("Squeeze", graph.add("Shape", graph.add("NonZero", "x"), start=-1), [0])
    unknown = graph.add("Unsqueeze", graph.add("Mul", unknown, 0), [0])
    return graph.add("Reshape", moved, graph.add("Concat", unknown, batch, [-1], axis=0))


def outcome(model):
    """Returns the RNNs' numbers of layers, and what the note says."""
    contents = onnx_format.from_model(model)
    kinds = [kind for kind in (SEPARATE, UNCERTAIN) if kind in "".join(contents.notes)]
    assert len(kinds) == len(contents.notes)
    return [rnn.num_layers for rnn in contents.rnns], kinds


def assert_stack(model, rnn):
    contents = onnx_format.from_model(model)
    assert contents.notes == []
    assert len(contents.rnns) == 1
    assert_same(contents.rnns[0], rnn)


def both_directions(test):
    return needs_tensorflow_2(pytest.mark.parametrize("bidirectional", [False, True])(test))


@both_directions
@pytest.mark.parametrize("infos", [True, False])
@pytest.mark.parametrize(
    "between, sizes",
    [
        (constant(TIME, BATCH, "width"), (TIME, BATCH)),
        (constant(TIME, BATCH, "width", allowzero=1), (TIME, BATCH)),
        (constant(4, 4, "width"), (4, 4)),
        (constant(1, 1, "width"), (1, 1)),
        (constant(TIME, -1, "width", allowzero=1), (TIME, "b")),
        (constant(-1, BATCH, "width"), ("t", BATCH)),
        (constant(TIME, BATCH, -1), (TIME, BATCH)),
        (constant(0, -1, "width"), (None, None)),
        (computed(), (TIME, "b")),
        (computed(), (None, None)),
        (computed(), (TIME, BATCH)),
        (gathered(), (None, None)),
        (gathered(of_input=True), ("t", "b")),
        (gathered(of_input=True), (None, None)),
    ],
)
def test_stacks_of_static_and_computed_shapes(bidirectional, between, sizes, infos):
    rnn = random_rnn("lstm", bidirectional=bidirectional)
    assert_stack(built(rnn, [between], sizes, infos), rnn)


@both_directions
@pytest.mark.parametrize("rnn_mode", ["gru", "rnn_relu"])
def test_higher_layers_have_the_sizes_of_the_first(bidirectional, rnn_mode):
    """PyTorch writes no sizes of time for them."""
    rnn = random_rnn(rnn_mode, 4, bidirectional=bidirectional)
    betweens = [computed(), constant(TIME, -1, "width"), computed()]
    assert_stack(built(rnn, betweens, (TIME, "b")), rnn)


@both_directions
@pytest.mark.parametrize(
    "between, sizes, kind",
    [
        # Time and batch are exchanged.
        (constant(BATCH, TIME, "width", perm=[2, 0, 1, 3]), (TIME, BATCH), SEPARATE),
        (constant(4, 4, "width", perm=[2, 0, 1, 3]), (4, 4), SEPARATE),
        (constant(BATCH, 1, "width", perm=[2, 0, 1, 3]), (1, BATCH), SEPARATE),
        (computed(perm=[2, 0, 1, 3]), (None, None), SEPARATE),
        (computed(perm=[2, 0, 1, 3]), (TIME, "b"), SEPARATE),
        # Elements of other steps and sequences follow each other.
        (constant(BATCH, TIME, "width"), (TIME, BATCH), UNCERTAIN),
        (constant(TIME // 2, 2 * BATCH, "width"), (TIME, BATCH), UNCERTAIN),
        (computed(order=(1, 0)), (None, None), UNCERTAIN),
        (computed(order=(1, 0)), (TIME, BATCH), UNCERTAIN),
        # The file does not tell the sizes.
        (constant(TIME, BATCH, "width"), ("t", "b"), UNCERTAIN),
        (constant(TIME, -1, "width"), (None, BATCH), UNCERTAIN),
        (constant(-1, BATCH, "width"), (TIME, None), UNCERTAIN),
        (constant(-1, BATCH, "width"), ("t", "b"), UNCERTAIN),
        # With allowzero, 0 is a size.
        (constant(0, -1, "width", allowzero=1), (TIME, BATCH), UNCERTAIN),
    ],
)
def test_layers_that_stay_separate(bidirectional, between, sizes, kind):
    rnn = random_rnn("lstm", bidirectional=bidirectional)
    assert outcome(built(rnn, [between], sizes)) == ([1, 1], [kind])


@both_directions
def test_one_size_may_be_unknown(bidirectional):
    """The other sizes tell it, if the file tells at least that it is one."""
    import onnx

    rnn = random_rnn("lstm", bidirectional=bidirectional)
    model = built(rnn, [parts_of_shapes], (None, None))
    # Both this size and -1 are unknown.
    assert outcome(model) == ([1, 1], [UNCERTAIN])
    (target,) = [node for node in model.graph.node if node.op_type == "Concat"]
    width = onnx.numpy_helper.from_array(np.array([rnn.num_directions * 5]), "width")
    model.graph.initializer.append(width)
    target.input[2] = "width"
    model.graph.value_info.append(onnx.helper.make_tensor_value_info(target.input[0], 7, [1]))
    assert_stack(model, rnn)


@needs_tensorflow_2
def test_constants_that_are_attributes():
    """`value_ints` is the short form of a constant."""

    def between(graph, output):
        moved = graph.add("Transpose", output, perm=[0, 2, 1, 3])
        zeros = graph.add("Constant", value_ints=[0, 0])
        width = graph.add("Unsqueeze", graph.add("Constant", value_int=-1), [0])
        return graph.add("Reshape", moved, graph.add("Concat", zeros, width, axis=0))

    rnn = random_rnn("lstm", bidirectional=True)
    assert_stack(built(rnn, [between], (None, None)), rnn)


@needs_tensorflow_2
@pytest.mark.parametrize("operator", ["Transpose", "Reshape", "Concat"])
def test_operators_of_other_domains_are_not_those_of_onnx(operator):
    rnn = random_rnn("lstm")
    model = built(rnn, [computed()])
    nodes = [node for node in model.graph.node if node.op_type == operator]
    # The first Reshape belongs to the shape.
    nodes[1 if operator == "Reshape" else 0].domain = "example"
    assert outcome(model)[0] == [1, 1]


def squares(graph, output):
    """Multiplies a size by itself, again and again."""
    size = graph.add("Shape", output, start=0, end=1)
    for _ in range(50):
        size = graph.add("Mul", size, size)
    return graph.add("Reshape", output, graph.add("Concat", size, [-1], [5], axis=0))


def chain(graph, output):
    shape = graph.add("Shape", output)
    for _ in range(5000):
        shape = graph.add("Cast", shape, to=7)
    return graph.add("Reshape", output, shape)


def wide(graph, output):
    shape = graph.add("Shape", output)
    return graph.add("Reshape", output, graph.add("Concat", *[shape] * 5000, axis=0))


def doubled(graph, output):
    shape = graph.add("Shape", output)
    for _ in range(50):
        shape = graph.add("Concat", shape, shape, axis=0)
    return graph.add("Reshape", output, shape)


def loop(graph, output):
    graph.add("Mul", "b", [1], output="a")
    graph.add("Mul", "a", [1], output="b")
    return graph.add("Reshape", output, "a")


def no_inputs(graph, output):
    return graph.add("Reshape", output, graph.add("Concat", graph.add("Shape"), axis=0))


def many_places(graph, output):
    shape = graph.add("Gather", graph.add("Shape", output), [0, 9, -9])
    return graph.add("Reshape", output, graph.add("Slice", shape, [0, 1], [1]))


@needs_tensorflow_2
@pytest.mark.parametrize("between", [squares, chain, wide, doubled, loop, no_inputs, many_places])
def test_shapes_that_no_exporter_computes(between):
    model = built(random_rnn("lstm"), [between], check=False)
    assert outcome(model) == ([1, 1], [UNCERTAIN])
