"""ONNX files from strangers, and those that no writer makes."""

import os
import tracemalloc

import numpy as np
import pytest

from cudnn_rnn import exchange
from cudnn_rnn.exchange import onnx_format
from helpers.exchange_models import assert_refused, assert_same, random_rnn
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci


def peak_of(function, *arguments):
    """Returns the peak of Python's memory during a call, whatever error it raises."""
    tracemalloc.start()
    try:
        function(*arguments)
    except exchange.ExchangeError:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def rnn_nodes(model):
    return [node for node in model.graph.node if node.op_type in ("LSTM", "GRU", "RNN")]


def with_attribute(node, name, value):
    """Replaces an attribute, or removes it if the value is None."""
    import onnx

    kept = [one for one in node.attribute if one.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(onnx.helper.make_attribute(name, value))


def external(tensor, location, **places):
    """Moves the data of a tensor to another file."""
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for key, value in dict(places, location=location).items():
        tensor.external_data.add(key=key, value=str(value))


@needs_tensorflow_2
def test_onnx_data_that_are_the_model_itself(tmp_path):
    model = onnx_format.to_model([random_rnn("lstm", 1, 2, 2)])
    for number in range(2000):
        tensor = model.graph.initializer.add(name="t%d" % number, data_type=1, dims=[10000])
        external(tensor, "rnn.onnx")
    node = rnn_nodes(model)[0]
    path = tmp_path / "rnn.onnx"
    path.write_bytes(model.SerializeToString())
    assert peak_of(exchange.read, path) < 2**25
    node.input[1] = "t0"
    path.write_bytes(model.SerializeToString())
    assert_refused(path, "the file 'rnn.onnx'; expected one in the model's own folder, other than")
    link = tmp_path / "link"
    os.symlink("/etc/hostname", str(link))
    for location in ("link", "../x", "/etc/hostname", "", ".", "no", "a\0b"):
        del model.graph.initializer[-1].external_data[:]
        model.graph.initializer[-1].name = "last"
        external(model.graph.initializer[-1], location)
        node.input[1] = "last"
        path.write_bytes(model.SerializeToString())
        assert_refused(path, "expected one in the model's own folder")


@needs_tensorflow_2
def test_onnx_with_external_data(tmp_path):
    import onnx

    rnn = random_rnn("gru")
    path = str(tmp_path / "rnn.onnx")
    options = dict(save_as_external_data=True, location="data", size_threshold=0)
    onnx.save(onnx_format.to_model([rnn]), path, **options)
    assert_same(exchange.read(path).rnns[0], rnn)
    model = onnx.load(path, load_external_data=False)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    places = {name: {e.key: e for e in tensor.external_data} for name, tensor in tensors.items()}
    size = os.path.getsize(str(tmp_path / "data"))
    for key, value, message in (
        ("offset", "-8", "The data of layer_0/W are bytes -8"),
        ("length", str(size + 8), "which has %d bytes" % size),
        ("length", "x", "damaged"),
        ("offset", places["layer_0/R"]["offset"].value, "also those of another tensor"),
    ):
        old = places["layer_0/W"][key].value
        places["layer_0/W"][key].value = value
        (tmp_path / "rnn.onnx").write_bytes(model.SerializeToString())
        assert_refused(path, message)
        places["layer_0/W"][key].value = old


@needs_tensorflow_2
def test_onnx_nodes_that_share_their_weights(tmp_path):
    model = onnx_format.to_model([random_rnn("lstm", 1, 16, 16)])
    (node,) = rnn_nodes(model)
    path = tmp_path / "rnn.onnx"
    for number in range(500):
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        copy.name = "copy_%d/rnn" % number
        copy.output[:] = ["y_%d" % number]
        if number == 0:
            path.write_bytes(model.SerializeToString())
            assert len(exchange.read(path).rnns) == 2  # as models that use a layer twice
    path.write_bytes(model.SerializeToString())
    assert_refused(path, "use its constants 4 times or more")
    assert peak_of(exchange.read, path) < 2**24


def changed_between_layers(rnn, change):
    """Returns a model of two layers after `change(transpose, reshape, graph)` between them."""
    model = onnx_format.to_model([rnn])
    nodes = {node.name: node for node in model.graph.node}
    change(nodes["layer_0/moved"], nodes["layer_0/output"], model.graph)
    return model


def set_perm(perm):
    return lambda transpose, reshape, graph: with_attribute(transpose, "perm", perm)


def set_shape(*shape):
    def change(transpose, reshape, graph):
        import onnx

        array = np.array(shape, np.int64)
        graph.initializer.append(onnx.numpy_helper.from_array(array, "own_shape"))
        reshape.input[1] = "own_shape"

    return change


def squeezed(transpose, reshape, graph):
    """As PyTorch's exporter writes it: Squeeze of the axis of directions."""
    set_shape(1)(transpose, reshape, graph)
    transpose.op_type = "Identity"
    del transpose.attribute[:]
    reshape.op_type = "Squeeze"


@needs_tensorflow_2
@pytest.mark.parametrize(
    "bidirectional, change, order",
    [
        (False, set_perm([0, 2, 1, 3]), "stack"),
        (True, set_perm([0, 2, 1, 3]), "stack"),
        (True, set_perm([2, 0, 1, 3]), "other"),
        (True, set_perm([0, 1, 2, 3]), "other"),
        (True, set_perm([0, 2, 3, 1]), "other"),
        (True, set_perm([2, 1, 0, 3]), "other"),
        (True, set_perm([0, 0, 1, 3]), "uncertain"),
        (True, set_perm(None), "other"),
        (False, set_perm([2, 0, 1, 3]), "other"),
        (True, set_shape(0, 0, 10), "stack"),
        (True, set_shape(0, -1, 10), "stack"),
        (False, set_shape(0, 0, 5), "stack"),
        (True, set_shape(3, 6, 10), "uncertain"),
        (True, set_shape(0, -1, 20), "uncertain"),
        (False, squeezed, "stack"),
        (True, squeezed, "uncertain"),
    ],
)
def test_onnx_what_is_between_layers(bidirectional, change, order):
    rnn = random_rnn("lstm", bidirectional=bidirectional)
    contents = onnx_format.from_model(changed_between_layers(rnn, change))
    assert [one.num_layers for one in contents.rnns] == ([2] if order == "stack" else [1, 1])
    if order == "stack":
        assert_same(contents.rnns[0], rnn)
        assert contents.notes == []
        return
    reason = {
        "other": "in an order of axes that stacked layers do not have",
        "uncertain": "but the order of its axes is not certain",
    }
    assert "'layer_1' takes the output of another layer" in contents.notes[0]
    assert reason[order] in contents.notes[0]


@needs_tensorflow_2
@pytest.mark.parametrize(
    "bidirectional, name, value, message",
    [
        (True, "direction", None, "its W has shape [2, 20, 4]; expected [1, 20, 4]"),
        (False, "direction", "bidirectional", "activations"),
        (False, "direction", "both", "has direction=b'both'"),
        (False, "hidden_size", 4, "hidden_size=4; expected 5, as R has shape [1, 20, 5]"),
    ],
)
def test_onnx_attributes_that_contradict_the_weights(bidirectional, name, value, message):
    model = onnx_format.to_model([random_rnn("lstm", 1, bidirectional=bidirectional)])
    (node,) = rnn_nodes(model)
    with_attribute(node, name, value)
    if name == "direction" and value is None:
        with_attribute(node, "activations", None)
    with pytest.raises(exchange.ExchangeError) as caught:
        onnx_format.from_model(model)
    assert message in str(caught.value)


@needs_tensorflow_2
@pytest.mark.parametrize("name", [b"sequence_lens", b"layer_0/W", b"layer_0/Y_h", b"output_h"])
def test_onnx_names_that_are_no_text(tmp_path, name):
    content = onnx_format.to_model([random_rnn("lstm", 1)]).SerializeToString()
    assert name in content
    (tmp_path / "rnn.onnx").write_bytes(content.replace(name, b"\xff" + name[1:]))
    assert_refused(tmp_path / "rnn.onnx", "the name b'\\xff%s'" % name[1:].decode(), "no UTF-8")


@needs_tensorflow_2
def test_onnx_graphs_that_are_none(tmp_path):
    rnn = random_rnn("lstm", 2)
    loop = changed_between_layers(rnn, lambda transpose, reshape, graph: None)
    nodes = {node.name: node for node in loop.graph.node}
    nodes["layer_0/moved"].input[0] = nodes["layer_0/output"].output[0]
    assert [one.num_layers for one in onnx_format.from_model(loop).rnns] == [1, 1]
    twice = onnx_format.to_model([rnn])
    twice.graph.initializer.append(twice.graph.initializer[0])
    with pytest.raises(exchange.ExchangeError, match="two constants with the name"):
        onnx_format.from_model(twice)
    twice = onnx_format.to_model([rnn])
    twice.graph.node.append(rnn_nodes(twice)[0])
    with pytest.raises(exchange.ExchangeError, match="two nodes with the output"):
        onnx_format.from_model(twice)


@needs_tensorflow_2
def test_onnx_graphs_with_damaged_names():
    model = onnx_format.to_model([random_rnn("lstm", 2)])
    rnn_nodes(model)[1].input[0] = "layer_O/output"
    with pytest.raises(exchange.ExchangeError, match="'layer_1' has the input 'layer_O/output'"):
        onnx_format.from_model(model)
    model = onnx_format.to_model([random_rnn("lstm", 2)])
    rnn_nodes(model)[1].op_type = "LSTN"
    contents = onnx_format.from_model(model)
    assert "the operators LSTN, which ONNX does not have" in contents.notes[0]


@needs_tensorflow_2
def test_onnx_nodes_without_names():
    rnn = random_rnn("lstm", 3)
    model = onnx_format.to_model([rnn])
    for node in rnn_nodes(model):
        node.name = ""
    (found,) = onnx_format.from_model(model).rnns
    assert_same(found, rnn)


@needs_tensorflow_2
def test_onnx_weights_behind_identities(tmp_path):
    """PyTorch writes equal initializers once; the others are nodes that hand it on."""
    import onnx

    rnn = random_rnn("gru", bidirectional=True)
    model = onnx_format.to_model([rnn])
    nodes = [node for node in model.graph.node if node.op_type == "GRU"]
    for number, node in enumerate(nodes):
        for place in (1, 2, 3):
            old, names = node.input[place], ["%d_%d_%d" % (number, place, n) for n in (0, 1)]
            model.graph.node.insert(0, onnx.helper.make_node("Identity", names[:1], names[1:]))
            model.graph.node.insert(0, onnx.helper.make_node("Identity", [old], names[:1]))
            node.input[place] = names[1]
    onnx.save(model, str(tmp_path / "rnn.onnx"))
    contents = exchange.read(tmp_path / "rnn.onnx")
    assert_same(contents.rnns[0], rnn)
    assert contents.others == []
    nodes[0].input[1] = "cast"
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["layer_0/W"], ["cast"], to=1))
    with pytest.raises(exchange.ExchangeError, match="W, 'cast', is no constant"):
        onnx_format.from_model(model)


