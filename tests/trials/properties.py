"""Tries the ops with any arguments: they give the reference's results or a documented error.

Hypothesis chooses op, attributes, shapes, dtype and lengths, often one of them wrong, and reduces a
failure to a small example.
"""

import collections
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as set_seed
from hypothesis import strategies as st
from tensorflow.python.ops import gen_cudnn_rnn_ops

import cudnn_rnn  # noqa: F401  (loads the kernels)
import running
from helpers import reference
from helpers.cases import output_shapes, random_arrays
from helpers.op_harness import (
    FORWARD_OPS,
    TOLERANCES,
    model_attributes,
    projection_attribute,
    swap_major,
)

tf.get_logger().setLevel("ERROR")
if not tf.compat.v1.executing_eagerly():
    tf.compat.v1.enable_eager_execution()
errors = tf.errors
DOCUMENTED = (errors.InvalidArgumentError, errors.ResourceExhaustedError, ValueError, TypeError)
if tf.__version__.startswith("1."):  # It looks for a kernel of a dtype that the ops do not have.
    DOCUMENTED += (errors.NotFoundError,)
FORWARD = ("output", "output_h", "output_c")
INPUTS = ("input", "input_h", "input_c", "params")
# TensorFlow 1.15 declares the ops without bfloat16.
DTYPES = ["float64", "float32", "float16"] + ["bfloat16"] * tf.__version__.startswith("2.")
counts = collections.Counter()


@st.composite
def calls(draw):
    """Returns what one call is made of; the last line names the parts."""
    mode = draw(st.sampled_from(sorted(reference.GATES)))
    input_mode = draw(st.sampled_from(["linear_input", "skip_input", "auto_select"]))
    direction = draw(st.sampled_from(["unidirectional", "bidirectional"]))
    layers, units, width = (draw(st.integers(1, most)) for most in (3, 20, 20))
    if input_mode == "skip_input":
        width = units
    version = draw(st.sampled_from(sorted(FORWARD_OPS)))
    projection = 0
    if version == 3 and mode == "lstm" and units > 1:
        projection = draw(st.sampled_from([0, 0, draw(st.integers(1, units - 1))]))
    sizes = (mode, input_mode, direction, layers, units, width, projection)
    batch, steps = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    lengths = [steps] * batch
    if version == 3:
        lengths = draw(st.lists(st.integers(0, steps), min_size=batch, max_size=batch))
    names = [name for name in INPUTS + ("sequence_lengths",) if version == 3 or name in INPUTS]
    change = st.sampled_from(["drop", "add", "grow", "shrink", "empty", "dtype", "value"])
    damage = draw(st.one_of(st.none(), st.tuples(st.sampled_from(names), change)))
    time_major = version != 3 or draw(st.booleans())
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 2**32 - 1))
    configuration = reference.Configuration(*sizes)
    return version, configuration, batch, steps, dtype, lengths, time_major, damage, seed


def damaged(array, change, random):
    """Returns the array with another shape, dtype or strange values."""
    axis = random.randint(array.ndim) if array.ndim else 0
    if change == "drop":
        return array.reshape(array.shape[1:]) if array.shape[:1] == (1,) else array.ravel()[:, None]
    if change == "add":
        return array[None]
    if change == "grow":
        return (
            np.concatenate([array, array[:1]]) if axis == 0 else np.concatenate([array] * 2, axis)
        )
    if change == "shrink":
        return np.delete(array, slice(0, 1), axis)
    if change == "empty":
        return array[:0]
    if change == "dtype":
        return array.astype(np.int64)
    values = [-1, 2**31 - 1, 7] if array.dtype == np.int32 else [-0.5, 0, 0.5]
    return np.full_like(array, random.choice(values))


