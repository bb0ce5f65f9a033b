"""Checkpoints from strangers: damaged ones are refused, and the work is linear in the file."""

import functools
import struct
import sys
import tracemalloc

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import exchange
from cudnn_rnn.exchange import checkpoint_format, crc32c, tensor_bundle
from cudnn_rnn.model.keys import OBJECT_GRAPH
from helpers.exchange_models import assert_refused, assert_same, random_rnn
from helpers.tensor_bundles import block_of, entries_of, table_of, write_index

pytestmark = pytest.mark.ci
CELL = "rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/"
LAYER_OF_CELLS = {"kernel": [9, 20], "bias": [20]}


@pytest.fixture
def path(tmp_path):
    """Returns the prefix of a checkpoint with one RNN."""
    exchange.write(tmp_path / "rnn", [random_rnn("lstm")], "cells")
    return str(tmp_path / "rnn")


def test_an_index_of_these_tests_is_valid(path):
    write_index(path, entries_of(path))
    with_half_biases = exchange.read(path).rnns[0]
    rnn = random_rnn("lstm")
    assert (
        with_half_biases.layers[0][0].input_weights.tolist()
        == rnn.layers[0][0].input_weights.tolist()
    )
    tf.train.load_checkpoint(path)


def set_dim(entry, size):
    entry.shape.dim[0].size = size


ENTRIES = {
    "dtype": (lambda entry: setattr(entry, "dtype", 99), "has the dtype number 99"),
    "variant": (lambda entry: setattr(entry, "dtype", 21), "bytes; expected"),
    "rank": (lambda entry: setattr(entry.shape, "unknown_rank", True), "has the shape"),
    "negative": (lambda entry: set_dim(entry, -2), "has the shape [-2, 20]"),
    "huge": (lambda entry: set_dim(entry, 2**62), "declares"),
    "large": (lambda entry: set_dim(entry, 12), "expected 960 for shape [12, 20]"),
    "offset": (lambda entry: setattr(entry, "offset", 10**9), "bytes at 1000000000 are not in"),
    "negative offset": (lambda entry: setattr(entry, "offset", -5), "bytes at -5 are not in"),
    "size": (lambda entry: setattr(entry, "size", 2**60), "bytes; expected 720"),
    "shard": (lambda entry: setattr(entry, "shard_id", 7), "No such file"),
    "checksum": (lambda entry: setattr(entry, "crc32c", 1), "the checksum of its data"),
}


@pytest.mark.parametrize("kind", sorted(ENTRIES))
def test_damaged_entries_with_right_checksums(path, kind):
    entries = entries_of(path)
    change, message = ENTRIES[kind]
    change(entries[CELL + "kernel"])
    write_index(path, entries)
    assert_refused(path, "cannot be read as a checkpoint", message)


def test_damaged_protobufs_with_right_checksums(path):
    entries = entries_of(path)
    for value in (b"\xff", b"\x12\x7f", b""):
        write_index(path, dict(entries, **{CELL + "kernel": value}))
        assert_refused(path, "cannot be read as a checkpoint")


@pytest.mark.parametrize(
    "block, message",
    [
        (b"", "a block of its index is truncated"),
        (struct.pack("<I", 2**31), "a block of its index is damaged"),
        (block_of([(5, b"a", b"")]), "a block of its index is damaged"),
        (block_of([(0, b"a", b""), (0, b"", b"")]), "the keys of its index are not in order"),
        (block_of([(0, b"a", b"")]), "its index has no header"),
        (b"\x80" * 40 + struct.pack("<II", 0, 1), "a number in its index is damaged"),
        (block_of([(0, b"", b""), (0, b"\xff", b"")]), "is no text"),
        (
            block_of([(0, b"", b""), (0, b"x" * 10**4, b"")] + [(10**4, b"y", b"")] * 10**4),
            "a block of its index is damaged",
        ),
    ],
)
def test_damaged_tables_with_right_checksums(path, block, message):
    with open(path + ".index", "wb") as file:
        file.write(table_of(block))
    assert_refused(path, message)


