"""The golden checkpoints of plain LSTM cells of TensorFlow 1."""

import os
import shutil

from cudnn_rnn.exchange import checkpoint_format
from helpers.golden import read_case, read_checkpoint
from helpers.paths import GOLDEN

FOLDER = os.path.join(GOLDEN, "plain_cells")
CASES = sorted(name for name in os.listdir(FOLDER) if os.path.isdir(os.path.join(FOLDER, name)))


class Case:
    """A checkpoint of the folder, and what is expected of it."""

    def __init__(self, name):
        case, self.expected = read_case(os.path.join("plain_cells", name))
        self.path = os.path.join(FOLDER, name, "model.ckpt")
        self.keys, self.rnns = case["keys"], case["rnns"]
        self.has_graph = os.path.exists(self.path + ".meta")
        # Only a graph tells different ones.
        self.facts = {} if self.has_graph else {"forget_bias": self.rnns[0]["forget_biases"][0]}

    def outputs(self, number):
        return self.expected["outputs_%d" % number]

    def copy(self, path, renamed=None, graph=True, **added):
        """Writes the tensors under other names, perhaps with others; returns the prefix."""
        arrays = dict(read_checkpoint(self.path), **added)
        renamed = renamed or (lambda key: key)
        checkpoint_format.save(str(path), {renamed(key): array for key, array in arrays.items()})
        if graph:
            shutil.copy(self.path + ".meta", str(path) + ".meta")
        return str(path)


def without_graph(folder, name="basic_trained"):
    """Copies a checkpoint without its graph; returns the prefix."""
    return Case(name).copy(os.path.join(str(folder), "model"), graph=False)


def inputs_by_scope(case):
    """Returns the inputs of each RNN of a case."""
    inputs = {rnn["scope"]: case.expected["inputs"] for rnn in case.rnns}
    if "encoder/lstm_fused_cell_1" in inputs:
        inputs["encoder/lstm_fused_cell_1"] = case.outputs(0)  # those of the cell below
    if "bidirectional_rnn/bw" in inputs:
        inputs["bidirectional_rnn/bw"] = inputs["bidirectional_rnn/bw"][::-1]
    return inputs
