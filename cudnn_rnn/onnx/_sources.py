"""Reads models: SavedModels, frozen graphs, MetaGraphs with a checkpoint, and Keras models.

The result is a graph without variables (`Frozen`). tf2onnx freezes; TensorFlow restores.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow
from google.protobuf.message import DecodeError

from cudnn_rnn._compat import tf
from cudnn_rnn.exchange.contents import library
from cudnn_rnn.onnx import _screening
from cudnn_rnn.onnx._screening import node_of
from cudnn_rnn.onnx._shapes import keep_shapes
from cudnn_rnn.plain import _saved_models, _validation
from cudnn_rnn.plain._unused import nodes_of

_SUFFIXES_OF_KERAS = (".keras", ".h5", ".hdf5")
_SIGNATURE = "serving_default"
_ADVICE = "Name them: outputs=[...] (--outputs NAME,...), inputs=[...] (--inputs NAME,...)."


class Frozen(NamedTuple):
    """A graph without variables.

    Attributes:
      graph_def: a `GraphDef`.
      inputs, outputs: dicts from public names to names of tensors.
      tables: the contents of lookup tables, as tf2onnx takes them.
      original: a function from arrays by names of inputs to a list of the outputs' arrays, if not
        the graph is the original.
    """

    graph_def: Any
    inputs: Dict[str, str]
    outputs: Dict[str, str]
    tables: Dict[Any, Any]
    original: Optional[Callable[[Mapping[str, np.ndarray]], List[np.ndarray]]] = None


class Names(NamedTuple):
    """What of a graph is wanted: the key of a signature, or names of tensors; all may be None."""

    signature: Optional[str] = None
    inputs: Optional[Sequence[str]] = None
    outputs: Optional[Sequence[str]] = None


def read(model: Any, names: Names) -> Frozen:
    """Reads a model; see `export_onnx` for what it may be."""
    if not isinstance(model, (str, os.PathLike)):
        return _keras_model(model, names)
    path = os.fspath(model)
    if os.path.isfile(path + ".meta"):
        path += ".meta"
    if os.path.isdir(path):
        return _saved_model(path, names)
    if not os.path.isfile(path):
        raise FileNotFoundError("%s does not exist." % path)
    if path.endswith(_SUFFIXES_OF_KERAS):
        from cudnn_rnn import keras

        return _keras_model(keras.load_model(path, compile=False), names)
    if path.endswith(".meta"):
        return _meta_graph(path, names)
    return _frozen_graph(path, names)


def _saved_model(path, names):
    proto, _ = _saved_models.read(path)
    meta_graph = _serving_graph(path, proto)
    _validation.check(meta_graph.graph_def)
    restoring = [meta_graph.saver_def.restore_op_name, *_functions_of_resources(meta_graph)]
    restoring += [name for key in _INITIALIZERS for name in _initializers(meta_graph, key)]
    _screening.check(path, meta_graph.graph_def, restoring, _screening.RESTORING)
    if not _signatures(meta_graph):
        inputs, outputs = _named(path, meta_graph.graph_def, names)
        with tf.Graph().as_default(), tf.Session() as session:
            with _loadable_copy(path, proto) as folder:
                tf.saved_model.loader.load(session, _tags(meta_graph), folder)
            return _freeze(path, session, inputs, outputs)
    key, _, outputs = _signature(path, meta_graph, names)
    _screen(path, meta_graph.graph_def, outputs.values())
    with _loadable_copy(path, proto) as folder:
        loaded = tensorflow.saved_model.load(folder, _tags(meta_graph))
        return _freeze_function(loaded, loaded.signatures[key], list(outputs))


@contextlib.contextmanager
def _loadable_copy(path, proto):
    """Yields a folder with the SavedModel for any device, without the slots of tf.keras.

    To load these, TensorFlow calls a method that Keras 3 does not give an optimizer.
    """
    for meta_graph in proto.meta_graphs:
        _saved_models.remove_slots(meta_graph.object_graph_def)
        _clear_devices(meta_graph.graph_def)
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(path):
            if not name.startswith("saved_model.pb") and name != "fingerprint.pb":
                os.symlink(os.path.join(os.path.abspath(path), name), os.path.join(folder, name))
        with open(os.path.join(folder, "saved_model.pb"), "wb") as file:
            file.write(proto.SerializeToString())
        yield folder


def _functions_of_resources(meta_graph):
    """Yields the names of the functions that create and fill tables."""
    nodes = meta_graph.object_graph_def.nodes
    for node in nodes:
        for child in node.children if node.HasField("resource") else ():
            if child.node_id < len(nodes):
                yield from nodes[child.node_id].function.concrete_functions


# Where a MetaGraph has what its loader runs.
_INITIALIZERS = ("__saved_model_init_op", "saved_model_main_op", "legacy_init_op")


def _initializers(meta_graph, key):
    """Yields names of the operations that a loader runs."""
    if key in meta_graph.signature_def:
        yield from (info.name for info in meta_graph.signature_def[key].outputs.values())
    if key in meta_graph.collection_def:
        yield from meta_graph.collection_def[key].node_list.value


def _tags(meta_graph):
    return list(meta_graph.meta_info_def.tags)


def _serving_graph(path, proto):
    """Returns the MetaGraph for serving, or the only one."""
    graphs = list(proto.meta_graphs)
    serving = [graph for graph in graphs if "serve" in _tags(graph)]
    if len(graphs) > 1:
        graphs = serving[:1]
    if not graphs:
        raise ValueError("%s has no MetaGraph with the tag serve. Export one for serving." % path)
    return graphs[0]


def _meta_graph(path, names):
    """Reads a `.meta` file and the checkpoint beside it."""
    meta_graph = _parsed(path, tf.MetaGraphDef)
    _validation.check(meta_graph.graph_def)
    if _signatures(meta_graph):
        _, inputs, outputs = _signature(path, meta_graph, names)
    else:
        inputs, outputs = _named(path, meta_graph.graph_def, names)
    starts = [meta_graph.saver_def.restore_op_name]
    _screening.check(path, meta_graph.graph_def, starts, _screening.RESTORING)
    with tf.Graph().as_default(), tf.Session() as session:
        saver = tf.train.import_meta_graph(path, clear_devices=True)
        if saver is None:
            raise ValueError("%s has no variables. Give the graph as a frozen .pb file." % path)
        saver.restore(session, path[: -len(".meta")])
        return _freeze(path, session, inputs, outputs)


def _frozen_graph(path, names):
    graph_def = _parsed(path, tf.GraphDef)
    _validation.check(graph_def)
    variables = [node.name for node in graph_def.node if node.op in _screening.VARIABLES]
    if variables:
        raise ValueError(
            "%s has variables (%r is the first), so it is no frozen graph. Give the SavedModel, or "
            "the .meta file with its checkpoint." % (path, variables[0])
        )
    inputs, outputs = _named(path, graph_def, names)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return _freeze(path, session, inputs, outputs)


def _parsed(path, kind):
    """Returns the message in a file."""
    found = kind()
    try:
        with open(path, "rb") as file:
            found.ParseFromString(file.read())
    except DecodeError as error:
        raise ValueError(
            "%s cannot be read as a %s (%s). Expected the folder of a SavedModel, a frozen graph "
            "(.pb), a MetaGraph (.meta) with its checkpoint, or a Keras model (.keras, .h5)."
            % (path, kind.__name__, error)
        ) from error
    return found


def _keras_model(model, names):
    """Reads a Keras model; public names are those of its inputs and output layers."""
    if any(names):
        raise ValueError(
            "A Keras model has the inputs and outputs of its layers; signature, inputs and outputs "
            "must be None, but are %r, %r and %r." % tuple(names)
        )
    structure = _structure_of_inputs(model)
    tensors = tensorflow.nest.flatten(structure)
    specs = [
        tensorflow.TensorSpec(tensor.shape, tensor.dtype, name=name)
        for tensor, name in zip(tensors, _unique(_name_of(tensor) for tensor in tensors))
    ]
    results = _unique(_names_of_outputs(model))

    def call(given):
        found = model(tensorflow.nest.pack_sequence_as(structure, given), training=False)
        return tensorflow.nest.flatten(found)

    def original(arrays):
        # Without a graph, in which a layer may compute something else where sizes are unknown.
        return [np.asarray(one) for one in call([tf.constant(arrays[spec.name]) for spec in specs])]

    def serve(*given):
        return dict(zip(results, call(given)))

    function = tensorflow.function(serve, input_signature=specs, autograph=False)
    function = function.get_concrete_function()
    graph_def = function.graph.as_graph_def()
    everything = [node.name for node in graph_def.node]
    _screening.check("The model", graph_def, everything, _screening.COMPUTING)
    results_of_graph = [tensor.name for tensor in function.outputs]
    _screening.check_states("The model", graph_def, results_of_graph, everything)
    return _freeze_function(model, function, results)._replace(original=original)


def _structure_of_inputs(model):
    """Returns the inputs as the model is called with them: a tensor, list or dict."""
    if isinstance(model, tensorflow.keras.Sequential):
        return model.inputs[0]
    nested = getattr(model, "_inputs_struct", None)  # Keras 3
    return getattr(model, "_nested_inputs", model.inputs) if nested is None else nested


def _names_of_outputs(model):
    """Returns a name for each output: those of the layers that compute them."""
    names = getattr(model, "output_names", None)
    if names is None:  # Sequential of Keras 3
        names = [model.layers[-1].name]
    return names


def _name_of(tensor):
    """Returns the name of an input layer; some TensorFlows add the number of the output."""
    return tensor.name.split(":")[0]


def _unique(names: Iterable[str]) -> List[str]:
    found: Dict[str, None] = {}
    for name in names:
        while name in found:
            name += "_"
        found[name] = None
    return list(found)


def _signatures(meta_graph):
    return {
        key: signature
        for key, signature in meta_graph.signature_def.items()
        if key not in _INITIALIZERS and signature.outputs
    }


def _signature(path, meta_graph, names):
    """Returns the key of the wanted signature, and its inputs and wanted outputs as in `Frozen`."""
    found, key = _signatures(meta_graph), names.signature
    if key is None:
        key = [*found][0] if len(found) == 1 else _SIGNATURE
    if key not in found:
        raise ValueError(
            "%s has no signature %r. Give one of these as signature (--signature): %s."
            % (path, key, ", ".join(sorted(found)))
        )
    inputs, outputs = [
        {name: infos[name].name for name in sorted(infos)}
        for infos in (found[key].inputs, found[key].outputs)
    ]
    unknown = [name for name in names.outputs or () if name not in outputs]
    if names.inputs or unknown:
        raise ValueError(
            "The signature %r of %s has the inputs %s and the outputs %s. inputs must be None, and "
            "outputs some of these, but they are %r and %r."
            % (key, path, [*inputs], [*outputs], names.inputs, names.outputs)
        )
    return key, inputs, {name: outputs[name] for name in names.outputs or outputs}


def _named(path, graph_def, names):
    """Returns inputs and outputs by the names that were given, or the only ones possible."""
    nodes = {node.name: node for node in graph_def.node}
    if not names.outputs:
        used = {node_of(name) for node in graph_def.node for name in node.input}
        ends = [name for name in nodes if name not in used]
        raise ValueError(
            "%s does not say which tensors are its outputs. %s Nothing in the graph uses these: "
            "%s. Its placeholders: %s."
            % (path, _ADVICE, _listed(ends), _listed(_placeholders(graph_def)))
        )
    inputs = names.inputs
    if not inputs:  # The Saver has placeholders too, and so may other parts of the graph.
        needed = {node.name for node in _screening.reached(graph_def, names.outputs)}
        inputs = [name for name in _placeholders(graph_def) if name in needed]
    for argument, given in (("inputs", inputs), ("outputs", names.outputs)):
        unknown = [name for name in given if node_of(name) not in nodes]
        if unknown:
            raise ValueError(
                "%s has %r, but %s has no such node. Its placeholders: %s."
                % (argument, unknown[0], path, _listed(_placeholders(graph_def)))
            )
    return tuple(
        {_public(name): name if ":" in name else name + ":0" for name in given}
        for given in (inputs, names.outputs)
    )


def _public(name):
    """Returns the name of a tensor without the number of a first output."""
    return name[:-2] if name.endswith(":0") else name


def _placeholders(graph_def):
    return [node.name for node in graph_def.node if node.op.startswith("Placeholder")]


def _listed(names):
    return ", ".join(map(repr, names[:8])) + (" and others" if len(names) > 8 else "") or "none"


def _screen(path, graph_def, outputs):
    """Raises `ValueError` if the outputs take more than a computation."""
    _screening.check(path, graph_def, outputs, _screening.COMPUTING)
    _screening.check_states(path, graph_def, outputs)


def _freeze(path, session, inputs, outputs):
    """Returns the part of the session's graph between inputs and outputs, without variables."""
    loader = library("tf2onnx.tf_loader", "onnx")
    graph_def = session.graph.as_graph_def()
    _screen(path, graph_def, outputs.values())
    tensors = list(inputs.values()), list(outputs.values())
    # tf2onnx would evaluate all variables of the collection; some may have no value.
    session.graph.clear_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    graph_def = loader.freeze_session(session, *tensors)
    keep_shapes(graph_def)
    with tf.Graph().as_default():  # without the collections of the other graph
        graph_def = loader.tf_optimize(*tensors, graph_def)
    return _frozen(graph_def, inputs, outputs, {})


