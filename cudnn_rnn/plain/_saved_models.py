"""Rewrites SavedModels."""

import contextlib
import os
import shutil
import tempfile
from typing import Union

from google.protobuf import text_format
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from cudnn_rnn._compat import op_definition, tf
from cudnn_rnn._disk import PARTIAL, REPLACED, failed_write, synchronize
from cudnn_rnn.plain._graphs import Changes, rewrite
from cudnn_rnn.plain._unused import nodes_of

_BINARY, _TEXT = "saved_model.pb", "saved_model.pbtxt"
# The hash of the original graph. TensorFlow loads models without it.
_FINGERPRINT = "fingerprint.pb"
_TYPES_THAT_NUMPY_LACKS = (tf.errors.UnimplementedError, NotImplementedError, TypeError)

_Path = Union[str, os.PathLike]


def export_plain(
    saved_model: _Path, output: _Path, training: bool = False, overwrite: bool = False
) -> int:
    """Writes a copy of a SavedModel in which standard ops replace all `CudnnRNN*` nodes.

    The copy has the same signatures, functions, variables and results. Any
    TensorFlow 2 loads it without this package. It is written to a temporary folder, which is then
    renamed, so that `output` is complete or does not exist.

    Functions with `CudnnRNN*` nodes that nothing calls are left out: tf.keras 2 adds some for GPUs.
    The copy does not say which variables are slots of an optimizer of tf.keras, unless a function
    uses them.

    Args:
      saved_model: path of a SavedModel, written by TensorFlow 1 or 2.
      output: path of the folder to write.
      training: whether to rewrite the gradient nodes of a training graph; see `plain_graph_def`.
      overwrite: whether to replace `output` if it exists.

    Returns:
      The number of nodes that were replaced. It is 0 if all of them are in functions that nothing
      calls: such a model runs on a CPU as it is.

    Raises:
      FileNotFoundError: `saved_model` is not a SavedModel.
      FileExistsError: `output` exists, and `overwrite` is False or `output` is no folder.
      OSError: `output` cannot be written.
      ValueError: `output` is inside `saved_model`; the SavedModel is damaged or lacks a
        file; or as `plain_graph_def`.
    """
    return export(saved_model, output, training, overwrite).replaced_nodes


def export(saved_model: _Path, output: _Path, training: bool, overwrite: bool) -> Changes:
    """Does what `export_plain` does."""
    saved_model, output = os.path.abspath(saved_model), os.path.abspath(output)
    if os.path.lexists(output) and not os.path.isdir(output):
        raise FileExistsError(
            "%s exists and is no folder. Choose another path, or remove it: only a folder is "
            "replaced by the new folder." % output
        )
    if os.path.lexists(output) and not overwrite:
        raise FileExistsError(
            "%s exists. Choose another path, or pass overwrite=True (--force) to replace it."
            % output
        )
    if output.startswith(saved_model + os.sep):
        raise ValueError(
            "The output %s is inside the SavedModel %s. Choose a folder outside."
            % (output, saved_model)
        )
    try:
        model, file_name = read(saved_model)
        changes = [_rewrite_meta_graph(graph, training) for graph in model.meta_graphs]
    except (OSError, ValueError):
        raise
    except Exception as error:  # of protobuf and TensorFlow, which check little before
        raise ValueError(
            "%s cannot be read as a SavedModel: %s (%s). It may be damaged: get it from its source "
            "again." % (saved_model, str(error).strip().rstrip("."), type(error).__name__)
        ) from error
    total = Changes(*(sum(numbers) for numbers in zip((0, 0), *changes)))
    if not any(total):
        raise ValueError(
            "%s has no CudnnRNN nodes: it runs without cudnn_rnn as it is." % saved_model
        )
    for meta_graph in model.meta_graphs:
        _check_files(meta_graph, saved_model)
    _write(model, saved_model, output, file_name)
    return total


def _check_files(meta_graph, folder):
    """Raises `ValueError` if variables or assets of a MetaGraph are missing or damaged.

    The copy could not be loaded. A graph without variables has no `SaverDef`.
    """
    prefix = os.path.join(folder, "variables", "variables")
    needed = [os.path.join(folder, "assets", one.filename) for one in meta_graph.asset_file_def]
    if meta_graph.saver_def.restore_op_name:
        needed.append(prefix + ".index")
    for path in needed:
        if not os.path.isfile(path):
            raise ValueError(
                "%s has no file %s, which its graph needs. Get the whole folder from its source "
                "again." % (folder, path)
            )
    if not meta_graph.saver_def.restore_op_name:
        return
    key = None
    try:
        reader = tf.train.NewCheckpointReader(prefix)
        for key in sorted(reader.get_variable_to_shape_map()):
            with contextlib.suppress(*_TYPES_THAT_NUMPY_LACKS):
                reader.get_tensor(key)  # compares the checksum, too
    except Exception as error:  # the classes depend on the version of TensorFlow
        what = "variables are" if key is None else "variable %s is" % key
        raise ValueError(
            "%s cannot be read: its %s damaged: %s. Get the whole folder from its source again."
            % (folder, what, str(error).strip().rstrip("."))
        ) from error


