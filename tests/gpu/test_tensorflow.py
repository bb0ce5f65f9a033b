"""The ops in TensorFlow 2 on a GPU, compared with the reference, the CPU and TensorFlow's kernels.

Only the RNN ops are placed on the GPU: TensorFlow's own matrix products may lack their library
there. Nodes are placed explicitly, without soft placement.
"""

import os
import re
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from op_placement import growing_config, make_network, on, run_program

import cudnn_rnn
from cudnn_rnn._native import gpu_kernels, library
from helpers import reference
from helpers.cases import CASES, Case, make_arrays, random_arrays
from helpers.op_harness import (
    FORWARD,
    TOLERANCES,
    assert_close,
    run_reference,
    swap_major,
)
from helpers.sequence_cases import (
    BATCH,
    DTYPES,
    LENGTHS,
    LSTM,
    STEPS,
    arrays_for,
    configurations,
    expected_for,
)

# Persistent algorithms are less accurate in float; see PERSISTENT_TOLERANCES in core_cases.py.
FLOAT_FACTOR = 1 if os.environ.get("CUDNN_RNN_ALGO", "standard") == "standard" else 3

LARGE = Case("lstm", "linear_input", "unidirectional", 2, 650, 650, 20, 35, "float32")


@pytest.mark.gpu_only
def test_our_kernels_are_used(op_device):
    """The scripts that run these tests choose our kernels for every node, also for CudnnRNNV3."""
    assert os.environ.get("CUDNN_RNN_GPU_KERNELS") == "cudnn_rnn"
    with make_network(LSTM, "float32", op_device, version=3) as network:
        network.run(arrays_for(LSTM, LENGTHS["full"], "float32"))  # opens cuDNN
    in_charge = gpu_kernels.kernels_in_charge()
    assert in_charge.provider == "cudnn_rnn", in_charge
    assert "libcudnn" in in_charge.reason, in_charge


def test_results_are_compared_without_tf32(op_device):
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
    assert run_program(TF32_PROGRAM, op_device) == "RESULT TF32 False"


@pytest.mark.parametrize("case", CASES + (LARGE,), ids=str)
def test_first_version_of_the_op(op_device, case):
    """Training with all gradients, and inference, equal the reference."""
    tolerance = TOLERANCES[case.dtype] * (FLOAT_FACTOR if case.dtype == "float32" else 1)
    arrays = make_arrays(case)
    expected = run_reference(case.configuration, arrays)
    with make_network(case.configuration, case.dtype, op_device) as network:
        found = network.run(arrays)
    assert_close(found, expected, tolerance, str(case))
    with make_network(
        case.configuration, case.dtype, op_device, dropout=0.5, is_training=False
    ) as network:
        found = network.run(arrays)
    forward = {name: value for name, value in expected.items() if name in FORWARD}
    assert_close(found, forward, tolerance, f"inference: {case}")


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("lengths", ["full", "mixed", "with zeros", "none full", "all zero"])
@pytest.mark.parametrize("configuration", configurations(), ids=str)
def test_third_version_of_the_op(op_device, configuration, lengths, time_major):
    """Lengths, projection and batch-major, in float; the padding is NaN."""
    arrays = arrays_for(configuration, LENGTHS[lengths], "float32")
    given = arrays if time_major else swap_major(arrays)
    with make_network(
        configuration, "float32", op_device, version=3, time_major=time_major
    ) as network:
        found = network.run(given)
    found = found if time_major else swap_major(found)
    expected = expected_for(configuration, arrays)
    assert_close(found, expected, TOLERANCES["float32"], f"{configuration} {lengths}")


