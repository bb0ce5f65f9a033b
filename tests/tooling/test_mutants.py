"""scripts/run_mutants.sh: the survivors are mutants of the function whose result no test checks."""

import re
import subprocess
import sys

import pytest

from helpers.paths import ROOT
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.release, needs_tensorflow_2]  # mutmut needs Python 3.10
CPP, PYTHON = "cudnn_rnn/cc/core/planted.cc", "cudnn_rnn/model/planted.py"
FILES = {
    CPP: "int Next(int a) { return a + 1; }\nint Other(int x) { return x - 1; }\n",
    "tests/core/planted_test.cc": """#include "cudnn_rnn/cc/core/status.h"
#include "tests/core/testing.h"
int Next(int), Other(int);
TEST(Planted) { EXPECT(Next(5) == 6 && (Other(5) || true), "the next"); }
""",
    PYTHON: "def following(a):\n    return a + 1\n\n\ndef other(x):\n    return x - 1\n",
    "tests/model/test_planted.py": """from cudnn_rnn.model.planted import *
def test(): other(5); assert following(5) == 6
""",
}


@pytest.mark.parametrize("file", [CPP, PYTHON])
def test_survivors(file, tmp_path):
    clone = tmp_path / "clone"
    subprocess.check_call(["git", "clone", "--quiet", ROOT, str(clone)])
    for path in clone.glob("tests/core/*_test.cc"):
        if path.name != "team_test.cc":  # a program of its own
            path.unlink()
    for name, text in FILES.items():
        (clone / name).write_text(text)
    language = ["cpp"] if file == CPP else ["python", "--tests", "tests/model/test_planted.py"]
    command = ["env", "TEST_PYTHON=" + sys.executable, "bash", "scripts/run_mutants.sh", *language]
    output = subprocess.check_output([*command, file], cwd=str(clone)).decode()
    assert re.search(r"\b[1-9]\d* killed, [1-9]\d* survived", output), output
    assert set(re.findall(r"^[-!].*return (\w)", output, re.M)) == {"x"}, output
    assert (clone / file).read_text() == FILES[file]
