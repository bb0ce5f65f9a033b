"""The part of the trial `concurrent_writers` that runs in TensorFlow.

TensorFlow does not copy a fed array whose memory is aligned, and updates reference variables in
place, so kernels see what a thread writes during a call. Prints the number of calls.
"""

import argparse
import concurrent.futures
import os
import random
import sys
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import cudnn_rnn  # noqa: E402
from helpers import cases, reference  # noqa: E402
from helpers.op_harness import model_attributes, session_config  # noqa: E402
from programs.changing_lengths import aligned  # noqa: E402

STEPS, BATCH, UNITS, WIDTH, LAYERS = 6, 40, 7, 5, 2
LSTM = reference.Configuration("lstm", "linear_input", "bidirectional", LAYERS, UNITS, WIDTH)


def write_until(is_over, arrays, checked, seed):
    """Writes to random elements of the arrays; returns the number of writes.

    `checked`: those of the arrays whose contents the ops check. Each write to them is undone at
    once; otherwise, the ops would soon refuse every call.
    """
    choose = random.Random(seed)
    right = [array.copy() for array in arrays]
    is_checked = [any(array is one for one in checked) for array in arrays]
    writes = 0
    while not is_over.is_set():
        number = choose.randrange(len(arrays))
        flat = arrays[number].reshape(-1)
        # Half of the writes are in the first elements, where the reserve space has its header.
        place = choose.randrange(min(16, flat.size) if writes % 2 else flat.size)
        if flat.dtype == np.int32:
            flat[place] = choose.choice((0, -1, 1, STEPS, STEPS + 1, 2**30, -(2**31), 2**31 - 1))
        else:
            element = flat[place : place + 1].view(np.uint8)
            element[choose.randrange(element.size)] = choose.randrange(256)
        if is_checked[number]:
            flat[place] = right[number].reshape(-1)[place]
        writes += 1
    for array, values in zip(arrays, right):
        array[...] = values
    return writes


class Fed:
    """CudnnRNNV3, its gradient and the parameter ops, whose inputs are all fed."""

    CALLS = ("CudnnRNNV3", "its gradient", "parameter ops")

    def __init__(self):
        arrays = cases.random_arrays(LSTM, BATCH, STEPS, "float32", np.random.RandomState(0))
        arrays["sequence_lengths"] = np.arange(BATCH, dtype=np.int32) % (STEPS + 1)
        sizes = dict(num_layers=LAYERS, num_units=UNITS, input_size=WIDTH)
        arrays.update({name: np.array(size, np.int32) for name, size in sizes.items()})
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            attributes = dict(model_attributes(LSTM), dropout=0.5, seed=1)
            given = {
                name: tf.placeholder(array.dtype, array.shape if name in sizes else None, name)
                for name, array in arrays.items()
            }
            forward_inputs = ("input", "input_h", "input_c", "params", "sequence_lengths")
            inputs = {name: given[name] for name in forward_inputs}
            forward = gen_cudnn_rnn_ops.cudnn_rnnv3(**dict(inputs, is_training=True, **attributes))
            results = dict(zip(forward._fields, forward))
            # Copies of the forward call's results are fed to the gradient.
            copies = {
                name: tf.placeholder(tensor.dtype, None, name + "_copy")
                for name, tensor in results.items()
            }
            backprops = {name: given[name] for name in given if name.endswith("_backprop")}
            gradient = gen_cudnn_rnn_ops.cudnn_rnn_backprop_v3(
                **dict(inputs, **copies), **dict(backprops, **attributes)
            )
            of_sizes = {name: given[name] for name in sizes}
            counts = 2 * LAYERS * 8
            without_dropout = dict(of_sizes, **model_attributes(LSTM))
            size = gen_cudnn_rnn_ops.cudnn_rnn_params_size(
                T=tf.float32, S=tf.int64, **without_dropout
            )
            parts = gen_cudnn_rnn_ops.cudnn_rnn_params_to_canonical(
                params=given["params"], num_params=counts, **without_dropout
            )
            back = gen_cudnn_rnn_ops.cudnn_rnn_canonical_to_params(
                weights=parts.weights, biases=parts.biases, **without_dropout
            )
        self._session = tf.Session(graph=graph, config=session_config(2))
        self._given = {given[name]: aligned_array(array) for name, array in arrays.items()}
        names = list(results)
        found = self._session.run([results[name] for name in names], self._given)
        self._given.update(
            {copies[name]: aligned_array(value) for name, value in zip(names, found)}
        )
        self.arrays = [array for array in self._given.values() if array.size]
        kept = [copies[name] for name in ("output_h", "reserve_space", "host_reserved")]
        kept += [given["sequence_lengths"]] + list(of_sizes.values())
        self.checked = [self._given[tensor] for tensor in kept]
        self._fetches = [[results["output"], results["output_h"]], list(gradient), [size, back]]

    def run(self):
        """Returns the results of three calls; None for those that refuse their inputs."""
        found = []
        for fetches in self._fetches:
            try:
                found.append(self._session.run(fetches, self._given))
            except tf.errors.InvalidArgumentError:
                found.append(None)
        return found


