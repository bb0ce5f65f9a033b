"""SavedModels of tf.keras 2.x: exported, and loaded as docs/serving.md says."""

import os
import re

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.eager import context

import cudnn_rnn
from cudnn_rnn._compat import op_definition
from cudnn_rnn.cli.main import main
from helpers.keras_layers import IS_KERAS_3, needs_keras_3
from helpers.paths import ROOT
from helpers.processes import output_of
from helpers.saved_models import extract_saved_model, names_of_saved_models
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

pytestmark = pytest.mark.ci

NAMES = names_of_saved_models()
CUDNN_LSTM, TRAINING_STEP = "tf1.15.5_cudnn_lstm", "tf2.4.4_training_step"
BIDIRECTIONAL_GRU = "tf2.4.4_bidirectional_gru"
REPLACED = {CUDNN_LSTM: 7}  # numbers of nodes, if not 0
NO_SLOTS = "'_UserObject' object has no attribute 'add_slot'"

# In a process without this package: compares what models compute in a session and, in TensorFlow 2,
# loaded as an object. Arguments: FOLDER, "session" or "session+object", and so on.
STOCK_PROGRAM = """
import sys
import numpy as np
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

def check(found, expected):
    error = np.abs(found - expected).max()
    assert found.shape == expected.shape and error < 2e-6, error

for folder, ways in zip(sys.argv[1::2], sys.argv[2::2]):
    arrays = np.load(folder + "/arrays.npz")
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], folder + "/plain")
        signature = loaded.signature_def["serving_default"]
        (given,), (result,) = signature.inputs.values(), signature.outputs.values()
        for expected in arrays["outputs"]:
            check(session.run(result.name, {given.name: arrays["inputs"]}), expected)
    if "object" not in ways:
        continue
    with context.eager_mode():
        model = tensorflow.saved_model.load(folder + "/plain")
        function = model.signatures["serving_default"]
        (name,) = function.structured_input_signature[1]
        for expected in arrays["outputs"]:
            inputs = tensorflow.constant(arrays["inputs"])
            with tensorflow.GradientTape() as tape:
                tape.watch(inputs)
                (found,) = function(**{name: inputs}).values()
            check(found.numpy(), expected)
            assert np.abs(tape.gradient(found, inputs).numpy()).max() > 0
assert "cudnn_rnn" not in sys.modules
print("right")
"""


def read(saved_model):
    with open(os.path.join(str(saved_model), "saved_model.pb"), "rb") as file:
        return SavedModel.FromString(file.read()).meta_graphs[0]


def ops_of(meta_graph):
    library = meta_graph.graph_def.library.function
    nodes = [meta_graph.graph_def.node] + [function.node_def for function in library]
    found = {node.op for of_container in nodes for node in of_container}
    return found | {op.name for op in meta_graph.meta_info_def.stripped_op_list.op}


def ways_to_load(name):
    """Graphs of 2.15 have an op that is new; Keras 3 has no slots for a function that uses them."""
    if name.startswith("tf2.15") and op_definition("DisableCopyOnRead") is None:
        return ""
    if IS_TENSORFLOW_1:
        return "session"
    return "session" if name == TRAINING_STEP and IS_KERAS_3 else "session+object"


@pytest.mark.sampled(4)
def test_exports(tmp_path):
    """Each has the numbers of the original; gradients and alternatives for GPUs are left out."""
    arguments = []
    for name in NAMES:
        folder = tmp_path / name
        original, _ = extract_saved_model(name, folder)
        replaced = cudnn_rnn.export_plain(original, folder / "plain")
        assert replaced == REPLACED.get(name, 0), name
        plain = read(folder / "plain")
        assert not [op for op in ops_of(plain) if op.startswith("CudnnRNN")], name
        if not replaced:
            before, after = (
                read(path).graph_def.ByteSize() for path in (original, folder / "plain")
            )
            assert after < 0.75 * before, name
        if ways_to_load(name):
            arguments += [str(folder), ways_to_load(name)]
    assert output_of("-W", "ignore", "-c", STOCK_PROGRAM, *arguments).splitlines()[-1] == "right"


def test_what_is_left_of_the_functions(tmp_path):
    """All that the model calls, with nothing in its place on a GPU."""
    original, _ = extract_saved_model(BIDIRECTIONAL_GRU, tmp_path)
    cudnn_rnn.export_plain(original, tmp_path / "plain")
    before, after = (read(path).graph_def.library for path in (original, tmp_path / "plain"))
    names = {function.signature.name for function in after.function}
    assert {f.signature.name for f in before.function if "_gpu_" not in f.signature.name} == names
    interfaces = [f.attr["api_implements"].s for f in after.function if "api_implements" in f.attr]
    assert len(interfaces) == len(set(interfaces)) > 0


@needs_tensorflow_2
def test_a_function_with_an_alias_stays(tmp_path):
    """A program may call it by this name, so its nodes are replaced."""
    original, _ = extract_saved_model(BIDIRECTIONAL_GRU, tmp_path)
    path = tmp_path / "saved_model" / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    functions = model.meta_graphs[0].graph_def.library.function
    names = [function.signature.name for function in functions]
    name = next(name for name in names if name.startswith("__inference_gpu_gru"))
    model.meta_graphs[0].meta_info_def.function_aliases[name] = "fast"
    path.write_bytes(model.SerializeToString())
    assert cudnn_rnn.export_plain(original, tmp_path / "plain") == 1
    left = {
        function.signature.name for function in read(tmp_path / "plain").graph_def.library.function
    }
    assert {other for other in names if "_gpu_" in other} & left == {name}


