"""Tries the ops with any arguments: they give the reference's results or a documented error.

Hypothesis chooses op, attributes, shapes, dtype and lengths, often one of them wrong, and reduces a
failure to a small example. A third of the examples call the params ops. What a gradient op computes
from a damaged reserve space is not compared.
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
    BACKWARD_OPS,
    FORWARD_OPS,
    HUGE,
    TOLERANCES,
    model_attributes,
    projection_attribute,
    size_arguments,
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
OF_FORWARD = FORWARD + tuple(name + "_backprop" for name in FORWARD) + ("reserve_space",)
CHANGES = ["drop", "add", "grow", "shrink", "empty", "dtype", "value"]
STRANGE_SIZES = (0, -1, 1, 2, 3, 2**15, 2**16, HUGE, -HUGE - 1)
# TensorFlow 1.15 declares the ops without bfloat16.
DTYPES = ["float64", "float32", "float16"] + ["bfloat16"] * tf.__version__.startswith("2.")
counts = collections.Counter()


@st.composite
def models(draw, version_of_projection):
    """Returns a version of the ops and the configuration of a small model for it."""
    mode = draw(st.sampled_from(sorted(reference.GATES)))
    input_mode = draw(st.sampled_from(["linear_input", "skip_input", "auto_select"]))
    direction = draw(st.sampled_from(["unidirectional", "bidirectional"]))
    layers, units, width = (draw(st.integers(1, most)) for most in (3, 20, 20))
    if input_mode == "skip_input":
        width = units
    version = draw(st.integers(1, version_of_projection))
    projection = 0
    if version == version_of_projection and mode == "lstm" and units > 1:
        projection = draw(st.sampled_from([0, 0, draw(st.integers(1, units - 1))]))
    sizes = (mode, input_mode, direction, layers, units, width, projection)
    return version, reference.Configuration(*sizes)


@st.composite
def calls(draw):
    """Returns what one call is made of; the last line names the parts."""
    version, configuration = draw(models(version_of_projection=3))
    batch, steps = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    lengths = [steps] * batch
    if version == 3:
        lengths = draw(st.lists(st.integers(0, steps), min_size=batch, max_size=batch))
    names = [name for name in INPUTS + ("sequence_lengths",) if version == 3 or name in INPUTS]
    change = st.sampled_from(CHANGES)
    damage = draw(st.one_of(st.none(), st.tuples(st.sampled_from(names), change)))
    time_major = version != 3 or draw(st.booleans())
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 2**32 - 1))
    return version, configuration, batch, steps, dtype, lengths, time_major, damage, seed


@st.composite
def gradient_damages(draw):
    """Returns an input of the gradient op and its change; most often the reserve space's bits."""
    flip = ("reserve_space", "flip")
    name = draw(st.sampled_from(INPUTS + OF_FORWARD))
    return draw(st.sampled_from([flip, (name, draw(st.sampled_from(CHANGES)))]))


@st.composite
def params_calls(draw):
    """Returns version, model, dtype, the sizes that the ops get, and a damage of their tensors."""
    version, configuration = draw(models(version_of_projection=2))
    sizes = size_arguments(configuration)
    if draw(st.booleans()):
        sizes[draw(st.sampled_from(sorted(sizes)))] = draw(st.sampled_from(STRANGE_SIZES))
    names = ["params", "weights", "biases", "num_params"]
    damage = draw(st.one_of(st.none(), st.tuples(st.sampled_from(names), st.sampled_from(CHANGES))))
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 2**32 - 1))
    return version, configuration, dtype, sizes, damage, seed


