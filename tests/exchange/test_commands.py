"""`python -m cudnn_rnn inspect` and `convert`."""

import errno
import json
import os
import re
import sys
import zipfile

import numpy as np
import pytest

from cudnn_rnn import exchange
from cudnn_rnn._compat import has_projection
from cudnn_rnn.cli import convert
from cudnn_rnn.cli.main import main
from cudnn_rnn.exchange import checkpoint_format, npz_format, torch_format
from cudnn_rnn.model import layout
from helpers.exchange_models import assert_same, random_rnn
from helpers.golden import GoldenCheckpoint, read_checkpoint
from helpers.processes import importable, status_and_text
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.once, pytest.mark.ci]

GOLDEN = "tf1.15.5/lstm_L2_H5_I3_bi"


@pytest.fixture
def path():
    return GoldenCheckpoint(GOLDEN).path


@pytest.fixture
def two(tmp_path):
    """Returns the path of a checkpoint with two RNNs."""
    rnns = [random_rnn("lstm", scope="encoder"), random_rnn("rnn_relu", scope="decoder", seed=1)]
    exchange.write(tmp_path / "two", rnns, "1.4")
    return str(tmp_path / "two")


def run(capsys, *arguments):
    """Runs a command in this process; returns (exit status, stdout, stderr)."""
    status = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_inspect(capsys, path):
    status, out, err = run(capsys, "inspect", path)
    assert (status, err) == (0, "")
    assert "model.ckpt: checkpoint with the keys of 1.4 to 1.15" in out
    assert "The RNN: lstm, 2 layers of 5 units, bidirectional, input size 3, float32, 1" in out
    assert "opaque variable: cudnn_lstm/opaque_kernel" in out
    assert "\n1 other: global_step" in out
    rows = re.findall(r"^  \w.* gate .*", out, re.MULTILINE)
    assert len(rows) == 2 * 2 * 4 * 4 and max(map(len, out.splitlines()[1:])) <= 100
    (rnn,) = exchange.read(path).rnns
    mean = "%.4g" % rnn.layers[1][1].recurrent_weights[5:10].astype(np.float64).mean()
    of_last_place = out[out.index("\nlayer 1, backward\n") :]
    row = re.search("\n( +forget gate +recurrent weights.*)", of_last_place).group(1)
    assert row.split()[-4:-3] == [mean] and row.split()[-5] == "25"


def test_inspect_as_json(capsys, two):
    status, out, err = run(capsys, "inspect", two, "--json")
    assert status == 0 and "Note: The RNN 'decoder' may be rnn_tanh or rnn_relu: nothing" in err
    found = json.loads(out)
    assert [(rnn["scope"], rnn["rnn_mode"]) for rnn in found["rnns"]] == [
        ("decoder", "rnn_tanh or rnn_relu"),
        ("encoder", "lstm"),
    ]
    first = found["rnns"][1]
    assert (first["num_layers"], first["num_units"], first["input_size"]) == (2, 5, 4)
    assert (first["direction"], first["dtype"]) == ("unidirectional", "float32")
    assert len(first["statistics"]) == 2 * 4 * 4
    _, out, err = run(capsys, "inspect", two, "--json", "--rnn-mode", "rnn_relu")
    assert json.loads(out)["rnns"][0]["rnn_mode"] == "rnn_relu" and err == ""


def test_inspect_of_an_unknown_activation(capsys, tmp_path, two):
    status, out, _ = run(capsys, "inspect", two)
    assert status == 0 and "The RNN 'decoder': rnn_tanh or rnn_relu, 2 layers of 5 units" in out
    for to, name in (("npz", "rnns.npz"), ("keras", "rnns.h5")):
        status, _, err = run(capsys, "convert", two, tmp_path / name, "--to", to)
        assert status == 1 and "The RNN 'decoder' may be rnn_tanh or rnn_relu" in err
        assert "--rnn-mode rnn_tanh or --rnn-mode rnn_relu" in err
    status, _, err = run(capsys, "convert", two, tmp_path / "new", "--to", "1.15")
    assert status == 0 and "Formats that contain it need --rnn-mode." in err