def with_sizes(configuration, arrays):
    """Returns the configuration with the sizes that the op reads from the shapes of the arrays."""
    sizes = {}
    if arrays["input"].ndim == 3:
        sizes["input_size"] = arrays["input"].shape[2]
    if arrays["input_h"].ndim == 3:
        sizes["num_layers"] = arrays["input_h"].shape[0] // configuration.directions
        sizes["num_units"] = arrays["input_h"].shape[2]
    if configuration.num_proj and arrays["input_c"].ndim == 3:
        sizes["num_units"] = arrays["input_c"].shape[2]
    return configuration._replace(**sizes)


def is_valid(configuration, arrays, dtype):
    """Returns whether the op must accept the arrays, in time-major order."""
    if any(arrays[name].ndim != 3 for name in ("input", "input_h")):
        return False
    if 0 in (configuration.input_size, configuration.num_layers, configuration.num_units):
        return False
    if configuration.num_proj >= configuration.num_units:
        return False
    if configuration.input_mode == "skip_input":
        if configuration.input_size != configuration.num_units:
            return False
    steps, batch, _ = arrays["input"].shape
    width = configuration.output_size
    stacked = configuration.num_layers * configuration.directions
    shapes = {
        "input": (steps, batch, configuration.input_size),
        "input_h": (stacked, batch, width),
        "input_c": (stacked, batch, configuration.num_units),
    }
    for name, shape in shapes.items():
        if name in arrays and (name != "input_c" or configuration.rnn_mode == "lstm"):
            if arrays[name].shape != shape or arrays[name].dtype != dtype:
                return False
    params, lengths = arrays["params"], arrays.get("sequence_lengths", np.zeros(batch, np.int32))
    fits = params.ndim == 1 and params.size >= reference.params_size(configuration)
    has_lengths = lengths.shape == (batch,) and lengths.dtype == np.int32
    in_range = all(0 <= length <= steps for length in lengths.ravel())
    return fits and params.dtype == dtype and has_lengths and in_range


def forward(call, arrays, dtype):
    """Returns the results of the op, a GradientTape of it, and the inputs that the tape watches."""
    version, configuration, _, _, _, _, time_major, _, _ = call
    attributes = dict(model_attributes(configuration), is_training=True)
    if version == 3:
        attributes.update(time_major=time_major, **projection_attribute(configuration))
        arrays = dict(arrays, **({} if time_major else swap_major(arrays)))
    tensors = {name: tf.constant(array) for name, array in arrays.items()}
    if dtype == "bfloat16":
        is_float = {name: tensor.dtype == tf.float32 for name, tensor in tensors.items()}
        tensors = {n: tf.cast(t, dtype) if is_float[n] else t for n, t in tensors.items()}
    tensors.setdefault("input_c", tf.zeros([0], dtype))
    watched = [tensors[name] for name in INPUTS]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        node = getattr(gen_cudnn_rnn_ops, FORWARD_OPS[version])(**tensors, **attributes)
    return {name: getattr(node, name) for name in FORWARD}, tape, watched


def with_gradients(call, results, tape, watched, backprops):
    """Returns the results of the op and its gradients, as double arrays in time-major order."""
    _, configuration, _, _, _, _, time_major, _, _ = call
    backprops = backprops if time_major else swap_major(backprops)
    gradients = tape.gradient(
        [results[name] for name in backprops],
        watched,
        [tf.cast(array, results[name].dtype) for name, array in backprops.items()],
    )
    found = dict(results, **dict(zip(["d_" + name for name in INPUTS], gradients)))
    if configuration.rnn_mode != "lstm":
        found = {name: value for name, value in found.items() if not name.endswith("_c")}
    found = {name: tf.cast(value, tf.float64).numpy() for name, value in found.items()}
    return found if time_major else swap_major(found)


