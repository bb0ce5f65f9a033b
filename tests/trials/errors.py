"""The largest errors of random models in each dtype and instruction set, against double.

Inputs, weights and gradients are random, and rounded to the dtype before either computation, so the
error is that of the computation alone and includes the rounding of results. An error is the largest
difference in an array divided by the largest exact magnitude in it. Double, which is compared with
the tests' NumPy reference, is computed by the same ops. ReLU counts with its outputs only: its
gradients jump where rounding moves a sum across 0.
"""

import argparse
import json
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

VARIABLE = "CUDNN_RNN_CPU_INSTRUCTION_SET"
# What is measured: dtype, instruction set (None: the default), and the bound on the errors of
# outputs and gradients. A rounded result alone differs by half a unit in the last place: 6e-8 in
# float, 4.9e-4 in half, 3.9e-3 in bfloat16.
VARIANTS = [
    ("float64", None, 1e-12),
    ("float32", "portable", 2e-5),
    ("float32", "avx2", 2e-5),
    ("float32", "avx512", 2e-5),
    ("float32", "amx_bf16x3", 1e-3),
    ("float16", "avx512", 2e-3),
    ("float16", "amx_bf16x3", 2e-3),
    ("bfloat16", "avx512", 2e-2),
    ("bfloat16", "avx512_bf16", 1e-1),
    ("bfloat16", "amx_bf16", 1e-1),
]
NUMPY_EVERY = 20  # models of which double is compared with NumPy's results


def random_model(random):
    """Returns a configuration, batch size, number of steps and lengths (None: all full)."""
    from helpers import reference

    mode = ("lstm", "gru", "rnn_tanh", "rnn_relu")[random.randint(4)]
    direction = ("unidirectional", "bidirectional")[random.randint(2)]
    units, width = (int(2 ** random.uniform(0, 7.3)) for _ in range(2))
    layers, batch, steps = (int(random.randint(1, most + 1)) for most in (3, 40, 40))
    projection = int(random.randint(1, units)) if mode == "lstm" and units > 1 else 0
    projection *= int(random.randint(4) == 0)
    sizes = ("linear_input", direction, layers, units, width, projection)
    lengths = random.randint(1, steps + 1, batch) if random.randint(4) == 0 else [steps] * batch
    return reference.Configuration(mode, *sizes), batch, steps, lengths


def run(configuration, arrays, lengths, dtype):
    """Returns a dict of outputs and gradients by name, as double arrays."""
    import tensorflow as tf

    from helpers.op_harness import model_attributes

    cast = {name: tf.cast(array, dtype) for name, array in arrays.items()}
    cast.setdefault("input_c", tf.zeros([0], dtype))
    cast.setdefault("output_c_backprop", tf.zeros([0], dtype))
    common = dict(model_attributes(configuration), num_proj=configuration.num_proj)
    common["sequence_lengths"] = tf.constant(lengths, tf.int32)
    inputs = {name: cast[name] for name in ("input", "input_h", "input_c", "params")}
    node = tf.raw_ops.CudnnRNNV3(**inputs, **common)
    found = {name: getattr(node, name) for name in ("output", "output_h", "output_c")}
    if configuration.rnn_mode != "rnn_relu":
        backprops = {name: cast[name] for name in cast if name.endswith("_backprop")}
        rest = {name: getattr(node, name) for name in ("reserve_space", "host_reserved")}
        gradients = tf.raw_ops.CudnnRNNBackpropV3(**inputs, **found, **backprops, **rest, **common)
        for name in inputs:
            found["d_" + name] = getattr(gradients, name + "_backprop")
    if configuration.rnn_mode != "lstm":
        found = {name: value for name, value in found.items() if not name.endswith("_c")}
    return {name: tf.cast(value, tf.float64).numpy() for name, value in found.items()}


