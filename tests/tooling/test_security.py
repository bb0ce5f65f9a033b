"""What SECURITY.md says of the code: which calls it does not have, and which libraries it opens."""

import ast
import glob
import os
import re
from pathlib import Path

import pytest

from helpers.paths import ROOT

pytestmark = pytest.mark.once

PACKAGE = os.path.join(ROOT, "cudnn_rnn")
MODULES = {
    os.path.relpath(path, PACKAGE): ast.parse(Path(path).read_text(encoding="utf-8"))
    for path in glob.glob(os.path.join(PACKAGE, "**", "*.py"), recursive=True)
}
SOURCES = {
    os.path.relpath(path, PACKAGE): Path(path).read_text(encoding="utf-8")
    for suffix in ("cc", "h", "inc")
    for path in glob.glob(os.path.join(PACKAGE, "cc", "**", "*." + suffix), recursive=True)
}
POLICY = Path(ROOT, "SECURITY.md").read_text(encoding="utf-8")

# The modules that may have each call or import; all that unpickle are forbidden everywhere.
ALLOWED_CALLS = {
    "eval": set(),
    "exec": {"cli/run.py"},
    "compile": {"cli/run.py", "keras/_training.py"},  # the second calls that of a Keras model
    "__import__": set(),
    "mktemp": set(),
    "system": set(),
    "popen": set(),
    "run_path": {"cli/run.py"},
    "run_module": {"cli/run.py"},
    "CDLL": {"_native/gpu_kernels.py", "_native/precision.py", "cli/doctor.py"},
    "load_op_library": {"_native/library.py"},
}
ALLOWED_IMPORTS = {
    "pickle": set(),
    "cPickle": set(),
    "dill": set(),
    "cloudpickle": set(),
    "joblib": set(),
    "marshal": set(),
    "shelve": set(),
    "yaml": set(),
    "subprocess": {"cli/doctor.py", "cli/export.py", "exchange/guarded.py"},
    "runpy": {"cli/run.py"},
    "socket": set(),
    "urllib.request": set(),
}


def calls(tree):
    """Returns (name, node) of every call; the name is the last part of a dotted one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            is_regular_expression = ast.dump(node.func).startswith(
                "Attribute(value=Name(id='re', ctx=Load())"
            )
            if name and not is_regular_expression:
                yield name, node


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_modules_are_found():
    assert len(MODULES) > 70 and len(SOURCES) > 100


@pytest.mark.parametrize("name", sorted(ALLOWED_CALLS))
def test_calls_that_run_code_are_only_where_allowed(name):
    found = {path for path, tree in MODULES.items() if name in dict(calls(tree))}
    assert found == ALLOWED_CALLS[name]


@pytest.mark.parametrize("name", sorted(ALLOWED_IMPORTS))
def test_imports_that_run_code_are_only_where_allowed(name):
    found = {path for path, tree in MODULES.items() if name in set(imports(tree))}
    assert found == ALLOWED_IMPORTS[name]


def arguments_of(name, module):
    """Returns the keyword arguments that are constants of each call of `module`'s function."""
    for tree in MODULES.values():
        for called, node in calls(tree):
            if called == name and module in ast.dump(node.func):
                yield {k.arg: getattr(k.value, "value", None) for k in node.keywords}


def test_readers_of_other_projects_do_not_unpickle():
    numpy, torch = list(arguments_of("load", "'np'")), list(arguments_of("load", "'torch'"))
    assert [one["allow_pickle"] for one in numpy] == [False]
    assert [one["weights_only"] for one in torch] == [True]
    everything = [k.arg for tree in MODULES.values() for _, n in calls(tree) for k in n.keywords]
    assert "safe_mode" not in everything and "shell" not in everything


def names_of_libraries(text):
    return set(re.findall(r"\blib\w+\.so\.[\d.*]*[\d*]", text))


def test_only_the_documented_libraries_are_opened():
    assert {path for path, text in SOURCES.items() if re.search(r"\bdlopen\(", text)} == {
        "cc/cudnn/gpu_libraries.cc"
    }
    of_sources = names_of_libraries(
        "".join(SOURCES["cc/cudnn/gpu_libraries." + suffix] for suffix in ("cc", "h"))
    )
    (table,) = re.findall(r"opens only these, by name.*?\n\n(\| .*?)\n\n", POLICY, re.DOTALL)
    assert names_of_libraries(table) == of_sources and len(of_sources) == 6


def test_the_documented_variables_are_read():
    for name in set(re.findall(r"`(CUDNN_RNN_\w+)", POLICY)):
        text = "".join(Path(PACKAGE, path).read_text(encoding="utf-8") for path in MODULES)
        assert name in text, name


def test_the_policy_is_linked_and_packed():
    for name in ("README.md", "CONTRIBUTING.md", "MANIFEST.in", "mkdocs.yml"):
        assert "SECURITY.md" in Path(ROOT, name).read_text(encoding="utf-8"), name
