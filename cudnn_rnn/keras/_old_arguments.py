"""Arguments of Keras's layers that some version of Keras wrote and another one does not take."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict

import tensorflow

keras = tensorflow.keras

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

# The policies of Keras 2 and 3 of which a layer needs only the name; a loss scale is the model's.
# Quantized policies have a name in the files of Keras 3.3.
_POLICIES = (
    "Policy",
    "PolicyV1",
    "DTypePolicy",
    "FloatDTypePolicy",
    "QuantizedDTypePolicy",
    "QuantizedFloat8DTypePolicy",
)


def without_neutral(config: Dict[str, Any]) -> Dict[str, Any]:
    """Returns a layer's configuration without the arguments that change nothing."""
    return {
        key: value
        for key, value in config.items()
        if not (key in _NEUTRAL and value == _NEUTRAL[key])
    }


def name_of_dtype(value: Any) -> Any:
    """Returns the dtype of a layer, or the name of its policy.

    Returns other policies unchanged: those of a program, and maps.
    """
    if not isinstance(value, dict) or not _is_of_keras(value):
        return value
    config = value.get("config")
    if value.get("class_name") in _POLICIES and isinstance(config, dict):
        return config.get("name", value)
    return value


def as_taken(dtype: Any) -> Any:
    """Returns the name of a dtype or policy in the form that layers of this Keras take.

    Returns all other values unchanged.
    """
    if not isinstance(dtype, str):
        return dtype
    try:
        tensorflow.as_dtype(dtype)
    except TypeError:
        return _form_of_policies()(dtype)
    return dtype


@functools.lru_cache(maxsize=None)
def _form_of_policies() -> Callable[[str], Any]:
    """Returns the function that makes of a policy's name what layers of this Keras take.

    Layers take the names of policies that are no dtypes since TensorFlow 2.5. Before that, they
    take the configuration of a policy; in TensorFlow 1 and 2.0, only the object.
    """
    for form in (str, _config_of_policy, _policy):
        try:
            keras.layers.Layer(name="trial", dtype=form("mixed_bfloat16"))
        except (TypeError, ValueError, AttributeError):
            continue
        return form
    return str  # the layer then raises Keras's error


def _config_of_policy(name):
    return {"class_name": "Policy", "config": {"name": name}}


def _policy(name):
    return keras.mixed_precision.experimental.Policy(name)


def _is_of_keras(entry):
    """Returns whether an object has a class of Keras, instead of one of the program."""
    return not entry.get("registered_name") and ">" not in str(entry.get("class_name"))


def of_today(config: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the configuration of a recurrent layer that any Keras wrote, for today's."""
    changed = without_neutral(config)
    changed.pop("implementation", None)  # of two that compute the same
    if "dtype" in changed:
        changed["dtype"] = as_taken(name_of_dtype(changed["dtype"]))
    for key, value in changed.items():
        # Keras 1.x in TensorFlow 1 writes the dtype of initializers.
        is_object = isinstance(value, dict) and isinstance(value.get("config"), dict)
        if key.endswith("initializer") and is_object and _is_of_keras(value):
            inner = {name: one for name, one in value["config"].items() if name != "dtype"}
            changed[key] = dict(value, config=inner)
    return changed
