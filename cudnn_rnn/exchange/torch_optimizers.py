"""The `state_dict` of an optimizer of PyTorch, by the names of the parameters.

It numbers the parameters in their order, which is that of the model's `state_dict` if the model has
no buffers and the optimizer one group with all parameters.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import numpy as np

from cudnn_rnn.exchange.contents import adam_powers

# What Adam and AdamW keep for each parameter, and SGD; the names of these slots in TensorFlow.
_ADAM, _SGD = {"step", "exp_avg", "exp_avg_sq"}, {"momentum_buffer"}
_SLOTS = {"exp_avg": "Adam", "exp_avg_sq": "Adam_1", "momentum_buffer": "Momentum"}


class State(NamedTuple):
    """The state of an optimizer.

    Attributes:
      slots: by the name of a slot and of a parameter, a tensor.
      powers: of Adam, see `contents.adam_powers`; empty for SGD.
    """

    slots: Dict[str, Dict[str, Any]]
    powers: Dict[str, np.ndarray]


def read(parameters: Mapping[str, Any], optimizer: Any) -> Optional[State]:
    """Returns the state of Adam or SGD, None if it does not certainly belong to the parameters.

    Args:
      parameters: the `state_dict` of the model.
      optimizer: what a file has as the `state_dict` of the optimizer.
    """
    names = list(parameters)
    states = _states(names, optimizer)
    if not states:
        return None
    kinds = set(states[0])
    if kinds not in (_ADAM, _SGD) or any(set(state) != kinds for state in states):
        return None
    slots = {
        slot: {name: state[kind] for name, state in zip(names, states)}
        for kind, slot in _SLOTS.items()
        if kind in kinds
    }
    pairs = [(tensor, parameters[name]) for slot in slots.values() for name, tensor in slot.items()]
    if not all(_fits(*pair) for pair in pairs):
        return None
    if kinds == _SGD:
        return State(slots, {})
    steps = [_number(state["step"]) for state in states]
    betas = optimizer["param_groups"][0].get("betas")
    if steps.count(steps[0]) != len(steps) or not isinstance(betas, (list, tuple)):
        return None
    powers = adam_powers(steps[0], betas)
    return None if powers is None else State(slots, powers)


def _states(names: List[str], optimizer: Any) -> List[Dict[str, Any]]:
    """Returns the state of each parameter; an empty list if there is none of some of them."""
    groups = optimizer.get("param_groups") if isinstance(optimizer, dict) else None
    states = optimizer.get("state") if isinstance(optimizer, dict) else None
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(states, dict):
        return []
    (group,) = groups
    numbers = list(range(len(names)))
    if not isinstance(group, dict) or not _is(group.get("params"), numbers):
        return []
    # Only optimizers of named_parameters() have these.
    if not _is(group.get("param_names", names), names) or set(states) != set(numbers):
        return []
    ordered = [states[number] for number in numbers]
    return ordered if all(isinstance(state, dict) for state in ordered) else []


def _is(found, expected):
    """Returns whether a value of a file is this list. Tensors in it are not compared."""
    return (
        isinstance(found, list)
        and list(map(type, found)) == list(map(type, expected))
        and found == expected
    )


def _fits(slot, parameter):
    """Returns whether a slot is a tensor of the parameter's shape and dtype."""
    return all(
        hasattr(slot, name) and getattr(slot, name) == getattr(parameter, name, None)
        for name in ("shape", "dtype", "layout", "device")
    )


def _number(step):
    """Returns the number of steps, a number or a tensor; -1 for anything else."""
    if type(step) in (int, float):
        return step
    is_scalar = getattr(step, "shape", None) == () and getattr(step, "is_cpu", False)
    return float(step) if is_scalar and step.is_floating_point() else -1
