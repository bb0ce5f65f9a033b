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
import time

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table of make trials -->\n", "<!-- end of the table -->\n"
HEADING = "| trial | what is tried | result | time | run |\n| --- | --- | --- | --- | --- |\n"
# The whole run takes at most an hour on two cores; this only ends a trial that hangs.
LIMIT_SECONDS = 2 * 3600
MOST_AT_ONCE = 4  # bounds the memory of the trials

# Name of the program, and what it tries.
TRIALS = {
    "errors": "results of random models in each dtype and instruction set, against double",
    "sanitized_ops": "the tests of the ops, with two sanitizers, in both TensorFlows",
    "failing_disk": "saving and loading while calls to the disk fail",
    "properties": "the ops with any arguments: equal to the reference, or a documented error",
    "schedules": "the team of threads: small programs in all schedules or all with few preemptions",
    "out_of_memory": "each allocation fails, alone and with all after it; too large tensors",
    "damaged_files": "files of every format with damages of any kind, from strangers",
    "concurrent_writers": "other threads write to the inputs of calls",
    "fuzz": "sizes, plans and the C API, coverage-guided, with two sanitizers",
    "threads": "random models on teams of 2 to 5 members, with the thread sanitizer",
    "soak": "training, inference and decoding in many sessions at once, beside a busy core",
}
# These use all cores and run alone. The others run side by side, one on each core.
ALONE = ("fuzz", "threads", "soak")


class Trial:
    """A running trial, all of whose programs are one session of processes."""

    def __init__(self, name, options, log):
        self.name, self._result, self._rest = name, None, ""
        self._start = time.monotonic()
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        environment.setdefault("TRIALS_PYTHON", sys.executable)
        with open(str(log), "wb") as file:
            self._process = subprocess.Popen(
                [str(FOLDER / name)] + options,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=str(ROOT),
                env=environment,
                start_new_session=True,
            )
        self._log = open(str(log), encoding="utf-8", errors="replace")

    def poll(self):
        """Prints new lines; returns (has held, result, seconds), or None while the trial runs."""
        status, seconds = self._process.poll(), time.monotonic() - self._start
        self._show_new_lines()
        if status is None and seconds < LIMIT_SECONDS:
            return None
        self.end()
        if status is None:
            return False, "not over after %d s" % LIMIT_SECONDS, seconds
        return status == 0 and self._result is not None, self._result or "no result", seconds

    def end(self):
        """Ends all programs of the trial; none outlives it."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:  # all have ended
            pass
        self._process.wait()
        self._log.close()

    def _show_new_lines(self):
        *lines, self._rest = (self._rest + self._log.read()).split("\n")
        for line in lines:
            print("%s: %s" % (self.name, line), flush=True)
            if line.startswith("result: "):
                self._result = line[len("result: ") :].strip()


def run_trials(names, options, folder, most):
    """Runs at most `most` trials at once; returns (has held, result, seconds) by name."""
    waiting, running, found = list(names), [], {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                name = waiting.pop(0)
                print("== %s: %s" % (name, TRIALS[name]), flush=True)
                running.append(Trial(name, options, folder / (name + ".log")))
            time.sleep(0.05)
            for trial in list(running):
                end = trial.poll()
                if end is not None:
                    found[trial.name] = end
                    running.remove(trial)
    finally:
        for trial in running:
            trial.end()
    return found


def describe_run():
    """Returns the day, the processor's name and the number of CPUs that this process may use."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"model name\s*: (.*)", text)
    cpus = len(os.sched_getaffinity(0))
    return "%s, %s, %d CPUs" % (time.strftime("%Y-%m-%d"), name and name.group(1), cpus)


def make_row(name, has_held, result, seconds):
    """Returns the trial's line of the table."""
    text = result if has_held else "**FAILED**: " + result
    duration = "%.0f s" % seconds if seconds < 100 else "%.0f min" % (seconds / 60)
    return "| `%s` | %s |\n" % (name, " | ".join([TRIALS[name], text, duration, describe_run()]))


def record(rows):
    """Replaces these rows, by name, of the table in the document."""
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    old, after = rest.split(END)
    kept = {row.split("`")[1]: row for row in old.splitlines(True) if row.startswith("| `")}
    kept.update(rows)
    table = HEADING + "".join(kept[name] for name in TRIALS if name in kept)
    DOCUMENT.write_text(before + BEGIN + "\n" + table + "\n" + END + after, encoding="utf-8")


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
    parser.add_argument(
        "--record", action="store_true", help="also replace their rows in docs/reliability.md"
    )
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.trials) - set(TRIALS))
    if unknown:
        parser.error("no trial is named %s; expected %s" % (unknown[0], ", ".join(TRIALS)))
    if chosen.record and chosen.short:
        parser.error("--record is only for trials in full, without --short")
    return chosen


def main(arguments=None):
    """Runs the chosen trials; returns the exit status."""
    chosen = parse_arguments(arguments)
    if chosen.check:  # only the arguments
        return 0
    names = [name for name in TRIALS if not chosen.trials or name in chosen.trials]
    options = ["--short"] * chosen.short
    options += [] if chosen.seed is None else ["--seed", str(chosen.seed)]
    folder = ROOT / ".build" / "trials"
    folder.mkdir(parents=True, exist_ok=True)
    num_cores = len(os.sched_getaffinity(0))
    shared = [name for name in names if name not in ALONE]
    found = run_trials(shared, options, folder, min(num_cores, MOST_AT_ONCE))
    found.update(run_trials([name for name in names if name in ALONE], options, folder, 1))
    rows = {name: make_row(name, *found[name]) for name in names}
    text = HEADING + "".join(rows.values())
    (folder / "table.md").write_text(text, encoding="utf-8")
    print("\n" + text)
    if chosen.record:
        record(rows)
    return 0 if all(has_held for has_held, _, _ in found.values()) else 1


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # which do not reach the session of a trial
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main())
