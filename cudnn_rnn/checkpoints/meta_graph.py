"""`import_meta_graph`: the graphs that `tf.train.Saver` writes beside a checkpoint."""

from cudnn_rnn._compat import tf


def import_meta_graph(meta_graph_or_file, **named):
    """Imports a graph, also where a collection names saveables, and restores it.

        saver = cudnn_rnn.import_meta_graph(path + ".meta")
        saver.restore(session, path)

    It is `tf.train.import_meta_graph`, patched by `_patches/meta_graphs.py`.

    The Saver that comes back restores all that the one saved with the graph did. For a new Saver,
    make the saveable again: `CudnnLSTMSaveable(variable, num_layers, num_units, input_size)`.

    The original pins some nodes to a GPU. On a machine without one, make the session with
    `tf.ConfigProto(allow_soft_placement=True)`, or import with `clear_devices=True`.

    Args:
      meta_graph_or_file: a `MetaGraphDef`, or the path of a file that holds one.
      **named: arguments of `tf.train.import_meta_graph`.

    Returns:
      What `tf.train.import_meta_graph` returns: a Saver, or None.
    """
    return tf.train.import_meta_graph(meta_graph_or_file, **named)