def cudnn_supports_bfloat16(op_device):
    """Returns whether the cuDNN in use, if any, supports RNNs in bfloat16."""
    if not op_device.startswith("/gpu"):
        return True
    report = gpu_kernels.open_cudnn(library.library_path())[1]
    return tuple(map(int, re.search(r"cuDNN (\d+)\.(\d+)", report).groups())) >= (9, 13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_third_version_in_every_dtype(op_device, dtype):
    for name in ("full", "mixed", "with zeros"):
        arrays = arrays_for(LSTM, LENGTHS[name], dtype)
        with make_network(LSTM, dtype, op_device, version=3) as network:
            if dtype == "bfloat16" and not cudnn_supports_bfloat16(op_device):
                with pytest.raises(tf.errors.UnimplementedError, match=r"cuDNN 9\.13\.0 and newer"):
                    network.run(arrays)
                continue
            found = network.run(arrays)
        assert_close(found, expected_for(LSTM, arrays), TOLERANCES[dtype], f"{dtype} {name}")


def test_lengths_that_change_from_call_to_call(op_device):
    random = np.random.RandomState(5)
    with make_network(LSTM, "float32", op_device, version=3) as network:
        for _ in range(20):
            lengths = random.randint(0, STEPS + 1, BATCH).tolist()
            arrays = arrays_for(LSTM, lengths, "float32")
            found = network.run(arrays)
            assert_close(found, expected_for(LSTM, arrays), TOLERANCES["float32"], str(lengths))


def test_shapes_that_change_from_call_to_call(op_device):
    configuration = reference.Configuration("gru", "linear_input", "bidirectional", 2, 17, 9)
    random = np.random.RandomState(6)
    with make_network(configuration, "float32", op_device) as network:
        for batch, steps in [(3, 5), (4, 5), (4, 6), (1, 1), (3, 5), (9, 2)]:
            arrays = random_arrays(configuration, batch, steps, np.float32, random)
            found = network.run(arrays)
            expected = run_reference(configuration, arrays)
            assert_close(found, expected, TOLERANCES["float32"], f"batch {batch}, {steps} steps")


def test_sizes_of_zero(op_device):
    configuration = reference.Configuration("gru", "linear_input", "unidirectional", 1, 4, 3)
    random = np.random.RandomState(7)
    with make_network(configuration, "float32", op_device) as network:
        for batch, steps in [(0, 3), (2, 0), (0, 0), (2, 3)]:
            arrays = random_arrays(configuration, batch, steps, np.float32, random)
            found = network.run(arrays)
            expected = run_reference(configuration, arrays)
            assert_close(found, expected, TOLERANCES["float32"], f"batch {batch}, {steps} steps")


@pytest.mark.gpu_only
@pytest.mark.parametrize("case", CASES[::7] + (LARGE,), ids=str)
def test_cpu_and_gpu_agree(op_device, case):
    arrays = make_arrays(case)
    results = []
    for device in ("/cpu:0", op_device):
        with make_network(case.configuration, case.dtype, device) as network:
            results.append(network.run(arrays))
    assert_close(results[1], results[0], 2 * TOLERANCES[case.dtype], str(case))


def build_model(device):
    """Builds a bidirectional GRU on the device, with its variable and Saver on the CPU."""
    model = cudnn_rnn.CudnnGRU(2, 8, 5, direction="bidirectional")
    with tf.device("/cpu:0"):
        values = tf.random_uniform([model.params_size()], -0.5, 0.5)
        params = tf.get_variable("params", initializer=values)
        x, h = tf.placeholder(tf.float32, [7, 3, 5]), tf.placeholder(tf.float32, [4, 3, 8])
    with on(device):
        outputs = model(x, h, params, is_training=False)
    with tf.device("/cpu:0"):
        saveable = cudnn_rnn.RNNParamsSaveable(
            model, model.params_to_canonical, model.canonical_to_params, [params], "rnn"
        )
        saver = tf.train.Saver([saveable])
    return x, h, params, outputs, saver


@pytest.mark.parametrize("cpu_writes", [False, True])
def test_checkpoint_of_one_device_on_the_other(op_device, tmp_path, cpu_writes):
    devices = ["/cpu:0", op_device] if cpu_writes else [op_device, "/cpu:0"]
    path = None
    random = np.random.RandomState(8)
    feeds = [random.standard_normal(shape) for shape in ([7, 3, 5], [4, 3, 8])]
    found = []
    for device in devices:
        with tf.Graph().as_default():
            x, h, params, outputs, saver = build_model(device)
            with tf.Session(config=growing_config()) as session:
                session.run(tf.global_variables_initializer())
                if path is None:
                    path = saver.save(session, str(tmp_path / "model"), write_meta_graph=False)
                else:
                    saver.restore(session, path)
                values = session.run([params] + list(outputs), dict(zip((x, h), feeds)))
                found.append(dict(zip(("params", "output", "output_h"), values)))
    assert_close(found[1], found[0], TOLERANCES["float32"], f"{devices}")


def test_training_lowers_the_loss(op_device):
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        model = cudnn_rnn.CudnnLSTM(2, 16, 6)
        values = tf.random_uniform([model.params_size()], -0.3, 0.3, seed=1)
        params = tf.get_variable("params", initializer=values)
        x = tf.constant(np.random.RandomState(9).standard_normal([12, 8, 6]), tf.float32)
        state = tf.zeros([2, 8, 16])
        with on(op_device):
            output, _, _ = model(x, state, state, params, is_training=True)
        loss = tf.reduce_mean(tf.square(output[-1] - 0.3))
        with on(op_device):
            output_gradient = tf.gradients(loss, params)[0]
        train = tf.assign_sub(params, output_gradient)
        with tf.Session(config=growing_config()) as session:
            session.run(tf.global_variables_initializer())
            losses = [session.run([loss, train])[0] for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0] and np.isfinite(losses).all(), losses


def test_dropout(op_device, fixed_dropout_pattern, monkeypatch):
    """The seeds determine the pattern; without the environment variable it changes per call."""
    case = Case("rnn_tanh", "linear_input", "unidirectional", 2, 33, 19, 7, 5, "float32")
    arrays = make_arrays(case)

    def run(times, **seeds):
        with make_network(
            case.configuration, case.dtype, op_device, dropout=0.4, **seeds
        ) as network:
            return [network.run(arrays) for _ in range(times)]

    first, again = run(2, seed=3, seed2=4)
    assert_close(again, first, 1e-6, "the switch holds the pattern")
    assert_close(run(1, seed=3, seed2=4)[0], first, 1e-6, "a new kernel starts from the seeds")
    assert np.abs(run(1, seed=3, seed2=5)[0]["output"] - first["output"]).max() > 0.01
    monkeypatch.delenv("TF_CUDNN_RESET_RND_GEN_STATE")
    one, two = run(2, seed=3, seed2=4)
    assert np.abs(one["output"] - two["output"]).max() > 0.01


def test_two_sessions_at_once(op_device):
    """Two models in two threads give correct results in many calls."""
    cases = [
        Case("lstm", "linear_input", "bidirectional", 2, 33, 19, 7, 13, "float32"),
        Case("gru", "linear_input", "unidirectional", 1, 65, 4, 9, 5, "float32"),
    ]
    problems = []

    def work(case):
        try:
            arrays = make_arrays(case)
            expected = run_reference(case.configuration, arrays)
            with make_network(case.configuration, case.dtype, op_device) as network:
                for _ in range(30):
                    assert_close(network.run(arrays), expected, TOLERANCES[case.dtype], str(case))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=[case]) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