def test_every_changed_byte_of_an_index(path):
    with open(path + ".index", "rb") as file:
        content = file.read()
    for place in range(0, len(content), 7):
        for changed in (content[:place], content[:place] + b"\xff" + content[place + 1 :]):
            with open(path + ".index", "wb") as file:
                file.write(changed)
            try:
                tensor_bundle.TensorBundle(path)
            except (exchange.ExchangeError, tensor_bundle.Unsupported) as error:
                assert str(error)


@pytest.mark.parametrize("content", [b"123456789", b"", b"x", bytes(range(256)) * 300])
def test_checksums(content):
    state = 0xFFFFFFFF
    for octet in content:
        state ^= octet
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    assert crc32c.crc32c(content) == state ^ 0xFFFFFFFF
    assert crc32c.crc32c(b"123456789") == 0xE3069283  # the standard's check


@pytest.mark.sampled(4)
def test_what_only_tensorflow_reads(tmp_path):
    """A checkpoint of TensorFlow 0.x's format, and a partitioned variable."""
    rnn = random_rnn("lstm", 1, equal_biases=True)
    arrays = checkpoint_format.plan([rnn], "cells").arrays
    with tf.Graph().as_default(), tf.Session() as session:
        values = {key: tf.Variable(array) for key, array in arrays.items()}
        kernel = arrays[CELL + "kernel"]
        parts = tf.get_variable(
            "parts",
            kernel.shape,
            initializer=tf.zeros_initializer(),
            partitioner=tf.fixed_size_partitioner(2),
            use_resource=False,
        )
        session.run(tf.global_variables_initializer())
        for part, value in zip(parts, np.array_split(kernel, 2)):
            part.load(value, session)
        options = dict(write_meta_graph=False)
        tf.train.Saver(values, write_version=1).save(session, str(tmp_path / "old"), **options)
        values[CELL + "kernel"] = parts
        tf.train.Saver(values).save(session, str(tmp_path / "parts"), **options)
    for name in ("old", "parts"):
        assert_same(exchange.read(tmp_path / name).rnns[0], rnn)
    content = (tmp_path / "old").read_bytes()
    (tmp_path / "old").write_bytes(content[:150] + content[-48:])  # the end names its other parts
    assert_refused(tmp_path / "old", "cannot be read as a checkpoint")
    (tmp_path / "old").write_bytes(content[:200])
    assert_refused(tmp_path / "old", "is of no known format, or truncated")


# Object graphs


