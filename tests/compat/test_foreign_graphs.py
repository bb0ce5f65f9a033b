"""Other programs' graphs with TensorFlow's ops run on a CPU once the package is imported.

The graphs are in golden/graphs, built by the original of TensorFlow 1.15.5 or directly from ops.
"""

import contextlib
import os

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import meta_graph as meta_graph_module

import cudnn_rnn
from helpers.cases import output_shapes
from helpers.golden import read_case
from helpers.op_harness import (
    TOLERANCES,
    assert_close,
    run_reference,
    swap_major,
)
from helpers.paths import GOLDEN
from helpers.reference import Configuration
from helpers.versions import needs_projection, needs_tensorflow_2

# The nodes have the attribute num_proj.
pytestmark = needs_projection

GRAPHS = os.path.join(GOLDEN, "graphs")


class GoldenGraph:
    """A folder of golden/graphs."""

    def __init__(self, name):
        self.folder = os.path.join(GRAPHS, name)
        self.case, arrays = read_case(self.folder)
        names = ("num_layers", "num_units", "input_size", "num_proj")
        modes = (self.case["rnn_mode"], "linear_input", self.case["direction"])
        self.configuration = Configuration(*modes, *(self.case[name] for name in names))
        self.inputs, self.params = arrays.pop("inputs"), arrays.pop("params")
        self.results = [arrays["result_%d" % index] for index in range(len(arrays))]

    def path(self, name):
        return os.path.join(self.folder, name)

    def with_sums_of_biases(self, params):
        """Returns the buffer's matrices and the sum of the two biases of each gate."""
        parts = self.configuration.num_layers * self.configuration.directions
        num_biases = parts * 2 * self.configuration.gates * self.configuration.num_units
        sums = params[-num_biases:].reshape(parts, 2, -1).sum(axis=1)
        return np.concatenate([params[:-num_biases], sums.ravel()])

    def check(self, session, scope=""):
        """Runs the result nodes of the session's graph and compares their values."""
        names = ["%sresult_%d:0" % (scope, index) for index in range(len(self.results))]
        self.check_results(session.run(names, {scope + "inputs:0": self.inputs}))

    def check_results(self, found):
        found, expected = dict(enumerate(found)), dict(enumerate(self.results))
        assert_close(found, expected, TOLERANCES["float32"], self.folder)


NAMES = sorted(name for name in os.listdir(GRAPHS) if os.path.isdir(os.path.join(GRAPHS, name)))
ALL = [GoldenGraph(name) for name in NAMES]


def graphs(kind=None):
    """Returns a decorator that runs a test for each golden graph with this kind of file."""
    found = [graph for graph in ALL if kind is None or kind in graph.case["kinds"]]
    return pytest.mark.parametrize("graph", found, ids=lambda graph: os.path.basename(graph.folder))


@pytest.fixture
def soft_session():
    """Yields a session that runs ops pinned to a GPU on the CPU."""
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        yield session


def test_every_version_of_every_op_is_there():
    found = {op for graph in ALL for op in graph.case["ops"]}
    versions = ("", "V2", "V3")
    expected = {"CudnnRNN" + kind + version for kind in ("", "Backprop") for version in versions}
    conversions = ("CudnnRNNParamsToCanonical", "CudnnRNNCanonicalToParams")
    expected.update(op + version for op in conversions for version in ("", "V2"))
    assert found == expected | {"CudnnRNNParamsSize"}


@graphs()
def test_recorded_results_are_right(graph):
    """The recorded results, which this package's kernels computed, match the reference."""
    case, configuration = graph.case, graph.configuration
    names = ["output", "output_h"] + ["output_c"] * (case["rnn_mode"] == "lstm")
    found = dict(zip(names + ["d_input", "d_params"], graph.results))
    assert len(found) == len(graph.results)
    arrays = {"input": graph.inputs, "params": graph.params}
    if not case["time_major"]:
        found, arrays = swap_major(found), swap_major(arrays)
    steps, batch, _ = arrays["input"].shape
    shapes = output_shapes(configuration, batch, steps)
    arrays["input_h"] = np.full(shapes["output_h"], case["initial_h"])
    if case["rnn_mode"] == "lstm":
        arrays["input_c"] = np.full(shapes["output_c"], case["initial_c"])
    if case["training"]:
        # The gradients are of the sum of the squares of the output.
        arrays["output_backprop"] = 2 * found["output"]
        for name in names[1:]:
            arrays[name + "_backprop"] = np.zeros_like(found[name])
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
    expected = run_reference(configuration, arrays, lengths=case["lengths"])
    expected = {name: expected[name] for name in found}
    assert_close(found, expected, TOLERANCES["float32"], graph.folder)


