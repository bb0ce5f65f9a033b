"""Runs a frozen graph in TensorFlow and its ONNX model in ONNX Runtime, with the same inputs."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional

import numpy as np

from cudnn_rnn._compat import tf
from cudnn_rnn.plain._unused import nodes_of

# Lengths of unknown dimensions, tried in turn: (the first of a tensor, its others, that of a
# vector). First the batch is the first dimension, then the second; then all lengths are equal.
_LENGTHS = ((2, 7, 2), (7, 2, 2), (7, 7, 7))
# Largest difference in proportion to the largest output, for the least exact dtype in the graph.
_LIMITS = {tf.float16: 3e-2, tf.bfloat16: 1e-1}
_LIMIT = 1e-3


def can_compare() -> bool:
    """Returns whether ONNX Runtime is installed."""
    try:
        importlib.import_module("onnxruntime")
    except ImportError:
        return False
    return True


def is_random(graph_def: Any) -> bool:
    """Returns whether a graph draws random numbers."""
    ops = {node.op for node in nodes_of(graph_def)}
    return any(word in op for op in ops for word in ("Random", "TruncatedNormal", "Multinomial"))


def random_samples(frozen: Any) -> Iterator[Dict[str, np.ndarray]]:
    """Yields arrays by names of inputs: normal numbers, integers 1 and 2, or random bools.

    The next one has other lengths of unknown dimensions.

    Raises:
      ValueError: an input has another dtype or an unknown rank.
    """
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen.graph_def, name="")
        tensors = {name: graph.get_tensor_by_name(one) for name, one in frozen.inputs.items()}
    for lengths in _LENGTHS:
        random = np.random.RandomState(0)
        yield {name: _random_array(name, one, lengths, random) for name, one in tensors.items()}


def _random_array(name, tensor, lengths, random):
    dtype = tensor.dtype.base_dtype
    if tensor.shape.rank is None or not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise ValueError(
            "The input %r has dtype %s and shape %s, for which there are no random values. Give "
            "arrays: sample={name: array, ...} (--sample FILE.npz), or check=False (--no-check)."
            % (name, dtype.name, tensor.shape)
        )
    first, others, only = lengths
    unknown = [only] if tensor.shape.rank == 1 else [first] + [others] * tensor.shape.rank
    shape = [size or other for size, other in zip(tensor.shape.as_list(), unknown)]
    if dtype.is_floating:
        return random.standard_normal(shape).astype(dtype.as_numpy_dtype)
    low = 0 if dtype.is_bool else 1
    return random.randint(low, low + 2, shape).astype(dtype.as_numpy_dtype)


class Difference(NamedTuple):
    """What two runs differ by.

    Attributes:
      largest: over all outputs.
      problem: what differs too much; None if the outputs agree.
    """

    largest: float
    problem: Optional[str]


def compare(frozen: Any, model: bytes, samples: Iterable[Mapping[str, np.ndarray]]) -> Difference:
    """Runs both and compares all outputs.

    Args:
      frozen: a `_sources.Frozen`.
      model: a serialized ONNX model with the public names of `frozen`.
      samples: arrays by names of inputs. The first are used that TensorFlow accepts.

    Raises:
      ValueError: one of the two does not run with these inputs.
    """
    sample, expected = _accepted(frozen, samples)
    found = _run_onnx(model, frozen, sample)
    largest, problems = 0.0, []
    limit = max([_LIMIT] + [_LIMITS.get(dtype, 0) for dtype in _dtypes(frozen.graph_def)])
    for name, one, other in zip(frozen.outputs, expected, found):
        if one.shape != other.shape:
            problems.append("%s has shape %s, not %s" % (name, other.shape, one.shape))
        elif one.dtype.kind in "fV":
            one, other = one.astype(np.float64), other.astype(np.float64)
            difference = _largest(one - other)
            largest = max(largest, difference)
            if not difference <= limit * max(1.0, _largest(one)):
                problems.append("%s differs by %g" % (name, difference))
        elif not np.array_equal(one, other):
            problems.append("%s differs in %d elements" % (name, np.sum(one != other)))
    return Difference(largest, "; ".join(problems) or None)


def _accepted(frozen, samples):
    """Returns the first sample with which TensorFlow runs, and the outputs."""
    run = frozen.original or functools.partial(_run_graph, frozen)
    refused: List[str] = []
    for sample in samples:
        try:
            return sample, run(sample)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            shapes = {name: list(array.shape) for name, array in sample.items()}
            refused.append("with the shapes %s: %s" % (shapes, _first_line(error)))
    raise ValueError(
        "TensorFlow does not run the model %s. Give arrays that fit: sample={name: array, ...} "
        "(--sample FILE.npz), or check=False (--no-check)." % refused[0]
    )


def _largest(array):
    return float(np.max(np.abs(array), initial=0.0))


def _dtypes(graph_def):
    """Returns the dtypes of the constants of a graph."""
    return {tf.as_dtype(node.attr["dtype"].type) for node in graph_def.node if node.op == "Const"}


def _run_graph(frozen, sample):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(frozen.graph_def, name="")
        feeds = {frozen.inputs[name]: sample[name] for name in frozen.inputs}
        return session.run(list(frozen.outputs.values()), feeds)


def _run_onnx(model, frozen, sample):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        # A placeholder with a default becomes an input with an initializer.
        inputs = [*session.get_inputs(), *session.get_overridable_initializers()]
        names = {value.name for value in inputs}
        feeds = {name: array for name, array in sample.items() if name in names}
        return session.run(list(frozen.outputs), feeds)
    except Exception as error:  # of ONNX Runtime, whose errors have no common class
        raise ValueError(
            "ONNX Runtime %s does not run the exported model: %s. check=False (--no-check) writes "
            "it for another runtime." % (onnxruntime.__version__, _first_line(error))
        ) from error


def _first_line(error):
    """Returns the first line of an error that tells the reason."""
    lines = str(error).strip().split("\n")
    skipped = ("Graph execution error", "Detected at node", "Node:")
    lines = [line for line in lines if line.strip() and not line.startswith(skipped)]
    return (lines or [type(error).__name__])[0].rstrip(".")