def test_deterministic_ops_repeat_bit_for_bit(op_device):
    """Runs in its own processes, because the switch applies to a whole process."""
    first, second = (run_program(DETERMINISM_PROGRAM, op_device) for _ in range(2))
    assert "HASH" in first and first == second


@pytest.mark.parametrize(
    "changes, part",
    [
        ({"params": np.zeros(7, np.float32)}, "params"),
        ({"input_h": np.zeros([1, 2, 3], np.float32)}, "input_h"),
        ({"sequence_lengths": [1, 2, 3, 4, 77]}, "sequence_lengths"),
    ],
    ids=["params", "input_h", "sequence_lengths"],
)
def test_wrong_arguments_are_refused_with_a_message(op_device, changes, part):
    arrays = arrays_for(LSTM, LENGTHS["full"], "float32")
    with make_network(LSTM, "float32", op_device, version=3) as network:
        with pytest.raises(tf.errors.InvalidArgumentError, match=part):
            network.run(dict(arrays, **changes))
        network.run(arrays)


START = """
import hashlib, os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
device = sys.argv[2]
import numpy as np
import tensorflow.compat.v1 as tf
from test_tensorflow import *
tf.config.experimental.enable_tensor_float_32_execution(False)
"""

TF32_PROGRAM = (
    START
    + """
print("RESULT TF32", tf.config.experimental.tensor_float_32_execution_enabled())
"""
)

