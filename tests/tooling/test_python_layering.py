"""Which modules may import each other, and which of them may test TensorFlow's version."""

import ast
import functools
import glob
import os
import re
from pathlib import Path

import pytest

from helpers.paths import ROOT, TESTS

pytestmark = pytest.mark.once

PACKAGE = os.path.join(ROOT, "cudnn_rnn")

# For each folder or module, what it may import of the package, and "TensorFlow" if it may import
# TensorFlow other than through `_compat`. Imports inside functions are in the second table.
# `model`, `exchange` and `_native` work without TensorFlow, and the commands of `cli` work even if
# TensorFlow is broken: test_what_works_without_tensorflow.
MAY_IMPORT = {
    "_version": [],
    "_disk": [],
    "_compat": ["TensorFlow"],
    "model": [],
    "exchange": ["_disk", "model"],
    "exchange.readers": ["TensorFlow"],  # programs of a child process
    "_native": ["_version", "model"],
    "_release_numbers": [],
    "graph": ["_compat", "_native", "model"],
    "tf1_layers": ["_compat", "graph"],
    "cells": ["_compat", "graph", "tf1_layers"],
    "plain": ["_compat", "graph", "_disk", "model", "TensorFlow"],
    "op_level": ["_compat", "graph", "model"],
    "cudnn_rnn_ops": ["_compat", "graph", "model"],
    "checkpoints": ["_compat", "graph", "model", "op_level"],
    "layers": ["_compat", "checkpoints", "graph", "model", "tf1_layers"],
    "saveables": ["checkpoints"],
    "opaque_saveable": ["saveables"],
    "contrib": [
        "_compat",
        "_release_numbers",
        "cudnn_rnn_ops",
        "graph",
        "layers",
        "model",
        "op_level",
        "tf1_layers",
        "TensorFlow",
    ],
    "_patches": ["_compat", "checkpoints", "graph"],
    "keras": ["_compat", "_patches", "exchange", "graph", "model", "TensorFlow"],
    "onnx": ["_compat", "exchange", "graph", "model", "plain", "TensorFlow"],
    "cli": ["_disk", "_release_numbers", "_version"],
    "__main__": ["cli"],
}
# What only functions import, so that the rest works without it.
FUNCTIONS_MAY_IMPORT = {
    "exchange": ["_compat", "TensorFlow"],
    "_native": ["_compat", "TensorFlow"],
    "onnx": ["keras"],
    "cli": ["_native", "TensorFlow"],
}
WITHOUT_TENSORFLOW = {
    "_version",
    "_release_numbers",
    "_disk",
    "model",
    "exchange",
    "_native",
    "cli",
    "__main__",
}
# The modules of `exchange` whose functions import TensorFlow: for checkpoints and for live Keras
# models.
EXCHANGE_WITH_TENSORFLOW = {
    "checkpoint_format",
    "checkpoint_objects",
    "keras_format",
    "meta_graphs",
    "tensor_bundle",
}
TESTS_THE_VERSION = re.compile(r"(VERSION|__version__)(\.startswith|\s*[<>=!]=|\s*[<>])")


def module_name(path):
    relative = os.path.relpath(path, PACKAGE)[: -len(".py")].replace(os.sep, ".")
    return re.sub(r"\.__init__$", "", relative)


# The paths of all modules by their names relative to the package.
PATHS = glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True)
MODULES = {module_name(path): path for path in PATHS}
FOLDERS = {name for name, path in MODULES.items() if path.endswith("__init__.py")} - {"__init__"}


@functools.lru_cache(maxsize=None)
def imports(module):
    """Returns what a module imports, two sets: when it is imported itself, and inside functions.

    The names are those of the package, without `cudnn_rnn.`, and "TensorFlow".
    """
    at_import, in_functions = set(), set()

    def visit(node, found):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = in_functions
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["%s.%s" % (node.module, alias.name) for alias in node.names]
        found |= {name[len("cudnn_rnn.") :] for name in names if name.startswith("cudnn_rnn.")}
        found |= {"TensorFlow" for name in names if name.split(".")[0] == "tensorflow"}
        for child in ast.iter_child_nodes(node):
            visit(child, found)

    visit(ast.parse(read(module)), at_import)
    return at_import, in_functions


def read(name):
    return Path(MODULES[name]).read_text(encoding="utf-8")