def damaged(array, change, random):
    """Returns the array with another shape, dtype or strange values."""
    if change == "flip":
        data = bytearray(array.tobytes())
        limit = min(len(data), random.choice([64, 256, 2**31 - 1]))
        for _ in range(random.randint(1, 10) if limit else 0):
            data[random.randint(limit)] ^= 1 << random.randint(8)
        return np.frombuffer(bytes(data), array.dtype).reshape(array.shape)
    if not array.ndim:  # the c of a GRU
        return array[None]
    axis = random.randint(array.ndim)
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
    fits = params.size >= reference.params_size(configuration)  # in any shape
    has_lengths = lengths.shape == (batch,) and lengths.dtype == np.int32
    in_range = all(0 <= length <= steps for length in lengths.ravel())
    return fits and params.dtype == dtype and has_lengths and in_range


def forward(call, arrays, dtype):
    """Returns the results of the op, a GradientTape of it, the inputs that the tape watches, and
    what the gradient op gets besides results and their gradients.
    """
    version, configuration, _, _, _, _, time_major, _, _ = call
    attributes = model_attributes(configuration)
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
        node = getattr(gen_cudnn_rnn_ops, FORWARD_OPS[version])(
            **tensors, **attributes, is_training=True
        )
    shared = dict(tensors, **attributes)
    for name in ("reserve_space",) + ("host_reserved",) * (version > 1):
        shared[name] = getattr(node, name)
    return {name: getattr(node, name) for name in FORWARD}, tape, watched, shared


def run_damaged_gradient(version, results, shared, damage, random):
    """Calls the gradient op with one damaged input: it returns gradients or refuses the input."""
    inputs = dict(shared, **results)
    inputs.update((name + "_backprop", tf.ones_like(value)) for name, value in results.items())
    name, change = damage
    inputs[name] = tf.constant(damaged(inputs[name].numpy(), change, random))
    try:
        gradients = getattr(gen_cudnn_rnn_ops, BACKWARD_OPS[version])(**inputs)
    except DOCUMENTED as error:
        assert str(error).strip(), "an error without a text"
        counts["gradients refused"] += 1
        return
    counts["gradients"] += 1
    for name, gradient in zip(INPUTS, gradients):
        assert gradient.shape == inputs[name].shape, (name, gradient.shape, inputs[name].shape)


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


def check(call, gradient_damage):
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
        *results, shared = forward(call, arrays, dtype)
    except DOCUMENTED as error:
        assert not valid, "refused: %s: %s" % (type(error).__name__, error)
        assert str(error).strip(), "an error without a text"
        counts["refused"] += 1
        return
    assert valid, "accepted what is wrong: %s" % {n: (a.shape, a.dtype) for n, a in arrays.items()}
    run_damaged_gradient(version, results[0], shared, gradient_damage, random)
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
    flat = exact["params"].ravel()
    spare, exact["params"] = flat[size:], flat[:size]
    if dtype not in ("float16", "bfloat16"):  # gradients arrive there in low precision
        exact.update((name + "_backprop", array) for name, array in backprops.items())
    if configuration.rnn_mode == "rnn_relu" and dtype != "float64":
        exact = {name: array for name, array in exact.items() if not name.endswith("_backprop")}
    expected = reference.run_reference(configuration, exact, lengths=lengths)
    if "d_params" in expected:
        d_params = np.concatenate([expected["d_params"], np.zeros(len(spare))])
        expected["d_params"] = d_params.reshape(arrays["params"].shape)
    for name, value in expected.items():
        assert found[name].shape == value.shape, (name, found[name].shape, value.shape)
        # Of a few elements, all may be small because their terms cancel.
        largest = max(0.05, np.abs(value).max() if value.size else 0)
        error = np.abs(found[name] - value).max() / largest if value.size else 0
        assert error <= 3 * TOLERANCES[dtype], "%s differs by %.2g" % (name, error)


def run_params_op(op, version, inputs):
    """Returns the results of one of the params ops, or None if it refused its inputs."""
    if op != "params_size" and version == 2:
        op += "_v2"
    try:
        return getattr(gen_cudnn_rnn_ops, "cudnn_rnn_" + op)(**inputs)
    except DOCUMENTED as error:
        assert str(error).strip(), "an error without a text"
        counts["params refused"] += 1
        return None