def test_inspect_names_the_slots(capsys, tmp_path):
    """Only RNNs that have slots get the line."""
    rnns = [random_rnn("gru", scope="encoder"), random_rnn("gru", scope="decoder", seed=1)]
    slot = np.zeros(layout.params_size(rnns[0].config), np.float32)
    slots = {"encoder": {("", "Adam_1"): slot, ("", "Adam"): slot}}
    contents = exchange.Contents("", "", rnns, slots=slots)
    exchange.write(tmp_path / "model", contents, "cells")
    status, out, _ = run(capsys, "inspect", tmp_path / "model")
    assert status == 0
    lines = [line for line in out.splitlines() if re.match("The RNN|slots", line)]
    assert [line.split(":")[0] for line in lines] == [
        "The RNN 'decoder'",
        "The RNN 'encoder'",
        "slots",
    ]
    assert lines[-1] == "slots: Adam, Adam_1"


def test_inspect_refuses_a_plot_before_it_prints(capsys, monkeypatch, tmp_path, path):
    status, out, err = run(capsys, "inspect", path, "--plot", tmp_path / "weights.xyz")
    assert (status, out) == (1, "") and "must end with .png, .svg or .pdf" in err
    assert "weights.xyz" in err
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    status, out, err = run(capsys, "inspect", path, "--plot", tmp_path / "weights.png")
    assert (status, out) == (1, "") and "pip install 'cudnn_rnn[plot]'" in err


def test_whiskers_end_at_the_percentiles_that_the_plot_names(monkeypatch, tmp_path):
    from matplotlib.axes import Axes

    found = []
    draw = Axes.bxp

    def bxp(self, boxes, **named):
        found.extend(boxes)
        return draw(self, boxes, **named)

    monkeypatch.setattr(Axes, "bxp", bxp)
    rnn = random_rnn("rnn_tanh", 1, num_units=12)
    exchange.plot([rnn], tmp_path / "weights.png")
    values = [array.reshape(-1) for array in rnn.layers[0][0][:4]]
    assert len(found) == len(values)
    for box, array in zip(found, values):
        names = ("whislo", "q1", "med", "q3", "whishi")
        quantiles = np.percentile(array.astype(np.float64), [1, 25, 50, 75, 99])
        np.testing.assert_allclose([box[name] for name in names], quantiles)
        np.testing.assert_allclose(box["fliers"], [array.min(), array.max()])


@pytest.mark.sampled(4)
def test_inspect_shows_what_is_not_a_number(capsys, tmp_path):
    rnn = random_rnn("gru", bidirectional=True)
    rnn.layers[1][0].recurrent_bias[5:8] = np.nan, np.inf, -np.inf
    exchange.write(tmp_path / "rnn.npz", [rnn], "npz")
    plot = tmp_path / "plots" / "weights.png"
    status, out, _ = run(capsys, "inspect", tmp_path / "rnn.npz", "--plot", plot)
    assert status == 0
    (row,) = [line for line in out.splitlines() if line.endswith(" 3")]
    assert re.match(" +update gate +recurrent bias", row)
    assert out.index("\nlayer 1, forward\n") < out.index(row) < out.index("\nlayer 1, backward\n")
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 10000
    status, _, err = run(capsys, "convert", tmp_path / "rnn.npz", tmp_path / "x", "--to", "cells")
    assert status == 1 and "layer 1, forward, recurrent bias: 3" in err and "--allow-nan" in err
    options = ["--to", "cells", "--allow-nan"]
    status, _, _ = run(capsys, "convert", tmp_path / "rnn.npz", tmp_path / "x", *options)
    assert status == 0
    (found,) = exchange.read(tmp_path / "x").rnns
    assert found.not_finite()


