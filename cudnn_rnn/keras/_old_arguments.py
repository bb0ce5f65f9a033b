"""Arguments of Keras's layers that some version of Keras wrote and another one does not take."""

from __future__ import annotations

from typing import Any, Dict

# Arguments that some class of today does not have, and the value with which nothing is lost.
_NEUTRAL = {
    "time_major": False,
    "ragged": False,
    "sparse": False,
    "noise_shape": None,
    "seed": None,
    "groups": 1,
    "num_constants": None,
}


def without_neutral(config: Dict[str, Any]) -> Dict[str, Any]:
    """Returns a layer's configuration without the arguments that change nothing."""
    return {
        key: value
        for key, value in config.items()
        if not (key in _NEUTRAL and value == _NEUTRAL[key])
    }


def name_of_dtype(value: Any) -> Any:
    """Returns the dtype of a layer, or the name of its policy, as every Keras takes it."""
    return value["config"]["name"] if isinstance(value, dict) else value


def of_today(config: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the configuration of a recurrent layer that any Keras wrote, for today's."""
    changed = without_neutral(config)
    changed.pop("implementation", None)  # of two that compute the same
    if "dtype" in changed:
        changed["dtype"] = name_of_dtype(changed["dtype"])
    for key, value in changed.items():
        # Keras 1.x in TensorFlow 1 writes the dtype of initializers.
        if key.endswith("initializer") and isinstance(value, dict) and "dtype" in value["config"]:
            inner = {name: one for name, one in value["config"].items() if name != "dtype"}
            changed[key] = dict(value, config=inner)
    return changed
