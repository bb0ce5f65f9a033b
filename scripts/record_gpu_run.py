"""Creates docs/gpu/<date>-<gpu>.md and its picture from the results of a run on a GPU.

    python scripts/record_gpu_run.py .gpu/results [docs/gpu]

The first argument is the folder that contains stage_1_core, stage_2_tensorflow and
stage_3_benchmarks. The page states only what is in there; it records a missing stage as not run.
"""

import glob
import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree

STAGES = [
    ("stage_1_core", "Core without TensorFlow, compared with torch.nn"),
    ("stage_2_tensorflow", "Ops in TensorFlow"),
    ("stage_3_benchmarks", "Benchmarks"),
]


def read(path):
    """Returns a file's text, or None if there is no such file."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def describe_tests(path):
    """Returns the counts of a JUnit file, and a list of its failed tests, as Markdown."""
    root = ElementTree.parse(path).getroot()
    names = ("tests", "failures", "errors", "skipped")
    counts = [sum(int(suite.get(name, 0)) for suite in root.iter("testsuite")) for name in names]
    text = "%s: %d tests: %d passed, %d failed, %d errors, %d not run." % (
        os.path.splitext(os.path.basename(path))[0],
        counts[0],
        counts[0] - sum(counts[1:]),
        *counts[1:],
    )
    failed = [
        "- `%s.%s`" % (case.get("classname"), case.get("name"))
        for case in root.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return text + "\n\nFailed:\n\n" * bool(failed) + "\n".join(failed)


def describe_stage(folder, title):
    """Returns the Markdown section of a stage."""
    parts = ["## " + title]
    status = read(os.path.join(folder, "status.txt"))
    if status is None:
        return "\n\n".join(parts + ["Not run."])
    rows = [line.rsplit(" ", 1) for line in status.splitlines()]
    logs = ["libraries.log", "doctor.log", "compute_sanitizer.log"]
    results = {"0": "passed", "run": "not run", "124": "stopped at the time limit"}
    results["137"] = results["124"]
    lines = ["| part | result |", "| --- | --- |"]
    for name, code in rows:
        name = name.replace(" not", "")
        lines.append("| %s | %s |" % (name, results.get(code, "FAILED (%s)" % code)))
        if code not in results:
            logs.append(name + ".log")
    parts.append("\n".join(lines))
    parts += [describe_tests(path) for path in sorted(glob.glob(os.path.join(folder, "*.xml")))]
    for name in dict.fromkeys(logs):
        text = read(os.path.join(folder, name))
        if text:
            kept = "\n".join(text.strip().splitlines()[-30:])
            parts.append("End of %s:\n\n```\n%s\n```" % (name, kept))
    table = read(os.path.join(folder, "table.md"))
    if table:
        parts.append(table.strip())
    return "\n\n".join(parts)


def record(results, target):
    """Writes the page and returns its path."""
    versions = {}
    for stage, _ in STAGES:
        text = read(os.path.join(results, stage, "versions.json"))
        if text:
            versions.update(json.loads(text))
    if not versions:
        raise SystemExit(
            "No stage of %s has a versions.json, so there is nothing to record." % results
        )
    if "gpu" not in versions:
        raise SystemExit("This run saw no GPU (nvidia-smi), so there is nothing to record.")
    gpu = re.sub(r"[^a-z0-9]+", "-", versions["gpu"].lower()).strip("-")
    name = "%s-%s" % (versions["date"], gpu)
    lines = ["| component | version |", "| --- | --- |"]
    lines += [
        "| %s | %s |" % (key.replace("_", " "), value)
        for key, value in sorted(versions.items())
        if not key.endswith("_missing")
    ]
    parts = ["# %s, %s" % (versions["gpu"], versions["date"]), "\n".join(lines)]
    parts += [describe_stage(os.path.join(results, stage), title) for stage, title in STAGES]
    os.makedirs(target, exist_ok=True)
    picture = os.path.join(results, "stage_3_benchmarks", "ratios.png")
    if os.path.exists(picture):
        shutil.copy(picture, os.path.join(target, name + ".png"))
        parts.append("![our time divided by the peer's time](%s.png)" % name)
    path = os.path.join(target, name + ".md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(parts) + "\n")
    return path


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    default = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs/gpu")
    print(record(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else default))