@needs_tensorflow_2
def test_an_onnx_node_that_cannot_be_read_hides_no_other(tmp_path):
    import onnx

    rnns = [random_rnn("gru", scope="first"), random_rnn("lstm", scope="second")]
    model = onnx_format.to_model(rnns)
    node = [node for node in model.graph.node if node.op_type == "GRU"][0]
    node.attribute.append(onnx.helper.make_attribute("clip", 3.0))
    path = tmp_path / "rnns.onnx"
    onnx.save(model, str(path))
    contents = exchange.read(path)
    assert [(rnn.scope, rnn.num_layers) for rnn in contents.rnns] == [("first", 1), ("second", 2)]
    assert len(contents.problems) == 1 and "'first/layer_0' has clip=3" in contents.problems[0]
    assert contents.notes == []
    with pytest.raises(exchange.ExchangeError, match="cannot be read. Pick another one"):
        exchange.convert(path, tmp_path / "rnn.npz", "npz")
    exchange.convert(path, tmp_path / "rnn.npz", "npz", scope="second")
    assert_same(exchange.read(tmp_path / "rnn.npz").rnns[0], rnns[1])
    with pytest.raises(exchange.ExchangeError, match="clip=3"):
        onnx_format.from_model(model)


@needs_tensorflow_2
def test_onnx_operators_with_the_long_name_of_the_domain(tmp_path):
    """`ai.onnx` is the domain of ONNX's own operators as the empty name is."""
    import onnx

    rnn = random_rnn("gru", 2, bidirectional=True)
    model = onnx_format.to_model([rnn])
    for node in model.graph.node:
        node.domain = "ai.onnx"
    onnx.save(model, str(tmp_path / "rnn.onnx"))
    contents = exchange.read(tmp_path / "rnn.onnx")
    assert_same(contents.rnns[0], rnn)
    assert contents.notes == []


