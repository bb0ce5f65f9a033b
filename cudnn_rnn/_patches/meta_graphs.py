"""Imports graphs whose collections name saveables of layers.

A saveable is a Python object, and a `MetaGraphDef` keeps only its name. TensorFlow interprets it as
the name of a node, and fails if there is no such node, as in every graph written by
tf.contrib.cudnn_rnn. This happens on importing a MetaGraph, and on loading a SavedModel, which
contains one. Both use the function that is wrapped here. The wrapper removes such names, and then
recreates the saveables from the imported graph, so that a new Saver writes what the old one did.
"""

import inspect
import warnings

from cudnn_rnn._compat import meta_graph_module, tf
from cudnn_rnn._patches.hooks import guarded
from cudnn_rnn.checkpoints import imported_saveables


def import_scoped(original, meta_graph_or_file, *arguments, **named):
    meta_graph = meta_graph_or_file
    if not isinstance(meta_graph, tf.MetaGraphDef):
        meta_graph = meta_graph_module.read_meta_graph_file(meta_graph_or_file)
    removed = guarded(_our_saveables, meta_graph, default=[])
    if not removed:
        return original(meta_graph, *arguments, **named)
    filtered = guarded(_without, meta_graph, removed, default=meta_graph)
    place = guarded(_place, original, filtered, arguments, named)
    results = original(filtered, *arguments, **named)
    if place is not None:
        guarded(_recreate, removed, *place)
    return results


def _place(original, meta_graph, arguments, named):
    """Returns (graph, number of its operations, scope) of an import; None without saveables."""
    bound = inspect.signature(original).bind_partial(meta_graph, *arguments, **named).arguments
    is_wanted = bound.get("restore_collections_predicate") or (lambda key: True)
    graph = bound.get("graph") or tf.get_default_graph()
    # The graph of a function, such as that of a SavedModel in TensorFlow 2, has no Savers.
    if graph.building_function or not is_wanted(tf.GraphKeys.SAVEABLE_OBJECTS):
        return None
    scope = graph.unique_name(bound.get("import_scope") or "", mark_as_used=False)
    return graph, len(graph.get_operations()), scope


def _our_saveables(meta_graph):
    """Returns a list of the names in the collection that are those of saveables of layers."""
    names = _names(meta_graph)
    if not names:
        return []
    node_types = {node.name: node.op for node in meta_graph.graph_def.node}
    # Other saveables, those of tables, have the name of their table node. Saveables of this package
    # have the name of an Identity node; those of tf.contrib.cudnn_rnn have no node.
    return [name for name in names if node_types.get(name.split(":")[0], "Identity") == "Identity"]


def _names(meta_graph):
    if tf.GraphKeys.SAVEABLE_OBJECTS not in meta_graph.collection_def:
        return []
    return list(meta_graph.collection_def[tf.GraphKeys.SAVEABLE_OBJECTS].node_list.value)


def _without(meta_graph, removed):
    """Returns a copy of the `MetaGraphDef` whose collection lacks these names."""
    copy = tf.MetaGraphDef()
    copy.CopyFrom(meta_graph)
    kept = [name for name in _names(meta_graph) if name not in removed]
    if kept:
        copy.collection_def[tf.GraphKeys.SAVEABLE_OBJECTS].node_list.value[:] = kept
    else:
        del copy.collection_def[tf.GraphKeys.SAVEABLE_OBJECTS]
    return copy


def _recreate(names, graph, first, scope):
    """Recreates saveables from the operations of a graph from number `first` on."""
    prefix = scope + "/" if scope and not scope.endswith("/") else scope
    operations = graph.get_operations()[first:]
    with graph.as_default():
        missing = imported_saveables.recreate(names, operations, prefix)
    for name in missing:
        warnings.warn(
            "The imported graph has the saveable %r, but no tf.train.Saver in the graph saves and "
            "restores it, so it cannot be recreated: a new tf.train.Saver() writes its variable, "
            "but no tensors of platform-independent cells. To have them, create the saveable, such "
            "as CudnnLSTMSaveable(variable, num_layers, num_units, input_size, scope=...), and add "
            "it to tf.GraphKeys.SAVEABLE_OBJECTS." % name,
            stacklevel=5,
        )
