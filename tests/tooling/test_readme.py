"""The example of the README, pasted, does what it says; the links of all pages lead somewhere."""

import glob
import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest

from helpers.paths import ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS


def read(page):
    return Path(ROOT, page).read_text(encoding="utf-8")


def test_the_program_of_the_readme_prints_its_documented_output(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", read("README.md"), re.DOTALL)
    promised = re.search(r"```\n\n    (\[.*\])\n", read("README.md")).group(1)
    # As if typed: -i reads statements one by one, so a block must end where a terminal ends it.
    process = subprocess.run(
        [sys.executable, "-i", "-c", "import sys; sys.ps1 = sys.ps2 = ''"],
        input=program,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        cwd=str(tmp_path),
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert "Error" not in process.stderr, process.stderr
    assert process.stdout.splitlines()[-1] == promised


def test_the_set_up_is_seen_without_scrolling():
    lines = read("README.md").splitlines()[:20]
    for command in ("make demo", "make test"):
        assert any(line.startswith("    " + command) for line in lines), command


def test_the_workflows_call_scripts_that_exist():
    called = set()
    for path in glob.glob(os.path.join(ROOT, ".github", "workflows", "*.yml")):
        called.update(re.findall(r"- run: (?:bash )?(\S+/\S+)", Path(path).read_text("utf-8")))
    programs = {"scripts/build_site.sh", "scripts/build_wheel", "scripts/try_wheel"}
    assert called == {".ci/run", ".github/prepare"} | programs
    for script in called:
        assert os.access(os.path.join(ROOT, script), os.X_OK) or script.endswith(".sh"), script


def pages():
    """Returns the paths of all pages, relative to the project."""
    paths = glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    found = sorted(os.path.relpath(path, ROOT) for path in paths)
    return ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] + found


def anchors(page):
    """Returns the anchors of a page's headings, as web sites make them from Markdown."""
    headings = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages())
def test_links_resolve(page):
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", read(page))
    for link in filter(None, sum(links, ())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        assert os.path.exists(os.path.join(ROOT, target)), link
        assert not anchor or anchor in anchors(target), link


@pytest.fixture
def site(monkeypatch):
    """Returns the hooks of the site, and what they add to the files of docs/."""

    class File:
        @staticmethod
        def generated(config, path, abs_src_path):
            assert os.path.exists(abs_src_path)
            return path

    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(sys.modules, "mkdocs.structure.files", types.SimpleNamespace(File=File))
    hooks = runpy.run_path("scripts/site_hooks.py")
    return hooks["on_page_markdown"], hooks["on_files"]([], None)


@pytest.mark.parametrize("page", [page for page in pages() if page != "README.md"])
def test_links_resolve_on_the_site(site, page):
    """docs/ is the root of the site, so that links must not lead out of it."""
    correct, added = site
    inside = os.path.relpath(page, "docs") if page.startswith("docs") else page
    described = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=inside))
    for link in re.findall(r"\]\(([^)#\s]+)", correct(read(page), described, None, None)):
        target = os.path.normpath(os.path.join(os.path.dirname(inside), link))
        is_inside = not target.startswith("..")
        is_there = is_inside and os.path.exists(os.path.join(ROOT, "docs", target))
        assert re.match(r"[a-z]+:", link) or target in added or is_there, link


def test_the_site_is_not_built_with_dead_links():
    """With --quiet, mkdocs counts no warnings, and --strict does not fail."""
    (command,) = re.findall(r"mkdocs build.*", read("scripts/build_site.sh"))
    assert "--strict" in command and "quiet" not in command
    assert "set -euo pipefail" in read("scripts/build_site.sh")
    assert "not_found: warn" in read("mkdocs.yml")
