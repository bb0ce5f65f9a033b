"""Which modules may import each other, and which of them may test TensorFlow's version."""

import ast
import glob
import os
import re
from pathlib import Path

import pytest

from helpers.paths import ROOT, TESTS

pytestmark = pytest.mark.once

PACKAGE = os.path.join(ROOT, "cudnn_rnn")

# For each folder or module, the modules of the package that it may import.
MAY_IMPORT = {
    "_version": [],
    "_disk": [],
    "model": [],
    "exchange": ["_disk", "model"],  # works without TensorFlow
    "_native": ["_version"],
    "_compat": [],
    "_core": ["_compat", "_native", "model"],
    "cells": ["_compat", "_core", "model"],
    "keras": ["_compat", "_core", "model"],
    "plain": ["_compat", "_core", "_disk", "model"],
    "op_level": ["_compat", "_core", "model"],
    "cudnn_rnn_ops": ["_compat", "_core", "model"],
    "checkpoints": ["_compat", "_core", "model", "op_level"],
    "layers": ["_compat", "_core", "checkpoints", "model"],
    "saveables": ["checkpoints"],
    "opaque_saveable": ["saveables"],
    "contrib": ["_compat", "_core", "cudnn_rnn_ops", "layers", "model", "op_level"],
    "_patches": ["_compat", "checkpoints"],
    # The commands must work even if TensorFlow is broken, so their imports must not need it.
    "cli": ["_version", "_core.release_numbers"],
    "__main__": ["cli"],
}
TESTS_THE_VERSION = re.compile(r"(VERSION|__version__)(\.startswith|\s*[<>=!]=|\s*[<>])")


def module_name(path):
    relative = os.path.relpath(path, PACKAGE)[: -len(".py")].replace(os.sep, ".")
    return re.sub(r"\.__init__$", "", relative)


# The paths of all modules by their names relative to the package.
PATHS = glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True)
MODULES = {module_name(path): path for path in PATHS}


def imports(text):
    """Returns the set of the package's modules that a source imports at import time.

    Imports inside functions do not count.
    """
    found, waiting = set(), list(ast.parse(text).body)
    for node in waiting:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["%s.%s" % (node.module, alias.name) for alias in node.names]
        else:
            continue
        found |= {name[len("cudnn_rnn.") :] for name in names if name.startswith("cudnn_rnn.")}
    return found


def read(name):
    return Path(MODULES[name]).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"__init__"}))
def test_modules_import_only_from_allowed_folders(name):
    folder = name.split(".")[0]
    allowed = "|".join(map(re.escape, MAY_IMPORT[folder] + [folder]))
    wrong = [used for used in imports(read(name)) if not re.match(r"(%s)(\.|$)" % allowed, used)]
    assert wrong == []


def test_folders_have_no_import_cycles():
    done = []
    for folder, others in MAY_IMPORT.items():
        assert {other.split(".")[0] for other in others} <= set(done), folder
        done.append(folder)
    assert "_core" in {used.split(".")[0] for used in imports(read("layers"))}


def test_only_compat_tests_the_version_of_tensorflow():
    found = {name for name in MODULES if TESTS_THE_VERSION.search(read(name))}
    assert found == {"_compat"}


def test_test_modules_import_none_of_each_other():
    paths = glob.glob(os.path.join(TESTS, "*", "test_*.py"))
    assert len(paths) > 60
    for path in paths:
        nodes = list(ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))))
        names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        for node in nodes:
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not [name for name in names if name.startswith("test_")], path
