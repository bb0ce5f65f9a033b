"""Rewrites graphs so that they run without this package: `CudnnRNN*` nodes become standard ops.

`_computations` has the plain computation of a node, `_inlining` puts it into a graph in the node's
place, `_unused` leaves out functions that nothing calls, `_function_names` renames functions,
`_graphs` does this for a graph and its functions, and `_saved_models` for a SavedModel.

May import `_compat`, `graph`, `_disk`, `model` and TensorFlow.
"""

from cudnn_rnn.plain._graphs import plain_function, plain_graph_def
from cudnn_rnn.plain._saved_models import export_plain

__all__ = ["export_plain", "plain_function", "plain_graph_def"]
