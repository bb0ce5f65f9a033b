"""The nodes of a graph, and the edges between them: which variable is read, which keys are saved.

Each edge is followed once. Graphs from strangers may have cycles, and edges from no node.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

SUMS = ("BiasAdd", "Add", "AddV2")  # their second operand is the bias
_VARIABLES = ("VarHandleOp", "Variable", "VariableV2")
# From a variable to its user.
_PASSING = (
    "Cast",
    "Enter",
    "Identity",
    "ReadVariableOp",
    "RefEnter",
    "RefSwitch",
    "Reshape",
    "Squeeze",
    "Switch",
)
# From canonical tensors to the tensors of a saveable.
_REARRANGING = SUMS + (
    "Cast",
    "Concat",
    "ConcatV2",
    "ExpandDims",
    "Identity",
    "Mul",
    "Pack",
    "Reshape",
    "Slice",
    "Split",
    "SplitV",
    "Squeeze",
    "StridedSlice",
    "Sub",
    "Transpose",
    "Unpack",
)
# The ops that save tensors, and the number of the first input that is one. Input 1 has the keys.
_SAVERS = {"SaveV2": 3, "SaveSlices": 3, "Save": 2}


class Nodes:
    """The nodes of a graph by name, and their edges."""

    def __init__(self, nodes: Iterable[Any]) -> None:
        self.by_name = {node.name: node for node in nodes}
        self._variables: Dict[str, Any] = {}  # by the name of a node that reads it, or None
        self._users: Optional[Dict[Tuple[str, str], List[Any]]] = None

    def input(self, node: Any, number: int) -> Any:
        """Returns the node that computes an input, None if there is none."""
        return self.by_name.get(_name(node.input[number])) if number < len(node.input) else None

    def variable(self, node: Any) -> Any:
        """Returns the node of the variable that a node passes on, None if it does not."""
        passed = []
        while node is not None and node.name not in self._variables and node.op in _PASSING:
            self._variables[node.name] = None  # ends cycles
            passed.append(node.name)
            node = self.input(node, 0)
        if node is None:
            variable = None
        elif node.name in self._variables:
            variable = self._variables[node.name]
        else:
            variable = node if node.op in _VARIABLES else None
        self._variables.update(dict.fromkeys(passed, variable))
        return variable

    def users(self, node: Any, output: int, operations: Sequence[str]) -> List[Any]:
        """Returns the nodes of these ops whose first or second input is an output of a node."""
        if self._users is None:
            self._users = {}
            for user in self.by_name.values():
                for edge in set(user.input[:2]):
                    name, _, number = edge.partition(":")
                    self._users.setdefault((name, number or "0"), []).append(user)
        users = self._users.get((node.name, str(output)), [])
        return [user for user in users if user.op in operations]

    def reached(self, names: Iterable[str]) -> Set[str]:
        """Returns the names of the nodes that rearrange the outputs of nodes with these names."""
        users = self._users_that_rearrange()
        seen, waiting = set(names), list(names)
        while waiting:
            new = [name for name in users.get(waiting.pop(), ()) if name not in seen]
            seen.update(new)
            waiting += new
        return seen

    def _users_that_rearrange(self):
        users: Dict[str, List[str]] = {}
        for node in self.by_name.values():
            for edge in node.input if node.op in _REARRANGING else ():
                users.setdefault(_name(edge), []).append(node.name)
        return users

    def saved(self) -> Iterator[Tuple[str, Any]]:
        """Yields (key, node) for all tensors that a node saves."""
        for node in self.by_name.values():
            if node.op not in _SAVERS:
                continue
            names = self.input(node, 1)
            keys = names.attr["value"].tensor.string_val if names is not None else ()
            for key, edge in zip(keys, node.input[_SAVERS[node.op] :]):
                if _name(edge) in self.by_name:
                    yield key.decode("utf-8", "replace"), self.by_name[_name(edge)]


def name_of_variable(node: Any) -> str:
    """Returns the name of a variable in the program, given its node."""
    return node.attr["shared_name"].s.decode("utf-8", "replace") or node.name


def _name(edge):
    """Returns the name of the node that an edge starts at; that of a control edge is no name."""
    return edge.split(":")[0]
