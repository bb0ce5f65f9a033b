"""Plots a run, and records it as a page in docs/benchmarks.

    python benchmarks/cpu/record.py [.build/bench [docs/benchmarks]]

records the results in the first folder as a page in the second.
"""

import json
import os
import re
import shutil
import sys

import arguments as command_line  # first: it extends sys.path
from files import write_whole
from peers import OURS, PEERS
from pictures import draw_ratios
from summary import make_rows


def draw(results, circumstances, path):
    """Writes a PNG of the peers' times over ours."""
    rows = [row for row in make_rows(results) if row.ours is not None]
    draw_ratios(
        [row.configuration.key for row in rows],
        [
            (peer.title, [row.ratios.get(name) for row in rows])
            for name, peer in PEERS.items()
            if name != OURS
        ],
        "%s, %d threads, %s"
        % (
            circumstances["machine"].get("cpu", "unknown processor"),
            circumstances["threads"],
            circumstances["date"],
        ),
        "peer's time / our time   (right of 1: ours is faster)",
        path,
    )


def _facts(everything):
    """Yields the rows of the table of machine, settings and versions."""
    for key, value in sorted(everything["machine"].items()):
        yield key.replace("_", " "), value
    for key in ("date", "command", "threads", "rounds"):
        yield key, everything[key]
    yield "load average before", "%.2f" % everything["load_before"]
    for name, rate in everything.get("matrix_product_gigaflops", {}).items():
        yield "matrix product of %s, GFLOP/s" % name, "%.0f" % rate
    for name, versions in everything["versions"].items():
        yield (
            PEERS[name].title,
            ", ".join("%s %s" % pair for pair in sorted(versions.items())) or "not run",
        )


def keep(results_folder, target):
    """Writes the page, with its plot and samples next to it; returns the page's path."""
    with open(os.path.join(results_folder, "results.json"), encoding="utf-8") as file:
        everything = json.load(file)
    cpu = everything["machine"].get("cpu", "unknown")
    slug = re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-")
    name = "%s-%s-%d-threads" % (everything["date"], slug, everything["threads"])
    parts = [
        "# %s, %d threads, %s" % (cpu, everything["threads"], everything["date"]),
        "\n".join(
            ["| run | |", "| --- | --- |"] + ["| %s | %s |" % fact for fact in _facts(everything)]
        ),
    ]
    picture = os.path.join(results_folder, "ratios.png")
    os.makedirs(target, exist_ok=True)
    if os.path.exists(picture):
        shutil.copy(picture, os.path.join(target, name + ".png"))
        parts.append("![the peers' times divided by ours](%s.png)" % name)
    for file_name, title in [("table.md", "## Times"), ("memory.md", "## Memory")]:
        path = os.path.join(results_folder, file_name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                parts += [title, file.read().strip()]
    parts.append("[%s.json](%s.json) contains every sample." % (name, name))
    shutil.copy(os.path.join(results_folder, "results.json"), os.path.join(target, name + ".json"))
    path = os.path.join(target, name + ".md")
    write_whole(path, "\n\n".join(parts) + "\n")
    return path


def main():
    folders = (
        sys.argv[1:]
        + [
            os.path.join(command_line.ROOT, ".build", "bench"),
            os.path.join(command_line.ROOT, "docs", "benchmarks"),
        ][len(sys.argv) - 1 :]
    )
    print(keep(*folders[:2]))


if __name__ == "__main__":
    main()
