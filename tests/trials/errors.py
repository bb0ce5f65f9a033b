"""The largest errors of models in each dtype and instruction set, against double.

Inputs, weights and gradients are random, and rounded to the dtype before either computation, so the
error is that of the computation alone and includes the rounding of results. An error is the largest
difference in an array divided by the largest exact magnitude in it; the root mean square (RMS) of
differences, divided likewise, is over all arrays of all models. Double, which is compared with
the tests' NumPy reference, is computed by the same ops. ReLU counts with its outputs only: its
gradients jump where rounding moves a sum across 0.

Errors above the bound of their variant must be those of an ill-conditioned model, such as one of a
single unit whose result nearly cancels: at most AMPLIFICATION times the change of the exact result
when random rounding errors are added to the inputs.

    python tests/trials/errors.py --models named --dtype float32

prints a table of the models in NAMED instead of the largest errors of random models.

Instruction sets with bfloat16 instructions that the processor lacks are emulated, if it has AVX-512
(tests/core/emulated). The emulation rounds as the instructions do, but keeps subnormal sums. AVX2
rounds factors in few shapes; for these measurements the package is compiled so that it does in all.
"""

import argparse
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import running

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

VARIABLE = "CUDNN_RNN_CPU_INSTRUCTION_SET"
PRECISION_VARIABLE = "CUDNN_RNN_FLOAT32_MATMUL_PRECISION"
# What is measured: dtype, instruction set (None: the default), precision, the bound on the errors
# of outputs and gradients, and the unit roundoff of the factors of products. A rounded result alone
# differs by half a unit in the last place: 6e-8 in float, 4.9e-4 in half, 3.9e-3 in bfloat16.
VARIANTS = [
    ("float64", None, "highest", 1e-12, 2.0**-53),
    ("float32", "portable", "highest", 2e-5, 2.0**-24),
    ("float32", "avx2", "highest", 2e-5, 2.0**-24),
    ("float32", "avx512", "highest", 2e-5, 2.0**-24),
    ("float32", "amx_bf16", "high", 1e-3, 2.0**-16),
    ("float32", "avx2", "medium", 1e-1, 2.0**-8),
    ("float32", "avx512_bf16", "medium", 1e-1, 2.0**-8),
    ("float32", "amx_bf16", "medium", 1e-1, 2.0**-8),
    ("float16", "avx512", "highest", 2e-3, 2.0**-11),
    ("float16", "amx_bf16", "highest", 2e-3, 2.0**-11),
    ("bfloat16", "avx512", "highest", 2e-2, 2.0**-8),
    ("bfloat16", "avx512_bf16", "highest", 1e-1, 2.0**-8),
    ("bfloat16", "amx_bf16", "highest", 1e-1, 2.0**-8),
]
# Results go through up to 40 steps and 3 layers, each of which rounds as the inputs are rounded.
AMPLIFICATION = 10
# What a worker says if the processor lacks the instructions or the system forbids them.
UNAVAILABLE = r"does not support the instruction set|The instruction set \w+ cannot be used"
EMULATED = re.compile("bf16")  # of the instruction sets that can be emulated
EMULATION = running.ROOT / "tests" / "core" / "emulated" / "bfloat16_instructions.h"
NUMPY_EVERY = 20  # models of which double is compared with NumPy's results
# Mode, layers, units, batch size, steps.
NAMED = [
    ("lstm", 2, 200, 20, 20),
    ("lstm", 2, 650, 20, 35),
    ("lstm", 4, 512, 64, 50),
    ("gru", 2, 650, 64, 35),
    ("rnn_tanh", 2, 400, 32, 50),
]
COLUMNS = ("output", "d_input", "d_params")  # of the table of named models


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


def random_models(count, seed):
    """Yields the name, the configuration, the lengths and the arrays of random models."""
    import numpy as np

    from helpers.cases import random_arrays

    for number in range(count):
        random = np.random.RandomState((seed * 1000003 + number) % 2**32)
        configuration, batch, steps, lengths = random_model(random)
        scale = 0.5 if configuration.rnn_mode == "rnn_relu" else 1.0  # keeps ReLU's states small
        arrays = random_arrays(configuration, batch, steps, "float64", random, scale)
        # Saturated units lose digits of gradients in every implementation.
        arrays["input"] /= 2 * configuration.input_size**0.5
        name = "model %d: %s, batch %d, %d steps" % (number, configuration, batch, steps)
        yield name, configuration, lengths, arrays


def named_models(seed):
    """Yields the same of the models in NAMED; only their outputs have a gradient other than 0."""
    import numpy as np

    from helpers import reference

    random = np.random.RandomState(seed)
    for mode, layers, units, batch, steps in NAMED:
        sizes = ("linear_input", "unidirectional", layers, units, units)
        configuration = reference.Configuration(mode, *sizes)
        sequences, states = (steps, batch, units), (layers, batch, units)
        shapes = {"input": sequences, "input_h": states, "input_c": states}
        arrays = {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}
        num_params = reference.params_size(configuration)
        arrays["params"] = random.uniform(-1, 1, num_params) / np.sqrt(units)
        arrays["output_backprop"] = random.uniform(-1, 1, sequences)
        arrays.update(output_h_backprop=np.zeros(states), output_c_backprop=np.zeros(states))
        if mode != "lstm":
            del arrays["input_c"], arrays["output_c_backprop"]
        name = "%s %dx%d b%d" % (mode.upper(), layers, units, batch)
        yield name, configuration, [steps] * batch, arrays