@pytest.mark.parametrize("device", ["", "/device:GPU:0"])
@graphs("frozen")
def test_frozen(graph, device):
    """tensorflow#19016, #20273: a machine without a GPU had no OpKernel for the op CudnnRNN."""
    with open(graph.path("frozen.pb"), "rb") as file:
        graph_def = tf.GraphDef.FromString(file.read())
    for node in graph_def.node:
        node.device = device
    config = tf.ConfigProto(allow_soft_placement=bool(device), device_count={"GPU": 0})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        tf.import_graph_def(graph_def, name="imported")
        graph.check(session, "imported/")


IMPORTERS = {"cudnn_rnn": cudnn_rnn.import_meta_graph, "tensorflow": tf.train.import_meta_graph}


@pytest.mark.parametrize("importer", sorted(IMPORTERS))
@graphs("meta")
def test_meta_graph_is_restored_and_saved_again(soft_session, tmp_path, graph, importer):
    """The Saver of the graph writes all keys and values.

    The restore ops are the original's: in no defined order, they assign the biases under the
    variable's own name and halves of the cells' biases.
    """
    saver = IMPORTERS[importer](graph.path("model.meta"))
    saver.restore(soft_session, graph.path("model"))
    graph.check(soft_session)
    written = tf.train.load_checkpoint(saver.save(soft_session, str(tmp_path / "model")))
    original = tf.train.load_checkpoint(graph.path("model"))
    shapes = original.get_variable_to_shape_map()
    assert written.get_variable_to_shape_map() == shapes and len(shapes) > 2
    for key in shapes:
        found, expected = written.get_tensor(key), original.get_tensor(key)
        if key == "encoder/opaque_kernel":
            found, expected = (graph.with_sums_of_biases(array) for array in (found, expected))
        np.testing.assert_array_equal(found, expected)


@graphs("meta")
def test_meta_graph_without_devices(session, graph):
    named = dict(clear_devices=True, import_scope="imported")
    saver = cudnn_rnn.import_meta_graph(graph.path("model.meta"), **named)
    saver.restore(session, graph.path("model"))
    graph.check(session, "imported/")


def test_meta_graph_in_memory_is_left_as_it_is(soft_session):
    path = GoldenGraph("layer_relu").path("model.meta")
    meta_graph = meta_graph_module.read_meta_graph_file(path)
    before = meta_graph.SerializeToString(deterministic=True)
    tf.train.import_meta_graph(meta_graph)
    assert meta_graph.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("with_layer", [False, True])
def test_saveables_that_are_nodes_stay(soft_session, tmp_path, with_layer, in_file):
    """Nodes in the collection stay: TensorFlow puts a graph's tables there by their nodes."""
    node = tf.constant(1.0, name="node")
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, node)
    if with_layer:
        cudnn_rnn.layers.CudnnGRU(1, 2)(tf.zeros([3, 2, 2]))
    path = str(tmp_path / "model.meta")
    meta_graph = tf.train.export_meta_graph(path)
    with tf.Graph().as_default() as graph:
        lost = "gru/opaque_kernel_saveable', but no tf.train.Saver"
        with pytest.warns(UserWarning, match=lost) if with_layer else contextlib.nullcontext():
            meta_graph_module.import_scoped_meta_graph(path if in_file else meta_graph)
        (found,) = tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
        assert found is graph.get_tensor_by_name("node:0")


@graphs("saved_model")
def test_saved_model(soft_session, graph):
    tags = [tf.saved_model.tag_constants.SERVING]
    meta_graph = tf.saved_model.loader.load(soft_session, tags, graph.path("saved_model"))
    graph.check(soft_session)
    assert "serving_default" in meta_graph.signature_def


@needs_tensorflow_2
@graphs("saved_model")
def test_saved_model_of_tensorflow_2(graph):
    with context.eager_mode():
        loaded = tensorflow.saved_model.load(graph.path("saved_model"))
        found = loaded.signatures["serving_default"](inputs=tf.constant(graph.inputs))
        names = ["result_%d" % index for index in range(len(graph.results))]
        graph.check_results([found[name].numpy() for name in names])
