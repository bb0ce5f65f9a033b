"""Writes result files, plots a run, and records it as a page in docs/benchmarks.

    python benchmarks/record.py [.build/bench [docs/benchmarks]]

records the results in the first folder as a page in the second.
"""

import json
import os
import pathlib
import re
import shutil
import sys

from arguments import ROOT
from peers import CPU_PEERS
from tables import markdown_table


def write_whole(path, text):
    """Replaces a file atomically: readers see the old text or the new one, never a part."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def write_json(path, everything):
    """Writes a dict, one line for each key, with floats of six digits, the most clocks resolve."""
    text = json.dumps(everything)
    rounded = json.loads(text, parse_float=lambda number: float("%.6g" % float(number)))
    lines = ["%s: %s" % (json.dumps(key), json.dumps(rounded[key])) for key in rounded]
    write_whole(path, "{\n%s\n}\n" % ",\n".join(lines))


def _facts(everything):
    """Yields the rows of the table of machine, settings and versions."""
    for key, value in sorted(everything["machine"].items()):
        yield key.replace("_", " "), value
    for key in ("date", "command", "dtype", "threads", "passes", "rounds"):
        yield key, everything[key]
    yield "load average before", "%.2f" % everything["load_before"]
    for name, rate in everything.get("matrix_product_gigaflops", {}).items():
        yield "matrix product of %s, GFLOP/s" % name, "%.0f" % rate
    for name, versions in everything["versions"].items():
        texts = ["%s %s" % pair for pair in sorted(versions.items())]
        yield CPU_PEERS[name].label, ", ".join(texts) or "not run"


def _processor(machine):
    """Returns name, family and model of the processor: both Zen 3 and Zen 4 may be "AMD EPYC"."""
    parts = [machine.get("cpu", "unknown")]
    if "family_and_model" in machine:
        parts.append("family and model " + machine["family_and_model"])
    return ", ".join(parts)


def keep(results_folder, target):
    """Writes the page, with its plot and samples next to it; returns the page's path."""
    results, target = pathlib.Path(results_folder), pathlib.Path(target)
    everything = json.loads((results / "results.json").read_text(encoding="utf-8"))
    cpu = _processor(everything["machine"])
    slug = re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-")
    name = "%s-%s-%d-threads" % (everything["date"], slug, everything["threads"])
    name += "" if everything["dtype"] == "float" else "-" + everything["dtype"]
    columns = [("run", lambda fact: fact[0]), ("", lambda fact: fact[1])]
    parts = [
        "# %s, %d threads, %s, %s"
        % (cpu, everything["threads"], everything["dtype"], everything["date"]),
        markdown_table(columns, _facts(everything)),
    ]
    target.mkdir(parents=True, exist_ok=True)
    if (results / "ratios.png").exists():
        shutil.copy(str(results / "ratios.png"), str(target / (name + ".png")))
        parts.append("![the peers' times divided by ours](%s.png)" % name)
    for file_name, title in [("table.md", "## Times"), ("memory.md", "## Memory")]:
        if (results / file_name).exists():
            parts += [title, (results / file_name).read_text(encoding="utf-8").strip()]
    parts.append("[%s.json](%s.json) contains every sample." % (name, name))
    shutil.copy(str(results / "results.json"), str(target / (name + ".json")))
    path = str(target / (name + ".md"))
    write_whole(path, "\n\n".join(parts) + "\n")
    return path


if __name__ == "__main__":
    defaults = [os.path.join(ROOT, ".build", "bench"), os.path.join(ROOT, "docs", "benchmarks")]
    print(keep(*(sys.argv[1:] + defaults[len(sys.argv) - 1 :])[:2]))
