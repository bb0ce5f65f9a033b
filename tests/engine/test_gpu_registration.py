"""Which kernels are registered, and which nodes are created, where a driver and cuDNN are found.

The mock of the driver and cuDNN takes the place of both. It gives TensorFlow no device, so the
nodes run on the CPU, where the kernel label selects this package's kernels as well.
"""

import json
import os

import numpy as np
import pytest

from cudnn_rnn._native.gpu_choice import CONVERSION_OPS, OPS, RNN_OPS, SIZE_OPS, V3_OPS
from helpers import mock_kernels
from helpers.processes import output_of
from helpers.sequence_cases import HAS_BFLOAT16
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_2

pytestmark = [pytest.mark.ci, pytest.mark.sampled(4)]

VARIABLE = "CUDNN_RNN_GPU_KERNELS"
UNSET = {VARIABLE: ""}

# Runs programs in forks of one process, because importing TensorFlow takes longest.
FORKS = """
import json, os, sys
import tensorflow
for program, variables, arguments in json.load(open(sys.argv[1])):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        sys.argv[1:] = arguments
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, (variables, arguments)
    print("END")
"""

REGISTRATION = """
import json, sys
import tensorflow as tf
built_with, ops = map(json.loads, sys.argv[1:])
if built_with is None:
    tf.test.is_built_with_cuda = lambda: False
elif built_with:
    tf.test.is_built_with_cuda = lambda: True
    tf.sysconfig.get_build_info = lambda: {"cudnn_version": built_with}
import cudnn_rnn
from cudnn_rnn._native import gpu_kernels
from tensorflow.python.framework import kernels
choice = gpu_kernels.choice()
found = {"provider": cudnn_rnn.kernels_in_charge().provider, "labels": choice.labels}
for op in ops:
    registered = kernels.get_registered_kernels_for_op(op).kernel
    found[op] = [[k.label, k.priority] for k in registered if k.device_type == "GPU"]
print("RESULT", json.dumps(found))
"""

# Value of the variable and cuDNN that TensorFlow was built with ("": as it is; None: without CUDA);
# then the provider, the ops taken over, whether there are labelled kernels, and the labels.
ALL_BUT_V3 = RNN_OPS + SIZE_OPS + CONVERSION_OPS
SCENARIOS_2 = [
    ("", "9", "cudnn_rnn", ALL_BUT_V3, True, V3_OPS),
    ("", "9.3.0", "cudnn_rnn", ALL_BUT_V3, True, V3_OPS),
    ("", "", "cudnn_rnn", ALL_BUT_V3, True, V3_OPS),  # TensorFlow 2.21
    # The labelled kernels run training in bfloat16.
    ("", "8", "tensorflow", (), HAS_BFLOAT16, ()),
    ("", "unknown", "cudnn_rnn", ALL_BUT_V3, True, V3_OPS),
    ("", None, "cudnn_rnn", OPS, True, ()),
    ("cudnn_rnn", "9", "cudnn_rnn", OPS, True, ()),
    ("cudnn_rnn", "8", "cudnn_rnn", OPS, True, ()),
    ("tensorflow", "9", "tensorflow", (), HAS_BFLOAT16, ()),
    ("tensorflow", None, "none", (), False, ()),
]
SCENARIOS_1 = [
    ("", "", "tensorflow", (), False, ()),
    ("tensorflow", "", "tensorflow", (), False, ()),
    ("cudnn_rnn", "", "cudnn_rnn", (), True, OPS),
]


@pytest.fixture(scope="module")
def gpu_variables(tmp_path_factory):
    """Returns environment variables of a process that finds the mock of the driver and of cuDNN."""
    mock = os.path.join(mock_kernels.build_mock(), "libmock_cudnn.so")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libcuda.so.1").symlink_to(mock)
    paths = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
    return dict(
        LD_LIBRARY_PATH=os.pathsep.join(filter(None, paths)),
        CUDNN_RNN_CUDNN_LIBRARY=mock,
    )


@pytest.fixture
def results_of(tmp_path):
    """Yields a function that runs programs and returns what they print.

    Arguments: a list of (program, dict of environment variables, list of arguments), and variables
    of all programs. For each program, the result is a list of the JSON values on its lines that
    start with RESULT.
    """

    def run(scenarios, **variables):
        path = tmp_path / "scenarios.json"
        path.write_text(json.dumps(scenarios))
        parts = output_of("-c", FORKS, path, **variables).split("\nEND\n")
        assert len(parts) == len(scenarios) + 1
        return [
            [json.loads(line[len("RESULT") :]) for line in part.splitlines() if "RESULT" in line]
            for part in parts[:-1]
        ]

    return run


