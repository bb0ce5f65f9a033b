"""Damages files of every format, and reads them: errors of ours, and no harm.

A worker process writes an undamaged file of each format, damages copies of it, and reads these with
`exchange.read`, or `export_plain` for a SavedModel. Each file may take 2 GB more memory than the
worker has, and 20 seconds of the processor. A worker that ends is started again with the next file.
What counts as a failure: the end of the process, no end, use of all the memory, an error of another
class than documented or without the file's name, and another shape or dtype without an error, a
note or names of what is left out. If `export_plain` ends the process, the command `export`, which
has a child process, must refuse the file.

`--files` sets the number of each format, `--formats` chooses formats, `--keep` keeps what fails.
"""

import argparse
import collections
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import running

SECONDS, MEMORY = 20, 2 * 2**30
OUTCOMES = ("crash", "no end", "memory", "traceback", "silent")
FORMATS_OF_TENSORFLOW_1 = ("npz", "h5", "checkpoint", "pb", "saved_model")
FORMATS = ("npz", "onnx", "pt", "safetensors", "keras", "h5", "checkpoint", "pb", "saved_model")


# In a worker


def make_original(kind, folder):
    """Writes an undamaged file; returns its path, and the path of the part that is damaged."""
    import cudnn_rnn
    from cudnn_rnn import exchange
    from helpers.exchange_models import random_rnn
    from helpers.paths import GOLDEN

    rnn = random_rnn("lstm", 2, bidirectional=True, scope="a")
    path = os.path.join(folder, "original." + kind)
    if kind == "saved_model":
        shutil.copytree(os.path.join(GOLDEN, "graphs", "layer_v1_lstm", "saved_model"), path)
        return path, os.path.join(path, "saved_model.pb")
    if kind == "pb":
        shutil.copy(os.path.join(GOLDEN, "graphs", "layer_tanh", "frozen.pb"), path)
        return path, path
    if kind == "checkpoint":
        exchange.write(path, [rnn], "1.15", force=True)
        return path, path + ".index"
    target = {"npz": "npz", "onnx": "onnx", "pt": "torch", "safetensors": "torch"}.get(
        kind, "keras"
    )
    exchange.write(path, [rnn], target)
    assert cudnn_rnn
    return path, path


def copy_of(path, folder):
    """Copies a file, the files of a checkpoint, or a folder; returns the new path."""
    new = os.path.join(folder, "damaged" + os.path.splitext(path)[1])
    shutil.rmtree(new, ignore_errors=True)
    if os.path.isdir(path):
        shutil.copytree(path, new)
        return new
    for name in os.listdir(os.path.dirname(path)):
        if name.startswith(os.path.basename(path)):
            end = name[len(os.path.basename(path)) :]
            shutil.copy(os.path.join(os.path.dirname(path), name), new + end)
    return new


def read(kind, path, folder):
    """Reads a file; returns what describes its RNNs, and what a user is told besides."""
    import cudnn_rnn
    from cudnn_rnn import exchange

    if kind == "saved_model":
        out = os.path.join(folder, "exported")
        count = cudnn_rnn.export_plain(path, out, training=True, overwrite=True)
        return [count], []
    contents = exchange.read(path)
    found = sorted(
        (rnn.rnn_mode, rnn.config.direction, rnn.num_layers, rnn.num_units, rnn.input_size)
        + (rnn.num_proj, rnn.dtype.name)
        for rnn in contents.rnns
    )
    return found, contents.notes + contents.problems + sorted(contents.others)