DETERMINISM_PROGRAM = (
    START
    + """
import tensorflow
from helpers.op_harness import assert_same_bits
tensorflow.config.experimental.enable_op_determinism()
case = Case("gru", "linear_input", "bidirectional", 2, 65, 64, 33, 13, "float32")
arrays = make_arrays(case)
with make_network(case.configuration, case.dtype, device) as network:
    runs = [network.run(arrays) for _ in range(4)]
for run in runs[1:]:
    assert_same_bits(run, runs[0])
content = b"".join(runs[0][name].tobytes() for name in sorted(runs[0]))
print("RESULT HASH", hashlib.sha256(content).hexdigest())
"""
)

OUT_OF_MEMORY_PROGRAM = (
    START
    + """
configuration = reference.Configuration("gru", "linear_input", "unidirectional", 1, 2048, 16)
config = growing_config()
config.gpu_options.per_process_gpu_memory_fraction = 0.02
def arrays(batch, steps):
    zeros = lambda *shape: np.zeros(shape, np.float32)
    return dict(input=zeros(steps, batch, 16), input_h=zeros(1, batch, 2048),
                params=zeros(reference.params_size(configuration)))
network = make_network(configuration, "float32", device, is_training=False, config=config)
try:
    network.run(arrays(4096, 512), ["output_h"])  # its output has 17 GB
    print("RESULT NO ERROR")
except tf.errors.ResourceExhaustedError as error:
    print("RESULT REFUSED", error.message.splitlines()[0])
assert not network.run(arrays(2, 3))["output"].any()
print("RESULT WORKS")
"""
)

OTHER_KERNELS_PROGRAM = (
    START
    + """
print("RESULT PROVIDER", gpu_kernels.kernels_in_charge().provider)
np.savez(sys.argv[3], **other_kernels_results(device))
"""
)

OTHER_KERNELS_CASES = [
    Case(mode, "linear_input", direction, 2, 33, 19, 7, 13, "float32")
    for mode in ("lstm", "gru", "rnn_tanh")
    for direction in ("unidirectional", "bidirectional")
]


def other_kernels_results(device):
    """Returns the results of CudnnRNNV3 for OTHER_KERNELS_CASES and mixed lengths, by name.

    TensorFlow's kernels of the other versions of the op refuse every call with cuDNN 9.
    """
    results = {}

    def run(title, configuration, arrays, lengths):
        with make_network(configuration, "float32", device, version=3) as network:
            found = network.run(dict(arrays, sequence_lengths=lengths))
        results.update((f"{title}/{name}", value) for name, value in found.items())

    for case in OTHER_KERNELS_CASES:
        run(str(case), case.configuration, make_arrays(case), [case.steps] * case.batch)
    # The padding is finite, as other kernels may read it.
    arrays = random_arrays(LSTM, BATCH, STEPS, np.float32, np.random.RandomState(4))
    run("lengths", LSTM, arrays, LENGTHS["mixed"])
    return results


@pytest.mark.gpu_only
def test_calls_succeed_again_after_out_of_memory(op_device):
    printed = run_program(OUT_OF_MEMORY_PROGRAM, op_device)
    assert "REFUSED" in printed and "WORKS" in printed, printed


@pytest.mark.gpu_only
def test_tensorflows_own_kernels_agree(op_device, tmp_path):
    path = str(tmp_path / "results.npz")
    printed = run_program(
        OTHER_KERNELS_PROGRAM, op_device, path, CUDNN_RNN_GPU_KERNELS="tensorflow"
    )
    assert "PROVIDER tensorflow" in printed, printed
    with np.load(path) as theirs:
        theirs = {name: theirs[name] for name in theirs.files}
    ours = other_kernels_results(op_device)
    assert_close(ours, theirs, 2 * TOLERANCES["float32"], "CUDNN_RNN_GPU_KERNELS=tensorflow")
