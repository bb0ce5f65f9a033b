"""Measures our kernels and their peers on one device: table, picture and every sample.

See --help. Needs torch, tqdm and matplotlib, and the core library (scripts/build_core_library.sh);
TensorFlow, for the peers in it, may be another Python's ($TENSORFLOW_PYTHON).
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "gpu"))

import torch  # noqa: E402
from configurations import configurations  # noqa: E402
from measuring import Unsupported, measure_all  # noqa: E402
from summary import describe  # noqa: E402
from tqdm import tqdm  # noqa: E402

PEERS = {
    "core": "core_peer",
    "cudnn": "cudnn_peer",
    "torch": "torch_peer",
    "tensorflow": "tensorflow_peer",
}

EPILOG = """\
peers:
  core        ours, without TensorFlow: one foreign call for a forward or backward pass
  cudnn       cuDNN's own calls and nothing else, each of its algorithms; the fastest is the bar
  torch       torch.nn on the same cuDNN, TF32 off
  tensorflow  session steps with our kernels, and with TensorFlow's own CudnnRNN and CudnnRNNV3

how it measures:
  For each configuration all peers are set up and then measured in turn, in another order each
  round. Device time lies between two events on the stream; time by the clock includes the call
  and the wait for its end. The table has medians.

writes to the output folder: results.json (every sample, after each configuration), table.md,
ratios.png

examples:
  make bench-gpu                                     everything, on the GPU
  make bench-gpu ARGS="--peers core cudnn"           ours against bare cuDNN alone
  make bench-gpu ARGS="--device cpu --quick"         tries the program itself; needs no GPU
"""


def parse_arguments(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Measures our kernels against bare cuDNN, torch.nn and TensorFlow's own.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="two tiny models, few samples")
    parser.add_argument(
        "--peers", nargs="+", choices=list(PEERS), default=list(PEERS), help="default: all"
    )
    parser.add_argument(
        "--rnn-modes",
        nargs="+",
        choices=["lstm", "gru", "rnn_relu", "rnn_tanh"],
        default=["lstm"],
        help="default: lstm",
    )
    parser.add_argument("--rounds", type=int, help="samples of each peer (default 25, quick 3)")
    parser.add_argument(
        "--sample-seconds", type=float, help="length of a sample (default 0.02, quick 0.002)"
    )
    parser.add_argument(
        "--time-budget",
        type=float,
        help="seconds after which no other configuration is begun; those left out are named",
    )
    parser.add_argument(
        "--output", default=os.path.join(ROOT, ".build", "gpu-benchmark"), help="a folder"
    )
    chosen = parser.parse_args(arguments)
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 25)
    chosen.sample_seconds = chosen.sample_seconds or (0.002 if chosen.quick else 0.02)
    return chosen


def measure_configuration(configuration, peers, device, arguments, deadline):
    """The results of one configuration: a list of dicts as summary.py describes them."""
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
    """What the numbers depend on, for the record."""
    versions = {
        "date": time.strftime("%Y-%m-%d"),
        "device": "CPU, a dry run" if device.type == "cpu" else torch.cuda.get_device_name(),
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
    """results.json and table.md, whole or not at all."""
    os.makedirs(folder, exist_ok=True)
    everything = {
        "versions": versions,
        "arguments": {key: value for key, value in vars(arguments).items() if key != "output"},
        "results": results,
        "left_out": left_out,
    }
    text = describe(results, is_dry_run=arguments.device == "cpu")
    if left_out:
        text += "\nLeft out, as the time was up:\n\n" + "".join("- %s\n" % key for key in left_out)
    for name, content in [
        ("results.json", json.dumps(everything, indent=1) + "\n"),
        ("table.md", text),
    ]:
        path = os.path.join(folder, name)
        with open(path + ".new", "w") as file:
            file.write(content)
        os.replace(path + ".new", path)
    return text


def main(arguments=None):
    """Measures, writes, prints; returns the exit status."""
    arguments = parse_arguments(arguments)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("There is no GPU that PyTorch can use. --device cpu --quick tries the program.")
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
