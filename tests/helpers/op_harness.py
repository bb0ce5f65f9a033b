"""Runs the ops under test in separate graphs, and the reference for comparison.

Inputs and outputs are dicts of arrays by name.
In: input, input_h, input_c (LSTM), params, and output_backprop, output_h_backprop,
output_c_backprop (LSTM); for CudnnRNNV3 also sequence_lengths.
Out: output, output_h, output_c (LSTM), d_input, d_input_h, d_input_c (LSTM), d_params.
"""

import contextlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

from cudnn_rnn._native import library
from helpers.reference import FORWARD, run_reference  # noqa: F401, for those who import this

library.load_library()

# Parts of op names between "CudnnRNN" and the version; empty for the forward op.
PARTS = ("", "Backprop", "ParamsSize", "ParamsToCanonical", "CanonicalToParams")

# The largest int32.
HUGE = 2**31 - 1

# Largest error allowed, relative to the largest magnitude in the tensor. float16 inputs and outputs
# are rounded to half, but the kernels compute in float. The same holds for bfloat16 (8 bits of
# precision); on some processors the factors of products are rounded to bfloat16, too.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 2e-2}

# The forward op of each version.
FORWARD_OPS = {1: "cudnn_rnn", 2: "cudnn_rnnv2", 3: "cudnn_rnnv3"}
BACKWARD_OPS = {
    1: "cudnn_rnn_backprop",
    2: "cudnn_rnn_backprop_v2",
    3: "cudnn_rnn_backprop_v3",
}


def session_config(intra_op_threads=0, inter_op_threads=0):
    """Returns a ConfigProto with these thread counts; 0 leaves the choice to TensorFlow."""
    return tf.ConfigProto(
        intra_op_parallelism_threads=intra_op_threads,
        inter_op_parallelism_threads=inter_op_threads,
    )


def kernel_labels(label):
    """Returns a context in which new nodes of the RNN ops get kernels with this label."""
    names = ["CudnnRNN%s%s" % (part, version) for part in PARTS for version in ("", "V2", "V3")]
    labels = {name: label for name in names} if label else {}
    return tf.get_default_graph()._kernel_label_map(labels)


class Network:
    """CudnnRNN, V2 or V3 and its gradient in their own session, all inputs of unknown shape.

    Each Network has new kernels, whose dropout generator starts anew.
    """

    def __init__(
        self,
        configuration,
        dtype,
        dropout=0.0,
        seed=0,
        seed2=0,
        is_training=True,
        config=None,
        version=1,
        time_major=True,
        kernel_label="",
        device="/cpu:0",
    ):
        self.is_lstm = configuration.rnn_mode == "lstm"
        self.placeholders = {}
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"), kernel_labels(kernel_label):
            dtype = tf.as_dtype(dtype)
            inputs = {
                name: self._placeholder(name, dtype)
                for name in ("input", "input_h", "input_c", "params")
                if self.is_lstm or name != "input_c"
            }
            only_v3 = {}
            if version == 3:
                lengths = self._placeholder("sequence_lengths", tf.int32)
                only_v3 = dict(sequence_lengths=lengths, time_major=time_major)
                only_v3.update(projection_attribute(configuration))
            no_input_c = tf.constant([], dtype)
            with tf.device(device):
                node = getattr(gen_cudnn_rnn_ops, FORWARD_OPS[version])(
                    input=inputs["input"],
                    input_h=inputs["input_h"],
                    input_c=inputs.get("input_c", no_input_c),
                    params=inputs["params"],
                    dropout=dropout,
                    seed=seed,
                    seed2=seed2,
                    is_training=is_training,
                    **dict(model_attributes(configuration), **only_v3),
                )
            self.fetches = dict(zip(FORWARD, node))
            self.raw_outputs = node
            if not self.is_lstm:
                del self.fetches["output_c"]
            if is_training:
                self._add_gradients(inputs, dtype, device)
        self.session = tf.Session(graph=graph, config=config or session_config())

    def _placeholder(self, name, dtype):
        self.placeholders[name] = tf.placeholder(dtype, name=name)
        return self.placeholders[name]

    def _add_gradients(self, inputs, dtype, device):
        names = list(self.fetches)
        backprops = [self._placeholder(name + "_backprop", dtype) for name in names]
        with tf.device(device):
            gradients = tf.gradients(
                [self.fetches[name] for name in names], list(inputs.values()), backprops
            )
        self.fetches.update(zip(["d_" + name for name in inputs], gradients))

    def run(self, arrays, names=None):
        """Returns the results in `names` (default: all) for these arrays, from one session call."""
        names = list(self.fetches) if names is None else names
        feeds = {
            placeholder: arrays[name]
            for name, placeholder in self.placeholders.items()
            if name in arrays
        }
        values = self.session.run([self.fetches[name] for name in names], feeds)
        return dict(zip(names, values))

    def forward(self, arrays):
        """Returns output, output_h and, for an LSTM, output_c."""
        return self.run(arrays, [name for name in FORWARD if name in self.fetches])

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.session.close()


