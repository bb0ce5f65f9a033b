"""Feeds the ops random shapes, attributes and damaged data; the process must survive.

    python tests/programs/fuzz_ops.py --rounds 1000 --seed 1

Each round depends only on `seed` and its number. The number is printed before the round runs, so
that after a crash `--first N --rounds 1` repeats that round alone.
"""

import argparse
import faulthandler
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

from helpers import reference  # noqa: E402
from helpers.cases import COLUMNS, output_shapes  # noqa: E402
from helpers.op_harness import (  # noqa: E402
    BACKWARD_OPS,
    FORWARD_OPS,
    call,
    size_arguments,
    swap_major,
)
from helpers.processes import SECONDS_FOR_A_PROCESS  # noqa: E402

ALLOWED = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError, ValueError, TypeError)
STRANGE_SIZES = (0, -1, 1, 2, 3, 2**15, 2**16, 2**31 - 1, -(2**31))


def chosen(random, values):
    return values[random.randint(len(values))]


def random_attributes(random):
    """Returns attributes that all the ops have, some of them invalid."""
    columns = dict(COLUMNS, dropout=(0.0, 0.0, 0.5, 1.0, 1.0, -1.0, 2.0, np.nan))
    columns.update(seed=range(3), seed2=range(3))
    names = ("rnn_mode", "input_mode", "direction", "dropout", "seed", "seed2")
    return {name: chosen(random, columns[name]) for name in names}


def random_configuration(random, attributes):
    """Returns a small model with these attributes; most are valid."""
    num_layers, num_units, input_size = map(int, random.randint(1, (4, 20, 20)))
    if attributes["input_mode"] == "skip_input" and random.randint(8):
        input_size = num_units
    modes = [attributes[name] for name in ("rnn_mode", "input_mode", "direction")]
    return reference.Configuration(*modes, num_layers, num_units, input_size)


def disturbed_shape(random, shape):
    """Returns a random variation of the shape, sometimes the shape itself."""
    shape, kind = list(shape), random.randint(6)
    if kind == 0 and shape:
        shape.pop(random.randint(len(shape)))
    elif kind == 1:
        shape.insert(random.randint(len(shape) + 1), random.randint(3))
    elif kind == 2 and shape:
        shape[random.randint(len(shape))] = random.randint(4)
    elif kind == 3 and shape:
        index = random.randint(len(shape))
        shape[index] = max(0, shape[index] + random.randint(-1, 2))
    elif kind == 4:
        shape = [random.randint(5) for _ in range(random.randint(5))]
    else:
        random.shuffle(shape)
    return tuple(shape)


def random_array(random, shape, dtype):
    """Returns random numbers, sometimes with NaN, infinities or huge values among them."""
    array = random.standard_normal(shape)
    if random.randint(4) == 0 and array.size:
        is_strange = random.uniform(size=shape) < 0.2
        array = np.where(is_strange, chosen(random, (np.nan, np.inf, -1e30)), array)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array).astype(dtype)


def disturb(random, arrays, probability):
    """Replaces some arrays of a dict with arrays of other shapes."""
    for name, array in arrays.items():
        if random.uniform() < probability:
            arrays[name] = random_array(random, disturbed_shape(random, array.shape), array.dtype)


def run(op, inputs, attributes):
    """Runs one op on arrays by name; returns its results, or None if it refused them."""
    try:
        return call(op, inputs, **attributes)
    except ALLOWED:
        return None


def projected(random, configuration):
    """Returns the configuration; an LSTM sometimes gets a valid projection."""
    can_have_one = configuration.rnn_mode == "lstm" and configuration.num_units > 1
    if not can_have_one or random.randint(2):
        return configuration
    return configuration._replace(num_proj=int(random.randint(1, configuration.num_units)))


def random_num_proj(random, configuration):
    """Returns the model's projection size, sometimes another one."""
    if random.randint(6):
        return configuration.num_proj
    return chosen(random, (1, -1, 5, 2**31 - 1, 2**63 - 1))


def random_lengths(random, batch, steps):
    """Returns mostly valid lengths; sometimes one is out of range, or their number is wrong."""
    lengths = random.randint(0, steps + 1, batch)
    if batch and random.randint(8) == 0:
        lengths[random.randint(batch)] = chosen(random, STRANGE_SIZES)
    if random.randint(16) == 0:
        lengths = np.ones(disturbed_shape(random, (batch,)))
    return lengths.astype(np.int32)


