"""Imports from benchmarks/, whose folders have modules with the same names."""

import contextlib
import os
import sys

from helpers.paths import ROOT

FOLDER = os.path.join(ROOT, "benchmarks")


def _is_of_the_benchmarks(module):
    return (getattr(module, "__file__", None) or "").startswith(FOLDER + os.sep)


def forget_modules(keep=()):
    """Unloads the modules of benchmarks/ except `keep`, so that they are imported again."""
    for name, module in list(sys.modules.items()):
        if _is_of_the_benchmarks(module) and name not in keep:
            del sys.modules[name]


@contextlib.contextmanager
def import_from(*folders):
    """Makes the modules of these folders of benchmarks/ importable within the context."""
    path = list(sys.path)
    sys.path[:0] = [os.path.join(FOLDER, folder) for folder in folders]
    forget_modules()
    try:
        yield
    finally:
        sys.path[:] = path
        forget_modules()