def row_of(module):
    """Returns the row of the tables for a module."""
    return max((row for row in MAY_IMPORT if is_in(module, [row])), key=len)


def is_in(name, folders):
    return any(name == folder or name.startswith(folder + ".") for folder in folders)


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"__init__"}))
def test_modules_import_only_from_allowed_folders(name):
    row = row_of(name)
    at_import, in_functions = imports(name)
    allowed = [*MAY_IMPORT[row], row]
    allowed_later = allowed + FUNCTIONS_MAY_IMPORT.get(row, [])
    assert [used for used in at_import if not is_in(used, allowed)] == []
    assert [used for used in in_functions if not is_in(used, allowed_later)] == []


def test_all_that_is_allowed_is_used():
    used = {row: (set(), set()) for row in MAY_IMPORT}
    for name in set(MODULES) - {"__init__"}:
        for known, found in zip(used[row_of(name)], imports(name)):
            known.update(found)
    for table, place in ((MAY_IMPORT, 0), (FUNCTIONS_MAY_IMPORT, 1)):
        for row, allowed in table.items():
            of_row = used[row][place]
            assert [one for one in allowed if not any(is_in(name, [one]) for name in of_row)] == []


def test_folders_have_no_import_cycles():
    done = ["TensorFlow"]
    for row, others in MAY_IMPORT.items():
        others = others + FUNCTIONS_MAY_IMPORT.get(row, [])
        assert {other.split(".")[0] for other in others} <= set(done), row
        done.append(row)
    assert "graph" in {used.split(".")[0] for used in imports("layers")[0]}


def listed(names):
    """Returns the names as a list in a sentence."""
    names = [name if name == "TensorFlow" else "`%s`" % name for name in names]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


@pytest.mark.parametrize("row", sorted(FOLDERS & set(MAY_IMPORT)))
def test_docstrings_of_packages_say_what_they_may_import(row):
    allowed, later = MAY_IMPORT[row], FUNCTIONS_MAY_IMPORT.get(row)
    sentence = "May import %s" % (listed(allowed) if allowed else "nothing of this package")
    if later:
        sentence += "; inside functions also %s" % listed(later)
    docstring = ast.get_docstring(ast.parse(read(row)))
    assert sentence + "." in " ".join(docstring.split())


def loaded_by(name, loaded):
    """Adds to the set `loaded` the modules that an import of `name` loads, and "TensorFlow"."""
    while name not in MODULES and name != "TensorFlow":
        name = name.rpartition(".")[0]  # from a class or function to its module
    if name in loaded:
        return loaded
    loaded.add(name)
    if name != "TensorFlow":
        for used in imports(name)[0] | {name.rpartition(".")[0] or name}:
            loaded_by(used, loaded)
    return loaded


def test_what_works_without_tensorflow():
    names = set(MODULES) - {"__init__"}
    needing = {row_of(name) for name in names if "TensorFlow" in loaded_by(name, set())}
    assert needing == set(MAY_IMPORT) - WITHOUT_TENSORFLOW
    of_exchange = [name for name in names if row_of(name) == "exchange"]
    found = {name for name in of_exchange if "TensorFlow" in imports(name)[1]}
    assert found == {"exchange." + name for name in EXCHANGE_WITH_TENSORFLOW}


def test_only_compat_tests_the_version_of_tensorflow():
    found = {name for name in MODULES if TESTS_THE_VERSION.search(read(name))}
    assert found == {"_compat"}


def test_no_positional_argument_follows_a_starred_one():
    """AutoGraph of TensorFlow 2.0 would exchange the two in all functions that it converts."""
    converted = {"op_level", "cudnn_rnn_ops", "layers", "graph", "tf1_layers", "cells", "keras"}
    assert converted <= FOLDERS | set(MODULES)
    for name in set(MODULES) - {"__init__"}:
        if row_of(name) not in converted:
            continue
        calls = [node for node in ast.walk(ast.parse(read(name))) if isinstance(node, ast.Call)]
        for call in calls:
            starred = [isinstance(argument, ast.Starred) for argument in call.args]
            assert starred == sorted(starred), "%s:%d" % (name, call.lineno)


def test_test_modules_import_none_of_each_other():
    paths = glob.glob(os.path.join(TESTS, "*", "test_*.py"))
    assert len(paths) > 60
    for path in paths:
        nodes = list(ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))))
        names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        for node in nodes:
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not [name for name in names if name.startswith("test_")], path
