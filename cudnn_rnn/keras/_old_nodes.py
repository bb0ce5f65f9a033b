"""The calls of a functional model's layers: as Keras 2 writes them, in the form of Keras 3.

Keras 2 lists the input tensors of a call, `[[layer, call, tensor, keywords], ...]`, the states of a
recurrent layer among them. Keras 3 has `args` and `kwargs`, as the program passed them.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

from cudnn_rnn.exchange import keras_configs

# Layers whose call takes initial states after the inputs.
TAKE_STATES = ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM2D", "Bidirectional", "TimeMajor")
# In place of a layer's name: the next but one value is no tensor of the model, but a constant.
_CONSTANT = "_CONSTANT_VALUE"


class Calls:
    """Translates the calls of one functional model.

    Keras 2 counts the calls of a model inside the model from 1, because its construction is call 0.
    Keras 3 counts them from 0 where other layers take the results, and from 1 where the results are
    those of the whole model, unless the model inside is a Sequential.
    """

    def __init__(self, entries: List[Any], output_layers: Any):
        """Takes the entries of a model's layers as in the file, and of its outputs."""
        self._classes = {entry["name"]: entry["class_name"] for entry in entries}
        models = {entry["name"] for entry in entries if keras_configs.is_container(entry)}
        self._first_calls = dict.fromkeys(self._classes, 0)
        self._functional = {name for name in models if self._classes[name] != "Sequential"}

        def find(reference):
            name, call = reference[:2]
            if name in models:
                self._first_calls[name] = min(call, self._first_calls[name] or call)
            self._map(reference[3:], find)

        self._map([[entry["inbound_nodes"] for entry in entries], output_layers], find)

    def node(self, name: str, class_name: str, node: Any) -> Dict[str, Any]:
        """Returns a call of the layer of this name; its class is today's."""
        del name
        named: Dict[str, Any] = {}

        def tensor(reference):
            for keywords in reference[3:]:
                named.update(keywords)
            return self._tensor(reference)

        inputs = self._map(node, tensor)
        if isinstance(inputs, list) and len(inputs) == 1:
            inputs = inputs[0]
        named = {
            key: self._map(value, self._tensor) for key, value in named.items() if value is not None
        }
        if class_name in TAKE_STATES and isinstance(inputs, list):
            inputs, *states = inputs
            named["initial_state"] = states
        return {"args": [inputs], "kwargs": named}

    def parents(self, entry: Any) -> List[str]:
        """Returns the names of the layers whose outputs a layer takes, but not as states."""
        names: List[str] = []
        for node in entry["inbound_nodes"]:
            found: List[str] = []
            self._map(node, lambda reference, found=found: found.append(reference[0]))
            takes_states = keras_configs.class_name_of(entry) in TAKE_STATES
            names += found[:1] if takes_states else found
        return names

    def arguments(self, node: Any) -> Tuple[List[Any], List[Any]]:
        """Returns the arguments of a function in the form of `_functions`, and their tensors."""
        named: Dict[str, Any] = {}
        tensors: List[Any] = []

        def place(reference):
            for keywords in reference[3:]:
                named.update(keywords)
            if reference[0] == _CONSTANT:
                return reference[2]
            tensors.append(self._tensor(reference))
            return {"tensor": len(tensors) - 1}

        first = self._map(node, place)
        of_call = {key: value for key, value in named.items() if key != "name"}
        return [first, {key: self._map(value, place) for key, value in of_call.items()}], tensors

    def ends(self, references: Any) -> Any:
        """Returns the inputs or the outputs of the model; a single one is not in a list."""
        found = self._map(references, self._end)
        is_single = isinstance(found, list) and len(found) == 1 and isinstance(found[0], list)
        return found[0] if is_single else found

    def _map(self, value: Any, function: Callable[[Any], Any]) -> Any:
        """Returns nested lists and dicts with `function` of each `[layer, call, tensor, ...]`."""
        if isinstance(value, dict):
            return {key: self._map(part, function) for key, part in value.items()}
        if not isinstance(value, list):
            return value
        is_reference = len(value) in (3, 4) and isinstance(value[0], str)
        is_known = is_reference and (value[0] in self._classes or value[0] == _CONSTANT)
        if is_known and type(value[1]) is int:
            return function(value)
        return [self._map(part, function) for part in value]

    def _tensor(self, reference):
        name, call, tensor = reference[:3]
        if name == _CONSTANT:
            return tensor
        return tensor_of([name, call - self._first_calls[name], tensor])

    def _end(self, reference):
        name, call, tensor = reference[:3]
        return [name, call - self._first_calls[name] + (name in self._functional), tensor]


def tensor_of(history: List[Any]) -> Dict[str, Any]:
    """Returns a tensor in a call of Keras 3; `history` is [layer, call, tensor]."""
    # Keras takes the shape and the dtype from the layer.
    config = {"shape": [], "dtype": "float32", "keras_history": history}
    return {"class_name": "__keras_tensor__", "config": config}


def layers_of(entry: Any) -> Any:
    """Returns the entries of a model's layers, None for a layer that is no model."""
    return keras_configs.entries_of(entry) if keras_configs.is_container(entry) else None