def network_round(random):
    """Runs a forward op, then its backward op on the results, with random changes to both."""
    attributes = random_attributes(random)
    configuration = random_configuration(random, attributes)
    batch, steps = random.randint(0, 9), random.randint(0, 9)
    dtype = chosen(random, COLUMNS["dtype"])
    version = int(random.randint(1, 4))
    if version == 3:
        configuration = projected(random, configuration)
        attributes["num_proj"] = random_num_proj(random, configuration)
        attributes["time_major"] = bool(random.randint(2))
    is_time_major = attributes.get("time_major", True)
    shapes = output_shapes(configuration, batch, steps)
    input_shapes = {
        "input": (steps, batch, configuration.input_size),
        "input_h": shapes["output_h"],
        "input_c": shapes["output_c"],
        "params": (reference.params_size(configuration),),
    }
    inputs = {name: random_array(random, shape, dtype) for name, shape in input_shapes.items()}
    if not is_time_major:
        inputs = swap_major(inputs)
    disturb(random, inputs, chosen(random, (0.0, 0.0, 0.3)))
    if version == 3:
        inputs["sequence_lengths"] = random_lengths(random, batch, steps)
    is_training = bool(random.randint(4))
    results = run(FORWARD_OPS[version], inputs, dict(attributes, is_training=is_training))
    worked = results is not None
    outputs = list(shapes)
    reserves = ["reserve_space", "host_reserved"][: 1 if version == 1 else 2]
    if results is None:
        made = {name: random_array(random, shape, dtype) for name, shape in shapes.items()}
        results = list((made if is_time_major else swap_major(made)).values())
        results.append(random_array(random, (random.randint(2000),), dtype))
        results.append(np.zeros(random.randint(100), np.int8))
    inputs.update(zip(outputs + reserves, results))
    inputs.update(
        (name + "_backprop", random_array(random, inputs[name].shape, dtype)) for name in outputs
    )
    of_dtype = {name: array for name, array in inputs.items() if array.dtype == dtype}
    disturb(random, of_dtype, chosen(random, (0.0, 0.1, 0.3)))
    inputs.update(of_dtype)
    for name in reserves:
        if random.randint(3) == 0:
            inputs[name] = damaged(random, inputs[name])
    if version == 3 and random.randint(8) == 0:
        inputs["sequence_lengths"] = random_lengths(random, batch, steps)
    if random.randint(4) == 0:
        attributes.update(random_attributes(random))
    gradients = run(BACKWARD_OPS[version], inputs, attributes)
    return worked + (gradients is not None)


def damaged(random, reserve_space):
    """Returns a copy with some flipped bits, near the beginning or anywhere."""
    data = bytearray(reserve_space.tobytes())
    limit = min(len(data), chosen(random, (64, 256, len(data))))
    for _ in range(random.randint(1, 10) if limit else 0):
        data[random.randint(limit)] ^= 1 << random.randint(8)
    return np.frombuffer(bytes(data), reserve_space.dtype).reshape(reserve_space.shape)


def params_round(random):
    """Runs the params ops of either version with sizes, lists and lengths that may not fit."""
    attributes = random_attributes(random)
    configuration = random_configuration(random, attributes)
    version = int(random.randint(1, 3))
    if version == 2:
        configuration = projected(random, configuration)
    dtype = chosen(random, COLUMNS["dtype"])
    sizes = {name: np.int32(value) for name, value in size_arguments(configuration).items()}
    for name in sizes:
        if random.randint(6) == 0:
            sizes[name] = np.int32(chosen(random, STRANGE_SIZES))
        if random.randint(20) == 0:
            sizes[name] = np.full(disturbed_shape(random, ()), sizes[name], np.int32)
    params = random_array(random, (reference.params_size(configuration),), dtype)
    weights, biases = reference.params_to_canonical(configuration, params)
    counts = [
        len(tensors) if random.randint(4) else random.randint(1, 100)
        for tensors in (weights, biases)
    ]
    of_size = dict(attributes, T=tf.as_dtype(dtype), S=chosen(random, (tf.int32, tf.int64)))
    of_size["num_proj"] = random_num_proj(random, configuration)
    worked = run("cudnn_rnn_params_size", sizes, of_size) is not None
    inputs = dict(sizes, params=params)
    disturb(random, inputs, chosen(random, (0.0, 0.1)))
    if version == 2:
        attributes["num_proj"] = of_size["num_proj"]
        lengths = dict(zip(("num_params_weights", "num_params_biases"), map(int, counts)))
    else:
        counts[1] = counts[0]
        lengths = {"num_params": int(counts[0])}
    suffix = "_v2" if version == 2 else ""
    canonical = run("cudnn_rnn_params_to_canonical" + suffix, inputs, dict(attributes, **lengths))
    inputs = dict(sizes)
    for name, tensors, count in zip(("weights", "biases"), (weights, biases), counts):
        tensors = dict(enumerate(tensors[:count] if random.randint(4) else tensors))
        disturb(random, tensors, chosen(random, (0.0, 0.0, 0.02)))
        inputs[name] = list(tensors.values())
    back = run("cudnn_rnn_canonical_to_params" + suffix, inputs, attributes)
    return worked + (canonical is not None) + (back is not None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(0.9 * SECONDS_FOR_A_PROCESS, exit=True)  # if an op hangs
    worked = 0
    for number in range(arguments.first, arguments.first + arguments.rounds):
        print("round %d" % number, flush=True)
        random = np.random.RandomState([arguments.seed, number])
        worked += (params_round if number % 3 == 0 else network_round)(random)
    print("%d rounds, %d ops accepted their input" % (arguments.rounds, worked))


if __name__ == "__main__":
    sys.exit(main())
