"""ONNX, PyTorch, safetensors and NumPy files from strangers, and those that no writer makes."""

import os
import tracemalloc

import numpy as np
import pytest

from cudnn_rnn import exchange
from cudnn_rnn.exchange import npz_format, onnx_format, torch_format
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


# ONNX


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
    "bidirectional, change, is_stack",
    [
        (False, set_perm([0, 2, 1, 3]), True),
        (True, set_perm([0, 2, 1, 3]), True),
        (True, set_perm([2, 0, 1, 3]), False),
        (True, set_perm([0, 1, 2, 3]), False),
        (True, set_perm([0, 2, 3, 1]), False),
        (True, set_perm([2, 1, 0, 3]), False),
        (True, set_perm([0, 0, 1, 3]), False),
        (True, set_perm(None), False),
        (False, set_perm([2, 0, 1, 3]), False),
        (True, set_shape(0, 0, 10), True),
        (True, set_shape(0, -1, 10), True),
        (False, set_shape(0, 0, 5), True),
        (True, set_shape(3, 6, 10), False),
        (True, set_shape(0, -1, 20), False),
        (False, squeezed, True),
        (True, squeezed, False),
    ],
)
def test_onnx_what_is_between_layers(bidirectional, change, is_stack):
    rnn = random_rnn("lstm", bidirectional=bidirectional)
    contents = onnx_format.from_model(changed_between_layers(rnn, change))
    assert [one.num_layers for one in contents.rnns] == ([2] if is_stack else [1, 1])
    if is_stack:
        assert_same(contents.rnns[0], rnn)
        assert contents.notes == []
    else:
        assert "'layer_1' takes the output of another layer in an order" in contents.notes[0]


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


# PyTorch


@needs_tensorflow_2
def test_torch_layers_that_share_a_storage(tmp_path):
    import torch

    one = torch.ones(4 * 64 * 64).reshape(4 * 64, 64)
    state = {}
    for layer in range(300):
        state["weight_ih_l%d" % layer] = state["weight_hh_l%d" % layer] = one
    torch.save(state, str(tmp_path / "rnn.pt"))
    assert_refused(tmp_path / "rnn.pt", "share memory. Save value.clone() of each")
    lstm = torch.nn.LSTM(3, 5, 2)  # whose weights are parts of one storage
    tied = torch.nn.ModuleDict({"a": lstm, "b": lstm})
    torch.save(tied.state_dict(), str(tmp_path / "tied.pt"))
    assert len(exchange.read(tmp_path / "tied.pt").rnns) == 2


def renamed(state, old, new):
    return {key.replace(old, new): array for key, array in state.items()}


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: {k: s[k] for k in s if k != "bias_hh_l1"}, "bias_hh_l1 is missing"),
        (lambda s: {k: s[k] for k in s if not k.startswith("bias_ih")}, "bias_ih_l0 is missing"),
        (lambda s: renamed(s, "bias_", "bais_"), "The key 'bais_ih_l0' stands beside"),
        (lambda s: renamed(s, "_l1", "_l01"), "The key 'weight_ih_l01' stands beside"),
        (lambda s: renamed(s, "_l1", "_l\u0661"), "stands beside"),
        (lambda s: renamed(s, "_l1", "_L1"), "The key 'weight_ih_L1' stands beside"),
        (lambda s: dict(s, weight_hh_l0_raw=s["weight_hh_l0"]), "'weight_hh_l0_raw' stands beside"),
        (lambda s: dict(s, **{"parametrizations.weight_hh_l0.0": s["bias_hh_l0"]}), "beside"),
        (lambda s: dict(s, bias_hh_l0=s["bias_hh_l0"][:, None]), "not a vector"),
        (lambda s: {k: a.astype(np.complex64) for k, a in s.items()}, "complex64"),
        (lambda s: {k: a.astype(np.int32) for k, a in s.items()}, "int32"),
        (lambda s: {k: a > 0 for k, a in s.items()}, "bool"),
        (lambda s: {k: "text" for k in s}, "not a matrix"),
        (lambda s: {k: a[:, :0] if a.ndim == 2 else a for k, a in s.items()}, "no element"),
    ],
)
def test_torch_states_that_no_module_has(change, message):
    state = torch_format.to_state_dict([random_rnn("lstm")])
    with pytest.raises(exchange.ExchangeError) as caught:
        torch_format.from_state_dict(change(state))
    assert message in str(caught.value), str(caught.value)


def test_torch_without_biases():
    state = torch_format.to_state_dict(
        [random_rnn("lstm", scope="a"), random_rnn("gru", scope="b")]
    )
    state = {key: array for key, array in state.items() if not key.startswith("b.bias")}
    state["a.linear.weight"] = state["a.weight_hh_l0"]  # of a module inside another
    contents = torch_format.from_state_dict(state)
    assert [rnn.scope for rnn in contents.rnns] == ["a", "b"]
    assert contents.notes == ["The RNN 'b' has no biases, as with bias=False: they are read as 0."]


@needs_tensorflow_2
@pytest.mark.parametrize("dtype", ["complex64", "int32", "bool"])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_torch_files_of_other_dtypes(tmp_path, suffix, dtype):
    import safetensors.torch
    import torch

    state = {
        key: torch.from_numpy(array).to(getattr(torch, dtype))
        for key, array in torch_format.to_state_dict([random_rnn("lstm")]).items()
    }
    path = str(tmp_path / ("rnn" + suffix))
    (torch.save if suffix == ".pt" else safetensors.torch.save_file)(state, path)
    assert_refused(path, dtype)


