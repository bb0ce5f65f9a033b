"""`tf.contrib.training.HParams`: hyperparameters by name, and their reading from text."""

from __future__ import annotations

import json
import numbers
import re
from typing import Any, Dict, NoReturn, Optional, Tuple

__all__ = ["HParams"]

# One assignment of `HParams.parse`, with the comma after it.
_ASSIGNMENT = re.compile(
    r"(?P<name>[A-Za-z][\w.]*)\s*(?P<index>\[\s*\d+\s*\])?\s*=\s*"
    r"(?:\[(?P<elements>[^\]]*)\]|(?P<scalar>[^,\[]*))(?:,\s*|$)"
)
_BOOLS = {"true": True, "True": True, "false": False, "False": False}


class HParams:
    """A set of hyperparameters, each an attribute, whose types are those of their first values.

    Values are numbers, booleans, strings, None, or non-empty lists of them.

    Args:
      hparam_def: must be None: the protocol buffer went away with `tf.contrib`.
      model_structure: any object, for `get_model_structure`.
      **kwargs: names and values.

    Raises:
      ValueError: a name is reserved, a list is empty, or `hparam_def` is not None.
    """

    def __init__(self, hparam_def: None = None, model_structure: Any = None, **kwargs: Any) -> None:
        if hparam_def is not None:
            raise ValueError(
                "hparam_def must be None, but is %r: the protocol buffer of hyperparameters went "
                "away with tf.contrib. Use to_json and parse_json." % (hparam_def,)
            )
        # By name: the type of the value or of its elements, and whether it is a list.
        self._hparam_types: Dict[str, Tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter.

        Raises:
          ValueError: the name is in use or reserved, or `value` is an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(
                "The name %r is in use, by a hyperparameter or by a method of HParams. Change a "
                "value with set_hparam, or choose another name." % name
            )
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(
                "The hyperparameter %s must have at least one element, which gives its type, but "
                "is %r." % (name, value)
            )
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Changes a hyperparameter; an int becomes a float if that is its type.

        Raises:
          KeyError: there is no hyperparameter of this name.
          ValueError: `value` has another type.
        """
        if name not in self._hparam_types:
            known = ", ".join(sorted(self._hparam_types)) or "none"
            raise KeyError("There is no hyperparameter %r. Known are: %s." % (name, known))
        setattr(self, name, _checked(name, value, *self._hparam_types[name]))

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter, if there is one of this name."""
        if self._hparam_types.pop(name, None) is not None:
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Changes hyperparameters as told by a text such as "rate=0.1,sizes=[3,4],tied=true".

        Booleans are true, True, false, False or an integer. Strings have no commas and brackets.

        Returns:
          This object.

        Raises:
          ValueError: the text cannot be parsed, or has an unknown name or a name twice.
        """
        found: Dict[str, Any] = {}
        place = 0
        while place < len(values):
            match = _ASSIGNMENT.match(values, place)
            if not match:
                _refuse(values, "%r is not name=value or name=[value,...]" % values[place:])
            name, value = self._value_of(match, values)
            if name in found:
                _refuse(values, "%s is assigned twice" % name)
            found[name] = value
            place = match.end()
        return self.override_from_dict(found)

    def _value_of(self, match, values):
        """Returns name and value of an assignment in the text `values`."""
        name, texts = match.group("name"), match.group("elements")
        if name not in self._hparam_types:
            known = ", ".join(sorted(self._hparam_types)) or "none"
            _refuse(values, "there is no hyperparameter %r; known are: %s" % (name, known))
        if match.group("index"):
            _refuse(values, "one element of %s is assigned; assign the whole list" % name)
        kind = self._hparam_types[name][0]
        if texts is None:
            return name, _parsed(match.group("scalar"), name, kind, values)
        elements = [text for text in re.split("[ ,]", texts) if text]
        return name, [_parsed(text, name, kind, values) for text in elements]

    def override_from_dict(self, values_dict: Dict[str, Any]) -> HParams:
        """Changes the hyperparameters of a dict, as `set_hparam` does; returns this object."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def set_from_map(self, values_map: Dict[str, Any]) -> HParams:
        """Does what `override_from_dict` does; the name of older releases."""
        return self.override_from_dict(values_map)

    def parse_json(self, values_json: str) -> HParams:
        """Changes the hyperparameters of a JSON object; returns this object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(
        self,
        indent: Optional[int] = None,
        separators: Optional[Tuple[str, str]] = None,
        sort_keys: bool = False,
    ) -> str:
        """Returns a JSON object of all hyperparameters; the arguments are those of `json.dumps`."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def set_model_structure(self, model_structure: Any) -> None:
        """Keeps an object for `get_model_structure`."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """Returns the object given as `model_structure`."""
        return self._model_structure

    def values(self) -> Dict[str, Any]:
        """Returns all hyperparameters as a dict."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a hyperparameter, or `default` if there is none of this name.

        Raises:
          ValueError: there is one, and `default` has another type.
        """
        if key not in self._hparam_types:
            return default
        if default is not None:
            _checked("default of " + key, default, *self._hparam_types[key])
        return getattr(self, key)

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return ",".join("%s=%s" % pair for pair in self.values().items())

    def __repr__(self) -> str:
        return "%s(%s)" % (type(self).__name__, sorted(self.values().items()))


def _refuse(values: str, problem: str) -> NoReturn:
    raise ValueError("Cannot parse the hyperparameters %r: %s." % (values, problem))


def _parsed(text, name, kind, values):
    """Returns the value that a text has in a type."""
    try:
        if kind is bool:
            return _BOOLS[text] if text in _BOOLS else bool(int(text))
        return kind(text)
    except (TypeError, ValueError):
        _refuse(values, "%s must be of type %s, but is %r" % (name, kind.__name__, text))


def _checked(name, value, kind, is_list):
    """Returns `value` in the type of a hyperparameter; raises `ValueError` for another type."""
    if isinstance(value, list) != is_list:
        expected = ("a list of %s" if is_list else "one %s") % kind.__name__
        raise ValueError("%s must be %s, but is %r." % (name, expected, value))
    if is_list:
        return [_converted(name, element, kind) for element in value]
    return _converted(name, value, kind)


def _converted(name, value, kind):
    if type(value) is kind or kind is type(None):
        return value
    fits = (
        (not issubclass(kind, (str, bytes)) or isinstance(value, (str, bytes)))
        and issubclass(kind, bool) == isinstance(value, bool)
        and (not issubclass(kind, numbers.Integral) or isinstance(value, numbers.Integral))
        and (not issubclass(kind, numbers.Number) or isinstance(value, numbers.Number))
    )
    if not fits:
        raise ValueError(
            "%s must be of type %s, but is %r of type %s."
            % (name, kind.__name__, value, type(value).__name__)
        )
    return kind(value)