def aligned_array(array):
    """Returns a copy at an address that TensorFlow uses without copying; scalars as well."""
    array = np.asarray(array)
    return aligned(array.reshape(-1)).reshape(array.shape)


class Variables:
    """A layer whose parameters an optimizer and assignments change in place in other threads."""

    def __init__(self, use_resource):
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            tf.set_random_seed(1)
            (tf.enable_resource_variables if use_resource else tf.disable_resource_variables)()
            layer = cudnn_rnn.layers.CudnnLSTM(LAYERS, UNITS, name="lstm")
            output, _ = layer(tf.ones([STEPS, BATCH, WIDTH]), training=False)
            self._output = output
            loss = tf.reduce_sum(layer(tf.ones([STEPS, BATCH, WIDTH]), training=True)[0])
            optimizer = tf.train.GradientDescentOptimizer(1e-6, use_locking=False)
            kernel = layer.kernel
            self._updates = [
                optimizer.minimize(loss),
                tf.assign_add(kernel, tf.ones_like(kernel) * 1e-6, use_locking=False),
            ]
            self._reset = kernel.assign(tf.sin(tf.cast(tf.range(tf.size(kernel)), tf.float32)))
            self._session = tf.Session(graph=graph, config=session_config(2))
            self._session.run(tf.global_variables_initializer())

    def write_until(self, is_over):
        """Changes the parameters again and again; returns how often."""
        writes = 0
        while not is_over.is_set():
            self._session.run(self._updates)
            writes += 1
        return writes

    def run(self):
        """Returns the output; all calls but the first have the parameters that others change."""
        return self._session.run(self._output)

    def reset(self):
        self._session.run(self._reset)


def run_beside(writer, call, rounds):
    """Returns the results of `call`, while `writer` runs in a thread until an event is set."""
    is_over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer, is_over)
        try:
            found = [call() for _ in range(rounds)]
        finally:
            is_over.set()
    if writing.result() == 0:  # raises what the writer has raised
        sys.exit("FAILED: nothing was written during the calls")
    return found


def require_equal(found, expected, text):
    flat = [
        np.concatenate([np.ravel(one) for one in tf.nest.flatten(of)]) for of in (found, expected)
    ]
    if not np.array_equal(*flat):
        sys.exit("FAILED: other results after %s" % text)


def try_fed(rounds, seed):
    """Feeds arrays that a thread writes to; returns the number of calls."""
    fed = Fed()
    expected = fed.run()
    if any(one is None for one in expected):
        sys.exit("FAILED: the calls refuse right inputs")
    are_accepted = run_beside(
        lambda is_over: write_until(is_over, fed.arrays, fed.checked, seed),
        lambda: [results is not None for results in fed.run()],
        rounds,
    )
    for name, accepted in zip(fed.CALLS, zip(*are_accepted)):
        print("%s: %d of %d calls accepted their inputs" % (name, sum(accepted), rounds))
        if not any(accepted):
            sys.exit("FAILED: all calls of %s refused their inputs" % name)
    found = fed.run()
    if any(one is None for one in found):
        sys.exit("FAILED: the calls refuse right inputs after writing")
    require_equal(found, expected, "writing to fed arrays")
    return 3 * rounds


def try_variables(use_resource, rounds):
    """Changes parameters in place; returns the number of calls."""
    variables = Variables(use_resource)
    variables.reset()
    expected = variables.run()
    run_beside(variables.write_until, variables.run, rounds)
    variables.reset()
    require_equal(variables.run(), expected, "assigning, use_resource=%s" % use_resource)
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    os.environ["TF_CUDNN_RESET_RND_GEN_STATE"] = "1"
    sys.setswitchinterval(1e-5)  # Otherwise calls wait for the writers' share of the interpreter.
    calls = try_fed(arguments.rounds, arguments.seed)
    for use_resource in (False, True):
        calls += try_variables(use_resource, arguments.rounds)
    print(calls)


if __name__ == "__main__":
    main()
