"""The list `PATCHES` of all TensorFlow functions that this package wraps.

`install`, called when the package is imported, wraps the functions; `uninstall` restores
TensorFlow's. The environment variable CUDNN_RNN_PATCHES=off, read at import, leaves TensorFlow
unchanged. Without the patches, a Saver that holds a variable twice may restore either value,
checkpoint errors are TensorFlow's, MetaGraphs whose collections name saveables cannot be imported,
and inference nodes of a graph that is imported with its constants mapped to reference variables may
compute with the values of before an update; CUDNN_RNN_KEEP_WEIGHTS=0 prevents that.

The wrappers act only if saveables, layers or nodes of this package are involved. If a wrapper
fails, it issues a `RuntimeWarning`, and the call continues without the wrapper.

May import `_compat`, `checkpoints` and `graph`.
"""

import os

from cudnn_rnn._compat import (
    CheckpointRestoreCoordinator,
    CheckpointRestorer,
    WriterOfCopiedVariables,
    meta_graph_module,
    tf,
)
from cudnn_rnn._patches import async_checkpoints, graphs, meta_graphs, restores
from cudnn_rnn._patches.hooks import Patch

VARIABLE = "CUDNN_RNN_PATCHES"

PATCHES = [
    Patch(
        tf.train.Saver,
        "build",
        restores.saver_build,
        "leaves displaced saveables out and orders competing assignments of one variable",
    ),
    Patch(
        tf.train.Saver,
        "restore",
        restores.saver_restore,
        "checks keys, dtypes and shapes before anything is restored, and explains errors",
    ),
    Patch(
        CheckpointRestorer,
        "restore",
        restores.objects_restore,
        "the same checks for tf.train.Checkpoint: names of objects",
    ),
    Patch(
        CheckpointRestoreCoordinator,
        "restore_saveables",
        restores.restore_saveables,
        "the same checks for tf.train.Checkpoint: tensors",
    ),
    Patch(
        meta_graph_module,
        "import_scoped_meta_graph_with_return_elements",
        meta_graphs.import_scoped,
        "imports MetaGraphs whose collections name saveables of layers, and recreates these",
    ),
    Patch(
        tf.Graph,
        "_add_new_tf_operations",
        graphs.add_imported_nodes,
        "lets no imported inference node keep weights of a variable that is updated in place",
    ),
]
if WriterOfCopiedVariables is not None:
    PATCHES.append(
        Patch(
            WriterOfCopiedVariables,
            "_traverse_variables",
            async_checkpoints.find_variables,
            "refuses layers, whose values would be those of a later moment",
        )
    )


def are_on():
    """Returns whether functions may be wrapped: CUDNN_RNN_PATCHES is not "off".

    Raises:
      ImportError: CUDNN_RNN_PATCHES has a value other than "on" and "off".
    """
    value = os.environ.get(VARIABLE) or "on"
    if value not in ("on", "off"):
        raise ImportError(
            "The environment variable %s is %r; expected on or off, or unset for on."
            % (VARIABLE, value)
        )
    return value == "on"


def install():
    """Wraps the functions in `PATCHES`, unless they are off.

    Raises:
      ImportError: as `are_on`.
    """
    is_on = are_on()
    for patch in PATCHES:
        patch.install() if is_on else patch.uninstall()


def uninstall():
    """Restores TensorFlow's own functions; see `Patch.uninstall`."""
    for patch in PATCHES:
        patch.uninstall()
