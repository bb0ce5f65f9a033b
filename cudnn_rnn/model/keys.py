"""The keys of an RNN in a checkpoint: what each generation writes, and how it is recognized.

| generation | keys |
| --- | --- |
| `CANONICAL`: 1.0 to 1.2; in 1.3 with a prefix | `CudnnRNNParamsToCanonical[_<n>]:<i>` |
| `CELLS_WITH_BIASES`: 1.3 | those of cells, and `bias_cudnn_0`, `bias_cudnn_1` |
| `CELLS`: 1.4 to 1.15, programs with cells | `.../cudnn_compatible_lstm_cell/kernel`, ... |
| `PLAIN`: programs with other LSTM cells | `.../basic_lstm_cell/kernel`, ... |
| `OBJECTS`: `tf.train.Checkpoint` | `<path>/cell-<i>/kernel/.ATTRIBUTES/VARIABLE_VALUE` |
| `OPAQUE`: the opaque variable alone | `<scope>/opaque_kernel` |
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import (
    CUDNN_GRU,
    CUDNN_LSTM,
    CUDNN_RNN_RELU,
    CUDNN_RNN_TANH,
    RnnConfig,
)

CANONICAL, CELLS_WITH_BIASES, CELLS = "1.0 to 1.3", "1.3", "1.4 to 1.15"
PLAIN = "plain LSTM cells"
OBJECTS, OPAQUE = "tf.train.Checkpoint", "an opaque variable only"

OBJECT_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # names the objects of `tf.train.Checkpoint`
OPAQUE_NAME = "opaque_kernel"


class CellNames(NamedTuple):
    """The names of a cell and its variables.

    Attributes:
      cell: str, the scope that the cell makes.
      weights, biases: the names of its variables, in the order of `dialects.CELLS`.
      summands: the names of both summands of the first bias, in checkpoints of 1.3.
    """

    cell: str
    weights: Tuple[str, ...] = ("kernel",)
    biases: Tuple[str, ...] = ("bias",)
    summands: Tuple[str, ...] = ()


_BASIC_CELL = CellNames("basic_rnn_cell")
CELL_NAMES = {
    CUDNN_LSTM: CellNames("cudnn_compatible_lstm_cell", summands=("bias_cudnn_0", "bias_cudnn_1")),
    CUDNN_GRU: CellNames(
        "cudnn_compatible_gru_cell",
        (
            "gates/kernel",
            "candidate/input_projection/kernel",
            "candidate/hidden_projection/kernel",
        ),
        ("gates/bias", "candidate/input_projection/bias", "candidate/hidden_projection/bias"),
        ("bias_cudnn 0", "bias_cudnn 1"),  # the spaces are those of TensorFlow 1.3
    ),
    CUDNN_RNN_RELU: _BASIC_CELL,
    CUDNN_RNN_TANH: _BASIC_CELL,
}
# The LSTM cells of TensorFlow 1 that add a forget bias, by the scope that each makes. The last is
# the scope of LSTMBlockFusedCell in 1.0 to 1.4.
PLAIN_CELLS = {
    "basic_lstm_cell": "BasicLSTMCell",
    "lstm_cell": "LSTMCell or LSTMBlockCell",
    "lstm_fused_cell": "LSTMBlockFusedCell",
    "lstm_block_wrapper": "LSTMBlockFusedCell",
}
PROJECTION = "projection/kernel"  # the last weights of a plain cell that has a projection
PEEPHOLES = ("w_f_diag", "w_i_diag", "w_o_diag")
KERAS_KERNEL = "recurrent_kernel"  # of Keras's LSTMCell, whose scope is `lstm_cell`, too
GRU_CELL = "gru_cell"  # the scope of GRUCell and GRUBlockCell
_OLD_NAMES = {"weights": "kernel", "biases": "bias"}  # those of 1.0 and 1.1
_STACK, WAYS = "multi_rnn_cell/cell_%s", ("fw", "bw")
_BIDIRECTIONAL = "stack_bidirectional_rnn/cell_%s/bidirectional_rnn/%s"


def place_of_cell(layer: int, direction: int, num_directions: int) -> str:
    """Returns the scope that the cell of 1.4 to 1.15 is in, relative to that of the RNN."""
    if num_directions == 1:
        return "rnn/" + _STACK % layer
    return _BIDIRECTIONAL % (layer, WAYS[direction])


def keys_of_cells(config: RnnConfig) -> List[str]:
    """Returns the keys of 1.4 to 1.15 relative to the scope: all weights, then all biases."""
    names, ways = CELL_NAMES[config.rnn_mode], config.num_directions
    places = [
        place_of_cell(layer, way, ways) for layer in range(config.num_layers) for way in range(ways)
    ]
    return _of_all(places, names.cell, names.weights) + _of_all(places, names.cell, names.biases)


def keys_of_cells_1_3(config: RnnConfig) -> List[str]:
    """Returns the keys of a unidirectional LSTM or GRU in 1.3, in the order of `keys_of_cells`."""
    names = CELL_NAMES[config.rnn_mode]
    places = [_STACK % layer for layer in range(config.num_layers)]
    biases = names.biases + names.summands
    return _of_all(places, names.cell, names.weights) + _of_all(places, names.cell, biases)


def _of_all(places, cell, names):
    return ["%s/%s/%s" % (place, cell, name) for place in places for name in names]


def has_cells_in_1_3(config: RnnConfig) -> bool:
    """Returns whether 1.3 wrote an RNN as cells, and not as canonical tensors."""
    return bool(CELL_NAMES[config.rnn_mode].summands) and config.num_directions == 1


def keys_of_canonical(config: RnnConfig, number: int) -> List[str]:
    """Returns the keys of 1.0 to 1.2 of the RNN with this number in the graph: weights, biases."""
    node = "CudnnRNNParamsToCanonical" + ("V2" if config.num_proj else "")
    count = sum(1 for _ in layout.regions(config))
    suffix = "_%d" % number if number else ""
    return ["%s%s:%d" % (node, suffix, index) for index in range(count)]


def plain(key: str) -> str:
    """Returns a key without the suffix that `tf.train.Checkpoint` appends."""
    return key[: -len(OBJECT_SUFFIX)] if key.endswith(OBJECT_SUFFIX) else key


# How keys are recognized

# As TensorFlow writes it: 7, not 07, and not in other scripts' digits.
NUMBER = "(?:0|[1-9][0-9]{0,999})"
# The names of all variables of cells.
VARIABLES = {name for names in CELL_NAMES.values() for part in names[1:] for name in part}
VARIABLES.update(PEEPHOLES, (PROJECTION,))
# A scope may have any character: an RNN with a damaged one is an error, and is not passed over.
_CANONICAL = re.compile(
    r"(?:(?P<prefix>.*)/)?(?P<op>CudnnRNNParamsToCanonical(?:V2)?(?:_%s)?):(?P<index>%s)"
    % (NUMBER, NUMBER),
    re.DOTALL,
)
_CELL = re.compile(
    r"(?:(?P<prefix>.*)/)?(?P<cell>%s)/(?P<name>(?:gates/|candidate/\w+/)?"
    r"(?:kernel|bias|bias_cudnn[_ ][01]))"
    % "|".join(sorted({names.cell for names in CELL_NAMES.values()})),
    re.DOTALL,
)
_PLAIN_CELL = re.compile(
    r"(?:(?P<prefix>.*)/)?(?P<cell>(?P<kind>%s)(?:_%s)?)/(?P<name>(?:projection/)?(?:kernel|weights)"
    r"|bias|biases|%s|(?:gates|candidate)/(?:kernel|bias|weights|biases)|[wb]_(?:ru|c))"
    % ("|".join((*PLAIN_CELLS, GRU_CELL)), NUMBER, "|".join((*PEEPHOLES, KERAS_KERNEL))),
    re.DOTALL,
)
# Where cells are, in programs with the saveables, with tf.nn.dynamic_rnn or with
# bidirectional_dynamic_rnn. The last two are those of a single cell.
_LAYER, _WAY = r"(?P<layer>%s)" % NUMBER, r"(?P<way>%s)" % "|".join(WAYS)
_PLACES = [
    re.compile(r"(?:(?P<scope>.*)/)?" + place, re.DOTALL)
    for place in (
        "rnn/" + _STACK % _LAYER,
        _STACK % _LAYER,
        _BIDIRECTIONAL % (_LAYER, _WAY),
        "cell_%s/bidirectional_rnn/%s" % (_LAYER, _WAY),
        "bidirectional_rnn/" + _WAY,
        "rnn",
    )
] + [re.compile(r"(?P<scope>.*)", re.DOTALL)]
# The scope of cells whose place is similar to one of these.
MISSPELT = re.compile(r"(?:^|/)(?:multi_rnn_cell/cell_|bidirectional_rnn/(?!(?:fw|bw)$))[^/]*$")


class KeyOfCell(NamedTuple):
    """A key of a cell's variable.

    Attributes:
      stack: what the keys of one RNN have in common, comparable.
      scope: str, of the RNN.
      position: (layer, direction).
      name: str, of the variable in the cell.
      kind: str, the scope that such a cell makes.
    """

    stack: Tuple[int, str, str]
    scope: str
    position: Tuple[int, int]
    name: str
    kind: str


def parse_cell(key: str) -> Optional[KeyOfCell]:
    """Returns what a key of a cell's variable says, None for other keys."""
    match = _CELL.fullmatch(key) or _PLAIN_CELL.fullmatch(key)
    if not match:
        return None
    found = match.groupdict()
    cell = found["cell"]
    kind = found.get("kind") or cell
    places = [pattern.fullmatch(found["prefix"] or "") for pattern in _PLACES]
    number, place = next((i, place) for i, place in enumerate(places) if place)
    values: Dict[str, str] = place.groupdict()
    # The second cell of a kind in a scope is numbered.
    scope = "/".join(filter(None, (values["scope"], cell if cell != kind else "")))
    position = int(values.get("layer") or 0), int(values.get("way") == WAYS[1])
    *parts, last = found["name"].split("/")
    name = "/".join((*parts, _OLD_NAMES.get(last, last)))
    return KeyOfCell((number, scope, cell), scope, position, name, kind)


def is_of_own_cell(key: str) -> bool:
    """Returns whether a key is that of a variable of the platform-independent cells."""
    return _CELL.fullmatch(key) is not None


def is_opaque(key: str) -> bool:
    """Returns whether a key is that of a layer's opaque variable."""
    return key.split("/")[-1] == OPAQUE_NAME


def parse_canonical(key: str) -> Optional[Tuple[Tuple[str, str], int]]:
    """Returns ((prefix, name of the node), index) of a canonical tensor's key, else None."""
    match = _CANONICAL.fullmatch(key)
    if not match:
        return None
    return (match.group("prefix") or "", match.group("op")), int(match.group("index"))
