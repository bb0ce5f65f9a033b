"""TensorFlow checkpoints of all generations: which files are one, reading and writing.

`checkpoint_read` reads, `checkpoint_plan` decides what a new one has. This module imports
TensorFlow only where it is used.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from cudnn_rnn._disk import synchronize
from cudnn_rnn.exchange import meta_graphs
from cudnn_rnn.exchange.checkpoint_plan import TARGETS, Plan, plan
from cudnn_rnn.exchange.checkpoint_read import read
from cudnn_rnn.exchange.contents import (
    Contents,
    ExchangeError,
    require_file_or_nothing,
    temporary_folder_beside,
)
from cudnn_rnn.model.weights import RnnWeights

__all__ = ["Plan", "TARGETS", "plan", "read", "save", "write"]


def exists(path: str) -> bool:
    """Returns whether there is a checkpoint with this prefix."""
    return os.path.exists(path + ".index") or bool(glob.glob(glob.escape(path) + ".data-*"))


def prefix_of(path: str) -> Optional[str]:
    """Returns the prefix of the checkpoint that a user's path means, None if there is none.

    The path is a prefix, a file of the checkpoint, or the folder of a checkpoint or SavedModel.
    """
    if os.path.isdir(path):
        variables = os.path.join(path, "variables", "variables")
        return variables if exists(variables) else _latest_of(path)
    path = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    return path if os.path.exists(path + ".index") or os.path.isfile(path) else None


def _latest_of(folder):
    """Returns the prefix that the file `checkpoint` of a folder names; None if there is none.

    Raises:
      ExchangeError: the file is damaged, or names a checkpoint outside of the folder.
    """
    from google.protobuf import text_format
    from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState

    state = os.path.join(folder, "checkpoint")
    if not os.path.isfile(state):
        return None
    with open(state, "rb") as file:
        content = file.read()
    try:
        named = text_format.Parse(content.decode("utf-8"), CheckpointState()).model_checkpoint_path
    except (ValueError, text_format.ParseError) as error:
        raise ExchangeError("%s is damaged: %s." % (state, error)) from error
    prefix = os.path.join(folder, named)
    if os.path.realpath(os.path.dirname(prefix)) != os.path.realpath(folder) or not named:
        raise ExchangeError(
            "%s names the checkpoint %r, which is not in its folder. Give the prefix of the "
            "checkpoint that you mean." % (state, named)
        )
    if not exists(prefix) and not os.path.isfile(prefix):
        raise ExchangeError("%s names the checkpoint %r, which does not exist." % (state, named))
    return prefix


def save(path: str, arrays: Dict[str, Any]) -> List[str]:
    """Writes a checkpoint with these arrays by key; returns notes.

    The files are complete before they get their names, the index last. The data files have other
    names than those of an old checkpoint, which the old index needs until the new one replaces it:
    if a step fails, or the process is killed, the old checkpoint stays as it was. The graph of an
    old checkpoint, `<path>.meta`, would be believed about the new one: it gets another name.

    Raises:
      ExchangeError: the files cannot be written, the place of the index is taken by something
        that is no file, or the checkpoint is that of a SavedModel.
    """
    require_file_or_nothing(path + ".index")
    graph = meta_graphs.path_of_graph(path)
    if graph is not None and os.path.basename(graph) in meta_graphs.SAVED_MODEL:
        raise ExchangeError(
            "%s has the variables of the SavedModel %s, whose graph would be taken for that of the "
            "new checkpoint. Choose another name." % (path, graph)
        )
    folder, name = os.path.split(os.path.abspath(path))
    old = {os.path.basename(file) for file in glob.glob(glob.escape(path) + ".data-*")}
    numbers = range(1, len(arrays) + 1)
    free = [n for n in numbers if not any(file.endswith("-of-%05d" % n) for file in old)]
    with temporary_folder_beside(path) as temporary:
        _save_now(os.path.join(temporary, name), arrays, num_shards=(free or [1])[0])
        written = {file for file in os.listdir(temporary) if file.startswith(name + ".")}
        for file in written:
            synchronize(os.path.join(temporary, file))
        index = name + ".index"
        try:
            for file in sorted(written - {index}):
                os.replace(os.path.join(temporary, file), os.path.join(folder, file))
            with _set_aside(graph) as notes:
                os.replace(os.path.join(temporary, index), os.path.join(folder, index))
        except OSError:
            _remove(folder, written - old - {index})
            raise
    _remove(folder, old - written)
    return notes


@contextlib.contextmanager
def _set_aside(graph):
    """Renames the file of a graph, None for no file; yields notes. Undone if the block fails."""
    if graph is None:
        yield []
        return
    aside = graph + ".old"
    while os.path.lexists(aside):
        aside += ".old"
    os.replace(graph, aside)
    try:
        yield ["%s has the graph of another checkpoint and is now %s." % (graph, aside)]
    except BaseException:
        os.replace(aside, graph)
        raise


def _remove(folder, names):
    """Removes files that no index names; what cannot be removed does no harm."""
    for name in names:
        with contextlib.suppress(OSError):
            os.remove(os.path.join(folder, name))


def _save_now(prefix, arrays, num_shards):
    """Writes a checkpoint; raises `OSError`. Each shard needs an array."""
    from cudnn_rnn._compat import tf

    keys = sorted(arrays)
    shards = [prefix] if num_shards == 1 else [prefix + "-%d" % i for i in range(num_shards)]
    graph = tf.Graph()
    # Without GPUs, whose memory a session would take from the program.
    session = tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0}))
    with graph.as_default(), session, tf.device("/cpu:0"):
        try:
            for number, shard in enumerate(shards):
                of_shard = keys[number::num_shards]
                # Fed, because constants have a limit of 2 GB.
                values = {_placeholder(arrays[key]): arrays[key] for key in of_shard}
                session.run(
                    tf.raw_ops.SaveV2(
                        prefix=shard,
                        tensor_names=of_shard,
                        shape_and_slices=[""] * len(of_shard),
                        tensors=list(values),
                    ),
                    values,
                )
            if num_shards > 1:
                session.run(
                    tf.raw_ops.MergeV2Checkpoints(
                        checkpoint_prefixes=shards,
                        destination_prefix=prefix,
                        delete_old_dirs=False,
                    )
                )
        except tf.errors.OpError as error:
            raise OSError(_reason(error.message)) from error


def _reason(message):
    """Returns the reason in TensorFlow's message, without the lines about the node."""
    found = re.search(r"([^\n]+)\n\s*\[\[", message)
    return found.group(1) if found else message


def _placeholder(array):
    from cudnn_rnn._compat import tf

    array = np.asarray(array)
    return tf.placeholder(tf.string if array.dtype.kind in "OS" else array.dtype, array.shape)


def write(
    path: str,
    source: Union[Contents, Sequence[RnnWeights]],
    target: str,
    variable: Optional[str] = None,
) -> List[str]:
    """Writes a checkpoint; see `plan` and `save`. Returns the notes of both."""
    planned = plan(source, target, variable)
    return planned.notes + save(path, planned.arrays)