def rounded_arrays(model, dtype, random):
    """Returns the inputs of a model, as double arrays of numbers of the dtype."""
    import tensorflow as tf

    from helpers.cases import random_arrays

    configuration, batch, steps, _ = model
    scale = 0.5 if configuration.rnn_mode == "rnn_relu" else 1.0  # keeps ReLU's states small
    arrays = random_arrays(configuration, batch, steps, "float64", random, scale)
    # Saturated units lose digits of gradients in every implementation.
    arrays["input"] /= 2 * configuration.input_size**0.5
    return {name: tf.cast(tf.cast(one, dtype), tf.float64).numpy() for name, one in arrays.items()}


def worker(dtype, rounds, seed):
    """Prints the largest error of outputs and of gradients, each with its model, as JSON."""
    import numpy as np

    from helpers.op_harness import relative_error
    from helpers.reference import run_reference

    worst = {"output": (0.0, ""), "gradient": (0.0, "")}
    for number in range(rounds):
        random = np.random.RandomState((seed * 1000003 + number) % 2**32)
        model = random_model(random)
        configuration, batch, steps, lengths = model
        arrays = rounded_arrays(model, dtype, random)
        found = run(configuration, arrays, lengths, dtype)
        if dtype == "float64":
            expected = run_reference(configuration, arrays, lengths=list(lengths))
        else:
            expected = run(configuration, arrays, lengths, "float64")
        for name, exact in found.items():
            error = relative_error(exact, expected[name])
            kind = "gradient" if name.startswith("d_") else "output"
            where = "%s of %s, batch %d, %d steps" % (name, configuration, batch, steps)
            worst[kind] = max(worst[kind], (error, "model %d: %s" % (number, where)))
        if number % 1000 == 999:
            print("%s: %d of %d models" % (dtype, number + 1, rounds), file=sys.stderr, flush=True)
    print(json.dumps(worst))


def measure(dtype, instruction_set, rounds, seed):
    """Runs a worker; returns what it printed, or None if the processor lacks the instructions."""
    environment = dict(os.environ)
    environment.pop(VARIABLE, None)
    if instruction_set:
        environment[VARIABLE] = instruction_set
    arguments = ["--worker", dtype, "--rounds", str(rounds), "--seed", str(seed)]
    command = [sys.executable, os.path.abspath(__file__)] + arguments
    options = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    errors = []
    with subprocess.Popen(command, universal_newlines=True, **options) as process:
        for line in process.stderr:
            if " models" in line:
                print(line, end="", flush=True)
            else:
                errors.append(line)
        answer = process.stdout.read()
    text = "".join(errors)
    if process.returncode and "does not support" in text:
        return None
    if process.returncode:
        sys.exit("%s, %s:\n%s" % (dtype, instruction_set, text))
    return json.loads(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--short", action="store_true", help="few models, in one variant per dtype")
    parser.add_argument(
        "--rounds", type=int, help="models of each variant (default: 10000, short: 20)"
    )
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--worker", metavar="DTYPE", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    rounds = chosen.rounds or (20 if chosen.short else 10000)
    if chosen.worker:
        return worker(chosen.worker, rounds, chosen.seed)
    results, status = [], 0
    for dtype, instruction_set, bound in VARIANTS:
        if chosen.short and instruction_set not in (None, "avx2"):
            continue
        count = max(1, rounds // NUMPY_EVERY) if dtype == "float64" else rounds
        worst = measure(dtype, instruction_set, count, chosen.seed)
        name = "%s %s" % (dtype, instruction_set) if instruction_set else dtype + " against NumPy"
        if worst is None:
            print("%s: not measured, the processor lacks the instructions" % name)
            continue
        errors = [worst[kind][0] for kind in ("output", "gradient")]
        print("%-22s outputs %.1e, gradients %.1e, %d models" % (name, *errors, count))
        for kind, (_, where) in worst.items():
            print("    worst %s: %s" % (kind, where))
        if max(errors) > bound:
            print("FAILED: expected at most %.0e; --seed %d repeats it" % (bound, chosen.seed))
            status = 1
        results.append("%s %.1e and %.1e" % (name, *errors))
    print(
        "result: largest errors of outputs and of gradients of %d models each: %s"
        % (rounds, "; ".join(results))
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
