"""Creates docs/gpu/<date>-<gpu>-<commit>.md and its pictures from the results of a GPU's leases.

    python scripts/record_gpu_run.py .gpu/run/results [docs/gpu]

The first argument is the folder that contains lease_a or lease_b. The page states only what is in
there; it records a missing lease as not run.
"""

import json
import os
import re
import shutil
import sys

LEASES = [
    ("lease_a", "Core without TensorFlow, compared with torch.nn"),
    ("lease_b", "Ops in TensorFlow"),
]


_LINES_OF_LOGS = {"cpu": 110}  # of which a page shows the end; other parts have 40


def without_folders(text):
    """Returns a log without the folders that only its machine has."""
    text = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)*(?=\.gpu/run/)", "", text)
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)*(?=(?:site-packages|bin)/)", ".../", text)


def read(path):
    """Returns a file's text, or None if there is no such file."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_records(folder):
    """Returns a dict by part of dicts by test: outcome ("started" if it has none), text, values.

    The text tells what failed; the values are what the test recorded, as JSON or "".
    """
    parts = {}
    for line in (read(os.path.join(folder, "tests.jsonl")) or "").splitlines():
        try:
            one = json.loads(line)
        except ValueError:  # the machine was lost in the middle of a line
            continue
        tests = parts.setdefault(one["part"], {})
        before = tests.get(one["test"], ("started",))[0]
        if before != "failed":  # an error after the test fails it, too
            values = json.dumps(one["found"]) if "found" in one else ""
            tests[one["test"]] = (one["event"], one.get("text", ""), values)
    return parts


def describe_tests(part, tests):
    """Returns the number of tests of each outcome, the failed and unfinished ones, and values."""
    of = {
        outcome: [(test, text) for test, (found, text, _) in tests.items() if found == outcome]
        for outcome in ("passed", "failed", "skipped", "started")
    }
    text = "%s: %d tests: %d passed, %d failed, %d unfinished, %d not run." % (
        part,
        len(tests),
        *(len(of[outcome]) for outcome in ("passed", "failed", "started", "skipped")),
    )
    for title, outcome in (("Failed", "failed"), ("Unfinished", "started")):
        lines = ["- `%s`" % test + last_line(text) for test, text in of[outcome]]
        text += ("\n\n%s:\n\n" % title) * bool(lines) + "\n".join(lines)
    lines = ["- `%s`: %s" % (test, values) for test, (_, _, values) in tests.items() if values]
    return text + "\n\nRecorded values:\n\n" * bool(lines) + "\n".join(lines)


def last_line(text):
    """Returns the end of a test's error for a list."""
    lines = text.strip().splitlines()
    return ": " + lines[-1][:200] if lines else ""


def read_log(folder):
    """Returns the parts' output by name."""
    texts = re.split(r"^== (\w+)$", read(os.path.join(folder, "log.txt")) or "", flags=re.MULTILINE)
    return dict(zip(texts[1::2], texts[2::2]))


def describe_lease(folder, title):
    """Returns the Markdown section of a lease."""
    parts = ["## " + title]
    status = read(os.path.join(folder, "status.txt"))
    if status is None:
        return "\n\n".join(parts + ["Not run."])
    if not os.path.exists(os.path.join(folder, "versions.json")):
        parts.append("`versions.json` is missing: the versions are those of the other lease.")
    outputs = read_log(folder)
    codes = {}  # by part: its exit status and its seconds
    for line in status.splitlines():
        name, code, seconds = line.split()
        codes[name] = code, seconds
    codes.update((name, ("killed", "-")) for name in outputs if name not in codes)
    results = {"0": "passed", "not_run": "not run", "124": "stopped at the time limit"}
    results.update({"137": results["124"], "killed": "UNFINISHED: the lease was killed"})
    if codes.get("smoke", ("0",))[0] != "0":
        parts.append("**The smoke test did not pass: doubt all other results.**")
    lines = ["| part | result | seconds |", "| --- | --- | --- |"]
    shown = ["tensorflow", "doctor", "memcheck", "cpu"]
    for name, (code, seconds) in codes.items():
        lines.append("| %s | %s | %s |" % (name, results.get(code, "FAILED (%s)" % code), seconds))
        if code not in ("0", "not_run"):
            shown.append(name)
    parts.append("\n".join(lines))
    parts += [describe_tests(*one) for one in read_records(folder).items()]
    for name in dict.fromkeys(shown):
        if outputs.get(name, "").strip():
            lines = without_folders(outputs[name]).strip().splitlines()
            kept = "\n".join(lines[-_LINES_OF_LOGS.get(name, 40) :])
            parts.append("End of the log of %s:\n\n```\n%s\n```" % (name, kept))
    for name in ("table.md", "one_process.md"):
        table = read(os.path.join(folder, name))
        if table:
            parts.append(table.strip())
    return "\n\n".join(parts)


def read_versions(results):
    """Returns the versions of both leases; exits if they name no GPU."""
    versions, paths = {}, []
    for lease, _ in LEASES:
        paths.append(os.path.join(results, lease, "versions.json"))
        versions.update(json.loads(read(paths[-1]) or "{}"))
    if "gpu" not in versions:
        reason = versions.get("nvidia_smi_missing", "no lease has written one")
        raise SystemExit(
            "There is nothing to record: no versions.json (%s) names a GPU. The reason: %s"
            % (", ".join(paths), reason)
        )
    return versions


def record(results, target):
    """Writes the page and returns its path."""
    versions = read_versions(results)
    gpu = re.sub(r"[^a-z0-9]+", "-", versions["gpu"].lower()).strip("-")
    commit = versions.get("cudnn_rnn_commit")
    name = "-".join(filter(None, [versions["date"], gpu, commit]))
    lines = ["| component | version |", "| --- | --- |"]
    lines += [
        "| %s | %s |" % (key.replace("_", " "), value)
        for key, value in sorted(versions.items())
        if not key.endswith("_missing")
    ]
    parts = ["# %s, %s" % (versions["gpu"], versions["date"]), "\n".join(lines)]
    os.makedirs(target, exist_ok=True)
    for lease, title in LEASES:
        parts.append(describe_lease(os.path.join(results, lease), title))
        picture = os.path.join(results, lease, "ratios.png")
        if os.path.exists(picture):
            copy = "%s-%s.png" % (name, lease)
            shutil.copy(picture, os.path.join(target, copy))
            parts.append("![our time divided by the peer's time](%s)" % copy)
    path = os.path.join(target, name + ".md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(parts) + "\n")
    return path


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    default = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs/gpu")
    print(record(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else default))