def test_inspect_of_a_file_without_an_rnn(capsys, tmp_path):
    np.savez(str(tmp_path / "other.npz"), embedding=np.zeros(3))
    status, out, _ = run(capsys, "inspect", tmp_path / "other.npz")
    assert status == 1 and "No RNN was found." in out and "1 other: embedding" in out


def test_convert_between_checkpoints(capsys, tmp_path, path):
    new = tmp_path / "folder" / "new.ckpt"
    status, out, err = run(capsys, "convert", path, new, "--to", "cells", "--dry-run")
    assert status == 0 and not new.parent.exists()
    keys = re.findall(r"^  (.*)", out, re.MULTILINE)
    assert "Would write %s (cells)" % new in out
    status, out, err = run(capsys, "convert", path, new, "--to", "cells")
    note = "Note: The folder %s is new.\n" % new.parent
    assert (status, err) == (0, note) and "Wrote %s (cells)" % new in out
    assert sorted(read_checkpoint(str(new))) == keys and "global_step" in keys
    status, _, err = run(capsys, "convert", path, new, "--to", "cells")
    assert status == 1 and "exists. Choose another name, or overwrite it" in err
    status, _, _ = run(capsys, "convert", path, new, "--to", "1.1", "--force")
    assert status == 0 and "CudnnRNNParamsToCanonical:63" in read_checkpoint(str(new))


def test_a_dry_run_finds_what_is_impossible(capsys, tmp_path):
    rnn = random_rnn("lstm", num_proj=3) if has_projection() else random_rnn("lstm")
    exchange.write(tmp_path / "rnn.npz", [rnn], "npz")
    for out, to in (("x.ckpt", "1.15"), ("x.h", "keras")):
        options = ["--to", to, "--dry-run"]
        status, printed, err = run(
            capsys, "convert", tmp_path / "rnn.npz", tmp_path / out, *options
        )
        assert status == (1 if to == "keras" or rnn.num_proj else 0), err
    assert os.listdir(str(tmp_path)) == ["rnn.npz"]


def test_many_other_variables(capsys, tmp_path):
    np.savez(str(tmp_path / "other.npz"), **{"v%03d" % i: np.zeros(1) for i in range(30)})
    _, out, _ = run(capsys, "inspect", tmp_path / "other.npz")
    assert "30 others: v000" in out and "v019, and 10 more (--json lists all)" in out


def test_convert_one_of_several(capsys, tmp_path, two):
    out = tmp_path / "rnn.npz"
    status, _, err = run(capsys, "convert", two, out, "--to", "npz", "--scope", "encoder")
    assert status == 0 and "Note: Left out: the RNNs 'decoder'." in err
    (found,) = exchange.read(out).rnns
    assert (found.scope, found.rnn_mode) == ("encoder", "lstm")
    options = ["--to", "1.15", "--target-scope", "model"]
    status, _, err = run(capsys, "convert", out, tmp_path / "model", *options)
    assert status == 0 and "has the key model/opaque_kernel" in err
    (again,) = exchange.read(tmp_path / "model").rnns
    assert again.scope == "model"
    assert_same(again, found)
    status, _, err = run(capsys, "convert", two, out, "--to", "npz", "--scope", "coder", "--force")
    assert status == 1 and "no RNN with the scope 'coder'" in err
    assert "expected one of 'decoder', 'encoder'" in err
    for option in (["--target-scope", "x", "--to", "npz"], ["--variable", "x", "--to", "1.4"]):
        status, _, err = run(capsys, "convert", two, tmp_path / "x", *option)
        assert status == 1 and "Pick one (--scope)" in err


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "missing.ckpt",
            None,
            "missing.ckpt does not exist, and neither .*ckpt.index",
        ),
        ("missing.keras", None, "missing.keras does not exist. Check the name and the folder"),
        ("broken.npz", b"PK", "no NumPy archive"),
        ("text.txt", b"Hello", "is of no known format, or truncated. Known are checkpoints of"),
        ("model.ckpt.index", b"Hello", "cannot be read as a checkpoint"),
        ("archive.npz", "empty", "has no RNN. Its keys: x"),
        ("model.zip", "config", "model.zip cannot be read as a Keras model: it lacks"),
    ],
)
def test_files_that_cannot_be_read(capsys, tmp_path, name, content, message):
    if content == "empty":
        np.savez(str(tmp_path / name), x=np.zeros(3))
    elif content == "config":
        with zipfile.ZipFile(str(tmp_path / name), "w") as archive:
            archive.writestr("config.json", "{}")
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    status, out, err = run(capsys, "convert", tmp_path / name, tmp_path / "x", "--to", "cells")
    assert (status, out) == (1, "")
    assert re.search("^python -m cudnn_rnn convert: .*" + message, err), err


