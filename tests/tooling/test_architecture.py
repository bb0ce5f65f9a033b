"""What docs/architecture.md mentions exists, and files are as short as CONTRIBUTING.md says."""

import fnmatch
import os
import re
from pathlib import Path

import pytest

from helpers.paths import ROOT

pytestmark = pytest.mark.once

# Where the paths of the document start.
STARTS = ("", "cudnn_rnn", "cudnn_rnn/cc", "docs")
FOLDERS = ("cudnn_rnn", "tests", "scripts", "docs", "benchmarks", "cmake")
IS_PATH = re.compile(r"\S*/\S*|\S+\.(py|cc|h|inc|md|bzl|txt)")
SUFFIXES = (".py", ".cc", ".h", ".inc", ".sh")
MOST_LINES = 500


def all_files():
    """Returns the paths of all files of the project, relative to it."""
    found = [name for name in os.listdir(ROOT) if os.path.isfile(os.path.join(ROOT, name))]
    for folder in FOLDERS:
        for place, _, names in os.walk(os.path.join(ROOT, folder)):
            found += [os.path.relpath(os.path.join(place, name), ROOT) for name in names]
    return [path.replace(os.sep, "/") for path in found if "__pycache__" not in path]


FILES = all_files()
FOLDERS_OF_FILES = {
    "/".join(path.split("/")[:end]) for path in FILES for end in range(1, path.count("/") + 1)
}
QUOTED = set(
    re.findall("`([^`\n]+)`", Path(ROOT, "docs", "architecture.md").read_text(encoding="utf-8"))
)
# The op library is built.
PATHS = sorted(text for text in QUOTED if IS_PATH.fullmatch(text) and not text.endswith(".so"))
NAMES = sorted(
    text for text in QUOTED - set(PATHS) if re.fullmatch(r"[A-Za-z_][\w.]*(\(\))?", text)
)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path):
    """Modules may lack their suffix, and a name without a folder may be in any folder."""
    pattern = re.sub("<[^>]+>", "*", path).rstrip("/")
    if "/" not in pattern:
        assert any(fnmatch.fnmatch(name.split("/")[-1], pattern) for name in FILES) or any(
            name.split("/")[-1] == pattern for name in FOLDERS_OF_FILES
        )
        return
    wanted = ["/".join(filter(None, (start, pattern))) for start in STARTS]
    known = [*FILES, *FOLDERS_OF_FILES]
    assert any(
        fnmatch.fnmatch(name, one + suffix)
        for one in wanted
        for suffix in ("", *SUFFIXES)
        for name in known
    )


def test_every_name_is_in_the_sources():
    sources = "".join(
        Path(ROOT, path).read_text(encoding="utf-8", errors="replace")
        for path in FILES
        if path.endswith((*SUFFIXES, ".bzl")) or path.startswith("scripts/") or "/" not in path
    )
    words = set(re.findall(r"\w+", sources))
    assert len(NAMES) > 100
    assert [name for name in NAMES if name.rstrip("()").split(".")[-1] not in words] == []


def test_files_are_short():
    lengths = {
        path: Path(ROOT, path).read_text(encoding="utf-8", errors="replace").count("\n")
        for path in FILES
        if path.startswith("scripts/") or (path.endswith(SUFFIXES) and not path.startswith("tests"))
    }
    assert len(lengths) > 200
    assert {path: number for path, number in lengths.items() if number > MOST_LINES} == {}
