"""Files that earlier releases of this package wrote are loaded, trained on and saved again.

They are in golden/releases, whose make_files.py also builds the programs that restore them.
"""

import glob
import os
import zipfile

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from helpers.golden import read_checkpoint
from helpers.op_harness import assert_close, assert_same_bits
from helpers.paths import GOLDEN
from helpers.scripts import load_program
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

RELEASES = os.path.join(GOLDEN, "releases")
# The last bits of results depend on the processor and the release.
TOLERANCE = 1e-6
make_files = load_program(os.path.join(RELEASES, "make_files.py"))
CHECKPOINT = make_files.CHECKPOINT


class GoldenFiles:
    """A case of a release, such as 0.2.0/tf2.21/layer_lstm_bi; `names` are its files."""

    def __init__(self, archive, name, names):
        self._archive, self.name, self.names = archive, name, names
        release = os.path.relpath(archive, RELEASES)[: -len(".zip")]
        self.id = os.path.join(release, name)
        self.is_of_tensorflow_1 = os.path.basename(release).startswith("tf1.")

    def extract(self, folder):
        """Writes the files to `folder`."""
        with zipfile.ZipFile(self._archive) as archive:
            members = [name for name in archive.namelist() if name.startswith(self.name + "/")]
            archive.extractall(str(folder), members)
        self.folder = os.path.join(str(folder), self.name)
        self.arrays = dict(np.load(self.path("expected.npz")))
        self.inputs = self.arrays["inputs"]

    def path(self, name):
        return os.path.join(self.folder, name)

    def check(self, results, prefix="result_"):
        """Compares values with the recorded ones; there may be more of these, of gradients."""
        found = {prefix + str(index): value for index, value in enumerate(results)}
        expected = {name: self.arrays[name] for name in found}
        assert_close(found, expected, TOLERANCE, self.id)


def _golden_files():
    found = []
    for path in sorted(glob.glob(os.path.join(RELEASES, "*", "*.zip"))):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        for case in sorted({name.split("/")[0] for name in names}):
            own = [name[len(case) + 1 :] for name in names if name.startswith(case + "/")]
            found.append(GoldenFiles(path, case, own))
    return found


ALL = _golden_files()


def cases(file, prefix="", of_tensorflow_2_in_1=True):
    """Runs a test for each case that has a file of this name and a name with this prefix.

    TensorFlow 1.15 cannot import graphs of TensorFlow 2.21 with variables: `VarHandleOp` has an
    attribute there, "debug_name", that 1.15 does not know.
    """
    found = [
        case
        for case in ALL
        if case.name.startswith(prefix) and any(name.startswith(file) for name in case.names)
        if not IS_TENSORFLOW_1 or of_tensorflow_2_in_1 or case.is_of_tensorflow_1
    ]
    assert found
    return pytest.mark.parametrize("golden", found, ids=lambda case: case.id, indirect=True)


@pytest.fixture
def golden(request, tmp_path):
    request.param.extract(tmp_path / "golden")
    return request.param


def test_all_files_are_there():
    """Whoever adds a release adds its numbers of cases and files."""
    found = {}
    for case in ALL:
        cases_and_files = found.setdefault(os.path.dirname(case.id), [0, 0])
        cases_and_files[0] += 1
        cases_and_files[1] += len(case.names)
    assert found == {"0.2.0/tf1.15": [26, 97], "0.2.0/tf2.21": [35, 136]}


def check_program(session, golden, saver, path, results):
    """Restores, compares results, saves the same bits again, and continues training."""
    feeds = {"inputs:0": golden.inputs}
    saver.restore(session, golden.path(CHECKPOINT))
    golden.check(session.run(results, feeds))
    written = read_checkpoint(saver.save(session, str(path / "again")))
    assert_same_bits(written, read_checkpoint(golden.path(CHECKPOINT)))
    if "after_0" in golden.arrays:
        session.run("train", feeds)
        golden.check(session.run(results, feeds), "after_")


def recorded_results(golden):
    count = sum(name.startswith("result_") for name in golden.arrays)
    return ["result_%d:0" % index for index in range(count)]


@pytest.mark.sampled(24)
@cases(CHECKPOINT + ".index", ("params_saveable", "cells", "layer", "saved_as_cells"))
def test_checkpoint(session, tmp_path, golden):
    program = make_files.GraphProgram(golden.name)
    session.run(tf.global_variables_initializer())
    check_program(session, golden, program.saver(), tmp_path, program.results)


@pytest.mark.sampled(2)
@cases(CHECKPOINT + ".meta", of_tensorflow_2_in_1=False)
def test_meta_graph_of_training(session, tmp_path, golden):
    saver = tf.train.import_meta_graph(golden.path(CHECKPOINT + ".meta"))
    check_program(session, golden, saver, tmp_path, recorded_results(golden))


def inference_results(graph):
    """Returns the names of all nodes `result_<i>`."""
    names = [node.name for node in graph.as_graph_def().node if node.name.startswith("result_")]
    return ["result_%d:0" % index for index in range(len(names))]


@cases(make_files.INFERENCE, of_tensorflow_2_in_1=False)
def test_meta_graph_of_inference(session, golden):
    saver = cudnn_rnn.import_meta_graph(golden.path(make_files.INFERENCE))
    saver.restore(session, golden.path(CHECKPOINT))
    names = inference_results(session.graph)
    golden.check(session.run(names, {"inputs:0": golden.inputs}))


