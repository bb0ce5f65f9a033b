"""Measures our kernels and their peers in turn; writes tables, a plot and every sample.

    python run.py cpu|gpu ARGUMENT...

See --help (arguments.py). Needs numpy, tabulate, tqdm and matplotlib. The peers run in their own
Python environments; `make bench` and `make bench-gpu` create them.
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time

import gpu_summary
import memory
import numpy as np
import summary
from arguments import PRODUCT_SIZE, ROOT, parse_arguments
from machine import choose_cpus, describe_machine
from measuring import measure_all
from peers import CPU_PEERS, GPU_PEERS, takes_part
from problem import Mismatch, compare
from processes import PeerFailure, PeerProcess
from record import keep, write_json, write_whole
from roofline import working_set
from tables import has_errors
from tqdm import tqdm

_BANDWIDTH_VARIABLE = "CUDNN_RNN_READ_BANDWIDTH"
_PRODUCT = "matrix product"


class Benchmark:
    """The peers' processes and the state that all configurations share."""

    def __init__(self, chosen):
        self.chosen, self.is_gpu = chosen, chosen.processor == "gpu"
        self.bar = tqdm(chosen.todo * chosen.passes, unit="configuration", dynamic_ncols=True)
        for folder in (chosen.output, chosen.logs):
            os.makedirs(folder, exist_ok=True)
        self.cpus = None if self.is_gpu else choose_cpus(chosen.threads)
        self.product_rates, self._product_of = {}, None
        by_name = {name: peer for name, peer in CPU_PEERS.items() if name in chosen.peers}
        if self.is_gpu:
            groups = [peers for name, peers in GPU_PEERS.items() if name in chosen.peers]
            by_name = {peer.title: peer for peers in groups for peer in peers}
        self.peers = {name: self.make_process(name, peer) for name, peer in by_name.items()}

    def make_process(self, name, peer, **environment):
        """Returns the process of a peer, with further environment variables."""
        return PeerProcess(name, peer, self.chosen, self.cpus, **environment)

    def close(self):
        """Ends all processes."""
        for peer in self.peers.values():
            peer.close()
        self.bar.close()

    def say(self, what):
        """Shows the current activity, on a terminal at once."""
        self.bar.set_postfix_str(what, refresh=sys.stderr.isatty())

    def start(self):
        """Starts all processes; on CPUs, the fastest matrix product of these defines the peak.

        A peer that fails is reported with each configuration. For a GPU, which may be lent for
        minutes, all processes start at once.
        """
        for peer in self.peers.values() if self.is_gpu else ():
            with contextlib.suppress(PeerFailure):
                peer.launch()
        for name, peer in self.peers.items():
            self.say("starting " + name)
            try:
                peer.start()
                if self.is_gpu or not peer.has_product or peer.peer.rounds:
                    continue
                runs = range(3 if self.chosen.quick else 9)
                samples = [peer.run(1, product_size=PRODUCT_SIZE).seconds for _ in runs]
                self.product_rates[name] = float(2e-9 * PRODUCT_SIZE**3 / np.median(samples))
            except PeerFailure as failure:
                tqdm.write("%s: %s" % (name, failure), file=sys.stderr)
        self._product_of = max(self.product_rates, key=self.product_rates.get, default=None)

    def measure(self, configuration, deadline=None):
        """Returns the result of one configuration, as described in summary.py, gpu_summary.py."""
        found = self._prepare_all(configuration)
        samples = {} if self.chosen.check else self._measure_all(found, deadline)
        result = {"configuration": configuration, "peers": found}
        if not self.is_gpu:
            product = samples.pop(_PRODUCT, [])
            result["peak_seconds"] = [one.seconds for one in product]
            result["peak_of"] = self._product_of
            result["bytes_per_second"] = self._bandwidth(configuration)
        for name, some in samples.items():
            found[name]["seconds"] = [one.seconds for one in some]
            if self.is_gpu:
                on_device = [one.device_seconds for one in some if one.device_seconds is not None]
                found[name]["device_seconds"] = on_device
                found[name]["launch"] = self._ask(name, "launch", "seconds")
                if name in gpu_summary.SAME_KERNELS:
                    found[name]["kernels"] = self._ask(name, "kernels", "kernels")
        for peer in self.peers.values() if self.is_gpu else ():
            peer.release()
        return result

    def _ask(self, name, request, answer):
        """Returns what a peer on a GPU answers, or None if that is unknown."""
        try:
            return None if self.chosen.is_dry_run else self.peers[name].ask(request)[answer]
        except PeerFailure:
            return None

    def _prepare_all(self, configuration):
        """Creates every peer's network, on CPUs compared with ours; returns entries by name."""
        expected, reference, found = None, None, {}
        for name, peer in self.peers.items():
            if not takes_part(name, peer.peer, configuration):
                continue
            self.say("preparing " + name)
            try:
                if self.is_gpu:
                    found[name] = {"variant": peer.prepare(configuration)}
                else:
                    results = self._results(peer, configuration)
                    if expected is None:
                        expected, reference = results, peer.peer
                    formats = (peer.peer.arithmetic, reference.arithmetic)
                    difference = compare(configuration, results, expected, formats)
                    found[name] = {"difference": difference}
            except PeerFailure as failure:
                found[name] = failure.result()
            except Mismatch as mismatch:
                found[name] = PeerFailure(name, "wrong results: %s" % mismatch).result()
        return found

    @staticmethod
    def _results(peer, configuration):
        """Creates a peer's network; returns its results."""
        with tempfile.NamedTemporaryFile(suffix=".npz") as written:
            peer.prepare(configuration, written.name)
            with np.load(written.name) as file:
                return [file[name] for name in file.files]

    def _measure_all(self, found, deadline):
        """Returns samples by name; if a peer fails, removes it and measures all others again."""
        runs = {name: self.peers[name].run for name in found if "reason" not in found[name]}
        if self._product_of is not None:
            run = self.peers[self._product_of].run
            runs[_PRODUCT] = functools.partial(run, product_size=PRODUCT_SIZE)
        chosen, warm_steps = self.chosen, 2 if self.is_gpu else 1
        self.say("measuring")
        while runs:
            ends = [deadline, chosen.seconds and time.perf_counter() + chosen.seconds]
            ends = {"deadline": min(filter(None, ends), default=None), "warm_steps": warm_steps}
            try:
                return measure_all(runs, chosen.rounds, chosen.sample_seconds, **ends)
            except PeerFailure as failure:
                name = failure.peer_name
                found[name] = failure.result()
                del runs[name if name in runs else _PRODUCT]
        return {}

    def _bandwidth(self, configuration):
        """Returns the bytes per second that the threads read of a block of `working_set` size."""
        program = os.environ.get(_BANDWIDTH_VARIABLE)
        if not program or self.chosen.check:
            return None
        self.say("bandwidth")
        command = [program, str(self.chosen.threads), str(working_set(configuration))]
        if self.cpus:
            command = ["taskset", "-c", ",".join(map(str, self.cpus))] + command
        return float(subprocess.check_output(command, universal_newlines=True)) * 1e9


