"""`.pre-commit-config.yaml` runs the tools of `make lint`, in the versions of `scripts/lint.sh`."""

import re
from pathlib import Path

import pytest

from helpers.paths import ROOT

pytestmark = pytest.mark.once


def read(name):
    return Path(ROOT, name).read_text(encoding="utf-8")


def test_hooks_run_all_tools_of_lint_and_have_no_versions_of_their_own():
    config, script = read(".pre-commit-config.yaml"), read("scripts/lint.sh")
    entries = re.findall("^ +entry: (.*)$", config, re.MULTILINE)
    tools = re.findall(r"^ +([\w-]+)\) \"\$folder/bin/", script, re.MULTILINE)
    assert len(tools) >= 4
    assert sorted(entries) == sorted("bash scripts/lint.sh --fix " + tool for tool in tools)
    assert len(re.findall("- id:", config)) == len(tools)
    assert re.findall("- repo: (.*)", config) == ["local"]
    assert not re.search(r"rev:|additional_dependencies|\d\.\d", config)


def test_all_tools_of_lint_are_pinned():
    (requirements,) = re.findall("^make_requirements (.*)$", read("scripts/lint.sh"), re.MULTILINE)
    pinned = dict(re.findall(r"([\w-]+)==(\d+\.\d+\.\d+)", requirements))
    assert set(pinned) == {"ruff", "mypy", "clang-format"}
    assert "mypy %s has wheels" % pinned["mypy"] in read("scripts/lint.sh")