@needs_tensorflow_2
@pytest.mark.parametrize("name", ["broken.pt", "broken.onnx", "broken.keras"])
def test_files_of_neighbours_that_cannot_be_read(capsys, tmp_path, name):
    (tmp_path / name).write_bytes(b"PK" if name.endswith("keras") else b"\x80\x02 nonsense")
    status, _, err = run(capsys, "inspect", tmp_path / name)
    assert status == 1 and re.search(name + " cannot be (read|loaded) as a", err), err


def test_facts_that_the_file_contradicts(capsys, path):
    status, _, err = run(capsys, "inspect", path, "--num-units", "6")
    assert status == 1 and "No RNN in" in err and "num_units 6" in err and "num_units 5" in err


def test_a_missing_library_names_the_extra(capsys, tmp_path, path, monkeypatch):
    for name, to, extra in (("onnx", "onnx", "onnx"), ("safetensors.numpy", "torch", "torch")):
        monkeypatch.setitem(sys.modules, name, None)
        out = tmp_path / ("rnn.safetensors" if to == "torch" else "rnn.onnx")
        status, _, err = run(capsys, "convert", path, out, "--to", to)
        assert status == 1 and "pip install 'cudnn_rnn[%s]'" % extra in err
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "rnn.pt").write_bytes(b"")
    status, _, err = run(capsys, "inspect", tmp_path / "rnn.pt")
    assert status == 1 and "pip install 'cudnn_rnn[torch]'" in err
    assert err.startswith("python -m cudnn_rnn inspect: This needs the package torch"), err


@needs_tensorflow_2
@pytest.mark.parametrize("name", ["rnn.pt", "rnn.safetensors"])
def test_a_failed_write_of_torch_files_names_file_and_reason(tmp_path, monkeypatch, name):
    """The errors of PyTorch and of safetensors about a full disk would not."""

    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch_format, "open", full_disk, raising=False)
    expected = re.escape(name) + " cannot be written: .*No space left"
    with pytest.raises(exchange.ExchangeError, match=expected):
        exchange.write(tmp_path / name, [random_rnn("gru")], "torch")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    old, out = random_rnn("gru"), tmp_path / "rnn.npz"
    exchange.write(out, [old], "npz")

    def full_disk(file, **arrays):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(exchange.ExchangeError, match="cannot be written: .*No space left"):
        exchange.write(out, [random_rnn("gru", seed=3)], "npz", force=True)
    assert os.listdir(str(tmp_path)) == ["rnn.npz"]
    assert_same(exchange.read(out).rnns[0], old)


