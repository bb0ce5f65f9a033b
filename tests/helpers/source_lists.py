"""The lists of C++ files that both builds use."""

import os
import runpy

from helpers.paths import ROOT

SOURCE_FOLDER = os.path.join(ROOT, "cudnn_rnn", "cc")


def source_lists():
    """Returns the lists of sources and headers in sources.bzl by name."""
    lists = runpy.run_path(os.path.join(SOURCE_FOLDER, "sources.bzl"))
    return {name: lists[name] for name in lists if name.endswith(("_SOURCES", "HEADERS"))}