def limit_memory():
    """Sets the limit of this process's memory to what it has, and MEMORY."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))


def try_one(kind, path, folder, expected):
    """Returns the outcome of a damaged file, and a text."""
    from cudnn_rnn.exchange import ExchangeError

    # The default action of these signals ends the process, even inside a library. The first limit
    # is one of the processor's time: the machine may be busy.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 30 * SECONDS)
    try:
        found, told = read(kind, path, folder)
    except MemoryError as error:
        return "memory", str(error)
    except (ExchangeError, OSError, ValueError) as error:
        is_ours = type(error) is ExchangeError or kind == "saved_model"
        if "more memory than there is" in str(error):
            return "memory", str(error)
        names_it = path in str(error) or kind == "saved_model"
        return "refused" if is_ours and names_it else "traceback", repr(error)
    except Exception as error:
        return "traceback", repr(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    # The commands say that there is no RNN.
    if found and found != expected[0] and told == expected[1]:
        return "silent", "%s for %s" % (found, expected[0])
    return "read", ""


def work(kind, first, folder, options):
    """Prints a line before and after each file."""
    import damages
    import numpy as np

    from cudnn_rnn.exchange import guarded

    guarded._BASE_SECONDS = 2 * SECONDS  # of the clock, for a child process
    original, part = make_original(kind, folder)
    expected = read(kind, original, folder)
    limit_memory()
    for number in range(first, options.files):
        random = np.random.RandomState((options.seed * 1000003 + number) % 2**32)
        path = copy_of(original, folder)
        damaged = path + part[len(original) :]
        if kind == "checkpoint" and random.randint(4) == 0:
            damaged = path + ".data-00000-of-00001"
        print(json.dumps([number, "start"]), flush=True)
        what = damages.damage(kind, damaged, random)
        outcome, text = try_one(kind, path, folder, expected)
        if outcome in OUTCOMES:
            keep(options, kind, number, folder)
        print(json.dumps([number, outcome, what, text[:500]]), flush=True)


# The trial


def run_workers(python, kind, options):
    """Returns the number of files by outcome; prints what fails."""
    counts: collections.Counter = collections.Counter()
    first = 0
    while first < options.files:
        folder = tempfile.mkdtemp(prefix="damaged_files_")
        command = [python, os.path.abspath(__file__), "--worker", kind, str(first), folder]
        command += ["--files", str(options.files), "--seed", str(options.seed)]
        command += ["--keep", options.keep] if options.keep else []
        first = watch(kind, command, counts, options, folder, first)
        shutil.rmtree(folder, ignore_errors=True)
    return counts


def watch(kind, command, counts, options, folder, first):
    """Runs a worker; returns the number of the next file."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    last, has_started = first, False
    with tempfile.TemporaryFile() as stderr:
        streams = dict(stdout=subprocess.PIPE, stderr=stderr, universal_newlines=True)
        with subprocess.Popen(command, env=environment, **streams) as process:
            for line in process.stdout:
                if not line.startswith("["):
                    continue
                last, outcome, *rest = json.loads(line)
                has_started = outcome == "start"
                if not has_started:
                    counts[outcome] += 1
                    if outcome in OUTCOMES:
                        report(kind, last, outcome, rest)
        stderr.seek(0)
        text = stderr.read().decode("utf-8", "replace")
    if process.returncode == 0:
        return options.files
    running.require(has_started, "the worker of %s ended:\n%s" % (kind, text[-3000:]))
    is_late = process.returncode in (-signal.SIGALRM, -signal.SIGPROF)
    outcome = "no end" if is_late else "crash"
    if kind == "saved_model" and not is_late and command_refuses(command[0], folder, environment):
        counts["refused"] += 1
        return last + 1
    counts[outcome] += 1
    report(kind, last, outcome, ["status %d" % process.returncode, text[-300:]])
    keep(options, kind, last, folder)
    return last + 1


def command_refuses(python, folder, environment):
    """Returns whether `python -m cudnn_rnn export` refuses the SavedModel of a worker that ended.

    `export_plain` imports the graph with TensorFlow, whose end is that of the process; the command
    does so in a child process.
    """
    path, out = (os.path.join(folder, name) for name in ("damaged.saved_model", "exported"))
    shutil.rmtree(out, ignore_errors=True)
    command = [python, "-m", "cudnn_rnn", "export", "--training", path, out]
    streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    done = subprocess.run(command, env=environment, **streams)
    return done.returncode == 1 and path in done.stdout and not os.path.exists(out)


def report(kind, number, outcome, rest):
    print("FAILED: %s %d: %s: %s" % (kind, number, outcome, " ".join(rest)), flush=True)


def keep(options, kind, number, folder):
    """Copies the folder of a worker, if that is wanted."""
    if options.keep:
        kept = os.path.join(options.keep, "%s-%d" % (kind, number))
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)


def parse_arguments():
    parser = running.make_parser(__doc__, seed=1, short="5 files of each format")
    parser.add_argument("--files", type=running.above_zero(int), help="of each format (2000)")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--keep", metavar="FOLDER", help="keeps the files that fail")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.files = chosen.files or (5 if chosen.short else 2000)
    return chosen


def main():
    options = parse_arguments()
    if options.worker:
        kind, first, folder = options.worker
        sys.path.insert(0, os.path.dirname(str(running.FOLDER)))
        return work(kind, int(first), folder, options)
    rows, failures = [], 0
    for place, python in enumerate(running.pythons(options.short)):
        is_1 = place == 1 or has_tensorflow_1(python)
        for kind in [one for one in options.formats if not is_1 or one in FORMATS_OF_TENSORFLOW_1]:
            counts = run_workers(python, kind, options)
            failures += sum(counts[outcome] for outcome in OUTCOMES)
            name = kind + " (1.15)" * is_1
            numbers = (sum(counts.values()), counts["read"], counts["refused"])
            rows.append("%-18s %6d %6d %8d" % (name, *numbers))
            rows[-1] += "".join(" %10d" % counts[outcome] for outcome in OUTCOMES)
            print(rows[-1], flush=True)
    heading = "%-18s %6s %6s %8s" % ("format", "files", "read", "refused")
    print("\n".join([heading + "".join(" %10s" % outcome for outcome in OUTCOMES), *rows]))
    total = options.files * len(rows)
    print("result: %d damaged files of %d formats: %d failures" % (total, len(rows), failures))
    return int(failures > 0)


def has_tensorflow_1(python):
    program = "import importlib.util as u; print(u.find_spec('tensorflow_core') is not None)"
    return subprocess.check_output([python, "-c", program]).strip() == b"True"


if __name__ == "__main__":
    sys.exit(main())