def test_registered_kernels(gpu_variables, results_of):
    """TensorFlow's own kernels have no label and priority 0, ours a label, or priority 1."""
    scenarios = SCENARIOS_1 if IS_TENSORFLOW_1 else SCENARIOS_2
    runs = [
        (REGISTRATION, {VARIABLE: variable}, [json.dumps(built_with), json.dumps(OPS)])
        for variable, built_with, *_ in scenarios
    ]
    for row, (found,) in zip(scenarios, results_of(runs, **gpu_variables)):
        _, _, provider, takes_over, has_labelled, labels = row
        assert found["provider"] == provider, row
        assert found["labels"] == list(labels), row
        for op in OPS:
            kernels = [tuple(kernel) for kernel in found[op]]
            assert (("", 1) in kernels) == (op in takes_over), (row, op)
            assert (("cudnn_rnn", 0) in kernels) == has_labelled, (row, op)
            assert set(kernels) <= {("", 0), ("", 1), ("cudnn_rnn", 0)}, (row, op)


MODEL = """
import json, os, sys
import numpy as np
import tensorflow as tf
import cudnn_rnn

model = cudnn_rnn.CudnnLSTM(1, 4, 3)
x, state = tf.reshape(tf.range(18.0), [3, 2, 3]) / 20, tf.ones([1, 2, 4]) / 3
params = tf.Variable(tf.sin(tf.range(144.0)) / 2)
lengths = tf.constant([3, 1])

def output(value, training=True):
    with_lengths = dict(sequence_lengths=lengths, is_training=training)
    return model(x, state, state, value, **with_lengths)[0]

def gradient_of_tape(value):
    with tf.GradientTape() as tape:
        tape.watch(value)
        loss = tf.reduce_sum(output(value) ** 2)
    return tape.gradient(loss, value)

def without_lengths(value):
    return tf.gradients(model(x, state, state, value, True)[0], value)[0]

def labels(function, *arguments):
    graph, found = tf.function(function).get_concrete_function(*arguments).graph, []
    graphs = [graph] + [f.graph for f in graph._functions.values() if hasattr(f, "graph")]
    for node in (node for one in graphs for node in one.as_graph_def().node):
        if node.op.startswith("CudnnRNN"):
            attributes = node.attr["_kernel"].s.decode(), "_gradient_op_type" in node.attr
            found.append([node.op, *attributes])
    return sorted(found)

def show(value):
    print("RESULT", json.dumps(value))
"""

NODES = (
    MODEL
    + """
import cudnn_rnn.keras
value = tf.identity(params)
lstm = cudnn_rnn.keras.LSTM(4)
lstm(tf.transpose(x, [1, 0, 2]))

def of_keras(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(lstm(tf.transpose(x, [1, 0, 2]), training=True))
    return tape.gradient(loss, lstm.trainable_variables)

def of_others(x, value):
    with tf.GradientTape() as tape:
        tape.watch(value)
        named = dict(input_h=state, input_c=state, sequence_lengths=lengths, rnn_mode="lstm",
            input_mode="linear_input", direction="unidirectional", dropout=0.0, seed=0, seed2=0,
            num_proj=0, is_training=True, time_major=True)
        loss = tf.reduce_sum(tf.raw_ops.CudnnRNNV3(input=x, params=value, **named)[0])
    return tape.gradient(loss, value)

show([
    labels(gradient_of_tape, value),
    labels(lambda value: tf.gradients(output(value), value), value),
    labels(of_keras, x),
    labels(of_others, x, value),
    labels(without_lengths, value),
])

def second_order(value):
    with tf.GradientTape() as tape:
        tape.watch(value)
        loss = tf.reduce_sum(gradient_of_tape(value) ** 2)
    return tape.gradient(loss, value)

eager = [f(value).numpy() for f in (output, gradient_of_tape, lambda value: output(value, False))]
for function, found in zip((output, gradient_of_tape), eager):
    np.testing.assert_allclose(found, tf.function(function)(value), rtol=1e-5, atol=1e-6)
show([found.ravel()[:5].tolist() for found in eager + [second_order(value).numpy()]])
with tf.GradientTape() as tape:
    inferred = output(params, False)
try:
    tape.gradient(inferred, params)
except ValueError as error:
    show(str(error))

if len(sys.argv) > 1:
    saved = tf.Module()
    saved.params = params
    saved.gradient = tf.function(lambda: gradient_of_tape(params.read_value()))
    saved.output = tf.function(lambda: output(params.read_value()))
    signatures = {"serving_default": saved.output.get_concrete_function()}
    tf.saved_model.save(saved, sys.argv[1], signatures)
    cudnn_rnn.export_plain(sys.argv[1], sys.argv[2], training=True)
    show([saved.output().numpy().tolist(), saved.gradient().numpy().tolist()])
"""
)

