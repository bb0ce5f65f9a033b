"""scripts/record_gpu_run.py: the page of a lease, and what it refuses."""

import json
import os
import shutil

import pytest

from helpers.paths import ROOT
from helpers.processes import status_and_text

pytestmark = pytest.mark.once


def write_run(folder):
    """Writes results of both leases; a test of lease A failed, lease B was killed in a part."""
    for lease in ("lease_a", "lease_b"):
        (folder / lease).mkdir()
        (folder / lease / "versions.json").write_text(
            json.dumps(
                {
                    "date": "2001-02-03",
                    "gpu": "NVIDIA X200 (PCIe)",
                    "driver": "999.1",
                    "cudnn_rnn_commit": "abc1234",
                }
            )
        )
    records = [
        dict(test=test, event=event, part="cases", text=text)
        for test, event, text in [
            ("good", "started", ""),
            ("bad", "started", ""),
            ("good", "passed", ""),
            ("bad", "failed", "a line\nthe error"),
            ("bad", "failed", "the worker died"),
            ("late", "started", ""),
            ("late", "skipped", "not run within --seconds"),
            ("stuck", "started", ""),
        ]
    ]
    records[2]["found"] = {"bytes": 7}
    text = "\n".join(map(json.dumps, records)) + '\n{"test": "in the mid'
    (folder / "lease_a" / "tests.jsonl").write_text(text)
    (folder / "lease_a" / "status.txt").write_text("smoke 1 7\ncases 1 42\nmemcheck not_run 0\n")
    log = "\n== smoke\n\n== cases\nwhy it failed in /a/b/.gpu/run/c.py and '/d/bin/python'\n"
    (folder / "lease_a" / "log.txt").write_text(log)
    (folder / "lease_b" / "status.txt").write_text("versions 0 3\n")
    (folder / "lease_b" / "log.txt").write_text("\n== benchmark\nhow far it got\n")
    (folder / "lease_b" / "table.md").write_text("| a table |\n")
    (folder / "lease_b" / "ratios.png").write_bytes(b"a picture")


def record_run(*arguments):
    script = os.path.join(ROOT, "scripts", "record_gpu_run.py")
    return status_and_text(script, *arguments)


def test_record_of_a_run(tmp_path):
    write_run(tmp_path)
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status == 0, printed
    assert printed.strip() == str(tmp_path / "docs" / "2001-02-03-nvidia-x200-pcie-abc1234.md")
    with open(printed.strip()) as file:
        text = file.read()
    for part in [
        "# NVIDIA X200 (PCIe), 2001-02-03",
        "| driver | 999.1 |",
        "**The smoke test did not pass",
        "| cases | FAILED (1) | 42 |",
        "| memcheck | not run | 0 |",
        "cases: 4 tests: 1 passed, 1 failed, 1 unfinished, 1 not run.",
        "Failed:\n\n- `bad`: the error\n\nUnfinished:\n\n- `stuck`\n",
        'Recorded values:\n\n- `good`: {"bytes": 7}\n',
        "End of the log of cases:\n\n```\nwhy it failed in .gpu/run/c.py and '.../bin/python'\n```",
        "| versions | passed | 3 |",
        "| benchmark | UNFINISHED: the lease was killed | - |",
        "how far it got",
        "| a table |",
        "(2001-02-03-nvidia-x200-pcie-abc1234-lease_b.png)",
    ]:
        assert part in text, (part, text)
    assert (tmp_path / "docs" / "2001-02-03-nvidia-x200-pcie-abc1234-lease_b.png").exists()


def test_a_missing_lease_is_recorded_as_not_run(tmp_path):
    write_run(tmp_path)
    shutil.rmtree(str(tmp_path / "lease_b"))
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status == 0, printed
    with open(printed.strip()) as file:
        assert "## Ops in TensorFlow\n\nNot run." in file.read()


def test_runs_without_a_gpu_are_not_recorded(tmp_path):
    write_run(tmp_path)
    for lease in ("lease_a", "lease_b"):
        text = '{"date": "2001-02-03", "nvidia_smi_missing": "why it failed"}'
        (tmp_path / lease / "versions.json").write_text(text)
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status != 0 and "names a GPU. The reason: why it failed" in printed
    assert not (tmp_path / "docs").exists()


def test_missing_versions_are_named(tmp_path):
    write_run(tmp_path)
    (tmp_path / "lease_a" / "versions.json").unlink()
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status == 0, printed
    with open(printed.strip()) as file:
        assert "`versions.json` is missing" in file.read()
    (tmp_path / "lease_b" / "versions.json").unlink()
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status != 0 and str(tmp_path / "lease_a" / "versions.json") in printed


def test_versions_are_written_before_an_import_ends_the_process(tmp_path):
    (tmp_path / "numpy.py").write_text("__version__ = '1.2'\n")
    (tmp_path / "torch.py").write_text("import os\nos._exit(7)\n")
    script = os.path.join(ROOT, "scripts", "gpu_versions.py")
    path = tmp_path / "versions.json"
    status, _ = status_and_text("-S", script, path, PYTHONPATH=str(tmp_path))
    assert status == 7 and json.loads(path.read_text())["numpy"] == "1.2"
