"""`import_meta_graph`, for the graphs that `tf.train.Saver` writes beside a checkpoint."""

from __future__ import annotations

from typing import Any, Optional, Union

from cudnn_rnn._compat import tf


def import_meta_graph(
    meta_graph_or_file: Union[str, tf.MetaGraphDef], **named: Any
) -> Optional[tf.train.Saver]:
    """Imports a graph, even if a collection names saveables, and returns its Saver.

        saver = cudnn_rnn.import_meta_graph(path + ".meta")
        saver.restore(session, path)

    This is `tf.train.import_meta_graph`, patched by `_patches/meta_graphs.py`.

    The returned Saver restores everything that the Saver stored in the graph did. So does a new
    `tf.train.Saver()`: the saveables of the collection are recreated from the Savers in the graph.
    With `import_scope`, the keys of a new Saver start with the scope. A saveable that no Saver in
    the graph holds is named in a warning; create it again, such as
    `CudnnLSTMSaveable(variable, num_layers, num_units, input_size)`.

    tf.contrib.cudnn_rnn pins some nodes to a GPU. On a machine without a GPU, create the session
    with `tf.ConfigProto(allow_soft_placement=True)`, or import with `clear_devices=True`.

    Args:
      meta_graph_or_file: a `MetaGraphDef`, or the path of a file that holds one.
      **named: arguments of `tf.train.import_meta_graph`.

    Returns:
      The result of `tf.train.import_meta_graph`: a Saver, or None.
    """
    return tf.train.import_meta_graph(meta_graph_or_file, **named)
