"""Measures our CPU kernels and their peers in turn; writes tables, a plot and every sample.

See --help (arguments.py). Needs numpy, tqdm and matplotlib. The peers run in their own Python
environments, which peers.py finds through environment variables; `make bench` creates them all.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import arguments as command_line  # first: it extends sys.path
import numpy as np
from files import write_whole
from machine import choose_cpus, describe_machine, load_average
from measuring import Unsupported, measure_all
from peers import PEERS, PeerProcess, Refusal, takes_part
from problem import Mismatch, compare, make_arrays
from quantities import quantile
from record import draw, keep
from roofline import working_set
from summary import describe, describe_check, has_errors
from tqdm import tqdm

_BANDWIDTH_VARIABLE = "CUDNN_RNN_READ_BANDWIDTH"


class Progress:
    """A progress bar over configurations; it updates often on a terminal, rarely in a log."""

    def __init__(self, todo):
        self._bar = tqdm(todo, unit="configuration", dynamic_ncols=True)
        self._seconds = 0.1 if sys.stderr.isatty() else 30
        self._shown = 0.0

    def __iter__(self):
        for configuration in self._bar:
            self._bar.set_description(configuration.key, refresh=False)
            yield configuration

    def say(self, what):
        """Shows the current activity."""
        now = time.perf_counter()
        is_due = now - self._shown > self._seconds
        self._bar.set_postfix_str(what, refresh=is_due)
        if is_due:
            self._shown = now

    def close(self):
        """Closes the bar; its last line stays."""
        self._bar.close()


class Announced:
    """A run that shows its name while it is measured."""

    def __init__(self, run, name, progress):
        self._run, self._name, self._progress = run, name, progress

    def run(self, num_steps):
        """Runs the steps; raises `PeerFailure` with the peer's name if they fail."""
        self._progress.say(self._name)
        try:
            return self._run.run(num_steps)
        except Unsupported as failure:
            raise PeerFailure(self._name, str(failure))


class PeerFailure(Exception):
    """A peer failed while it was measured."""

    def __init__(self, name, text):
        super().__init__(text)
        self.name = name


class Benchmark:
    """The peers' processes and the state that all configurations share."""

    def __init__(self, chosen, progress):
        self._chosen, self._progress = chosen, progress
        self.cpus = choose_cpus(chosen.threads)
        os.makedirs(chosen.output, exist_ok=True)
        self.peers = {
            name: PeerProcess(name, chosen.threads, self.cpus, chosen.output)
            for name in PEERS
            if name in chosen.peers
        }
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._problem = None  # the configuration whose arrays are in the folder
        self.product_rates, self._product_of = {}, None

    def close(self):
        """Ends all processes."""
        for peer in self.peers.values():
            peer.close()
        self._folder.cleanup()

    def choose_product(self):
        """Finds the peer with the fastest matrix product, which then measures the peak."""
        size, operations = command_line.PRODUCT_SIZE, 2 * command_line.PRODUCT_SIZE**3
        best = 0.0
        for name, peer in self.peers.items():
            self._progress.say("matrix product of " + name)
            try:
                peer.start()
                if not peer.has_product:
                    continue
                run = peer.run_of("matrix_product", size=size)
                seconds = [run.run(1).wall_seconds for _ in range(3 if self._chosen.quick else 9)]
            except (Refusal, Unsupported) as failure:
                tqdm.write("%s: %s" % (name, failure), file=sys.stderr)
                continue
            rate = operations / quantile(seconds, 0.5)
            self.product_rates[name] = rate * 1e-9
            if rate > best:
                best, self._product_of = rate, name

    def measure(self, configuration):
        """Returns the result of one configuration, as described in summary.py."""
        found, runs = {}, {}
        self._prepare_all(configuration, found, runs)
        if self._chosen.check:
            runs = {}
        elif self._product_of is not None:
            product = self.peers[self._product_of]
            run = product.run_of("matrix_product", size=command_line.PRODUCT_SIZE)
            runs["matrix product"] = Announced(run, "matrix product", self._progress)
        samples = self._measure_all(runs, found)
        seconds = {name: [one.wall_seconds for one in some] for name, some in samples.items()}
        peak = seconds.pop("matrix product", [])
        for name, values in seconds.items():
            found[name]["seconds"] = values
        return {
            "configuration": configuration._asdict(),
            "peak_seconds": peak,
            "peak_of": self._product_of,
            "bytes_per_second": self._bandwidth(configuration),
            "peers": found,
        }

    def _prepare_all(self, configuration, found, runs):
        """Creates every peer's network, and compares its results with those of the first peer."""
        expected = None
        for name, peer in self.peers.items():
            if not takes_part(name, configuration):
                continue
            self._progress.say("preparing " + name)
            try:
                results = self.prepare(peer, configuration)
                expected = results if expected is None else expected
                found[name] = {"difference": compare(configuration, results, expected)}
                runs[name] = Announced(peer.run_of("step"), name, self._progress)
            except Refusal as refusal:
                found[name] = {"reason": str(refusal), "is_error": False}
            except Mismatch as mismatch:
                found[name] = {"reason": "wrong results: %s" % mismatch, "is_error": True}
            except Unsupported as failure:
                found[name] = {"reason": str(failure), "is_error": True}

    def prepare(self, peer, configuration, with_results=True):
        """Creates a peer's network; returns its results by name, or None without `with_results`."""
        arrays_path = os.path.join(self._folder.name, "arrays.npz")
        results_path = os.path.join(self._folder.name, "results.npz")
        problem = configuration._replace(is_training=False, group="")
        if self._problem != problem:
            np.savez(arrays_path, **make_arrays(configuration))
            self._problem = problem
        peer.prepare(configuration, arrays_path, results_path if with_results else None)
        if not with_results:
            return None
        with np.load(results_path) as file:
            return {name: file[name] for name in file.files}

    def _measure_all(self, runs, found):
        """Returns samples by name; if a peer fails, removes it and measures all others again."""
        chosen = self._chosen
        while runs:
            deadline = time.perf_counter() + chosen.seconds
            try:
                return measure_all(
                    runs, chosen.rounds, chosen.sample_seconds, deadline, warm_steps=1
                )
            except PeerFailure as failure:
                found[failure.name] = {"reason": str(failure), "is_error": True}
                del runs[failure.name]
        return {}

    def _bandwidth(self, configuration):
        """Returns the bytes per second that the threads read of a block of `working_set` size."""
        program = os.environ.get(_BANDWIDTH_VARIABLE)
        if not program or self._chosen.check:
            return None
        self._progress.say("bandwidth")
        command = [program, str(self._chosen.threads), str(working_set(configuration))]
        if self.cpus:
            command = ["taskset", "-c", ",".join(map(str, self.cpus))] + command
        return float(subprocess.check_output(command, universal_newlines=True)) * 1e9