def check(call):
    """Runs one call; raises AssertionError if it neither fails as documented nor agrees."""
    version, configuration, batch, steps, dtype, lengths, _, damage, seed = call
    random = np.random.RandomState(seed)
    compute = "float32" if dtype == "bfloat16" else dtype
    arrays = random_arrays(configuration, batch, steps, compute, random)
    for name in FORWARD:
        arrays.pop(name + "_backprop", None)
    # Saturated units lose digits of gradients in every implementation.
    arrays["input"] /= 2 * np.sqrt(configuration.input_size)
    arrays["input_h"] /= 2
    if version == 3:
        arrays["sequence_lengths"] = np.array(lengths, np.int32)
    if damage is not None and damage[0] in arrays:
        arrays[damage[0]] = damaged(arrays[damage[0]], damage[1], random)
    configuration = with_sizes(configuration, arrays)
    valid = is_valid(configuration, arrays, compute)
    try:
        results = forward(call, arrays, dtype)
    except DOCUMENTED as error:
        assert not valid, "refused: %s: %s" % (type(error).__name__, error)
        assert str(error).strip(), "an error without a text"
        counts["refused"] += 1
        return
    assert valid, "accepted what is wrong: %s" % {n: (a.shape, a.dtype) for n, a in arrays.items()}
    steps, batch, _ = arrays["input"].shape
    shapes = output_shapes(configuration, batch, steps)
    kept = FORWARD if configuration.rnn_mode == "lstm" else FORWARD[:2]
    backprops = {name: random.standard_normal(shapes[name]) for name in kept}
    found = with_gradients(call, *results, backprops)
    if not steps or not batch:
        counts["empty"] += 1  # nothing is computed; tests/ops/test_edge_cases.py has these
        return
    counts["equal"] += 1
    compare(configuration, arrays, backprops, found, dtype)


def compare(configuration, arrays, backprops, found, dtype):
    """Compares with the reference, whose inputs are rounded to the dtype, too."""
    lengths = arrays.pop("sequence_lengths", None)
    if dtype == "bfloat16":
        cast = {name: tf.cast(array, tf.bfloat16) for name, array in arrays.items()}
        arrays = {name: tf.cast(array, tf.float64).numpy() for name, array in cast.items()}
    size = reference.params_size(configuration)
    exact = {name: array.astype("float64") for name, array in arrays.items()}
    spare, exact["params"] = exact["params"][size:], exact["params"][:size]
    if dtype not in ("float16", "bfloat16"):  # gradients arrive there in low precision
        exact.update((name + "_backprop", array) for name, array in backprops.items())
    if configuration.rnn_mode == "rnn_relu" and dtype != "float64":
        exact = {name: array for name, array in exact.items() if not name.endswith("_backprop")}
    expected = reference.run_reference(configuration, exact, lengths=lengths)
    if "d_params" in expected:
        expected["d_params"] = np.concatenate([expected["d_params"], np.zeros(len(spare))])
    for name, value in expected.items():
        assert found[name].shape == value.shape, (name, found[name].shape, value.shape)
        # Of a few elements, all may be small because their terms cancel.
        largest = max(0.05, np.abs(value).max() if value.size else 0)
        error = np.abs(found[name] - value).max() / largest if value.size else 0
        assert error <= 3 * TOLERANCES[dtype], "%s differs by %.2g" % (name, error)


def main():
    parser = running.make_parser(__doc__, seed=1, short="100 examples")
    parser.add_argument(
        "--examples", type=running.above_zero(int), default=10000, help="default: 10000"
    )
    chosen = parser.parse_args()
    examples = 100 if chosen.short else chosen.examples

    @set_seed(chosen.seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(calls())
    def every_call(call):
        check(call)
        counts["all"] += 1
        if counts["all"] % 1000 == 0:
            print("%d of %d examples" % (counts["all"], examples), flush=True)

    every_call()
    facts = tuple(counts[kind] for kind in ("all", "equal", "empty", "refused"))
    print(
        "found: in TensorFlow %s %d examples, %d equal to the reference, %d without steps or "
        "sequences, %d refused" % (tf.__version__, *facts)
    )


if __name__ == "__main__":
    main()
