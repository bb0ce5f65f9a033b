"""Files that would exhaust memory, run code or read other files are refused before that happens."""

import io
import json
import os
import struct
import zipfile

import numpy as np
import pytest

from cudnn_rnn import exchange
from cudnn_rnn.cli.main import main
from cudnn_rnn.exchange import checkpoint_format, conversion, npz_format
from helpers.exchange_models import assert_refused, assert_same, random_rnn
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci
HUGE = 2**60


class Spy:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return open, (self._path, "w")


@pytest.fixture
def spy(tmp_path):
    """Returns a `Spy`; fails if anything unpickled it."""
    path = tmp_path / "unpickled"
    yield Spy(str(path))
    assert not path.exists()


def write_npz(path, version=1, **headers):
    """Writes an archive of arrays with these (shape, dtype), but without elements."""
    write_header = getattr(np.lib.format, "write_array_header_%d_0" % version)
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (shape, dtype) in headers.items():
            content = io.BytesIO()
            header = {"shape": shape, "fortran_order": False, "descr": dtype}
            write_header(content, header)
            archive.writestr(name + ".npy", content.getvalue())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("shape", [(HUGE,), (2**20, 2**20), (1000,)])
def test_npz_with_arrays_larger_than_the_file(tmp_path, shape, version):
    write_npz(tmp_path / "rnn.npz", version, array=(shape, "<f4"))
    assert_refused(tmp_path / "rnn.npz", "declares array.npy with shape", str(list(shape)))


def test_npz_with_headers_of_version_2(tmp_path):
    rnn = random_rnn("gru")
    with zipfile.ZipFile(str(tmp_path / "rnn.npz"), "w") as archive:
        for name, array in npz_format.to_arrays([rnn]).items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, version=(2, 0))
            archive.writestr(name + ".npy", content.getvalue())
    assert_same(exchange.read(tmp_path / "rnn.npz").rnns[0], rnn)


def test_npz_with_a_member_larger_than_deflate_can_make_it(tmp_path):
    path = tmp_path / "rnn.npz"
    write_npz(path, array=((), "<f4"))
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 2**31)  # the size of the member
    path.write_bytes(content)
    assert_refused(path, "declares array.npy")


def test_npz_with_objects(tmp_path, spy):
    np.savez(str(tmp_path / "rnn.npz"), rnn_mode=np.array([spy], object))
    assert_refused(tmp_path / "rnn.npz")


def test_checkpoint_with_tensors_larger_than_its_files(tmp_path):
    exchange.write(tmp_path / "rnn", [random_rnn("gru")], "1.15")
    data = tmp_path / "rnn.data-00000-of-00001"
    os.truncate(str(data), 64)
    message = "cannot be read as a checkpoint: it declares "
    assert_refused(tmp_path / "rnn", message, "with shape")


def test_checkpoint_with_keys_of_many_layers(tmp_path):
    arrays = checkpoint_format.plan([random_rnn("lstm", 2)], "cells").arrays
    arrays = {key.replace("cell_1", "cell_%d" % HUGE): array for key, array in arrays.items()}
    checkpoint_format.save(str(tmp_path / "rnn"), arrays)
    assert_refused(tmp_path / "rnn", "are incomplete: of %d layers" % (HUGE + 1))


def test_checkpoint_with_many_layers_of_which_one_is_large(tmp_path):
    arrays = checkpoint_format.plan([random_rnn("lstm", 40)], "cells").arrays
    small = {key: array[:1] for key, array in arrays.items()}
    for key in arrays:
        if "cell_0/" in key or ("cell_39/" in key and key.endswith("kernel")):
            small[key] = arrays[key]
    checkpoint_format.save(str(tmp_path / "rnn"), small)
    assert_refused(tmp_path / "rnn", "do not fit together", "has shape [1, 20]; expected [10, 20]")


@pytest.mark.parametrize("is_parsed", [False, True])
def test_checkpoint_with_a_damaged_object_graph(tmp_path, is_parsed):
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.nodes.add().children.add(node_id=2**30, local_name="cell-0")
    content = graph.SerializeToString() if is_parsed else b"\xff"
    arrays = {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(content, object)}
    checkpoint_format.save(str(tmp_path / "rnn"), arrays)
    assert_refused(tmp_path / "rnn", "damaged _CHECKPOINTABLE_OBJECT_GRAPH")


def write_safetensors(path, content=b"", **shapes):
    header, start = {}, 0
    for name, shape in shapes.items():
        end = start + 4 * int(np.prod(shape, dtype=object))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)