def test_writes_without_an_rnn_or_a_place_for_it(tmp_path):
    rnn, file = random_rnn("gru"), tmp_path / "file"
    file.write_bytes(b"content")
    with pytest.raises(exchange.ExchangeError, match="There is no RNN to write to .*rnn.npz"):
        exchange.write(tmp_path / "rnn.npz", [], "npz")
    for to in ("npz", "1.4"):
        expected = re.escape("%s is a folder; expected the name of a file." % tmp_path)
        with pytest.raises(exchange.ExchangeError, match=expected):
            exchange.write(tmp_path, [rnn], to, force=True)
        expected = re.escape("The folder %s cannot be created: " % file)
        with pytest.raises(exchange.ExchangeError, match=expected):
            exchange.write(file / ("rnn.npz" if to == "npz" else "rnn"), [rnn], to)
    assert os.listdir(str(tmp_path)) == ["file"] and file.read_bytes() == b"content"


@pytest.mark.parametrize("kind", ["FIFO", "link to a FIFO", "link to nothing"])
@pytest.mark.parametrize("to", ["npz", "1.4"])
def test_nothing_takes_the_place_of_what_is_no_file(capsys, tmp_path, path, to, kind):
    out = tmp_path / ("rnn.npz" if to == "npz" else "rnn")
    place = out if to == "npz" else tmp_path / "rnn.index"
    if kind == "FIFO":
        os.mkfifo(str(place))
    else:
        place.symlink_to("target")
    if kind == "link to a FIFO":
        os.mkfifo(str(tmp_path / "target"))
    before = sorted((one.name, one.lstat().st_mode) for one in tmp_path.iterdir())
    for options in ([], ["--force"], ["--dry-run"]):
        status, _, err = run(capsys, "convert", path, out, "--to", to, *options)
        assert status == 1
        assert "%s is a device, a FIFO, a socket or a link to nothing" % place in err
        assert "Remove it, or choose another name." in err and err.count("\n") == 1
    assert sorted((one.name, one.lstat().st_mode) for one in tmp_path.iterdir()) == before
    if to == "npz":
        with pytest.raises(exchange.ExchangeError, match="npz is a device, a FIFO"):
            npz_format.write(str(out), [random_rnn("gru")])


@pytest.mark.parametrize("kind", ["FIFO", "loop of links"])
def test_what_is_no_file_is_not_called_missing(capsys, tmp_path, kind):
    place = tmp_path / "model"
    os.mkfifo(str(place)) if kind == "FIFO" else place.symlink_to("model")
    for arguments in (["inspect", place], ["convert", place, tmp_path / "x.npz", "--to", "npz"]):
        status, _, err = run(capsys, *arguments)
        assert status == 1 and "%s is a device, a FIFO, a socket or a link" % place in err
        assert err.count("\n") == 1


def test_a_target_without_a_name(capsys, tmp_path, path):
    for out in ("", str(tmp_path / "new") + os.sep):
        for to in ("npz", "1.4"):
            status, _, err = run(capsys, "convert", path, out, "--to", to, "--force")
            assert status == 1 and "%r has no name of a file" % out in err
    assert not list(tmp_path.iterdir())


def test_tensorflows_reason_is_one_line(tmp_path):
    """Without the program's lines that made the node."""
    with pytest.raises(OSError, match="no_folder") as caught:
        (tmp_path / "file").write_text("")
        checkpoint_format._save_now(str(tmp_path / "file" / "no_folder" / "x"), {"a": 1.0}, 1)
    assert len(str(caught.value).splitlines()) == 1