def check_params(call):
    """Runs the three params ops; raises AssertionError as `check` does."""
    version, configuration, dtype, sizes, damage, seed = call
    random = np.random.RandomState(seed)
    compute = "float32" if dtype == "bfloat16" else dtype
    params = random.standard_normal(reference.params_size(configuration)).astype(compute)
    tensors = dict(zip(("weights", "biases"), reference.params_to_canonical(configuration, params)))
    lengths = [len(tensors["weights"]), len(tensors["biases"])]
    tensors["params"] = params
    is_damaged = sizes != size_arguments(configuration)
    if damage is not None:
        name, change = damage
        if name == "num_params":
            lengths[0] = random.choice([1, lengths[0] + 1, 100])
        elif name == "params":
            tensors[name] = damaged(params, change, random)
        else:
            index = random.randint(len(tensors[name]))
            tensors[name][index] = damaged(tensors[name][index], change, random)
    shared = dict(model_attributes(configuration), **sizes)
    if version == 2:
        shared.update(projection_attribute(configuration))

    found = run_params_op("params_size", version, dict(shared, T=dtype, S=tf.int64))
    if found is not None:
        assert min(sizes.values()) >= 1, "accepted the sizes %s" % sizes
        size = reference.params_size(configuration._replace(**sizes))
        assert found.numpy().tolist() == [size], (found, size)
    assert found is not None or is_damaged, "refused a valid model"

    names = ("num_params_weights", "num_params_biases") if version == 2 else ("num_params",)
    given = dict(shared, params=as_tensor(tensors["params"], dtype), **dict(zip(names, lengths)))
    found = run_params_op("params_to_canonical", version, given)
    if not is_damaged and damage is None:
        assert found is not None, "refused valid params"
        for name in ("weights", "biases"):
            for one, expected in zip(getattr(found, name), tensors[name]):
                assert_same_values(one, as_tensor(expected, dtype))
    lists = {n: [as_tensor(one, dtype) for one in tensors[n]] for n in ("weights", "biases")}
    found = run_params_op("canonical_to_params", version, dict(shared, **lists))
    if not is_damaged and (damage is None or damage[0] in ("params", "num_params")):
        assert found is not None, "refused valid tensors"
        assert_same_values(found, as_tensor(params, dtype))
    counts["params"] += 1


def as_tensor(array, dtype):
    """Returns a tensor of the array: of a dtype that NumPy lacks, unless it has been damaged."""
    tensor = tf.constant(array)
    return tf.cast(tensor, dtype) if tensor.dtype == tf.float32 else tensor


def assert_same_values(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.ravel(found.numpy()), np.ravel(expected.numpy()))


def main():
    parser = running.make_parser(__doc__, seed=1, short="100 examples")
    parser.add_argument(
        "--examples", type=running.above_zero(int), default=10000, help="default: 10000"
    )
    chosen = parser.parse_args()
    examples = 100 if chosen.short else chosen.examples

    def of_all(test, share, **arguments):
        """Returns a function that runs the test with its share of the examples."""
        choices = settings(
            max_examples=max(1, round(share * examples)),
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        return set_seed(chosen.seed)(choices(given(**arguments)(test)))

    def every_call(call, gradient_damage):
        check(call, gradient_damage)
        counts["all"] += 1
        if counts["all"] % 1000 == 0:
            print("%d examples" % counts["all"], flush=True)

    of_all(every_call, 2 / 3, call=calls(), gradient_damage=gradient_damages())()
    of_all(check_params, 1 / 3, call=params_calls())()
    counts["damaged"] = counts["gradients"] + counts["gradients refused"]
    kinds = ("all", "equal", "empty", "refused", "damaged", "gradients refused", "params")
    print(
        "found: in TensorFlow %s %d calls, %d equal to the reference, %d without steps or "
        "sequences, %d refused, %d gradients of a damaged input (%d refused), %d models through "
        "the params ops" % ((tf.__version__,) + tuple(counts[kind] for kind in kinds))
    )


if __name__ == "__main__":
    main()
