"""Plain LSTM cells of TensorFlow 1: which cuDNN can replace, and the forget bias that they add.

The forget bias is in the graph, not in the checkpoint: the graph beside it tells, or `Facts`.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from cudnn_rnn.exchange.contents import ExchangeError, Facts, sentence
from cudnn_rnn.exchange.told_modes import ToldModes
from cudnn_rnn.model.keys import GRU_CELL, PEEPHOLES, PLAIN_CELLS, PROJECTION, parse_cell

Cell = Dict[str, str]  # keys by the name of the variable


class ForgetBiases(NamedTuple):
    """The forget biases of a stack of cells.

    Attributes:
      values: a float for each cell.
      note: str, what a user should know of them.
    """

    values: Tuple[float, ...]
    note: str


def kind_of_objects(cell: Cell, told: ToldModes) -> str:
    """Returns the scope that a cell of an object-based checkpoint makes, "" if nothing tells.

    Its keys do not have the scope, but the checkpoint keeps the names of the variables.
    """
    found = [
        parsed.kind for parsed in (parse_cell(told.name(key)) for key in cell.values()) if parsed
    ]
    if not found and any(part in cell for part in (*PEEPHOLES, PROJECTION)):
        return "lstm_cell"
    return found[0] if found else ""


def is_plain(kind: str) -> bool:
    """Returns whether cells of this scope are plain ones, or a GRU's that cuDNN cannot replace."""
    return kind in PLAIN_CELLS or kind == GRU_CELL


def refuse_others(kind: str, first: Cell, name: str) -> None:
    """Raises `ExchangeError` if cuDNN has no RNN that computes the same as these cells.

    Args:
      kind: the scope that they make.
      first: the first of them.
      name: what messages call them.
    """
    if kind == GRU_CELL:
        raise ExchangeError(
            "%s are those of a GRUCell or GRUBlockCell, whose reset gate multiplies the state "
            "before the product with the weights. cuDNN's GRU multiplies the product, so no "
            "weights of it compute the same. Train such a model with CudnnCompatibleGRUCell."
            % sentence(name)
        )
    peepholes = [variable for variable in PEEPHOLES if variable in first]
    if peepholes:
        raise _refused(kind, name, "has peepholes (%s)" % ", ".join(peepholes))


def forget_biases(
    kind: str, cells: Sequence[Cell], facts: Facts, told: ToldModes, name: str
) -> ForgetBiases:
    """Returns the forget biases of cells, in the order of `cells`.

    Raises:
      ExchangeError: nothing tells them, `facts` contradict the graph, or the graph shows that a
        cell computes what cuDNN does not.
    """
    values: List[float] = []
    sources = set()
    for cell in cells:
        keys = [cell[part] for part in ("bias", PROJECTION) if part in cell]
        flaws = {found.flaw for key in keys for found in told.cells(key)} - {""}
        if flaws:
            raise _refused(kind, name, "%s according to %s" % (min(flaws), told.graph_path))
        found = {one.forget_bias for one in told.cells(cell["bias"])}
        by_graph = found.pop() if len(found) == 1 else None
        value = facts.forget_bias if by_graph is None else by_graph
        if value is None:
            raise ExchangeError(_unknown(kind, name, len(found) > 0, told))
        if facts.forget_bias is not None and not _are_equal(value, facts.forget_bias):
            raise ExchangeError(
                "%s have the forget bias %g in the graph in %s, but forget_bias (--forget-bias) "
                "is %g. Leave the option out."
                % (sentence(name), value, told.graph_path, facts.forget_bias)
            )
        values.append(value)
        sources.add("forget_bias" if by_graph is None else "the graph in %s" % told.graph_path)
    note = "%s add a forget bias in every step: %s (%s). It became part of the bias." % (
        sentence(name),
        ", ".join("%g" % value for value in sorted(set(values))),
        ", ".join(sorted(sources)),
    )
    return ForgetBiases(tuple(values), note)


def _are_equal(first, second):
    """Returns whether two numbers are equal in float32, which graphs often have."""
    return np.float32(first) == np.float32(second)


def _unknown(kind, name, is_ambiguous, told):
    """Returns the text of the error for a forget bias that nothing tells."""
    if is_ambiguous:
        reason = "the graph in %s adds several to the same bias" % told.graph_path
    elif told.graph_path:
        reason = "it was not found in the graph in %s" % told.graph_path
    else:
        reason = "there is no graph (.meta) beside the checkpoint"
    return (
        "%s are those of %s, which adds its forget_bias in every step. The checkpoint does not "
        "have that number, and %s. Give forget_bias= (--forget-bias): the argument of the cell in "
        "your program, 1.0 if it has none." % (sentence(name), _title(kind), reason)
    )


def _refused(kind, name, flaw):
    return ExchangeError(
        "%s are those of %s that %s. cuDNN's LSTM does not compute this."
        % (sentence(name), _title(kind), flaw)
    )


def _title(kind):
    title = PLAIN_CELLS[kind]
    return ("an " if title[0] == "L" else "a ") + title
