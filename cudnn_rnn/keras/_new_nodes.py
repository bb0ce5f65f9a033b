"""The calls of a functional model's layers: as Keras 3 writes them, in the form of Keras 2.

Keras 3 has `args` and `kwargs`, as the program passed them. Keras 2 lists the input tensors of a
call, `[[layer, call, tensor, keywords], ...]`, the states of a recurrent layer among them.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

from cudnn_rnn._compat import KERAS_LOADS_NAMED_TENSORS
from cudnn_rnn.exchange.contents import ExchangeError
from cudnn_rnn.exchange.keras_configs import class_name_of, inputs_of, is_container
from cudnn_rnn.keras._old_nodes import TAKE_STATES

_TENSOR = "__keras_tensor__"
# The modules of operations, which Keras 3 cannot load from HDF5.
OPERATIONS = "keras.src.ops."
# The operations with which layers of Keras 3 make masks, and functions that do the same.
MASK_OPERATIONS = {
    "NotEqual": "math.not_equal",
    "Any": "math.reduce_any",
    "LogicalAnd": "math.logical_and",
    "LogicalOr": "math.logical_or",
}


def is_mask_operation(entry: Any) -> bool:
    """Returns whether an entry of a model is an operation with which Keras 3 makes masks."""
    module = entry.get("module", OPERATIONS)  # HDF5 has no modules
    return str(module).startswith(OPERATIONS) and entry["class_name"] in MASK_OPERATIONS


def layer_of(tensor: Any) -> str:
    """Returns the name of the layer that makes a tensor of a call."""
    return tensor["config"]["keras_history"][0]


def calls_without_mask(node: Any) -> bool:
    """Returns whether a call of a recurrent layer has states, but leaves the mask to Keras."""
    named, inputs = node["kwargs"], node["args"][:1]
    has_tensor = bool(inputs) and isinstance(inputs[0], dict)
    return has_tensor and bool(named.get("initial_state")) and named.get("mask") is None


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
        named.pop("training", None)  # Keras 3 replaces it in each call of the model
        if class_name in TAKE_STATES and named.get("initial_state") is not None:
            inputs, states = arguments[0], named.pop("initial_state")
            arguments = [[inputs, *(states if isinstance(states, list) else [states])]]
        keywords = {key: self._named(value) for key, value in named.items() if value is not None}
        with_tensors = sorted(key for key in keywords if keywords[key] != named[key])
        if with_tensors and not KERAS_LOADS_NAMED_TENSORS:
            raise ExchangeError(
                "The layer %r takes the argument %r from another layer, which Keras of TensorFlow "
                "1.14 cannot load. Load the file in TensorFlow 1.15 or newer."
                % (name, with_tensors[0])
            )
        if len(arguments) != 1:
            raise ExchangeError(
                "The layer %r is called with %d arguments by position, which Keras 2 does not "
                "write. Save the model with all but the first by name." % (name, len(arguments))
            )
        inputs = arguments[0]
        is_one = isinstance(inputs, dict)
        return [[*self._reference(one), keywords] for one in ([inputs] if is_one else inputs)]

    def parents(self, entry: Any) -> List[str]:
        """Returns the names of the layers whose outputs a layer takes, but not as states."""
        names: List[str] = []
        for node in entry["inbound_nodes"]:
            takes_states = class_name_of(entry) in TAKE_STATES
            names += inputs_of(node["args"][:1] if takes_states else node["args"])
        return names

    def mask_operation(self, entry: Any) -> Tuple[Dict[str, Any], List[Any]]:
        """Returns the arguments of a `TensorFlowFunction` for an operation, and its only call."""
        (node,) = entry["inbound_nodes"]
        tensors = [one for one in node["args"] if isinstance(one, dict)]
        places = [{"tensor": number} for number in range(len(tensors))]
        if entry["class_name"] == "Any":
            settings = {key: entry["config"][key] for key in ("axis", "keepdims")}
        else:
            settings = {"y": places[1] if len(places) == 2 else node["args"][1]}
        config = {
            "name": entry["name"],
            "function": MASK_OPERATIONS[entry["class_name"]],
            "arguments": json.dumps([places[0], settings]),
        }
        return config, [[[*self._reference(tensor), {}] for tensor in tensors]]

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