def test_whole_models_of_keras(capsys, tmp_path):
    """The weights alone of a whole model are refused; a folder is made; damage names the file."""
    model, target = tmp_path / "model.h5", tmp_path / "new" / "model.h5"
    exchange.write(model, [random_rnn("gru")], "keras")
    status, _, err = run(capsys, "convert", model, tmp_path / "x.weights.h5", "--to", "keras")
    assert status == 1 and "x.weights.h5 is for the weights of RNNs alone" in err
    assert "--scope" in err and os.listdir(str(tmp_path)) == ["model.h5"]
    status, _, err = run(capsys, "convert", model, target, "--to", "keras", "--dry-run")
    assert (status, err) == (0, "") and not target.parent.exists()
    status, _, err = run(capsys, "convert", model, target, "--to", "keras")
    assert status == 0 and "The folder %s is new." % target.parent in err
    assert_same(exchange.read(target).rnns[0], exchange.read(model).rnns[0])
    with zipfile.ZipFile(str(tmp_path / "model.keras"), "w") as archive:
        archive.writestr("config.json", "{}")
    whole = (tmp_path / "model.keras").read_bytes()
    (tmp_path / "model.keras").write_bytes(whole[: len(whole) // 2])
    status, _, err = run(
        capsys, "convert", tmp_path / "model.keras", tmp_path / "y.h5", "--to", "keras"
    )
    assert status == 1 and "model.keras is a damaged ZIP archive" in err and "File is not" in err


@pytest.mark.parametrize("to, name", [("npz", "rnn.npz"), ("cells", "rnn")])
def test_a_variable_for_a_target_without_one(capsys, tmp_path, path, to, name):
    out = tmp_path / name
    status, _, err = run(capsys, "convert", path, out, "--to", to, "--variable", "x")
    assert status == 1 and list(tmp_path.iterdir()) == []
    assert "--variable is the key of the opaque variable, which --to %s does not" % to in err
    with pytest.raises(exchange.ExchangeError, match="opaque variable, which .* does not write"):
        exchange.write(out, [random_rnn("gru")], to, variable="x")


def test_the_command_knows_all_targets():
    assert convert.TARGETS == exchange.TARGETS


@pytest.mark.sampled(4)
def test_end_to_end_in_a_process(tmp_path, path):
    """The command line loads the package by itself."""
    named = dict(folder=tmp_path, PYTHONPATH=importable())
    command = ["-m", "cudnn_rnn", "convert", path, "rnn.npz", "--to", "npz"]
    status, text = status_and_text(*command, **named)
    assert status == 0 and "Note: Left out, as no part of an RNN: global_step." in text, text
    (found,) = exchange.read(tmp_path / "rnn.npz").rnns
    assert_same(found, exchange.read(path).rnns[0])
    status, text = status_and_text("-m", "cudnn_rnn", "inspect", "rnn.npz", **named)
    assert status == 0 and "lstm, 2 layers of 5 units" in text


@needs_tensorflow_2
def test_plain_keys_for_torch_and_onnx(capsys, tmp_path, path):
    import onnx
    import torch

    assert run(capsys, "convert", path, tmp_path / "rnn.pt", "--to", "torch")[0] == 0
    module = torch.nn.LSTM(3, 5, 2, bidirectional=True)
    module.load_state_dict(torch.load(str(tmp_path / "rnn.pt")))
    assert run(capsys, "convert", path, tmp_path / "rnn.onnx", "--to", "onnx")[0] == 0
    graph = onnx.load(str(tmp_path / "rnn.onnx")).graph
    names = [one.name for one in graph.input]
    assert names == ["input", "sequence_lens", "initial_h", "initial_c"]
    assert [one.name for one in graph.output] == ["output", "output_h", "output_c"]
    assert (
        run(capsys, "convert", tmp_path / "rnn.pt", tmp_path / "r.keras", "--to", "keras")[0] == 0
    )
    (found,) = exchange.read(tmp_path / "r.keras").rnns
    assert (found.num_layers, found.bidirectional) == (2, True)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_names_the_file_and_leaves_the_old_one(
    capsys, path, tmp_path, monkeypatch, call
):
    target = tmp_path / "rnn.npz"
    exchange.write(target, [random_rnn("gru")], "npz")
    before = target.read_bytes()

    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patches:
        patches.setattr(os, call, fail)
        status, _, err = run(capsys, "convert", path, target, "--to", "npz", "--force")
    assert status == 1
    assert "%s cannot be written: [Errno %d]" % (target, errno.ENOSPC) in err
    assert "Free space on the disk" in err
    assert os.listdir(str(tmp_path)) == ["rnn.npz"]
    assert target.read_bytes() == before
