"""The object graph of a checkpoint of `tf.train.Checkpoint`, and the cells in it."""

from __future__ import annotations

import collections
import re
from typing import Any, Dict, List, Set, Tuple

from cudnn_rnn.exchange.contents import LONGEST_SCOPE, ExchangeError
from cudnn_rnn.model.keys import NUMBER, OBJECT_GRAPH

_CELL = re.compile("cell-(%s)" % NUMBER)
_Cells = Dict[Tuple[int, int], Dict[str, str]]  # (layer, direction) -> name -> key


def object_graph(path: str, serialized: bytes) -> Any:
    """Returns the `TrackableObjectGraph` of an object-based checkpoint.

    Raises:
      ExchangeError: it is damaged, or refers to objects that it does not have.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    try:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(serialized)
    except DecodeError as error:
        raise ExchangeError("%s has a damaged %s: %s." % (path, OBJECT_GRAPH, error)) from error
    count = len(graph.nodes)
    ids = [child.node_id for node in graph.nodes for child in node.children]
    if not all(0 <= number < count for number in ids + [0]):
        raise ExchangeError(
            "%s has a damaged %s: of its %d objects, one refers to the number %d."
            % (path, OBJECT_GRAPH, count, max(ids + [0], key=abs))
        )
    return graph


def stacks(graph: Any, variables: Set[str], notes: List[str]) -> List[Tuple[str, _Cells]]:
    """Returns the path and the cells of each object with `cell-0`, or with these in fw and bw.

    Args:
      graph: a `TrackableObjectGraph`.
      variables: the names of the variables of cells.
      notes: list to which remarks are appended.

    The work is in proportion to the graph: each object is looked at once, wherever it is found.
    """
    objects = Objects(graph, variables)
    found, waiting, seen = [], collections.deque([0]), {0}
    owners: Dict[Any, str] = {}  # the path of the stack that has an object or a key
    while waiting:
        node = waiting.popleft()
        children = objects.children(node)
        directions = [node]
        if all("cell-0" in objects.children(children.get(way, node)) for way in ("fw", "bw")):
            directions = [children.get("fw", node), children.get("bw", node)]
        directions = list(dict.fromkeys(directions))
        owner = next((owners[direction] for direction in directions if direction in owners), None)
        cells = {}
        if owner is None:
            of_directions = [objects.cells(direction) for direction in directions]
            if all(of_directions):
                cells = {
                    (layer, way): variables
                    for way, by_layer in enumerate(of_directions)
                    for layer, variables in by_layer.items()
                }
            else:
                for name, child in children.items():
                    if child not in seen:
                        seen.add(child)
                        objects.parents[child] = node, name
                        waiting.append(child)
                continue
        path = objects.path(node)
        keys = [key for cell in cells.values() for key in cell.values()]
        owner = owner or next((owners[key] for key in keys if key in owners), None)
        if owner is not None:
            notes.append("%s has the variables of %s, which is read once." % (path, owner))
            continue
        owners.update(dict.fromkeys([*directions, *keys], path))
        found.append((path, cells))
    return found


class Objects:
    """The objects of a `TrackableObjectGraph` by number; `names` are those of variables."""

    def __init__(self, graph: Any, names: Set[str]):
        self._nodes, self._names = graph.nodes, names
        self._children: Dict[int, Dict[str, int]] = {}
        self._cells: Dict[int, Dict[int, Dict[str, str]]] = {}
        self._variables: Dict[int, Dict[str, str]] = {}
        self.parents: Dict[int, Tuple[int, str]] = {}  # (number, name of the child)

    def children(self, node):
        """Returns the numbers of an object's children by name."""
        if node not in self._children:
            children = self._nodes[node].children
            self._children[node] = {child.local_name: child.node_id for child in children}
        return self._children[node]

    def cells(self, node):
        """Returns the variables of the children `cell-<layer>` by layer; none if one has none."""
        if node not in self._cells:
            matches = [
                (_CELL.fullmatch(name), child) for name, child in self.children(node).items()
            ]
            found = {int(match.group(1)): self.variables(cell) for match, cell in matches if match}
            self._cells[node] = found if all(found.values()) else {}
        return self._cells[node]

    def variables(self, cell):
        """Returns the keys of a cell's variables by their names."""
        if cell not in self._variables:
            self._variables[cell] = {
                name: self._nodes[child].attributes[0].checkpoint_key
                for name, child in self.children(cell).items()
                if name in self._names and self._nodes[child].attributes
            }
        return self._variables[cell]

    def key(self, node):
        """Returns the key of a variable, "" if the object is none."""
        attributes = self._nodes[node].attributes
        return attributes[0].checkpoint_key if attributes else ""

    def path(self, node):
        """Returns the names on the way to an object; of a longer way than a scope, the end."""
        names: List[str] = []
        length = 0
        while node in self.parents and length <= LONGEST_SCOPE + 1:
            node, name = self.parents[node]
            names.append(name)
            length += len(name) + 1
        return "/".join(reversed(names))