@needs_tensorflow_2
@pytest.mark.parametrize("place", ["if", "function"])
def test_onnx_nodes_in_bodies_are_told(tmp_path, place):
    """An RNN in the body of a conditional or a function is not read, which a note says."""
    import onnx

    helper = onnx.helper
    model = onnx_format.to_model([random_rnn("lstm")])
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="inner", hidden_size=2)
    if place == "if":
        body = helper.make_graph([node], "body", [], [])
        outer = helper.make_graph(
            [helper.make_node("If", ["c"], ["y"], then_branch=body)], "outer", [], []
        )
        branches = {"then_branch": outer, "else_branch": body}
        model.graph.input.append(helper.make_tensor_value_info("c", 9, []))
        model.graph.node.append(helper.make_node("If", ["c"], ["y"], **branches))
    else:
        imports = [helper.make_opsetid("", 17)]
        function = helper.make_function("local", "F", ["x", "w", "r"], ["y"], [node], imports)
        model.functions.append(function)
    onnx.save(model, str(tmp_path / "rnn.onnx"))
    (note,) = exchange.read(tmp_path / "rnn.onnx").notes
    assert note.count("LSTM node 'inner'") == (2 if place == "if" else 1)
    assert note.startswith("Only RNNs of the graph itself are read. Left out")


