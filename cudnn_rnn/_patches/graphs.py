"""Checks the nodes that TensorFlow imports into a graph."""

from cudnn_rnn._patches.hooks import guarded
from cudnn_rnn.graph import kept_weights


def add_imported_nodes(original, graph, *arguments, **named):
    nodes = original(graph, *arguments, **named)
    guarded(kept_weights.unmark, nodes)
    return nodes
