"""Imports graphs whose collections name saveables of layers.

A saveable is a Python object, of which a `MetaGraphDef` keeps no more than a name. TensorFlow takes
the name for that of a node, and fails where there is none, as in all that the original wrote: on
importing a MetaGraph, and on loading a SavedModel, which has one inside. The wrapper of the
function behind both passes over such names.
"""

from cudnn_rnn._compat import meta_graph_module, tf
from cudnn_rnn._patches.hooks import guarded


def import_scoped(original, meta_graph_or_file, *arguments, **named):
    meta_graph = meta_graph_or_file
    if not isinstance(meta_graph, tf.MetaGraphDef):
        meta_graph = meta_graph_module.read_meta_graph_file(meta_graph_or_file)
    filtered = guarded(_without_our_saveables, meta_graph, otherwise=meta_graph)
    return original(filtered, *arguments, **named)


def _without_our_saveables(meta_graph):
    """Returns the `MetaGraphDef`, or a copy whose collection has no saveables of layers."""
    key = tf.GraphKeys.SAVEABLE_OBJECTS
    if key not in meta_graph.collection_def:
        return meta_graph
    node_types = {node.name: node.op for node in meta_graph.graph_def.node}
    names = meta_graph.collection_def[key].node_list.value
    # Others, those of tables, are named after their node. Ours are named after an Identity, and the
    # original's after nothing.
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
