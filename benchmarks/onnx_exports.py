"""Times of loops over those of LSTM and GRU nodes, in ONNX Runtime and OpenVINO, on a CPU.

    python benchmarks/onnx_exports.py [NAME ...] [--rounds 30] [--threads 2]

Needs an environment with this package, TensorFlow 2, tf2onnx and onnxruntime; OpenVINO is optional.
A model is exported twice: as nodes (`cudnn_rnn.export_onnx`), and as loops (`export_plain`, then
tf2onnx). Both run in turn, with the same input; the table has the ratio of the medians.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from configurations import parse
from problem import joined, make_problem
from tables import markdown_table

NAMES = [
    "lstm-2x200-b20-t20",
    "lstm-2x650-b20-t35",
    "lstm-2x256-bi-b32-t100",
    "lstm-1x512-b1-t50",
    "gru-2x650-b20-t35",
    "gru-1x128-b1-t100",
]


def save(configuration, problem, folder):
    """Writes a SavedModel with the configuration's RNN, whose states are 0."""
    import tensorflow as tf

    import cudnn_rnn

    classes = {"lstm": cudnn_rnn.CudnnLSTM, "gru": cudnn_rnn.CudnnGRU}
    sizes = configuration.num_layers, configuration.num_units, configuration.input_size
    rnn = classes[configuration.rnn_mode](*sizes, direction=configuration.direction)
    module = tf.Module()
    module.params = tf.Variable(joined(problem.weights))

    def run(x):
        state = tf.zeros([len(configuration.stacks), tf.shape(x)[1], configuration.num_units])
        states = [state] * len(configuration.states)
        return {"y": rnn(x, *states, module.params, is_training=False)[0]}

    spec = tf.TensorSpec([None, None, configuration.input_size], name="x")
    tf.saved_model.save(module, folder, signatures=tf.function(run, input_signature=[spec]))


def export(folder):
    """Exports both ways; returns paths by names."""
    import cudnn_rnn

    paths = {kind: os.path.join(folder, kind + ".onnx") for kind in ("loops", "nodes")}
    model, plain = os.path.join(folder, "model"), os.path.join(folder, "plain")
    cudnn_rnn.export_onnx(model, paths["nodes"])
    cudnn_rnn.export_plain(model, plain)
    command = [sys.executable, "-m", "tf2onnx.convert", "--saved-model", plain, "--opset", "17"]
    subprocess.run([*command, "--output", paths["loops"]], check=True, capture_output=True)
    return paths


def onnxruntime_runner(path, threads):
    """Returns a function from an input to the output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(["y"], {"x": x})[0]


def openvino_runner(path, threads):
    """Returns a function from an input to the output; computes in float32."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    return lambda x: compiled([x])[0]


RUNNERS = {"onnxruntime": onnxruntime_runner, "openvino": openvino_runner}


def medians(runners, x, expected, rounds):
    """Returns the median time of each runner, a dict by name; they take turns."""
    for result in [run(x) for run in runners.values() for _ in range(3)]:
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)
    times = {name: [] for name in runners}
    for _ in range(rounds):
        for name, run in runners.items():
            start = time.perf_counter()
            run(x)
            times[name].append(time.perf_counter() - start)
    return {name: 1e3 * float(np.median(found)) for name, found in times.items()}


def compared(library, paths, threads, x, expected, rounds):
    """Returns the text of a cell of the table."""
    runners = {}
    for kind, path in paths.items():
        try:
            runners[kind] = RUNNERS[library](path, threads)
        except RuntimeError as error:
            print("%s does not read the %s: %s" % (library, kind, error), file=sys.stderr)
    found = medians(runners, x, expected, rounds)
    if len(found) < len(paths):
        return ", ".join("%s %.2f ms" % item for item in found.items()) + " alone"
    return "%.2f (%.2f / %.2f ms)" % (found["loops"] / found["nodes"], *found.values())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    rows = []
    for name in chosen.names:
        configuration = parse("table", name)
        problem = make_problem(configuration)
        with tempfile.TemporaryDirectory() as folder:
            save(configuration, problem, os.path.join(folder, "model"))
            paths = export(folder)
            row, x = {"name": name}, problem.inputs[0]
            expected = onnxruntime_runner(paths["nodes"], chosen.threads)(x)
            for library in RUNNERS:
                try:
                    given = (chosen.threads, x, expected, chosen.rounds)
                    row[library] = compared(library, paths, *given)
                except ImportError as error:
                    print("%s is left out: %s" % (library, error), file=sys.stderr)
        print(row, file=sys.stderr)
        rows.append(row)
    columns = [(key, lambda row, key=key: row.get(key, "-")) for key in ("name", *RUNNERS)]
    print(markdown_table(columns, rows))


if __name__ == "__main__":
    main()
