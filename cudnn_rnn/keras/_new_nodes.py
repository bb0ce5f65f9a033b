"""The calls of a functional model's layers: as Keras 3 writes them, in the form of Keras 2.

Keras 3 has `args` and `kwargs`, as the program passed them. Keras 2 lists the input tensors of a
call, `[[layer, call, tensor, keywords], ...]`, the states of a recurrent layer among them.
"""

from __future__ import annotations

from typing import Any, List

from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.exchange.keras_configs import is_container
from cudnn_rnn.keras._old_nodes import TAKE_STATES

_TENSOR = "__keras_tensor__"


class Calls:
    """Translates the calls of one functional model; `_old_nodes.Calls` is the reverse.

    Keras 2 counts the calls of a model inside the model from 1, because its construction is call 0.
    """

    def __init__(self, entries: List[Any]):
        """Takes the entries of a model's layers as in the file."""
        self._models = {
            entry["name"]: entry["class_name"] for entry in entries if is_container(entry)
        }

    def node(self, name: str, class_name: str, node: Any) -> List[Any]:
        """Returns a call of the layer of this name."""
        arguments, named = list(node["args"]), dict(node["kwargs"])
        if class_name in TAKE_STATES and named.get("initial_state") is not None:
            inputs, states = arguments[0], named.pop("initial_state")
            arguments = [[inputs, *(states if isinstance(states, list) else [states])]]
        keywords = {key: self._named(value) for key, value in named.items() if value is not None}
        if len(arguments) != 1:
            raise ExchangeError(
                "The layer %r is called with %d arguments by position, which Keras 2 does not "
                "write. Save the model with all but the first by name." % (name, len(arguments))
            )
        inputs = arguments[0]
        is_one = isinstance(inputs, dict)
        return [[*self._reference(one), keywords] for one in ([inputs] if is_one else inputs)]

    def ends(self, references: Any) -> List[Any]:
        """Returns the inputs or the outputs of the model as a list of tensors."""
        is_one = bool(references) and isinstance(references[0], str)
        return [
            [name, call + (self._models.get(name) == "Sequential"), tensor]
            for name, call, tensor in ([references] if is_one else references)
        ]

    def _reference(self, value):
        if not isinstance(value, dict) or value.get("class_name") != _TENSOR:
            raise ExchangeError("An input of a layer is %r instead of a tensor." % (value,))
        name, call, tensor = value["config"]["keras_history"]
        return [name, call + (name in self._models), tensor]

    def _named(self, value):
        """Returns an argument that was passed by name."""
        if isinstance(value, dict) and value.get("class_name") == _TENSOR:
            return self._reference(value)
        return [self._named(one) for one in value] if isinstance(value, list) else value