@cases(make_files.FROZEN)
def test_frozen_graph(session, golden):
    with open(golden.path(make_files.FROZEN), "rb") as file:
        tf.import_graph_def(tf.GraphDef.FromString(file.read()), name="")
    names = inference_results(session.graph)
    golden.check(session.run(names, {"inputs:0": golden.inputs}))


@cases(make_files.SAVED_MODEL, ("cells", "layer"), of_tensorflow_2_in_1=False)
def test_saved_model_of_a_graph(session, golden):
    folder = golden.path(make_files.SAVED_MODEL)
    meta_graph = tf.saved_model.loader.load(session, ["serve"], folder)
    outputs = meta_graph.signature_def["serving_default"].outputs
    names = [outputs["result_%d" % index].name for index in range(len(outputs))]
    golden.check(session.run(names, {"inputs:0": golden.inputs}))


@pytest.mark.sampled(2)
@needs_tensorflow_2
@cases(make_files.SAVED_MODEL, ("cells", "layer"))
def test_saved_model_of_a_graph_in_tensorflow_2(golden):
    with context.eager_mode():
        loaded = tensorflow.saved_model.load(golden.path(make_files.SAVED_MODEL))
        outputs = loaded.signatures["serving_default"](inputs=tf.constant(golden.inputs))
        golden.check([outputs["result_%d" % index].numpy() for index in range(len(outputs))])


@pytest.fixture(params=["graph"] + ["eager"] * (not IS_TENSORFLOW_1))
def run(request):
    """Yields a function that returns the values of tensors in a graph or in eager mode."""
    if request.param == "graph":
        with tf.Graph().as_default(), tf.Session() as session:
            yield session.run
        return
    with context.eager_mode():
        yield lambda values: tf.nest.map_structure(lambda value: value.numpy(), values)


@pytest.mark.sampled(2)
@cases(CHECKPOINT, "object_lstm" if IS_TENSORFLOW_1 else "object")
def test_object_based_checkpoint(run, tmp_path, golden):
    path = golden.path(CHECKPOINT + "-1")
    layer = make_files.object_layer(golden.name)
    checkpoint = tf.train.Checkpoint(encoder=layer)
    status = checkpoint.restore(path)
    status.assert_existing_objects_matched()
    status.initialize_or_restore()
    results = layer(tf.constant(golden.inputs), training=False)
    golden.check(tf.nest.flatten(run(results)))
    again = read_checkpoint(checkpoint.save(str(tmp_path / "again")))
    original = read_checkpoint(path)
    assert set(again) == set(original)
    tensors = [key for key in original if key.startswith("encoder")]
    assert tensors
    assert_same_bits({key: again[key] for key in tensors}, {key: original[key] for key in tensors})


@needs_tensorflow_2
@cases(make_files.SAVED_MODEL, "module")
def test_module(eager, tmp_path, golden):
    """A SavedModel of TensorFlow 2 runs and has gradients; a checkpoint is restored and saved."""
    loaded = tensorflow.saved_model.load(golden.path(make_files.SAVED_MODEL))
    found = loaded.signatures["serving_default"].variables
    (kernel,) = [variable for variable in found if "opaque_kernel" in variable.name]
    variables = [kernel, loaded.params]
    golden.check(make_files.outputs_and_gradients(loaded.run, golden.inputs, variables))
    module = make_files.Module()
    for variable in (module.encoder.kernel, module.params):
        variable.assign(tf.zeros_like(variable))
    checkpoint = tensorflow.train.Checkpoint(model=module)
    checkpoint.read(golden.path(CHECKPOINT)).assert_consumed()
    golden.check(module.results(golden.inputs))
    again = read_checkpoint(checkpoint.write(str(tmp_path / "again")))
    original = read_checkpoint(golden.path(CHECKPOINT))
    graphs = [values.pop("_CHECKPOINTABLE_OBJECT_GRAPH") for values in (again, original)]
    assert all(graphs)
    assert_same_bits(again, original)


@pytest.mark.sampled(4)
@needs_tensorflow_2
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@cases("model.keras", "keras")
def test_keras_model(eager, tmp_path, golden, suffix):
    """A `.keras` file has the optimizer's state, too; of `.h5`, Keras 3 cannot load the loss."""
    import cudnn_rnn.keras  # noqa: F401  (registers the layers)

    has_optimizer = suffix == ".keras"
    again = str(tmp_path / ("again" + suffix))
    for path in (golden.path("model" + suffix), again):
        model = tensorflow.keras.models.load_model(path, compile=has_optimizer)
        golden.check([model.predict(golden.inputs, verbose=0)])
        if path != again:
            model.save(again)
        if has_optimizer:
            model.train_on_batch(golden.inputs, golden.arrays["targets"])
            golden.check([model.predict(golden.inputs, verbose=0)], "after_")


@needs_tensorflow_2
@cases("model.keras", "keras")
def test_keras_weights_and_saved_model(eager, golden):
    model = make_files.keras_model(golden.name)
    model.load_weights(golden.path("model.weights.h5"))
    golden.check([model.predict(golden.inputs, verbose=0)])
    exported = tensorflow.saved_model.load(golden.path(make_files.SAVED_MODEL))
    golden.check([exported.serve(tf.constant(golden.inputs)).numpy()])