def _freeze_function(owner, function, wanted):
    """Returns the graph of a concrete function that takes and returns tensors by name."""
    loader = library("tf2onnx.tf_loader", "onnx")
    captured = {id(tensor) for tensor in function.graph.internal_captures}
    tensors = [tensor for tensor in function.inputs if id(tensor) not in captured]
    specs = tensorflow.nest.flatten(function.structured_input_signature)
    inputs = {spec.name: tensor.name for spec, tensor in zip(specs, tensors)}
    # Structures are flattened in the order of their keys.
    pairs = zip(sorted(function.structured_outputs), function.outputs)
    results = {name: tensor.name for name, tensor in pairs}
    outputs = {name: results[name] for name in wanted}
    names = list(inputs.values()), list(outputs.values())
    graph_def, tables = loader.from_trackable(owner, function, *names, large_model=False)
    return _frozen(graph_def, inputs, outputs, tables)


def _clear_devices(graph_def):
    """Lets all nodes run where TensorFlow likes; a graph may be of a machine with a GPU."""
    for node in nodes_of(graph_def):
        node.device = ""


def _frozen(graph_def, inputs, outputs, tables):
    """Returns a `Frozen` in which each output has a tensor of its own, which is no input."""
    _clear_devices(graph_def)
    kept = {node.name for node in graph_def.node}
    inputs = {name: tensor for name, tensor in inputs.items() if node_of(tensor) in kept}
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        outputs = {
            name: tf.identity(graph.get_tensor_by_name(tensor), "output_of_export").name
            for name, tensor in outputs.items()
        }
        return Frozen(graph.as_graph_def(add_shapes=True), inputs, outputs, tables)
