"""scripts/run_mutants.sh: the survivors are mutants of the function whose result no test checks."""

import re
import subprocess
import sys

import pytest

from helpers.paths import ROOT
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.release, needs_tensorflow_2]  # mutmut needs Python 3.10
CPP = "int Sum(int a, int b) {\n  return a + b;\n}\nint Other(int a, int b) {\n  return a - b;\n}\n"
CPP_TEST = """#include "tests/core/testing.h"
int Sum(int, int), Other(int, int);
TEST(Planted) { EXPECT(Sum(5, 3) == 8 && (Other(5, 3) || true), "a sum"); }
"""
PYTHON = "def total(a, b):\n    return a + b\n\n\ndef other(a, b):\n    return a - b\n"
PY_TEST = "from cudnn_rnn.model.planted import *\ndef test(): other(5, 3); assert total(5, 3) == 8"


@pytest.mark.parametrize("file, text", [("cc/core/planted.cc", CPP), ("model/planted.py", PYTHON)])
def test_survivors(file, text, tmp_path):
    clone, file = tmp_path / "clone", "cudnn_rnn/" + file
    subprocess.check_call(["git", "clone", "--quiet", ROOT, str(clone)])
    with (clone / "cudnn_rnn/cc/sources.bzl").open("a") as sources:
        sources.write('CORE_SOURCES = ["core/planted.cc"]\nCPU_SOURCES = []\n')
    for path in clone.glob("tests/core/*_test.cc"):
        path.unlink()
    (clone / file).write_text(text)
    (clone / "tests/core/planted_test.cc").write_text(CPP_TEST)
    (clone / "tests/model/test_planted.py").write_text(PY_TEST)
    language = ["cpp"] if text == CPP else ["python", "--tests", "tests/model/test_planted.py"]
    command = ["env", "TEST_PYTHON=" + sys.executable, "bash", "scripts/run_mutants.sh", *language]
    output = subprocess.check_output([*command, file], cwd=str(clone)).decode()
    assert re.search(r"\b[1-9]\d* killed, [1-9]\d* survived", output), output
    changed = re.findall(r"^[-!] +(return a . b);?$", output, re.M)  # before; in C++ also after
    assert changed and "return a + b" not in changed, output
    assert (clone / file).read_text() == text