@needs_tensorflow_2
def test_torch_tensors_without_plain_memory(tmp_path):
    import torch

    for kind in ("sparse", "conj", "meta"):
        tensor = torch.ones(4, 4)
        tensor = dict(
            sparse=tensor.to_sparse(),
            conj=tensor.to(torch.complex64).conj(),
            meta=tensor.to("meta"),
        )[kind]
        with pytest.raises(exchange.ExchangeError):
            torch_format.from_state_dict({"weight_ih_l0": tensor, "weight_hh_l0": tensor})


@needs_tensorflow_2
@pytest.mark.parametrize("content", [b"\x80\x02 x", b"\x08\x0a\x12", b"\x80\x04\x95", b"", b"x"])
def test_torch_does_not_advise_to_run_the_code_of_a_file(tmp_path, content):
    path = tmp_path / "rnn.pt"
    path.write_bytes(content)
    with pytest.raises(exchange.ExchangeError, match="it is no archive of tensors") as caught:
        exchange.read(path)
    assert "weights_only" not in str(caught.value) and "\n" not in str(caught.value)


@needs_tensorflow_2
def test_another_state_dict_of_torch_is_told(tmp_path):
    import torch

    states = [torch.nn.LSTM(3, 4).state_dict(), torch.nn.GRU(3, 4).state_dict()]
    torch.save({"a": states[0], "epoch": 3, "b": states[1]}, str(tmp_path / "rnns.pt"))
    contents = exchange.read(tmp_path / "rnns.pt")
    assert [rnn.rnn_mode for rnn in contents.rnns] == ["lstm"] and contents.others == ["epoch"]
    assert "Only the RNNs of 'a' are read. Left out are those of 'b'" in contents.notes[0]


# NumPy


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda key: "layer_1/forward/input_weights" not in key, "lacks the arrays x/layer_1"),
        (lambda key: "layer_1" not in key, "lacks the arrays x/layer_1/forward/input_weights"),
        (lambda key: "layer_2" not in key, "lacks the arrays x/layer_2"),
        (lambda key: "layer_1/backward" not in key, "lacks the arrays x/layer_1/backward"),
        (lambda key: "forward" not in key, "lacks the arrays x/layer_0/forward"),
        (lambda key: "rnn_mode" not in key, "lacks the arrays x/rnn_mode"),
        (lambda key: "layer_0/forward/projection" not in key, "lacks the arrays x/layer_0/forward"),
    ],
)
def test_npz_without_some_arrays(tmp_path, change, message):
    rnns = [random_rnn("lstm", 3, bidirectional=True, num_proj=2, scope="x"), random_rnn("gru")]
    arrays = npz_format.to_arrays(rnns)
    np.savez(str(tmp_path / "rnn.npz"), **{key: arrays[key] for key in arrays if change(key)})
    assert_refused(tmp_path / "rnn.npz", message)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"layer_00/forward/input_bias": np.ones(3)},
            "has the arrays layer_00/forward/input_bias, which",
        ),
        ({"layer_0/forwards/input_bias": np.ones(3)}, "has the arrays layer_0/forwards/input_bias"),
        ({"layer_9/x": np.ones(3)}, "has the arrays layer_9/x, which"),
        ({"layer_%d/forward/input_bias" % 10**30: np.ones(3)}, "has the arrays layer_10000000"),
        ({"num_layers": np.array(10**12)}, "has num_layers 1000000000000"),
        ({"num_layers": np.array(1.0)}, "has num_layers 1.0"),
        ({"rnn_mode": np.array(["lstm"])}, "expected a single string"),
        ({"scope": np.array(7)}, "expected a single string"),
        ({"scope": np.array("a\nb")}, "The scope 'a\\nb' of an RNN"),
        ({"scope": np.array("a" * 100000)}, "100000 characters; expected at most 1000"),
    ],
)
def test_npz_with_other_arrays(tmp_path, changes, message):
    arrays = dict(npz_format.to_arrays([random_rnn("lstm")]), **changes)
    np.savez(str(tmp_path / "rnn.npz"), **arrays)
    assert_refused(tmp_path / "rnn.npz", message)


def test_npz_of_version_0_1_and_of_scopes_like_layers(tmp_path):
    rnn = random_rnn("lstm", scope="my/layer_1")
    arrays = npz_format.to_arrays([rnn, random_rnn("gru", scope="layer_0")])
    arrays = {key: arrays[key] for key in arrays if "num_layers" not in key}
    np.savez(str(tmp_path / "rnn.npz"), **arrays)
    found = exchange.read(tmp_path / "rnn.npz").rnns
    assert [one.scope for one in found] == ["my/layer_1", "layer_0"]
    assert_same(found[0], rnn)


@pytest.mark.parametrize("dtype", ["complex64", "int32", "bool"])
def test_npz_of_other_dtypes(tmp_path, dtype):
    arrays = npz_format.to_arrays([random_rnn("lstm")])
    changed = {k: a.astype(dtype) if a.dtype.kind == "f" else a for k, a in arrays.items()}
    np.savez(str(tmp_path / "rnn.npz"), **changed)
    assert_refused(tmp_path / "rnn.npz", dtype)


@pytest.mark.parametrize(
    "scope", ["a\nb", "a\0b", "x" * 100000, "\ud800"], ids=["line", "nul", "long", "surrogate"]
)
@pytest.mark.parametrize(
    "to", ["npz", "torch", "cells", pytest.param("onnx", marks=[needs_tensorflow_2])]
)
def test_scopes_that_no_file_can_have(tmp_path, to, scope):
    rnns = [random_rnn("lstm", scope=scope), random_rnn("gru", scope="b")]
    with pytest.raises(exchange.ExchangeError, match="The scope '"):
        exchange.write(tmp_path / "rnn", rnns, to)
    assert os.listdir(str(tmp_path)) == []