def read(folder):
    """Returns the `SavedModel` proto and the name of its file."""
    for name in (_BINARY, _TEXT):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                content = file.read()
            if name == _TEXT:
                return text_format.Parse(content.decode("utf-8"), SavedModel()), name
            return SavedModel.FromString(content), name
    if folder.endswith((".keras", ".h5", ".hdf5")) and os.path.isfile(folder):
        raise FileNotFoundError(
            "%s is a Keras model, not the folder of a SavedModel. Load it with Keras, write a "
            "SavedModel with model.export(folder), and export that." % folder
        )
    if os.path.isfile(folder):
        raise FileNotFoundError(
            "%s is a file, not the folder of a SavedModel. A frozen graph can become an OUT that "
            "ends with .onnx (python -m cudnn_rnn export); for TensorFlow, read it as a GraphDef, "
            "and write what cudnn_rnn.plain_graph_def returns." % folder
        )
    raise FileNotFoundError(
        "%s is not a SavedModel: expected a folder with the file %s." % (folder, _BINARY)
    )


def _write(model, original, output, file_name):
    """Writes the folder under a temporary name beside `output`, then renames it."""
    parent = os.path.dirname(output)
    try:
        os.makedirs(parent, exist_ok=True)
        temporary = tempfile.mkdtemp(dir=parent, prefix=os.path.basename(output) + PARTIAL)
        new, old = os.path.join(temporary, "new"), os.path.join(temporary, REPLACED)
        try:
            _copy(model, original, new, file_name)
            _replace(output, new, old)
        finally:
            if os.path.lexists(output) or not os.path.lexists(old):
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise OSError(failed_write(output, error)) from error


def _copy(model, original, new, file_name):
    """Writes a copy of the folder `original` with another graph."""
    shutil.copytree(original, new, ignore=_without_graph)
    with open(os.path.join(new, file_name), "wb") as file:
        if file_name == _TEXT:
            file.write(text_format.MessageToString(model).encode("utf-8"))
        else:
            file.write(model.SerializeToString(deterministic=True))
    for folder, _, names in os.walk(new):
        for name in names:
            synchronize(os.path.join(folder, name))


def _replace(output, new, old):
    """Renames `new` to `output`, and an existing `output` to `old`; undoes that if it fails."""
    if not os.path.lexists(output):
        os.rename(new, output)
        return
    os.rename(output, old)
    try:
        os.rename(new, output)
    except OSError as error:
        try:
            os.rename(old, output)
        except OSError:
            raise OSError("%s; the old folder is now %s" % (error, old)) from error
        raise


def _without_graph(folder, names):
    return [name for name in names if name in (_BINARY, _TEXT, _FINGERPRINT)]


def _rewrite_meta_graph(meta_graph, training):
    """Rewrites a `MetaGraphDef` in place; returns the `Changes`."""
    entry_points = {*meta_graph.object_graph_def.concrete_functions}
    entry_points.update(getattr(meta_graph.meta_info_def, "function_aliases", ()))
    changes = rewrite(meta_graph.graph_def, training, entry_points)
    if any(changes):
        _update_ops(meta_graph)
        _remove_saveables_without_nodes(meta_graph)
        remove_slots(meta_graph.object_graph_def)
    return changes


def remove_slots(object_graph):
    """Makes an optimizer's slots variables without an owner, unless a function uses one.

    To load an owned slot, TensorFlow calls a method that Keras 3 does not give the optimizer.
    """
    slots = {
        slot.slot_variable_node_id for node in object_graph.nodes for slot in node.slot_variables
    }
    for function in object_graph.concrete_functions.values():
        if not slots.isdisjoint(function.bound_inputs):
            return
    for node in object_graph.nodes:
        del node.slot_variables[:]


def _update_ops(meta_graph):
    """Brings the list of the ops that the graph uses up to date."""
    listed = meta_graph.meta_info_def.stripped_op_list.op
    kept = {op.name: op for op in listed if not op.name.startswith("CudnnRNN")}
    for name in sorted({node.op for node in nodes_of(meta_graph.graph_def)}):
        definition = op_definition(name)
        if name not in kept and definition is not None:
            kept[name] = type(listed.add())()
            kept[name].CopyFrom(definition)
    ordered = [kept[name] for name in sorted(kept)]
    del listed[:]
    listed.extend(ordered)


def _remove_saveables_without_nodes(meta_graph):
    """Removes the layers' saveables from the graph's collections.

    A collection has names of nodes; a layer's saveable has none, and TensorFlow cannot load it.
    """
    key = tf.GraphKeys.SAVEABLE_OBJECTS
    if key not in meta_graph.collection_def:
        return
    nodes = {node.name for node in meta_graph.graph_def.node}
    names = meta_graph.collection_def[key].node_list.value
    kept = [name for name in names if name.split(":")[0] in nodes]
    names[:] = kept
    if not kept:
        del meta_graph.collection_def[key]
