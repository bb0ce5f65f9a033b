"""Measures our kernels and their peers on one device; writes a table, a plot and every sample.

See --help. Needs torch, tqdm and matplotlib, and the core library (scripts/build_core_library.sh).
The TensorFlow peers may run in another Python environment ($TENSORFLOW_PYTHON).
"""

import importlib
import json
import os
import platform
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "gpu"))
sys.path.append(os.path.join(ROOT, "benchmarks", "common"))

import torch  # noqa: E402
from arguments import PEERS, parse_arguments  # noqa: E402
from configurations import configurations  # noqa: E402
from files import write_whole  # noqa: E402
from measuring import Unsupported, measure_all  # noqa: E402
from summary import describe  # noqa: E402
from tqdm import tqdm  # noqa: E402


def measure_configuration(configuration, peers, device, arguments, deadline):
    """Returns the results of one configuration, a list of dicts as described in summary.py."""
    common = {"configuration": configuration._asdict(), "key": configuration.key}
    results, runs = [], {}
    for peer in peers:
        try:
            for variant, run in peer.make_runs(configuration, device).items():
                runs[peer.NAME, variant] = run
        except (Unsupported, torch.cuda.OutOfMemoryError) as refusal:
            results.append(dict(common, peer=peer.NAME, reason=str(refusal)))
    samples = {}
    try:
        if runs:
            samples = measure_all(runs, arguments.rounds, arguments.sample_seconds, deadline)
    except Unsupported as refusal:
        results.append(dict(common, peer="all", reason="while measuring: %s" % refusal))
    finally:
        for run in runs.values():
            run.close()
    for (peer, variant), found in samples.items():
        device_seconds = [s.device_seconds for s in found if s.device_seconds is not None]
        wall_seconds = [s.wall_seconds for s in found]
        results.append(
            dict(
                common,
                peer=peer,
                variant=variant,
                device_seconds=device_seconds,
                wall_seconds=wall_seconds,
            )
        )
    return results


def find_versions(device):
    """Returns the date, device and versions that the results depend on."""
    versions = {
        "date": time.strftime("%Y-%m-%d"),
        "device": "CPU (dry run)" if device.type == "cpu" else torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device.type == "cuda":
        versions["cuda_of_torch"] = torch.version.cuda
        versions["cudnn_of_torch"] = torch.backends.cudnn.version()
        versions["capability"] = "%d.%d" % torch.cuda.get_device_capability()
        versions["driver"] = _driver_version()
    return versions


def _driver_version():
    try:
        with open("/proc/driver/nvidia/version") as file:
            return file.readline().strip()
    except OSError:
        return "unknown"


def write_results(folder, versions, arguments, results, left_out):
    """Writes results.json and table.md atomically; returns the table's text."""
    everything = {
        "versions": versions,
        "arguments": {key: value for key, value in vars(arguments).items() if key != "output"},
        "results": results,
        "left_out": left_out,
    }
    text = describe(results, is_dry_run=arguments.device == "cpu")
    if left_out:
        text += "\nNot measured within the time budget:\n\n"
        text += "".join("- %s\n" % key for key in left_out)
    write_whole(os.path.join(folder, "results.json"), json.dumps(everything, indent=1) + "\n")
    write_whole(os.path.join(folder, "table.md"), text)
    return text


def main(arguments=None):
    """Measures, writes and prints; returns the exit status."""
    arguments = parse_arguments(arguments)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch finds no GPU. Use --device cpu --quick for a dry run without a GPU.")
        return 1
    device = torch.device(arguments.device)
    start = time.perf_counter()
    deadline = start + arguments.time_budget if arguments.time_budget else None
    peers = [importlib.import_module(PEERS[name]) for name in arguments.peers]
    versions = find_versions(device)
    todo = configurations(arguments.quick, arguments.rnn_modes)
    results, left_out, text = [], [], ""
    for configuration in tqdm(todo, unit="configuration"):
        if deadline is not None and time.perf_counter() > deadline:
            left_out.append(configuration.key)
        else:
            results += measure_configuration(configuration, peers, device, arguments, deadline)
        for peer in peers:
            if hasattr(peer, "versions"):
                versions[peer.NAME] = peer.versions
        text = write_results(arguments.output, versions, arguments, results, left_out)
    from plot import draw

    title = "%s, %s" % (versions["device"], versions["date"])
    draw(results, title, os.path.join(arguments.output, "ratios.png"))
    print("\n" + text)
    print("written to " + arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