def rounded(value):
    """Returns the value with all floats rounded to six digits, the most that clocks resolve."""
    if isinstance(value, float):
        return float("%.6g" % value)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return value


def write_results(benchmark, chosen, circumstances, results):
    """Writes results.json and table.md; returns the table's text."""
    versions = {name: peer.versions for name, peer in benchmark.peers.items()}
    everything = dict(
        circumstances,
        versions=versions,
        matrix_product_gigaflops=benchmark.product_rates,
        results=results,
    )
    lines = [json.dumps(key) + ": " + json.dumps(rounded(everything[key])) for key in everything]
    text = describe_check(results) if chosen.check else describe(results, chosen.quick)
    write_whole(os.path.join(chosen.output, "results.json"), "{\n%s\n}\n" % ",\n".join(lines))
    write_whole(os.path.join(chosen.output, "table.md"), text)
    return text


def find_circumstances(chosen):
    """Returns the date, settings and machine that the results depend on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "command": "make bench ARGS=%r" % " ".join(sys.argv[1:]),
        "threads": chosen.threads,
        "rounds": chosen.rounds,
        "sample_seconds": chosen.sample_seconds,
        "machine": describe_machine(),
        "load_before": load_average(),
    }


def main(arguments=None):
    """Measures, writes and prints; returns the exit status, 1 if a peer failed."""
    chosen = command_line.parse_arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the finally block runs
    circumstances, results, text = find_circumstances(chosen), [], ""
    progress = Progress(chosen.todo)
    benchmark = Benchmark(chosen, progress)
    try:
        if chosen.memory:
            from memory import measure_memory

            return measure_memory(benchmark, chosen, circumstances, progress)
        if not chosen.check:
            benchmark.choose_product()
        for configuration in progress:
            results.append(benchmark.measure(configuration))
            text = write_results(benchmark, chosen, circumstances, results)
    finally:
        benchmark.close()
        progress.close()
    if not chosen.check:
        draw(results, circumstances, os.path.join(chosen.output, "ratios.png"))
    print("\n" + text)
    print("written to " + chosen.output)
    if chosen.record:
        print(
            "recorded in " + keep(chosen.output, os.path.join(command_line.ROOT, "docs/benchmarks"))
        )
    return 1 if has_errors(results) else 0


if __name__ == "__main__":
    sys.exit(main())