LOAD = """
import json, sys
import tensorflow as tf
labelled, plain = sys.argv[1:]
for path in (plain, labelled):
    loaded = tf.saved_model.load(path)
    with tf.GradientTape() as tape:
        result = loaded.signatures["serving_default"]()["output_0"]
        loss = tf.reduce_sum(result ** 2)
    found = result, tape.gradient(loss, loaded.params)
    print("RESULT", json.dumps([value.numpy().tolist() for value in found]))
    import cudnn_rnn  # for the labelled nodes only
"""


@needs_tensorflow_2
def test_labels_of_nodes(gpu_variables, results_of, tmp_path):
    """Forward and gradient nodes of this package's CudnnRNNV3 have the label, and no others.

    A SavedModel with them runs where no GPU is found; its plain copy runs without this package.
    """
    paths = [str(tmp_path / name) for name in ("labelled", "plain")]
    ((nodes, values, error, saved),) = results_of([(NODES, UNSET, paths)], **gpu_variables)
    of_tape, of_graph, of_keras, of_others, without_lengths = nodes
    labelled = [["CudnnRNNBackpropV3", "cudnn_rnn", False], ["CudnnRNNV3", "cudnn_rnn", False]]
    # The mock's driver has no GPU, so Keras's weights are rearranged by CPU kernels.
    conversions = ["CudnnRNNCanonicalToParams", "CudnnRNNParamsToCanonical"]
    rearranging = [[op, "cudnn_rnn_keras", False] for op in conversions]
    assert of_tape == of_graph == labelled
    assert of_keras == sorted(labelled + rearranging)
    assert of_others == [[op, "", False] for op, _, _ in labelled]
    assert without_lengths == [["CudnnRNN", "", False], ["CudnnRNNBackprop", "", False]]
    assert "is_training" in error
    # Where no driver is found, nothing has a label, and the values are the same.
    without_gpu, loaded = results_of([(NODES, UNSET, []), (LOAD, UNSET, paths)])
    (unlabelled, *_), values_without, _ = without_gpu
    assert unlabelled == of_others
    np.testing.assert_allclose(values, values_without, rtol=1e-5, atol=1e-7)
    assert len(loaded) == 2
    for found in loaded:
        for one, other in zip(found, saved):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


BFLOAT16 = (
    """
import json, sys
import tensorflow as tf
tf.test.is_built_with_cuda = lambda: True
tf.sysconfig.get_build_info = lambda: {"cudnn_version": sys.argv[1]}
"""
    + MODEL
    + """
of_float = labels(without_lengths, tf.identity(params))
x, state, params = (tf.cast(value, tf.bfloat16) for value in (x, state, params))
model = cudnn_rnn.CudnnLSTM(1, 4, 3, dtype=tf.bfloat16)
value = tf.identity(params)
inference = labels(lambda value: output(value, False), value)
show([of_float, inference, labels(gradient_of_tape, value), labels(without_lengths, value)])
show(cudnn_rnn.kernels_in_charge())
show(tf.cast(gradient_of_tape(value), tf.float32).numpy().tolist())
"""
)