def find_circumstances(chosen):
    """Returns the date, settings and machine that the results depend on."""
    found = {"rounds": chosen.rounds, "sample_seconds": chosen.sample_seconds}
    found["date"] = time.strftime("%Y-%m-%d")
    found["command"] = "%s ARGS=%r" % (chosen.command, " ".join(sys.argv[2:]))
    if chosen.processor == "cpu":
        found.update(threads=chosen.threads, dtype=chosen.dtype, passes=chosen.passes)
        found.update(machine=describe_machine(), load_before=os.getloadavg()[0])
    return found


def measure_everything(benchmark, circumstances, describe):
    """Measures, writes the results after each configuration, and prints; returns the results."""
    results, left_out, chosen = [], [], benchmark.chosen
    deadline = time.perf_counter() + chosen.time_budget if chosen.time_budget else None
    measure = functools.partial(memory.measure, benchmark) if chosen.memory else benchmark.measure
    for configuration in benchmark.bar:
        benchmark.bar.set_description(configuration.key, refresh=False)
        if deadline is not None and time.perf_counter() > deadline:
            left_out.append(configuration.key)
        else:
            results.append(measure(configuration, deadline))
        everything = dict(
            circumstances,
            versions={name: peer.versions for name, peer in benchmark.peers.items()},
            matrix_product_gigaflops=benchmark.product_rates,
            results=[dict(one, configuration=one["configuration"]._asdict()) for one in results],
            left_out=left_out,
        )
        files = ("memory.json", "memory.md") if chosen.memory else ("results.json", "table.md")
        write_json(os.path.join(chosen.output, files[0]), everything)
        text = describe(results, left_out, chosen.is_dry_run)
        write_whole(os.path.join(chosen.output, files[1]), text)
    print("\n" + text)
    return results


def run(benchmark):
    """Measures, writes and prints; returns the exit status.

    It is 1 if a peer failed; on a GPU, if one of ours did.
    """
    chosen, circumstances = benchmark.chosen, find_circumstances(benchmark.chosen)
    if chosen.memory or chosen.check:
        describe = memory.describe if chosen.memory else summary.describe_check
        results = measure_everything(benchmark, circumstances, describe)
        return int(has_errors(results))
    benchmark.start()
    processor = circumstances.get("machine", {}).get("cpu", "unknown processor")
    title = (processor, "%s threads" % chosen.threads, chosen.dtype, circumstances["date"])
    if benchmark.is_gpu:
        versions = [peer.versions for peer in benchmark.peers.values()]
        dry_runs = ["CPU (dry run)"] * chosen.is_dry_run
        gpu = next(iter(dry_runs + [one["gpu"] for one in versions if "gpu" in one]), None)
        if gpu is None:
            print("No peer finds a GPU. Use --device cpu --quick for a dry run without a GPU.")
            return 1
        title = (gpu, circumstances["date"])
    tables = gpu_summary if benchmark.is_gpu else summary
    results = measure_everything(benchmark, circumstances, tables.describe)
    tables.draw(results, ", ".join(title), os.path.join(chosen.output, "ratios.png"))
    if chosen.record:
        print("recorded in " + keep(chosen.output, os.path.join(ROOT, "docs", "benchmarks")))
    return int(has_errors(results, gpu_summary.OURS) if benchmark.is_gpu else has_errors(results))


def main(arguments=None):
    """Runs the benchmark; returns the exit status."""
    chosen = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the finally block runs
    benchmark = Benchmark(chosen)
    try:
        status = run(benchmark)
    finally:
        benchmark.close()
    print("written to " + chosen.output)
    return status


if __name__ == "__main__":
    sys.exit(main())
