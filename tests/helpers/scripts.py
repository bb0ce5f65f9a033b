"""Programs of the project that tests load as modules."""

import importlib.machinery
import importlib.util
import os

from helpers.paths import ROOT

FOLDER = os.path.join(ROOT, "scripts")


def load_program(path):
    """Returns the program, with or without a suffix, as a new module that is not in sys.modules."""
    name = os.path.splitext(os.path.basename(path))[0]
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def load_script(name, monkeypatch):
    """Returns a file of scripts/ as a module; writes no compiled file."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.syspath_prepend(FOLDER)
    return load_program(os.path.join(FOLDER, name))
