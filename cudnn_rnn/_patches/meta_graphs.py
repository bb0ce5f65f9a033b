"""Imports graphs whose collections name saveables of layers.

A saveable is a Python object, and a `MetaGraphDef` keeps only its name. TensorFlow interprets it as
the name of a node, and fails if there is no such node, as in every graph written by
tf.contrib.cudnn_rnn. This happens on importing a MetaGraph, and on loading a SavedModel, which
contains one. Both use the function that is wrapped here; the wrapper removes such names.
"""

from cudnn_rnn._compat import meta_graph_module, tf
from cudnn_rnn._patches.hooks import guarded


def import_scoped(original, meta_graph_or_file, *arguments, **named):
    meta_graph = meta_graph_or_file
    if not isinstance(meta_graph, tf.MetaGraphDef):
        meta_graph = meta_graph_module.read_meta_graph_file(meta_graph_or_file)
    filtered = guarded(_without_our_saveables, meta_graph, default=meta_graph)
    return original(filtered, *arguments, **named)


def _without_our_saveables(meta_graph):
    """Returns the `MetaGraphDef`, or a copy whose collection has no saveables of layers."""
    key = tf.GraphKeys.SAVEABLE_OBJECTS
    if key not in meta_graph.collection_def:
        return meta_graph
    node_types = {node.name: node.op for node in meta_graph.graph_def.node}
    names = meta_graph.collection_def[key].node_list.value
    # Other saveables, those of tables, have the name of their table node. Saveables of this package
    # have the name of an Identity node; those of tf.contrib.cudnn_rnn have no node.
    kept = [name for name in names if node_types.get(name.split(":")[0], "Identity") != "Identity"]
    if len(kept) == len(names):
        return meta_graph
    copy = tf.MetaGraphDef()
    copy.CopyFrom(meta_graph)
    if kept:
        copy.collection_def[key].node_list.value[:] = kept
    else:
        del copy.collection_def[key]
    return copy
