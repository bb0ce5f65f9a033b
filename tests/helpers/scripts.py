"""Programs in scripts/ that tests load as modules."""

import importlib.machinery
import importlib.util
import os

from helpers.paths import ROOT

FOLDER = os.path.join(ROOT, "scripts")


def load_script(name, monkeypatch):
    """Returns the program, whose name has no suffix, as a new module; writes no compiled file."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(FOLDER, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