@needs_tensorflow_2
def test_safetensors(tmp_path):
    path = tmp_path / "rnn.safetensors"
    write_safetensors(path, weight_ih_l0=[2**40], weight_hh_l0=[4, 1])
    assert_refused(path, "cannot be read")
    write_safetensors(path, weight_ih_l0=[HUGE, 0], weight_hh_l0=[HUGE, 0])
    assert_refused(path, "no element")


@needs_tensorflow_2
def test_torch(tmp_path, spy):
    import torch

    torch.save({"weight_ih_l0": spy}, str(tmp_path / "code.pt"))
    assert_refused(tmp_path / "code.pt", "cannot be read as a file of PyTorch")
    one = torch.ones(1)
    expanded = {"weight_ih_l0": one.expand(2**30, 2**20), "weight_hh_l0": one.expand(4, 1)}
    torch.save(expanded, str(tmp_path / "expanded.pt"))
    assert_refused(tmp_path / "expanded.pt", "share memory")


def write_onnx(path, tensor):
    import onnx

    named = dict(hidden_size=1, linear_before_reset=1)
    node = onnx.helper.make_node("GRU", ["x", "w", "w"], ["y"], **named)
    inputs = [onnx.helper.make_tensor_value_info("x", 1, [1, 1, 1])]
    graph = onnx.helper.make_graph([node], "graph", inputs, [], [tensor])
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())


@needs_tensorflow_2
def test_onnx(tmp_path):
    import onnx

    path = tmp_path / "rnn.onnx"
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[1, 2**30, 2**30], raw_data=b"1234")
    write_onnx(path, tensor)
    assert_refused(path, "'w' with dims [1, 1073741824, 1073741824] is damaged")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[1, HUGE, 0], raw_data=b"")
    write_onnx(path, tensor)
    assert_refused(path, "at least one element")
    (tmp_path / "secret").write_bytes(b"1234")
    (tmp_path / "model").mkdir()
    for location in ("../secret", str(tmp_path / "secret")):
        tensor = onnx.TensorProto(name="w", data_type=1, dims=[1, 1, 1], data_location=1)
        tensor.external_data.add(key="location", value=location)
        write_onnx(tmp_path / "model" / "rnn.onnx", tensor)
        assert_refused(tmp_path / "model" / "rnn.onnx", "secret", "in the model's own folder")


# Errors


@pytest.mark.parametrize(
    "error, message",
    [
        (KeyError("x"), "cannot be read as a NumPy archive: 'x' (KeyError). It may be damaged"),
        (RecursionError("too deep"), "too deep (RecursionError)"),
        (zipfile.BadZipFile(""), "no reason is given (BadZipFile)"),
        (OverflowError("a.b."), "a.b (OverflowError)"),
        (MemoryError(), "it needs more memory than there is"),
        (exchange.ExchangeError("its own words"), "rnn.npz: its own words"),
    ],
)
def test_any_error_of_a_reader_is_ours(tmp_path, monkeypatch, error, message):
    def fail(*arguments):
        raise error

    exchange.write(tmp_path / "rnn.npz", [random_rnn("gru")], "npz")
    monkeypatch.setitem(conversion._FORMATS, "npz", npz_format.FORMAT._replace(read=fail))
    assert_refused(tmp_path / "rnn.npz", "rnn.npz", message)


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize(
    "error, status, message",
    [
        (KeyError("x"), 1, "(KeyError). It may be damaged"),
        (KeyboardInterrupt(), 130, "python -m cudnn_rnn inspect: interrupted."),
    ],
)
def test_commands_show_one_line(tmp_path, monkeypatch, capsys, error, status, message, is_long):
    def fail(*arguments):
        raise error

    exchange.write(tmp_path / "rnn.npz", [random_rnn("gru")], "npz")
    monkeypatch.setitem(conversion._FORMATS, "npz", npz_format.FORMAT._replace(read=fail))
    command = ["inspect", str(tmp_path / "rnn.npz")] + ["--traceback"] * is_long
    assert main(command) == status
    err = capsys.readouterr().err
    assert message in err
    assert ("Traceback" in err and "in fail" in err) == (is_long and status == 1)


def test_unexpected_errors_of_a_command_have_their_class(tmp_path, monkeypatch, capsys):
    def fail(*arguments, **named):
        raise TypeError("wrong")

    exchange.write(tmp_path / "rnn.npz", [random_rnn("gru")], "npz")
    monkeypatch.setattr(exchange, "convert", fail)
    assert main(["convert", str(tmp_path / "rnn.npz"), str(tmp_path / "x"), "--to", "1.1"]) == 1
    expected = "python -m cudnn_rnn convert: wrong (TypeError). --traceback shows where.\n"
    assert capsys.readouterr().err == expected
