"""`export_onnx`."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from cudnn_rnn._compat import IS_TENSORFLOW_1, eager_mode, tf
from cudnn_rnn.exchange.contents import library, replacing, require_file_or_nothing
from cudnn_rnn.exchange.onnx_format import MOST_BYTES, OPERATORS
from cudnn_rnn.onnx import _branches, _comparison, _handlers, _loops, _nodes, _sources

_OPSET = 17


class OnnxExport(NamedTuple):
    """What `export_onnx` wrote.

    Attributes:
      nodes: int, the number of LSTM, GRU and RNN nodes.
      loops: a sentence for each `CudnnRNN*` node that became a loop.
      inputs, outputs: lists of names.
      largest_difference: float, between the outputs of TensorFlow and of ONNX Runtime; None if they
        were not compared.
      not_compared: why they were not compared, else None.
    """

    nodes: int
    loops: List[str]
    inputs: List[str]
    outputs: List[str]
    largest_difference: Optional[float]
    not_compared: Optional[str]


def export_onnx(
    model: Any,
    output: Union[str, os.PathLike],
    signature: Optional[str] = None,
    inputs: Optional[Sequence[str]] = None,
    outputs: Optional[Sequence[str]] = None,
    opset: int = _OPSET,
    overwrite: bool = False,
    check: bool = True,
    sample: Optional[Mapping[str, Any]] = None,
) -> OnnxExport:
    """Writes a whole model in ONNX, with one LSTM, GRU or RNN node for each layer.

    tf2onnx converts the graph, this package its `CudnnRNN`, `CudnnRNNV2` and `CudnnRNNV3` nodes.
    Both directions of a layer are in one node. What ONNX's nodes cannot say becomes a loop:
    a projection, dropout in training, float64. If ONNX Runtime is installed, one random input goes
    through the original and the result. The file is complete or not written at all.

    Args:
      model: a path: the folder of a SavedModel; a frozen graph; the `.meta` file of a MetaGraph
        with its checkpoint beside it; or a Keras model that `cudnn_rnn.keras.load_model` opens. Or
        a Keras model in memory.
      output: the path of the file to write.
      signature: the key of the signature to export; default: "serving_default", or the only one.
      inputs, outputs: names of tensors, for a graph without signatures; the default of `inputs` is
        the placeholders that `outputs` depend on. Or, as `outputs`, some of a signature's.
      opset: the version of ONNX's operators, from 13 to the newest of tf2onnx.
      overwrite: whether to replace `output` if it exists.
      check: whether to compare the results.
      sample: arrays by names of inputs, in place of random ones.

    Returns:
      An `OnnxExport`.

    Raises:
      FileNotFoundError: there is no model at this path.
      FileExistsError: `output` exists, and `overwrite` is False.
      cudnn_rnn.exchange.ExchangeError: tf2onnx is not installed, or `output` is a folder, a device
        or something else that no file replaces.
      ValueError: the model is damaged, or has something that ONNX cannot express; names are
        unknown; or the results differ.
    """
    output = os.path.abspath(output)
    if IS_TENSORFLOW_1:
        raise ValueError(
            "export_onnx needs TensorFlow 2, this is %s. Copy the SavedModel, the frozen graph, or "
            "the .meta file with its checkpoint: TensorFlow 2 exports it." % tf.__version__
        )
    require_file_or_nothing(output)
    if os.path.exists(output) and not overwrite:
        raise FileExistsError(
            "%s exists. Choose another path, or pass overwrite=True (--force) to replace it."
            % output
        )
    library("tf2onnx", "onnx")  # needs onnx, too
    newest = min(
        library("onnx.defs", "onnx").onnx_opset_version(),
        max(library("tf2onnx.constants", "onnx").OPSET_TO_IR_VERSION),
    )
    if not _nodes.OLDEST_OPSET <= opset <= newest:
        raise ValueError(
            "opset must be from %d to %d, the newest that the installed onnx and tf2onnx have, but "
            "is %r." % (_nodes.OLDEST_OPSET, newest, opset)
        )
    # A program may have a graph of its own as the default.
    with eager_mode(), _quiet(), _with_handlers(), _explaining_errors(model):
        frozen = _sources.read(model, _sources.Names(signature, inputs, outputs))
        graph_def, loops, converted = _converted(frozen, opset)
    _require_known_operators(converted)
    content = _serialized(converted)
    not_compared = _why_not_compared(check, graph_def)
    difference = None if not_compared else _difference(frozen, content, sample)
    with replacing(output) as temporary, open(temporary, "wb") as file:
        file.write(content)
    nodes = sum(node.op_type in OPERATORS.values() for node in _all_nodes(converted.graph))
    return OnnxExport(
        nodes, loops, list(frozen.inputs), list(frozen.outputs), difference, not_compared
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps tf2onnx from logging what becomes an error here, and TensorFlow its advice."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def _explaining_errors(model: Any) -> Iterator[None]:
    """Turns errors of protobuf, TensorFlow and tf2onnx, which check little, into one kind."""
    try:
        yield
    except (OSError, ValueError):
        raise
    except Exception as error:
        name = model if isinstance(model, (str, os.PathLike)) else "The model"
        raise ValueError(
            "%s cannot be exported to ONNX: %s (%s). If it is a file, it may be damaged: get it "
            "from its source again." % (name, str(error).strip().rstrip("."), type(error).__name__)
        ) from error


@contextlib.contextmanager
def _with_handlers() -> Iterator[None]:
    """Registers the handlers, unless the program has done so."""
    if _handlers.are_registered():
        yield
        return
    _handlers.register_handlers()
    try:
        yield
    finally:
        _handlers.unregister_handlers()


def _converted(frozen, opset):
    """Returns the graph with loops, sentences about these, and the `onnx.ModelProto`."""
    graph_def = tf.GraphDef()
    graph_def.CopyFrom(frozen.graph_def)
    _branches.replace_unused_results(graph_def, frozen.outputs.values())
    loops = _loops.make_loops(graph_def)
    names = [*frozen.inputs.items(), *frozen.outputs.items()]
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        found = library("tf2onnx.tfonnx", "onnx").process_tf_graph(
            graph,
            continue_on_error=False,
            opset=opset,
            input_names=list(frozen.inputs.values()),
            output_names=list(frozen.outputs.values()),
            tensors_to_rename={tensor: name for name, tensor in names},
            custom_rewriter=[_keep_selects],
            initialized_tables=frozen.tables,
        )
    found = library("tf2onnx.optimizer", "onnx").optimize_graph(found)
    return graph_def, loops, found.make_model("cudnn_rnn")


def _keep_selects(_, nodes):
    """Rewriter of tf2onnx: a Select becomes a Where.

    Otherwise it becomes a sum of products with 0 and 1, and what is not selected gets through if it
    is NaN, such as steps beyond a sequence's length.
    """
    for node in nodes:
        if node.type in ("Select", "SelectV2"):
            node.set_attr("handles_nan", True)
    return nodes


def _all_nodes(graph: Any) -> Iterator[Any]:
    """Yields the nodes of an ONNX graph and of the graphs inside."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
                yield from _all_nodes(inner)