def add_quantized(nodes, name="quantized"):
    """Adds the node that `onnxruntime.quantization.quantize_dynamic` makes of an LSTM."""
    import onnx

    node = onnx.helper.make_node(
        "DynamicQuantizeLSTM", ["input"], ["y"], name=name, domain="com.microsoft", hidden_size=2
    )
    nodes.append(node)


@needs_tensorflow_2
@pytest.mark.parametrize("place", ["graph", "body", "function"])
def test_onnx_rnns_of_other_domains_are_told(tmp_path, place):
    import onnx

    helper = onnx.helper
    model = onnx_format.to_model([random_rnn("gru")])
    nodes = []
    add_quantized(nodes)
    if place == "graph":
        model.graph.node.extend(nodes)
    elif place == "body":
        model.graph.input.append(helper.make_tensor_value_info("c", 9, []))
        body = helper.make_graph(nodes, "body", [], [])
        model.graph.node.append(
            helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
        )
    else:
        imports = [helper.make_opsetid("", 17)]
        model.functions.append(helper.make_function("local", "F", ["input"], ["y"], nodes, imports))
    onnx.save(model, str(tmp_path / "rnn.onnx"))
    done = exchange.convert(tmp_path / "rnn.onnx", tmp_path / "rnn.npz", "npz")
    assert len(done.source.rnns) == 1
    (note,) = done.notes
    assert "DynamicQuantizeLSTM (com.microsoft) node 'quantized'" in note
    assert "Left out" in note and "before it was quantized" in note


@needs_tensorflow_2
def test_onnx_models_with_only_rnns_of_other_domains(tmp_path):
    import onnx

    value = onnx.helper.make_tensor_value_info("input", 1, [None, None, 3])
    graph = onnx.helper.make_graph([], "graph", [value], [])
    add_quantized(graph.node)
    path = tmp_path / "rnn.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    contents = exchange.read(path)
    assert contents.rnns == [] and "DynamicQuantizeLSTM" in contents.notes[0]
    with pytest.raises(
        exchange.ExchangeError, match="has no RNN.*DynamicQuantizeLSTM .*convert the"
    ):
        exchange.convert(path, tmp_path / "rnn.npz", "npz")


@needs_tensorflow_2
def test_onnx_errors_tell_rnns_of_other_domains():
    model = onnx_format.to_model([random_rnn("gru", 1)])
    with_attribute(rnn_nodes(model)[0], "clip", 3.0)
    add_quantized(model.graph.node)
    with pytest.raises(exchange.ExchangeError, match="(?s)clip=3.*DynamicQuantizeLSTM"):
        onnx_format.from_model(model)


@needs_tensorflow_2
@pytest.mark.parametrize("beyond", ["weights", "model"])
def test_onnx_models_that_a_file_cannot_hold(tmp_path, monkeypatch, beyond):
    """The limit is 2 GiB; weights above it are refused before a model is built."""
    rnn = random_rnn("lstm", bidirectional=True)
    limit = 4 * rnn.to_opaque().size - (beyond == "weights")
    monkeypatch.setattr(onnx_format, "MOST_BYTES", limit)
    if beyond == "weights":
        monkeypatch.setattr(onnx_format, "_add_rnn", None)
    with pytest.raises(exchange.ExchangeError) as caught:
        exchange.write(tmp_path / "rnn.onnx", [rnn], "onnx")
    assert "; an ONNX file can have %d." % limit in str(caught.value)
    assert "--to torch" in str(caught.value) and "--scope" in str(caught.value)
    assert not (tmp_path / "rnn.onnx").exists()
