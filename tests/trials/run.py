"""make trials: tries what tests cannot try in seconds, and writes the table of docs/reliability.md.

Each trial is a program in this folder. It runs alone, too: `tests/trials/NAME --help`. The last
line that it prints is `result: TEXT`, and its exit status is 0 if everything held. What fails is
printed with what reproduces it.
"""

import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table of make trials -->\n", "<!-- end of the table -->\n"
# The whole run takes at most an hour on two cores; this only ends a trial that hangs.
LIMIT_SECONDS = 2 * 3600

# Name of the program, and what it tries.
TRIALS = {
    "fuzz": "sizes, plans and the C API, coverage-guided, with two sanitizers",
    "properties": "the ops with any arguments: equal to the reference, or a documented error",
    "threads": "random models on teams of 2 to 5 members, with the thread sanitizer",
    "sanitized_ops": "the tests of the ops, with two sanitizers, in both TensorFlows",
    "soak": "training, inference and decoding in many sessions at once, beside a busy core",
    "schedules": "the team of threads: small programs in all schedules or all with few preemptions",
    "out_of_memory": "each allocation fails, alone and with all after it; too large tensors",
    "failing_disk": "saving and loading while calls to the disk fail",
    "concurrent_writers": "other threads write to the inputs of calls",
    "errors": "results of random models in each dtype and instruction set, against double",
}


class Watchdog:
    """Ends a trial, with all that it has started, after LIMIT_SECONDS or when `end` is called."""

    def __init__(self, process):
        self.has_ended_a_trial = False
        self._process = process
        self._timer = threading.Timer(LIMIT_SECONDS, self._end_trial)
        self._timer.daemon = True
        self._timer.start()

    def end(self):
        self._timer.cancel()
        self._kill()

    def _end_trial(self):
        self.has_ended_a_trial = True
        self._kill()

    def _kill(self):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:  # all have ended
            pass


def run_trial(name, is_short, seed, log):
    """Runs a trial, copying its output to `log` and stdout; returns (has held, result, seconds)."""
    command = [str(FOLDER / name)] + ["--short"] * is_short
    command += [] if seed is None else ["--seed", str(seed)]
    environment = dict(os.environ)
    environment.setdefault("TRIALS_PYTHON", sys.executable)
    environment["PYTHONUNBUFFERED"] = "1"
    start, result = time.monotonic(), None
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "errors": "replace"}
    # The trial and the programs that it starts are a session, so that all of them can be ended.
    options["start_new_session"] = True
    with subprocess.Popen(command, cwd=str(ROOT), env=environment, **options) as process:
        watchdog = Watchdog(process)
        try:
            with open(str(log), "w", encoding="utf-8") as file:
                for line in process.stdout:
                    file.write(line)
                    print("  " + line, end="", flush=True)
                    if line.startswith("result: "):
                        result = line[len("result: ") :].strip()
            status = process.wait()
        finally:
            watchdog.end()
    if watchdog.has_ended_a_trial:
        status, result = 1, "not over after %d s" % LIMIT_SECONDS
    return status == 0 and result is not None, result or "no result", time.monotonic() - start


def describe_processor():
    """Returns the processor's name and the number of CPUs that this process may use."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"model name\s*: (.*)", text)
    return "%s, %d CPUs" % (name and name.group(1), len(os.sched_getaffinity(0)))


def make_table(rows):
    """Returns the Markdown table of rows (name, has held, result, seconds)."""
    lines = ["| trial | what is tried | result | time |", "| --- | --- | --- | --- |"]
    for name, has_held, result, seconds in rows:
        text = result if has_held else "**FAILED**: " + result
        duration = "%.0f s" % seconds if seconds < 100 else "%.0f min" % (seconds / 60)
        lines.append("| `%s` | %s | %s | %s |" % (name, TRIALS[name], text, duration))
    return "\n".join(lines) + "\n"


def record(text):
    """Replaces the table in the document."""
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    DOCUMENT.write_text(before + BEGIN + "\n" + text + "\n" + END + after, encoding="utf-8")


def parse_arguments(arguments=None):
    form = argparse.RawDescriptionHelpFormatter
    lines = ["  %-20s %s" % pair for pair in TRIALS.items()]
    epilog = "trials:\n%s\n\nLogs and the table are in .build/trials." % "\n".join(lines)
    parser = argparse.ArgumentParser(
        prog="make trials",
        description=__doc__.split("\n\n")[0],
        epilog=epilog,
        formatter_class=form,
    )
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="names (default: all)")
    parser.add_argument(
        "--short", action="store_true", help="a few seconds of each, as in make test"
    )
    parser.add_argument("--seed", type=int, help="of random choices (default: each trial's own)")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help="also update docs/reliability.md")
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.trials) - set(TRIALS))
    if unknown:
        parser.error("no trial is named %s; expected %s" % (unknown[0], ", ".join(TRIALS)))
    if chosen.record and (chosen.trials or chosen.short):
        parser.error("--record is only for a run of all trials in full")
    return chosen


def main(arguments=None):
    """Runs the chosen trials; returns the exit status."""
    chosen, rows = parse_arguments(arguments), []
    if chosen.check:  # only the arguments
        return 0
    names = [name for name in TRIALS if not chosen.trials or name in chosen.trials]
    folder = ROOT / ".build" / "trials"
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names, 1):
        print("== %d of %d, %s: %s" % (number, len(names), name, TRIALS[name]), flush=True)
        found = run_trial(name, chosen.short, chosen.seed, folder / (name + ".log"))
        rows.append((name,) + found)
    facts = "%s, %s" % (describe_processor(), time.strftime("%Y-%m-%d"))
    given = " ".join(sys.argv[1:] if arguments is None else arguments)
    command = "make trials ARGS=%r" % given if given else "make trials"
    text = "%s\n%s, `%s`.\n" % (make_table(rows), facts, command)
    (folder / "table.md").write_text(text, encoding="utf-8")
    print("\n" + text)
    if chosen.record:
        record(text)
    return 0 if all(has_held for _, has_held, _, _ in rows) else 1


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # which do not reach the session of a trial
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main())
