"""The public interface is the one in public_api.txt: names, parameters and defaults."""

import os
import pkgutil

import cudnn_rnn
from cudnn_rnn._compat import IS_TENSORFLOW_1
from programs import public_api

ADVICE = """
The public interface differs from tests/api/public_api.txt:
    %s

docs/compatibility.md says which changes a release may make. If this one is allowed, write the file
again, in TensorFlow 1.15 and in 2.21, and name the change in CHANGELOG.md:
    python tests/programs/public_api.py"""

# Rooms of the package that users do not import from, although their names have no underscore.
INTERNAL = {"cells", "checkpoints", "cli", "graph", "model", "op_level", "tf1_layers"}


def test_public_api_is_the_recorded_one():
    expected, found = public_api.read(IS_TENSORFLOW_1), public_api.public_api()
    differences = ["- " + line for line in sorted(set(expected) - set(found))]
    differences += ["+ " + line for line in sorted(set(found) - set(expected))]
    assert not differences, ADVICE % "\n    ".join(differences)
    assert len(found) == len(set(found))


def test_every_public_module_is_recorded():
    folder = os.path.dirname(cudnn_rnn.__file__)
    names = {module.name for module in pkgutil.iter_modules([folder])}
    public = {name for name in names if not name.startswith("_")} - INTERNAL
    assert {"cudnn_rnn"} | {"cudnn_rnn." + name for name in public} == set(public_api.MODULES)


def test_differences_are_found():
    def function(a, b=1, *, c=None):
        return a, b, c

    class Model:
        size = 3

        def __init__(self, units):
            self.units = units

        @property
        def width(self):
            return self.units

    Model.__module__ = "cudnn_rnn.example"
    seen = {}
    assert list(public_api.describe("f", function, seen)) == ["f(a, b=1, *, c=None)"]
    assert list(public_api.describe("m.Model", Model, seen)) == [
        "m.Model: class",
        "m.Model.__init__(self, units)",
        "m.Model.size = 3",
        "m.Model.width: property",
    ]
    assert list(public_api.describe("n.Model", Model, seen)) == ["n.Model is m.Model"]