def sensitivities(configuration, arrays, lengths, expected, roundoff):
    """Returns how much random errors up to `roundoff` of the inputs change each exact result."""
    import numpy as np

    from helpers.op_harness import relative_error

    random, largest = np.random.RandomState(0), dict.fromkeys(expected, 0.0)
    for _ in range(8):
        changed = {
            name: array * (1 + roundoff * random.uniform(-1, 1, array.shape))
            for name, array in arrays.items()
        }
        for name, exact in run(configuration, changed, lengths, "float64").items():
            largest[name] = max(largest[name], relative_error(exact, expected[name]))
    return largest


def mean_square_error(found, expected):
    """Returns the mean of the squared differences over the largest expected squared magnitude."""
    largest = abs(expected).max() if expected.size else 0.0
    return float((((found - expected) / largest) ** 2).mean()) if largest else 0.0


def worker(dtype, bound, roundoff, models):
    """Prints for each model its name, errors, and sensitivities if an error exceeds the bound."""
    import tensorflow as tf

    from helpers.op_harness import relative_error
    from helpers.reference import run_reference

    for name, configuration, lengths, arrays in models:
        for key, array in arrays.items():
            arrays[key] = tf.cast(tf.cast(array, dtype), tf.float64).numpy()
        found = run(configuration, arrays, lengths, dtype)
        if dtype == "float64":
            expected = run_reference(configuration, arrays, lengths=list(lengths))
        else:
            expected = run(configuration, arrays, lengths, "float64")
        errors = {key: relative_error(exact, expected[key]) for key, exact in found.items()}
        mean_squares = {key: mean_square_error(found[key], expected[key]) for key in found}
        changes = {}
        if not max(errors.values()) <= bound:
            changes = sensitivities(configuration, arrays, lengths, expected, roundoff)
        print(json.dumps([name, errors, mean_squares, changes]), flush=True)


class Unavailable(Exception):
    """The processor lacks an instruction set."""


@functools.lru_cache()
def emulated_package():
    """Returns a folder with this package, compiled with emulated bfloat16 instructions."""
    print("compiling the package with an emulation of the instructions", flush=True)
    extensions = ["-DCUDNN_RNN_EMULATES_%s" % name for name in ("AVX512_BF16", "AMX_BF16")]
    return running.build_package("emulated", *extensions, "-include", str(EMULATION))


@functools.lru_cache()
def rounding_package():
    """Returns a folder with this package, compiled to round in all shapes with AVX2."""
    print("compiling the package to round in all shapes", flush=True)
    return running.build_package("rounding", "-DCUDNN_RNN_ROUNDS_IN_ALL_SHAPES")


def measure(dtype, instruction_set, precision, options, folder=None):
    """Runs a worker; yields of each model the name, errors, squared errors and sensitivities.

    `folder`: where the package is, if not where Python finds it.
    """
    environment = dict(os.environ, **{PRECISION_VARIABLE: precision})
    environment.pop(VARIABLE, None)
    if folder:
        environment["PYTHONPATH"] = folder
    if instruction_set:
        environment[VARIABLE] = instruction_set
    command = [sys.executable, os.path.abspath(__file__), "--dtype", dtype] + options
    with tempfile.TemporaryFile("w+") as stderr:
        streams = {"stdout": subprocess.PIPE, "stderr": stderr, "universal_newlines": True}
        with subprocess.Popen(command, env=environment, **streams) as process:
            for line in process.stdout:
                yield json.loads(line)
        stderr.seek(0)
        text = stderr.read()
    if process.returncode and re.search(UNAVAILABLE, text):
        raise Unavailable
    if process.returncode:
        sys.exit("%s, %s:\n%s" % (dtype, instruction_set, text))


def show_row(variant, number, name, errors):
    """Prints a row of the table of named models, and its heading before the first row."""
    if number == 1:
        headings = [column.replace("d_", "d ") for column in COLUMNS]
        print(variant)
        print("%-22s %10s %10s %10s" % ("model", *headings))
    values = [errors[column] for column in COLUMNS]
    print("%-22s %10.1e %10.1e %10.1e" % (name, *values), flush=True)


def show_progress(count, variant, number, name, errors):
    """Prints a line for every 1000 of `count` models."""
    if number % 1000 == 0:
        print("%s: %d of %d models" % (variant, number, count), flush=True)