def swap_major(arrays):
    """Converts time-major arrays to batch-major and back: swaps the first two of three axes."""
    return {
        name: np.swapaxes(array, 0, 1) if np.ndim(array) == 3 else array
        for name, array in arrays.items()
    }


def relative_error(found, expected):
    """Returns the largest difference over the largest expected magnitude; infinity if not finite.

    The divisor is at least the smallest normal number of the dtype: below it, numbers lose relative
    precision.
    """
    dtype = np.asarray(found).dtype
    # NumPy does not know bfloat16, which has the exponent range of float32.
    smallest_normal = float(np.finfo(np.float32 if dtype.kind == "V" else dtype).tiny)
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return np.inf
    if not expected.size:
        return 0.0
    return np.abs(found - expected).max() / max(np.abs(expected).max(), smallest_normal)


def assert_close(found, expected, tolerance, context):
    """Compares names, shapes and values of two dicts of arrays; messages include `context`."""
    assert sorted(found) == sorted(expected), context
    for name, value in expected.items():
        assert found[name].shape == value.shape, (name, found[name].shape, value.shape, context)
        error = relative_error(found[name], value)
        assert error <= tolerance, f"{name}: relative error {error:.3g} > {tolerance:g}\n{context}"


def assert_same_bits(found, expected, context=""):
    """Compares two dicts of arrays bit for bit."""
    assert sorted(found) == sorted(expected), context
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, (
            name,
            context,
        )
        assert found[name].tobytes() == value.tobytes(), (
            f"{name} differs by {np.abs(found[name] - value).max()} at most\n{context}"
        )


def model_attributes(configuration):
    """Returns rnn_mode, input_mode and direction as keyword arguments of any of the ops."""
    return {name: getattr(configuration, name) for name in ("rnn_mode", "input_mode", "direction")}


def projection_attribute(configuration):
    """Returns num_proj as a keyword argument if the model has one; TensorFlow 1.14 lacks it."""
    return {"num_proj": configuration.num_proj} if configuration.num_proj else {}


def size_arguments(configuration):
    """Returns num_layers, num_units and input_size as keyword arguments of the params ops."""
    return {
        name: getattr(configuration, name) for name in ("num_layers", "num_units", "input_size")
    }


def call(op, inputs, **attributes):
    """Runs one op of gen_cudnn_rnn_ops; `inputs` maps names to arrays, or to lists of arrays."""
    feeds = {}

    def placeholder(value):
        tensor = tf.placeholder(tf.as_dtype(np.asarray(value).dtype))
        feeds[tensor] = value
        return tensor

    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        arguments = {
            name: [placeholder(one) for one in value]
            if isinstance(value, list)
            else placeholder(value)
            for name, value in inputs.items()
        }
        return session.run(getattr(gen_cudnn_rnn_ops, op)(**dict(arguments, **attributes)), feeds)


@contextlib.contextmanager
def refused(parts):
    """Checks that the block raises a message that has all of `parts`, ignoring spaces.

    A part may also be a tuple of texts, of which the message has at least one.
    """
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        yield
    # The rest is what TensorFlow adds.
    text = caught.value.message.split("\n\t [[")[0].splitlines()[-1].replace(" ", "")
    for part in parts:
        choices = [part] if isinstance(part, str) else part
        assert any(choice.replace(" ", "") in text for choice in choices), (part, text)


def assert_refused(parts, op, inputs, **attributes):
    """Checks that the op refuses with a message that has all of `parts`, ignoring spaces."""
    with refused(parts):
        call(op, inputs, **attributes)


def numeric_gradient(loss, array, delta=1e-6):
    """Returns central differences of loss() for every element of `array`; perturbs it in place."""
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        kept, ends = array[index], []
        for sign in (1.0, -1.0):
            array[index] = kept + sign * delta
            ends.append(loss())
        array[index] = kept
        gradient[index] = (ends[0] - ends[1]) / (2.0 * delta)
    return gradient