@pytest.mark.sampled(4)
def test_the_command_says_what_runs_on_a_cpu(tmp_path, capfd):
    gru, _ = extract_saved_model(BIDIRECTIONAL_GRU, tmp_path / "gru")
    lstm, _ = extract_saved_model(CUDNN_LSTM, tmp_path / "lstm")
    assert main(["export", gru, str(tmp_path / "plain_gru")]) == 0
    assert capfd.readouterr().out.splitlines() == [
        "Replaced 0 CudnnRNN* nodes, left out 204 functions that nothing calls; wrote %s."
        % (tmp_path / "plain_gru"),
        "%s runs on a CPU as it is: nothing calls its CudnnRNN* nodes, which TensorFlow may choose "
        "on a GPU." % gru,
    ]
    assert main(["export", lstm, str(tmp_path / "plain_lstm")]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert line == "Replaced 7 CudnnRNN* nodes; wrote %s." % (tmp_path / "plain_lstm")


@needs_tensorflow_2
@pytest.mark.sampled(4)
def test_a_gradient_that_a_signature_runs_is_refused(tmp_path):
    """It is in a function that a function calls; with `training`, it is exported."""
    model = cudnn_rnn.CudnnGRU(1, 2, 3)
    params, state = tf.constant(np.linspace(-0.5, 0.5, 42, dtype=np.float32)), tf.zeros([1, 4, 2])
    layer = tensorflow.function(lambda x: model(x, state, params, is_training=True)[0])
    module = tensorflow.Module()

    @tensorflow.function(input_signature=[tensorflow.TensorSpec([6, 4, 3], name="inputs")])
    def gradient(inputs):
        with tensorflow.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(layer(inputs) ** 2)
        return tape.gradient(loss, inputs)

    module.gradient = gradient
    inputs = np.random.RandomState(1).standard_normal([6, 4, 3]).astype(np.float32)
    with context.eager_mode():
        tensorflow.saved_model.save(module, str(tmp_path / "fused"), signatures=gradient)
        np.savez(str(tmp_path / "arrays.npz"), inputs=inputs, outputs=[gradient(inputs).numpy()])
    message = r"\(CudnnRNNBackprop\) in function '__inference___backward.* computes gradients"
    with pytest.raises(ValueError, match=message):
        cudnn_rnn.export_plain(tmp_path / "fused", tmp_path / "plain")
    assert cudnn_rnn.export_plain(tmp_path / "fused", tmp_path / "plain", training=True) > 1
    assert "right" in output_of("-W", "ignore", "-c", STOCK_PROGRAM, str(tmp_path), "session")


@pytest.mark.sampled(2)
def test_slots_of_an_optimizer(tmp_path):
    """They stay slots only where a function uses them."""
    for name, stay in ((CUDNN_LSTM, False), (BIDIRECTIONAL_GRU, False), (TRAINING_STEP, True)):
        original, _ = extract_saved_model(name, tmp_path / name)
        cudnn_rnn.export_plain(original, tmp_path / name / "plain")
        slots = [
            [len(node.slot_variables) for node in read(path).object_graph_def.nodes]
            for path in (original, tmp_path / name / "plain")
        ]
        assert max(slots[0]) > 1
        assert slots[1] == (slots[0] if stay else [0] * len(slots[0])), name


# --- docs/serving.md ---


def block_of_serving():
    with open(os.path.join(ROOT, "docs", "serving.md"), encoding="utf-8") as file:
        found = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
    (block,) = [block for block in found if "compiled_model" in block]
    without_inputs, count = re.subn(r"^inputs = .*\n", "", block, flags=re.MULTILINE)
    assert count == 1
    return without_inputs


# Compares what the block of the document computes. Arguments: folders, each with a model.
RUN_BLOCK = """
import os, sys
import numpy as np
for folder in sys.argv[2:]:
    os.chdir(folder)
    arrays = np.load("arrays.npz")
    names = {"inputs": arrays["inputs"]}
    exec(sys.argv[1], names)
    assert np.abs(np.asarray(names["outputs"]) - arrays["outputs"][0]).max() < 2e-6, folder
print("right")
"""
LOAD_ALL = """
import sys
import tensorflow as tf
for folder in sys.argv[1:]:
    try:
        tf.saved_model.load(folder + "/compiled_model")
    except AttributeError as error:
        print(error)
"""


def compiled_models(folder, names):
    """Extracts Keras models as `compiled_model`; returns their folders."""
    for name in names:
        path, _ = extract_saved_model(name, folder / name)
        os.rename(path, str(folder / name / "compiled_model"))
    return [folder / name for name in names]


@pytest.mark.sampled(4)
def test_a_session_loads_compiled_models(tmp_path):
    names = [name for name in NAMES if name != TRAINING_STEP and ways_to_load(name)]
    folders = compiled_models(tmp_path, names)
    assert len(folders) > 2
    assert "right" in output_of("-W", "ignore", "-c", RUN_BLOCK, block_of_serving(), *folders)


@needs_keras_3
@pytest.mark.sampled(4)
def test_the_error_of_the_document_is_real(tmp_path):
    folders = compiled_models(tmp_path, [CUDNN_LSTM, BIDIRECTIONAL_GRU])
    printed = output_of("-W", "ignore", "-c", LOAD_ALL, *folders).splitlines()
    assert printed[-2:] == [NO_SLOTS] * 2
    with open(os.path.join(ROOT, "docs", "serving.md"), encoding="utf-8") as file:
        assert '"%s"' % NO_SLOTS in file.read()
