"""What a checkpoint and the files beside it tell of the modes of its RNNs, beyond the weights.

In the order of certainty: a graph beside the checkpoint, then the default name of a layer, in keys
and in the names that an object-based checkpoint keeps.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Set

from cudnn_rnn.exchange import meta_graphs
from cudnn_rnn.exchange.contents import ToldMode
from cudnn_rnn.exchange.graph_cells import ToldCell
from cudnn_rnn.model.keys import OPAQUE_NAME
from cudnn_rnn.model.spec import GATES

# The names that layers give themselves, alone or in the name of a variable.
_DEFAULT_NAME = re.compile(
    r"(?:.*/)?(?P<layer>cudnn_(?P<mode>%s)(?:_\d+)?)"
    r"(?:/(?:%s|(?:rnn|stack_bidirectional_rnn)/.*))?" % ("|".join(GATES), OPAQUE_NAME)
)


class ToldModes:
    """Answers what is told of each RNN of a checkpoint; reads the graph when first asked."""

    def __init__(self, prefix: str, objects: Optional[Any], notes: List[str]) -> None:
        """Takes the prefix of the checkpoint.

        Args:
          prefix: str.
          objects: its `TrackableObjectGraph`, or None.
          notes: list to which a remark on a damaged graph is appended.
        """
        self._prefix, self._notes = prefix, notes
        self._names: Dict[str, str] = {  # of variables by key
            attribute.checkpoint_key: attribute.full_name
            for node in (objects.nodes if objects else ())
            for attribute in node.attributes
        }
        self._graph: Optional[meta_graphs.ToldByGraph] = None
        self._is_read = False

    def name(self, key: str) -> str:
        """Returns the name of the variable in the program, "" if the checkpoint does not tell."""
        return self._names.get(key, "")

    def of(self, scope: str, keys: Sequence[str]) -> Optional[ToldMode]:
        """Returns what is told of the RNN with these keys, None if nothing is."""
        names = [*keys, *filter(None, map(self.name, keys))]
        graph = self._read_graph()
        by_key = graph.by_key if graph else {}
        told = self._told_by_graph(set().union(*[by_key.get(name, ()) for name in names]))
        if told is not None:
            return told
        matches = filter(None, map(_DEFAULT_NAME.fullmatch, [scope, *names]))
        layers = {match.group("mode"): match.group("layer") for match in matches}
        if len(layers) != 1:
            return None
        ((rnn_mode, layer),) = layers.items()
        return ToldMode(rnn_mode, "the name %s" % layer)

    def of_only_rnn(self) -> Optional[ToldMode]:
        """Returns the mode that all RNNs of the graph have, None if they differ or are unknown."""
        return self._told_by_graph(self.modes)

    def cells(self, key: str) -> Set[ToldCell]:
        """Returns all that the graph tells of the plain LSTM cell with this bias or projection."""
        graph = self._read_graph()
        cells = graph.cells if graph else {}
        return cells.get(key, set()) | cells.get(self.name(key), set())

    @property
    def modes(self) -> Set[str]:
        """The modes of all CudnnRNN* nodes of the graph."""
        graph = self._read_graph()
        return graph.all_modes if graph else set()

    @property
    def graph_path(self) -> Optional[str]:
        """The file of the graph, None if there is none that can be read."""
        graph = self._read_graph()
        return graph.path if graph else None

    def _told_by_graph(self, modes):
        if self._graph is None or len(modes) != 1:
            return None
        (rnn_mode,) = modes
        return ToldMode(rnn_mode, "the graph in %s" % self._graph.path)

    def _read_graph(self):
        if not self._is_read:
            self._is_read = True
            try:
                self._graph = meta_graphs.read(self._prefix)
            except ValueError as error:
                self._notes.append("%s It is not used." % error)
        return self._graph
