"""The rules of the C++ sources that a compiler does not check, on the checkout this file is in."""

import os
import re
from pathlib import Path

import pytest

from helpers.paths import ROOT

pytestmark = pytest.mark.once

SOURCE_FOLDER = os.path.join(ROOT, "cudnn_rnn", "cc")
FRAMEWORK_FREE = ["core", "cpu", "cudnn", "engine"]  # they build and are tested without TensorFlow

FOREIGN_INCLUDE = re.compile(
    r'^\s*#\s*include\s*[<"]((?:tensorflow|third_party|unsupported|absl|tsl|xla|google|Eigen)\b[^>"]*)'
)
OUR_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
# Nothing a user's graph can contain may end the process.
ENDS_THE_PROCESS = re.compile(
    r"\b(D?CHECK(_[A-Z]+)?|TF_CHECK_OK|TF_QCHECK_OK|QCHECK(_[A-Z]+)?|assert|abort|_?exit|quick_exit"
    r"|terminate|ValueOrDie)\s*\(|\bLOG\s*\(\s*FATAL|<cassert>|<assert\.h>|__builtin_trap"
)


def source_files(folder=SOURCE_FOLDER):
    """Returns the path of every C++ file below `folder`."""
    endings = (".cc", ".h", ".inc", ".cpp", ".hpp", ".cxx")
    return [path for path in sorted(Path(folder).rglob("*")) if path.suffix in endings]


def code_lines(path):
    """Returns (line number, line) without comments and the contents of string literals."""
    text = Path(path).read_text(encoding="utf-8")
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

    def blank(match):
        token = match.group()
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if token.startswith('"'):
            return token if before.lstrip().startswith("#") else '""'  # include lines stay
        return "\n" * token.count("\n")

    return list(enumerate(pattern.sub(blank, text).split("\n"), 1))


def findings(paths, is_wrong):
    """Returns the places of the lines for which `is_wrong`, a function, returns a true value."""
    return [
        "%s:%d: %s" % (os.path.relpath(path, ROOT), number, line.strip())
        for path in paths
        for number, line in code_lines(path)
        if is_wrong(line)
    ]


@pytest.mark.parametrize("folder", FRAMEWORK_FREE)
def test_no_framework_header_outside_cc_tf(folder):
    """Including a header of cc/tf would bring TensorFlow in by the back door."""
    paths = source_files(os.path.join(SOURCE_FOLDER, folder))
    assert paths, "no sources in cc/" + folder
    assert findings(paths, FOREIGN_INCLUDE.search) == []
    assert findings(paths, re.compile(r'#\s*include\s*"cudnn_rnn/cc/tf/').search) == []


# What an adapter may include besides its own headers: the engine's interface, and the part of the
# core that both sides compile (cmake/adapters.cmake) or that has no .cc file.
SHARED = re.compile(
    r'"cudnn_rnn/cc/(engine/(engine|conversions)|core/(environment|exceptions|param_layout'
    r'|reserve_space|rnn_config|rnn_plan|status))\.h"'
)


def test_an_adapter_knows_the_engine_only_by_its_interface():
    def is_wrong(line):
        match = re.match(r'\s*#\s*include\s*("cudnn_rnn/cc/(?!tf/)[^"]+")', line)
        return match and not SHARED.match(match.group(1))

    assert findings(source_files(os.path.join(SOURCE_FOLDER, "tf")), is_wrong) == []


def test_includes_of_the_project_are_from_its_root_and_exist():
    def is_wrong(line):
        match = None if FOREIGN_INCLUDE.match(line) else OUR_INCLUDE.match(line)
        return match and not os.path.exists(os.path.join(ROOT, match.group(1)))

    assert findings(source_files(), is_wrong) == []


def test_no_source_ends_the_process():
    assert findings(source_files(), ENDS_THE_PROCESS.search) == []


def test_the_checks_find_violations(tmp_path):
    path = tmp_path / "sample.cc"
    path.write_text(
        '#include "tensorflow/core/framework/op.h"\n#include <unsupported/Eigen/CXX11/Tensor>\n'
        "#include <vector>\n// CHECK(this) is a comment\nCHECK_EQ(1, 2);\n/* abort(); */ abort();\n"
        'Error("exit(1) in a text");\nstd::exit(1);\nstatic_assert(true, "");\nLOG(FATAL) << 1;\n'
    )
    for pattern, lines in (FOREIGN_INCLUDE, "1 2"), (ENDS_THE_PROCESS, "5 6 8 10"):
        found = findings([str(path)], pattern.search)
        assert [item.split(":")[1] for item in found] == lines.split()
