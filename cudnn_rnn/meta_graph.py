"""`import_meta_graph`, for graphs whose savers held saveables of layers."""

from cudnn_rnn._tf import read_meta_graph_file, tf


def import_meta_graph(meta_graph_or_file, **named):
    """Does what `tf.train.import_meta_graph` does, also where a collection names saveables.

    A saveable is a Python object, of which a MetaGraphDef keeps no more than a name, and on that
    name TensorFlow's function fails. This one passes over it; so in place of it:

        saver = cudnn_rnn.import_meta_graph(path + ".meta")

    The Saver that comes back restores all that the one saved with the graph did. For a new Saver,
    make the saveable again: `CudnnLSTMSaveable(variable, num_layers, num_units, input_size)`.

    Args:
      meta_graph_or_file: a `MetaGraphDef`, or the path of a file that holds one.
      **named: arguments of `tf.train.import_meta_graph`.

    Returns:
      What `tf.train.import_meta_graph` returns: a Saver, or None.
    """
    meta_graph = tf.MetaGraphDef()
    if isinstance(meta_graph_or_file, tf.MetaGraphDef):
        meta_graph.CopyFrom(meta_graph_or_file)
    else:
        meta_graph.CopyFrom(read_meta_graph_file(meta_graph_or_file))
    key = tf.GraphKeys.SAVEABLE_OBJECTS
    if key in meta_graph.collection_def:
        nodes = {node.name for node in meta_graph.graph_def.node}
        names = meta_graph.collection_def[key].node_list.value
        kept = [name for name in names if name.split(":")[0] in nodes]
        if kept:
            names[:] = kept
        else:
            del meta_graph.collection_def[key]
    return tf.train.import_meta_graph(meta_graph, **named)