def graph_of(*nodes):
    """Returns an object graph; a node is a list of (name, number of the child)."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    for children in nodes:
        node = graph.nodes.add()
        for name, child in children:
            if isinstance(child, str):
                node.attributes.add(name="VARIABLE_VALUE", checkpoint_key=child)
            else:
                node.children.add(local_name=name, node_id=child)
    return graph


def save_with_graph(path, graph, arrays):
    arrays = dict(arrays, **{OBJECT_GRAPH: np.array(graph.SerializeToString(), object)})
    checkpoint_format.save(str(path), arrays)


VARIABLES = {"k": np.ones([9, 20], np.float32), "b": np.ones([20], np.float32)}


def test_an_object_graph_of_long_names(tmp_path):
    """The path of each of its objects would take gigabytes."""
    count = 13000
    nodes = [[("n" * 90, number + 1)] for number in range(count)] + [[]]
    save_with_graph(tmp_path / "rnn", graph_of(*nodes), VARIABLES)
    tracemalloc.start()
    contents = exchange.read(tmp_path / "rnn")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert contents.rnns == [] and "k" in contents.others
    assert peak < 2**27
    cell = count + 1
    nodes[-1] = [("cell-0", cell)]
    nodes += [[("kernel", cell + 1), ("bias", cell + 2)], [("", "k")], [("", "b")]]
    save_with_graph(tmp_path / "deep", graph_of(*nodes), VARIABLES)
    assert_refused(tmp_path / "deep", "characters; expected at most 1000")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_bidirectional", [False, True])
def test_objects_that_share_variables(tmp_path, is_bidirectional):
    """Many objects refer to the same cells, with many layers or few."""
    count = 2000
    root = [("rnn_%d" % number, 1 + number) for number in range(count)]
    shared = count + 1
    to_cells = [("cell-%d" % layer, shared + 1) for layer in range(1 if is_bidirectional else 500)]
    each = [("fw", shared), ("bw", shared)] if is_bidirectional else to_cells
    nodes = [root] + [each] * count + [to_cells]
    nodes += [[("kernel", shared + 2), ("bias", shared + 3)], [("", "k")], [("", "b")]]
    save_with_graph(tmp_path / "rnn", graph_of(*nodes), VARIABLES)
    if is_bidirectional:
        contents = exchange.read(tmp_path / "rnn", rnn_mode="lstm")
        assert len(contents.rnns) == 1
        assert "rnn_1 has the variables of rnn_0, which is read once." in contents.notes
    else:
        assert_refused(tmp_path / "rnn", "share variables", rnn_mode="lstm")


def test_objects_without_their_tensors(tmp_path):
    nodes = [[("cell-0", 1)], [("kernel", 2), ("bias", 3)], [("", "other")], [("", "b")]]
    save_with_graph(tmp_path / "rnn", graph_of(*nodes), VARIABLES)
    assert_refused(tmp_path / "rnn", "lack the tensors ['other']")


LAYER = [("kernel", "k"), ("recurrent_kernel", "r"), ("bias", "b")]


def save_layers(path, *layers, **arrays):
    """Saves objects of Keras: each layer is a dict from the name of a variable to its key."""
    nodes = [[("layer-%d" % number, 1 + number) for number in range(len(layers))]]
    keys = sorted({key for layer in layers for _, key in layer})
    number_of = {key: len(layers) + 1 + index for index, key in enumerate(keys)}
    nodes += [[(name, number_of[key]) for name, key in layer] for layer in layers]
    shapes = dict(k=(4, 12), r=(3, 12), b=(12,))
    saved = {key: np.ones(shape, np.float32) for key, shape in shapes.items()}
    saved.update(arrays)
    save_with_graph(path, graph_of(*nodes, *[[("", key)] for key in keys]), saved)


def test_layers_of_keras_that_share_variables(tmp_path):
    save_layers(tmp_path / "rnn", *[LAYER] * 2000)
    contents = exchange.read(tmp_path / "rnn", rnn_mode="lstm")
    assert len(contents.rnns) == 1
    assert "The layer 'layer-1' has arrays of the layer 'layer-0', which are read once." in (
        contents.notes
    )


def test_layers_of_keras_without_their_tensors(tmp_path):
    save_layers(tmp_path / "rnn", [("kernel", "k"), ("recurrent_kernel", "other")])
    assert_refused(tmp_path / "rnn", "The layer 'layer-0' lacks the tensors ['other']")


@pytest.mark.parametrize("shape", [(), (12,), (3, 13), (0, 0), (3, 12, 1)])
def test_layers_of_keras_of_other_shapes(tmp_path, shape):
    save_layers(tmp_path / "rnn", LAYER, r=np.ones(shape, np.float32))
    assert exchange.read(tmp_path / "rnn", rnn_mode="lstm").rnns == []


def test_layers_of_keras_in_a_loop_of_objects(tmp_path):
    nodes = [[("layer", 0), ("cell", 1)], [("forward_layer", 0), ("backward_layer", 1)]]
    save_with_graph(tmp_path / "rnn", graph_of(*nodes), VARIABLES)
    assert exchange.read(tmp_path / "rnn").rnns == []


def calls_of(function, *arguments):
    """Returns the result, and the number of function calls on the way."""
    count = [0]

    def profile(frame, event, argument):
        count[0] += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        return function(*arguments), count[0]
    finally:
        sys.setprofile(None)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "cell_of_rnn, facts",
    [
        ("%s/" + CELL, {}),
        ("%s/rnn/lstm_cell/", {"forget_bias": 0.0}),
        ("%s/fw/basic_lstm_cell/", {"forget_bias": 0.0}),
    ],
)
def test_many_small_rnns(tmp_path, cell_of_rnn, facts):
    """Ten times as many take about ten times as many calls."""
    arrays = {}
    for number in range(500):
        rnn = random_rnn("lstm", 1, 1, 1, scope="rnn_%d" % number)
        cell = cell_of_rnn % rnn.scope
        arrays[cell + "kernel"] = np.ones([2, 4], np.float32)
        arrays[cell + "bias"] = rnn.layers[0][0].input_bias
        for slot in ("kernel/Adam", "bias/Adam"):
            arrays[cell + slot] = arrays[cell + slot[:-5]]
        arrays[rnn.scope + "/opaque_kernel"] = rnn.to_opaque()
    counts = []
    for number in (50, 500):
        some = {key: arrays[key] for key in arrays if int(key.split("/")[0][4:]) < number}
        checkpoint_format.save(str(tmp_path / "rnn"), some)
        contents, calls = calls_of(functools.partial(exchange.read, **facts), tmp_path / "rnn")
        assert len(contents.rnns) == number
        scopes = [scope for scope in contents.slots if scope.split("/")[0] == "rnn_7"]
        assert [contents.slots[scope].keys() for scope in scopes] == [{("", "Adam")}]
        counts.append(calls)
    assert counts[1] < 15 * counts[0]


# Silent mistakes


@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_canonical_tensors_of_other_shapes(tmp_path, rnn_mode):
    rnn = random_rnn(rnn_mode, 1, num_units=5, input_size=4)
    arrays = checkpoint_format.plan([rnn], "1.1").arrays
    old = {key: array.reshape(array.shape[::-1]) for key, array in arrays.items()}
    mixed = {
        key: array.reshape(-1 if key[-1] in "02" else array.shape) for key, array in old.items()
    }
    for shapes in (arrays, old, mixed):  # since 1.4, and two of 1.0 to 1.3
        checkpoint_format.save(str(tmp_path / "rnn"), shapes)
        assert_same(exchange.read(tmp_path / "rnn").rnns[0], rnn)
    first = "CudnnRNNParamsToCanonical:0"
    for shape in ([4, 5], [20], [2, 10], [5, 4, 1]):
        checkpoint_format.save(str(tmp_path / "rnn"), dict(arrays, **{first: np.ones(shape, "f4")}))
        assert_refused(tmp_path / "rnn", "do not fit together")
    bias = "CudnnRNNParamsToCanonical:9"
    checkpoint_format.save(str(tmp_path / "rnn"), dict(arrays, **{bias: arrays[bias][None]}))
    assert_refused(tmp_path / "rnn", "has shape [1, 5]; expected [5]")


@pytest.mark.parametrize("scope", ["a\nb", "a\0b", "x" * 100000], ids=["line", "nul", "long"])
@pytest.mark.parametrize("target", ["cells", "1.1"])
def test_scopes_that_are_no_names(tmp_path, scope, target):
    arrays = checkpoint_format.plan([random_rnn("lstm")], target).arrays
    changed = {scope + "/" + key: array for key, array in arrays.items()}
    checkpoint_format.save(str(tmp_path / "rnn"), changed)
    assert_refused(tmp_path / "rnn", "The scope '", "rename it")
    with pytest.raises(exchange.ExchangeError, match="The scope '"):
        exchange.write(tmp_path / "new", [random_rnn("lstm", scope=scope)], target)


def test_a_number_in_other_digits(tmp_path):
    arrays = checkpoint_format.plan([random_rnn("lstm", 2)], "cells").arrays
    for other in ("cell_01", "cell_\u0661"):
        changed = {key.replace("cell_1", other): array for key, array in arrays.items()}
        checkpoint_format.save(str(tmp_path / "rnn"), changed)
        contents = exchange.read(tmp_path / "rnn")
        assert [rnn.num_layers for rnn in contents.rnns] == [1]
        assert "%s are not where TensorFlow has" % other in contents.problems[0]


def test_a_folder_whose_checkpoint_is_elsewhere(tmp_path, path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in (path, "../rnn", "", "no"):
        text = 'model_checkpoint_path: "%s"\n' % name
        (folder / "checkpoint").write_text(text)
        assert_refused(folder, "names the checkpoint", "'%s'" % name)
    (folder / "checkpoint").write_bytes(b"\xff{")
    assert_refused(folder, "is damaged")
    for name in ("rnn", path):
        (tmp_path / "checkpoint").write_text('model_checkpoint_path: "%s"\n' % name)
        assert len(exchange.read(tmp_path).rnns) == 1