class Summary:
    """The errors of a variant's models; those of models above the bound are kept apart."""

    def __init__(self, name, bound):
        self._name = name
        self._bound = bound
        self._worst = {"output": (0.0, ""), "gradient": (0.0, "")}
        self._mean_squares = {"output": [], "gradient": []}
        self.num_models = 0
        self.above = {}
        self.failures = []

    def add(self, model, errors, mean_squares, changes):
        self.num_models += 1
        if not all(error <= self._bound for error in errors.values()):
            return self._add_above(model, errors, changes)
        for name, error in errors.items():
            kind, where = "gradient" if name.startswith("d_") else "output", name + " of " + model
            self._worst[kind] = max(self._worst[kind], (error, where))
            self._mean_squares[kind].append(mean_squares[name])

    def _add_above(self, model, errors, changes):
        self.above[model] = max(errors.values())
        for name, error in errors.items():
            if not error <= max(self._bound, AMPLIFICATION * changes[name]):
                text = "%s of %s: error %.1e, rounded inputs change it by %.1e"
                self.failures.append(text % (name, model, error, changes[name]))

    def text(self):
        worst = self._worst["output"][0], self._worst["gradient"][0]
        rms = [statistics.mean(values or [0.0]) ** 0.5 for values in self._mean_squares.values()]
        numbers = (self._name, *worst, *rms, self.num_models - len(self.above))
        text = "%s %.1e and %.1e (RMS %.1e and %.1e) of %d models" % numbers
        if self.above:
            text += ", up to %.1e of %d ill-conditioned" % (
                max(self.above.values()),
                len(self.above),
            )
        return text

    def show(self):
        for kind, (error, where) in self._worst.items():
            print("    worst %s: %.1e, %s" % (kind, error, where))
        for failure in self.failures:
            print("FAILED: expected at most %.0e; %s" % (self._bound, failure))


def summarize(name, bound, show, variant):
    """Measures a variant, by emulation if the processor lacks it; None if that is impossible, too.

    `show(name, number, model, errors)` is called for each model, `variant` are the arguments of
    `measure`.
    """
    folder = rounding_package() if variant[1:3] == ("avx2", "medium") else None
    try:
        return _summary_of(measure(*variant, folder), name, bound, show)
    except Unavailable:
        if not EMULATED.search(variant[1]):
            return None
    try:
        return _summary_of(measure(*variant, emulated_package()), name + " emulated", bound, show)
    except Unavailable:
        return None


def _summary_of(models, name, bound, show):
    summary = Summary(name, bound)
    for model, errors, mean_squares, changes in models:
        summary.add(model, errors, mean_squares, changes)
        show(name, summary.num_models, model, errors)
    return summary


def parse_arguments():
    """Returns the options, with the `variants` that they choose."""
    short = "20 models, in double and in float with AVX2"
    parser = running.make_parser(__doc__, seed=1, short=short)
    add, count = parser.add_argument, running.above_zero(int)
    add("--models", choices=["random", "named"], default="random", help="default: random")
    add("--rounds", type=count, help="random models of each variant (default: 10000, short: 20)")
    add("--dtype", help="only this dtype", choices=sorted({one[0] for one in VARIANTS}))
    instruction_sets = sorted({one[1] for one in VARIANTS if one[1]})
    add("--instruction-set", help="only this instruction set", choices=instruction_sets)
    precisions = sorted({one[2] for one in VARIANTS})
    add("--precision", help="only this precision of float32", choices=precisions)
    worker_numbers = {"type": float, "nargs": 2, "metavar": ("BOUND", "ROUNDOFF")}
    add("--worker", help=argparse.SUPPRESS, **worker_numbers)
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (20 if chosen.short else 10000)
    chosen.variants = [
        variant
        for variant in VARIANTS
        if chosen.dtype in (None, variant[0])
        if chosen.instruction_set in (None, variant[1])
        if chosen.precision in (None, variant[2])
        if not chosen.short or variant[1:3] in ((None, "highest"), ("avx2", "highest"))
    ]
    if not chosen.variants:
        text = "no variant has this dtype, instruction set and precision"
        parser.error(text + " in the short form" * chosen.short)
    return chosen


def main():
    chosen = parse_arguments()
    is_named = chosen.models == "named"
    if chosen.worker:
        models = named_models if is_named else functools.partial(random_models, chosen.rounds)
        return worker(chosen.dtype, *chosen.worker, models(chosen.seed))
    results, status = [], 0
    for dtype, instruction_set, precision, bound, roundoff in chosen.variants:
        count = max(2, chosen.rounds // NUMPY_EVERY) if dtype == "float64" else chosen.rounds
        options = ["--models", chosen.models, "--rounds", str(count), "--seed", str(chosen.seed)]
        options += ["--worker", str(bound), str(roundoff)]
        name = "%s %s" % (dtype, instruction_set) if instruction_set else dtype + " against NumPy"
        name += " " + precision if precision != "highest" else ""
        show = show_row if is_named else functools.partial(show_progress, count)
        summary = summarize(name, bound, show, (dtype, instruction_set, precision, options))
        if summary is None:
            print("%s: not measured, the processor lacks the instructions" % name)
            continue
        results.append(summary.text())
        print(results[-1])
        summary.show()
        status |= bool(summary.failures)
    running.require(results, "the processor has none of the instruction sets")
    print("result: largest errors of outputs and of gradients: %s" % "; ".join(results))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