def _require_known_operators(model):
    """Raises if tf2onnx left operations of TensorFlow in a model."""
    onnx = library("onnx", "onnx")
    unknown = [
        "%s (node %r)" % (node.op_type, node.name)
        for node in _all_nodes(model.graph)
        if not onnx.defs.has(node.op_type, node.domain)
    ]
    if unknown:
        raise ValueError(
            "tf2onnx %s cannot convert these operations: %s."
            % (library("tf2onnx", "onnx").__version__, ", ".join(sorted(unknown)[:8]))
        )
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise ValueError("The converted model is not valid in ONNX: %s." % error) from error


def _serialized(model):
    if model.ByteSize() > MOST_BYTES:
        raise ValueError(
            "The model takes %d bytes; an ONNX file can have %d." % (model.ByteSize(), MOST_BYTES)
        )
    return model.SerializeToString()


def _why_not_compared(check, graph_def):
    if not check:
        return "check is False"
    if not _comparison.can_compare():
        return "ONNX Runtime is not installed (pip install onnxruntime)"
    if _comparison.is_random(graph_def):
        return "the model draws random numbers"
    return None


def _difference(frozen, content, sample):
    """Returns the largest difference of the outputs; raises `ValueError` if it is too large."""
    samples: Iterable[Mapping[str, Any]]
    if sample is None:
        samples = _comparison.random_samples(frozen)
    else:
        missing = [name for name in frozen.inputs if name not in sample]
        if missing:
            raise ValueError(
                "sample has no array for the input %r; it has %s." % (missing[0], sorted(sample))
            )
        samples = [{name: np.asarray(sample[name]) for name in frozen.inputs}]
    found = _comparison.compare(frozen, content, samples)
    if found.problem:
        raise ValueError(
            "The exported model computes other values than the original: %s. Nothing was written. "
            "check=False (--no-check) writes it anyway." % found.problem
        )
    return found.largest