@pytest.mark.skipif(not HAS_BFLOAT16, reason="this TensorFlow's ops have no bfloat16")
def test_training_in_bfloat16_never_runs_tensorflows_gradients(gpu_variables, results_of):
    """Where TensorFlow's own kernels would run it, such a node gets the label, and nothing else."""
    choices = [("9", "tensorflow"), ("8", "tensorflow"), ("8", ""), ("9", "")]
    runs = [(BFLOAT16, {VARIABLE: variable}, [cudnn]) for cudnn, variable in choices]

    def pair(op, label):
        names = op.replace("RNN", "RNNBackprop"), op
        return sorted([name, label, False] for name in names)

    with_driver, without_driver = results_of(runs, **gpu_variables), results_of(runs)
    for (cudnn, variable), found, unlabelled in zip(choices, with_driver, without_driver):
        (of_float, inference, with_lengths, without_lengths), charge, gradient = found
        ours = (cudnn, variable) == ("9", "")
        v3 = cudnn == "9" and variable == "tensorflow"  # its own CudnnRNN and V2 fail
        assert of_float == pair("CudnnRNNV3" if v3 else "CudnnRNN", "")
        assert inference == [["CudnnRNNV3", "cudnn_rnn" if ours else "", False]]
        assert with_lengths == pair("CudnnRNNV3", "cudnn_rnn")
        assert without_lengths == (of_float if ours else with_lengths)
        assert charge[0] == ("cudnn_rnn" if ours else "tensorflow")
        if not ours:
            assert ("tensorflow" if variable else "cuDNN 8") in charge[1]
        # Where no driver is found, nothing has a label, and the values are the same.
        nodes, _, gradient_without_driver = unlabelled
        assert nodes[0] == of_float and nodes[3] == of_float
        assert nodes[2] == pair("CudnnRNNV3", "")
        np.testing.assert_array_equal(gradient, gradient_without_driver)


AVOIDING = (
    """
import tensorflow as tf
tf.test.is_built_with_cuda = lambda: True
tf.sysconfig.get_build_info = lambda: {"cudnn_version": "9"}
"""
    + MODEL
    + """
value = tf.identity(params)

def converted(value):
    with tf.device("/gpu:0"):
        weights, biases = model.params_to_canonical(value)
        again = model.canonical_to_params([weight * weight for weight in weights], biases)
        return again, *tf.gradients(again, [value, biases[0]])

graph = tf.function(converted).get_concrete_function(value).graph
show(sorted([node.type, node.device] for node in graph.get_operations() if "Cudnn" in node.type))
show(labels(without_lengths, value))
with tf.device("/cpu:0"):
    show([part.numpy().tolist() for part in tf.function(converted)(value)[:2]])
    show(tf.function(without_lengths)(value).numpy().tolist())
    show(model(x, state, state, value, is_training=False)[0].numpy().tolist())

v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    gru = cudnn_rnn.CudnnGRU(1, 2, 2)
    opaque = v1.get_variable("opaque", initializer=tf.sin(tf.range(36.0)))
    functions = gru.params_to_canonical, gru.canonical_to_params
    saveable = cudnn_rnn.RNNParamsSaveable(gru, *functions, [opaque], "rnn")
    saver = v1.train.Saver([opaque, saveable], sharded=True)
    session.run(opaque.initializer)
    path = saver.save(session, os.path.join(sys.argv[1], "model"), write_meta_graph=False)
    session.run(opaque.assign(tf.zeros([36])))
    saver.restore(session, path)
    show(session.run(opaque).tolist())
"""
)


@needs_tensorflow_2
def test_tensorflows_kernels_work_everywhere(results_of, tmp_path):
    """With cuDNN 9, the nodes are CudnnRNNV3, and the conversions are placed on the CPU.

    A saveable still has one device, that of the variable.
    """
    runs = [(AVOIDING, {VARIABLE: value}, [str(tmp_path)]) for value in ("tensorflow", "")]
    (devices, nodes, *values), (usual_devices, usual_nodes, *usual) = results_of(runs)
    assert nodes == [["CudnnRNNBackpropV3", "", False], ["CudnnRNNV3", "", False]]
    assert usual_nodes == [["CudnnRNN", "", False], ["CudnnRNNBackprop", "", False]]
    conversions = {"CudnnRNNCanonicalToParams", "CudnnRNNParamsToCanonical"}
    assert {op for op, _ in devices} == conversions and len(devices) > 2
    assert all(device.endswith("/device:CPU:0") for _, device in devices), devices
    assert all("GPU" in device for _, device in usual_devices), usual_devices
    assert len(values) == len(usual) == 4
    np.testing.assert_allclose(values[-1], np.sin(np.arange(36)), atol=1e-6)
    for one, other in zip(values, usual):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
