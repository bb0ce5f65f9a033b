"""PyTorch, safetensors and NumPy files from strangers, and those that no writer makes."""

import os

import numpy as np
import pytest

from cudnn_rnn import exchange
from cudnn_rnn.exchange import npz_format, torch_format
from helpers.exchange_models import assert_refused, assert_same, random_rnn
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci


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
        (lambda s: dict(s, weight_hh_l0_raw=s["weight_hh_l0"]), "from 'weight_hh_l0_raw': by a"),
        (lambda s: dict(s, **{"parametrizations.weight_hh_l0.0": s["bias_hh_l0"]}), "computes"),
        (lambda s: {"%s_%s" % (k, t): s[k] for k in s for t in ("orig", "mask")}, "computes"),
        (lambda s: {"parametrizations.%s.original" % k: s[k] for k in s}, "computes"),
        (
            lambda s: dict({"0.module." + k: s[k] for k in s}, **{"0.weight_hh_l1_raw": 1}),
            "computes parameters from '0.weight_hh_l1_raw'",
        ),
        (lambda s: dict(s, bias_hh_l0=s["bias_hh_l0"][:, None]), "not a vector"),
        (lambda s: {k: a.astype(np.complex64) for k, a in s.items()}, "complex64"),
        (lambda s: {k: a.astype(np.int32) for k, a in s.items()}, "int32. If the model is quant"),
        (lambda s: dict(s, **{"_orig_mod.bias_hh_l0": 1}), "are the same without '_orig_mod.'"),
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


@needs_tensorflow_2
def test_torch_files_with_computed_parameters_only(tmp_path):
    """Not "no RNN", also if the state_dict is in a dict."""
    import torch
    from torch.nn.utils import prune

    lstm = torch.nn.LSTM(3, 5)
    for name, _ in list(lstm.named_parameters()):
        prune.l1_unstructured(lstm, name, 0.5)
    for saved in (lstm.state_dict(), {"model": lstm.state_dict(), "epoch": 3}):
        torch.save(saved, str(tmp_path / "rnn.pt"))
        assert_refused(tmp_path / "rnn.pt", "The module of an RNN computes parameters from")


@needs_tensorflow_2
def test_torch_cells_are_told(tmp_path):
    import torch

    path = tmp_path / "cells.pt"
    cells = torch.nn.ModuleDict({"a": torch.nn.LSTMCell(3, 5), "b": torch.nn.Linear(5, 2)})
    torch.save(cells.state_dict(), str(path))
    with pytest.raises(exchange.ExchangeError, match="has no RNN. Keys such as 'a.weight_ih' are"):
        exchange.convert(path, tmp_path / "rnn.npz", "npz")
    renamed_keys = renamed(renamed(cells.state_dict(), "_ih", "_ih_l0"), "_hh", "_hh_l0")
    torch.save(renamed_keys, str(path))
    contents = exchange.read(path)
    (rnn,) = contents.rnns
    assert rnn.scope == "a" and rnn.rnn_mode == "lstm" and contents.notes == []
    np.testing.assert_array_equal(
        rnn.layers[0][0].recurrent_weights, cells["a"].weight_hh.detach().numpy()
    )


def test_torch_modules_that_were_compiled():
    """`torch.compile` puts `_orig_mod.` before the keys; no program has variables of that name."""
    rnns = [random_rnn("lstm", scope="a/b"), random_rnn("gru", scope="c")]
    state = {
        key.replace("a.", "a._orig_mod.").replace("c.", "_orig_mod.c."): array
        for key, array in torch_format.to_state_dict(rnns).items()
    }
    found = torch_format.from_state_dict(state).rnns
    assert [rnn.scope for rnn in found] == ["a/b", "c"]
    for one, other in zip(found, rnns):
        assert_same(one, other)


@needs_tensorflow_2
def test_torch_tensors_that_numpy_does_not_have(tmp_path):
    import torch
    from safetensors.torch import save_file

    lstm = torch.nn.LSTM(3, 5).state_dict()
    tensors = {key: tensor.to(torch.float8_e4m3fn) for key, tensor in lstm.items()}
    save_file(tensors, str(tmp_path / "rnn.safetensors"))
    assert_refused(tmp_path / "rnn.safetensors", "it has tensors of float8_e4m3fn")


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


@needs_tensorflow_2
def test_a_state_dict_of_torch_in_a_dict_of_a_dict(tmp_path):
    import torch

    modules = torch.nn.LSTM(3, 4), torch.nn.GRU(3, 4)
    inner = {"model": modules[0].state_dict(), "epoch": 3}
    saved = {"nets": {"first": inner, "second": modules[1].state_dict()}, "a": {"b": {"c": 1}}}
    inner["itself"] = saved
    torch.save(saved, str(tmp_path / "rnns.pt"))
    contents = exchange.read(tmp_path / "rnns.pt")
    assert [rnn.rnn_mode for rnn in contents.rnns] == ["gru"]
    assert contents.others == ["a", "nets.first.epoch", "nets.first.itself"]
    left_out = "of 'nets.second' are read. Left out are those of 'nets.first.model'"
    assert left_out in contents.notes[0]
    found = torch_format.to_state_dict(contents.rnns)["weight_ih_l0"]
    np.testing.assert_array_equal(found, modules[1].weight_ih_l0.detach().numpy())


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
