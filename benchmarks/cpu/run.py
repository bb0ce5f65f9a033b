"""Measures our CPU kernels and their peers in turn: tables, picture and every sample.

See --help (arguments.py). Needs numpy, tqdm and matplotlib; the peers run in Pythons of their own
(peers.py names the environment variables), `make bench` makes all of them.
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
    """A bar over configurations that says what goes on: often on a terminal, rarely in a log."""

    def __init__(self, todo):
        self._bar = tqdm(todo, unit="configuration", dynamic_ncols=True)
        self._seconds = 0.1 if sys.stderr.isatty() else 30
        self._shown = 0.0

    def __iter__(self):
        for configuration in self._bar:
            self._bar.set_description(configuration.key, refresh=False)
            yield configuration

    def say(self, what):
        """What goes on now."""
        now = time.perf_counter()
        is_due = now - self._shown > self._seconds
        self._bar.set_postfix_str(what, refresh=is_due)
        if is_due:
            self._shown = now

    def close(self):
        """The last line stays."""
        self._bar.close()


class Announced:
    """A run that says whose turn it is."""

    def __init__(self, run, name, progress):
        self._run, self._name, self._progress = run, name, progress

    def run(self, num_steps):
        """As the run; a failure names its peer."""
        self._progress.say(self._name)
        try:
            return self._run.run(num_steps)
        except Unsupported as failure:
            raise PeerFailure(self._name, str(failure))


class PeerFailure(Exception):
    """A peer ended while it was measured."""

    def __init__(self, name, text):
        super().__init__(text)
        self.name = name


class Benchmark:
    """The peers' processes and what all configurations share."""

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
        self._problem = None  # whose arrays are in the folder
        self.product_rates, self._product_of = {}, None

    def close(self):
        """Ends all processes."""
        for peer in self.peers.values():
            peer.close()
        self._folder.cleanup()

    def choose_product(self):
        """Finds whose matrix product is the fastest: with it the peak is measured."""
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
        """The result of one configuration, as summary.py describes it."""
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
        """Makes every peer's network, and compares its results with ours."""
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
        """Makes a peer's network; returns its results by name."""
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
        """Samples by name; a peer that fails meanwhile is left out, and all begin anew."""
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
        """Bytes in a second that the threads read of a block as large as the weights of a step."""
        program = os.environ.get(_BANDWIDTH_VARIABLE)
        if not program or self._chosen.check:
            return None
        self._progress.say("bandwidth")
        command = [program, str(self._chosen.threads), str(working_set(configuration))]
        if self.cpus:
            command = ["taskset", "-c", ",".join(map(str, self.cpus))] + command
        return float(subprocess.check_output(command, universal_newlines=True)) * 1e9


def rounded(value):
    """The same with floats of six digits: no clock is better."""
    if isinstance(value, float):
        return float("%.6g" % value)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return value


def write_results(benchmark, chosen, circumstances, results):
    """results.json and table.md; returns the table's text."""
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
    """What the numbers depend on, for the record."""
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
    """Measures, writes, prints; returns the exit status: 1 where a peer failed."""
    chosen = command_line.parse_arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is open is closed
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
