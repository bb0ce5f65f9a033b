"""Compares ours with bare cuDNN in one process, both with the standard algorithm.

    python one_process.py [--device cpu] [--seconds 60] [--output FOLDER]

Two processes of bare cuDNN differ by up to 25% in small models: they run the same kernels, but the
gap between two kernels takes 1 or 2 microseconds, for as long as a network exists. Here, networks
of both are therefore created and measured in turn, on the default stream and on another one. The
folder gets the table, one_process.md.
Needs PyTorch, numpy and tabulate.
"""

import argparse
import contextlib
import os
import statistics
import sys
import time

from arguments import ROOT
from configurations import gpu_configurations
from problem import make_problem
from record import write_whole
from tables import markdown_table

TURNS, SAMPLES = 4, 7


sys.path.append(os.path.join(ROOT, "benchmarks", "workers"))


def medians_by_network(configuration, options, deadline):
    """Returns lists of medians in milliseconds, one for each time that a network was created."""
    import core_network  # --help needs no PyTorch
    import cudnn_network
    import torch
    import torch_network

    is_cuda = options["device"] == "cuda"
    problem, found = make_problem(configuration), {}
    for turn in range(TURNS):
        order = [("ours", core_network), ("bare cuDNN", cudnn_network)]
        other = torch.cuda.stream(torch.cuda.Stream()) if is_cuda else contextlib.nullcontext()
        for stream, context in (("default", contextlib.nullcontext()), ("other", other)):
            if time.monotonic() > deadline:
                return found
            with context:
                for name, module in order[:: 1 if turn % 2 else -1]:
                    network = module.Network(configuration, problem, options)
                    network.step()
                    timer = torch_network.time_on_gpu if is_cuda else time_on_cpu
                    samples = [timer(network.step, 1)[1] * 1e3 for _ in range(SAMPLES)]
                    key = "%s, %s stream" % (name, stream)
                    found.setdefault(key, []).append(statistics.median(samples))
                    network.close()
    return found


def time_on_cpu(step, _):
    """Like torch_network.time_on_gpu, for a dry run with the mock of cuDNN."""
    begin = time.perf_counter()
    step()
    return None, time.perf_counter() - begin


def median_text(values):
    """Returns the median, and the fastest and the slowest value."""
    return "%.3f [%.3f to %.3f]" % (statistics.median(values), min(values), max(values))


def describe(found):
    """Returns the Markdown table of a dict of `medians_by_network` by configuration."""

    def values(row, name):
        return [one for key, some in row[1].items() if key.startswith(name) for one in some]

    def ratio(row):
        ours, bare = (statistics.median(values(row, name)) for name in ("ours", "bare"))
        return "%.3f" % (ours / bare)

    columns = [
        ("configuration", lambda row: row[0]),
        ("ours", lambda row: median_text(values(row, "ours"))),
        ("bare cuDNN", lambda row: median_text(values(row, "bare"))),
        ("ratio", ratio),
    ]
    text = (
        "Ours and bare cuDNN in one process, `standard`: milliseconds on the device of a step that"
        " is queued behind other work; the median, and in brackets the range, of networks that were"
        " created in turn, half of them on the default stream."
    )
    return text + "\n\n" + markdown_table(columns, list(found.items())) + "\n"


def main():
    """Measures until the time is over, and writes the results after each configuration."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    text = "seconds after which no network is created (default: %(default)g)"
    parser.add_argument("--seconds", type=float, default=60, help=text)
    parser.add_argument("--output", default=os.path.join(ROOT, ".build", "one-process"))
    chosen = parser.parse_args()
    deadline, found = time.monotonic() + chosen.seconds, {}
    options = {"device": chosen.device, "threads": None, "algorithm": "standard"}
    import torch_network

    torch_network.start(options)
    for configuration in gpu_configurations(quick=chosen.device == "cpu"):
        medians = medians_by_network(configuration, options, deadline)
        if medians:
            found[configuration.key] = medians
            write_whole(os.path.join(chosen.output, "one_process.md"), describe(found))
    print(describe(found))


if __name__ == "__main__":
    main()
