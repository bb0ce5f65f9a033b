"""Runs of the CPU benchmark: its TensorFlow peers against the reference, and fake peers."""

import helpers.benchmark_modules  # noqa: F401, I001  (first: it extends sys.path)

import functools
import importlib
import json
import math
import os
import sys

import numpy as np
import peers
import pytest
import record
from helpers import reference
from helpers.versions import IS_TENSORFLOW_1
import run
from configurations import configurations
from problem import Refused, compare, joined, make_problem

pytestmark = [pytest.mark.once, pytest.mark.ci]


def reference_results(configuration, problem):
    """Returns the results of the tests' NumPy reference, as a peer does."""
    described = reference.Configuration(
        configuration.rnn_mode,
        "linear_input",
        configuration.direction,
        configuration.num_layers,
        configuration.num_units,
        configuration.input_size,
    )
    arrays = dict(zip(reference.INPUTS, problem.inputs), params=joined(problem.weights))
    if configuration.is_training:
        names = [name + "_backprop" for name in reference.FORWARD]
        arrays.update(zip(names, problem.backprops))
    found = reference.run_reference(described, arrays, lengths=configuration.lengths)
    results = list(found.values())
    if configuration.is_training:
        d_params = results.pop()
        ends = np.cumsum([value.size for value in problem.weights.values()])
        weights = zip(np.split(d_params, ends[:-1]), problem.weights.values())
        results += [part.reshape(value.shape) for part, value in weights]
    return results


def peers_in_this_tensorflow():
    """Returns the names of the peers that run in the installed TensorFlow."""
    return ["ours", "tf1-cell", "tf1-fused"] if IS_TENSORFLOW_1 else ["ours"]


@pytest.mark.release
def test_peers_in_tensorflow_match_the_reference():
    refused = set()
    for name in peers_in_this_tensorflow():
        peer = peers.CPU_PEERS[name]
        module = importlib.import_module(peer.module)
        options = dict(peer.options, threads=1, device="cpu")
        for configuration in configurations(quick=True):
            problem = make_problem(configuration)
            try:
                found = module.Network(configuration, problem, options).results()
            except Refused:
                refused.add((name, configuration.rnn_mode))
                continue
            expected = reference_results(configuration, problem)
            assert compare(configuration, found, expected) < 1e-5, (name, configuration.key)
    assert refused <= {("tf1-fused", "gru"), ("tf1-fused", "rnn_tanh")}


# A peer module for worker.py. Its options make it wrong, let it exit in a step or hang, or need
# memory.
PRETENDED = """
import os
import time
import numpy as np
from problem import Refused, joined, result_names

def start(options):
    print("this is not an answer")
    return {"pretended": str(options["threads"])}

def matrix_product(size, options):
    return lambda: None

class Network:
    def __init__(self, configuration, problem, options):
        if configuration.rnn_mode == "gru":
            raise Refused("no gates")
        self.options, self.count = options, len(result_names(configuration))
        self.total = sum(value.sum() for value in problem.inputs) + joined(problem.weights).sum()

    def step(self):
        np.ones(self.options.get("megabytes", 0) * 2**20, np.uint8)
        if self.options.get("is_mortal"):
            os._exit(3)
        if self.options.get("hangs"):
            time.sleep(9999)

    def results(self):
        return [np.full(3, self.total * self.options.get("factor", 1))] * self.count
"""


def replace_peers(**options):
    """Replaces the benchmark's peers by pretended ones with these options."""
    peers.CPU_PEERS.clear()
    for name, one in options.items():
        name = name.replace("_", "-")
        peers.CPU_PEERS[name] = peers.Peer(name, "torch", "pretended", options=one)


@pytest.fixture
def pretended_peers(tmp_path, monkeypatch):
    """Replaces the benchmark's peers by processes of this Python that compute nothing."""
    (tmp_path / "pretended.py").write_text(PRETENDED)
    wrong, mortal = {"factor": 1.01}, {"is_mortal": True}
    original = dict(peers.CPU_PEERS)
    replace_peers(ours={}, torch={}, keras=wrong, tf1_cell=mortal)
    monkeypatch.setenv("TORCH_PYTHON", sys.executable)
    monkeypatch.delenv("CUDNN_RNN_READ_BANDWIDTH", raising=False)
    make_process = run.Benchmark.make_process
    path = {"PYTHONPATH": str(tmp_path)}
    monkeypatch.setattr(
        run.Benchmark, "make_process", functools.partialmethod(make_process, **path)
    )
    yield tmp_path
    peers.CPU_PEERS.clear()
    peers.CPU_PEERS.update(original)  # in the order of the tables


def run_benchmark(folder, options, file_name="results.json"):
    output = folder / "output"
    arguments = ["cpu", "--quick", "--threads", "1", "--output", str(output)]
    status = run.main(arguments + options.split())
    with open(str(output / file_name)) as file:
        return status, json.load(file), output


def test_a_run_writes_results_and_tables(pretended_peers):
    status, everything, output = run_benchmark(
        pretended_peers, "--peers ours torch --configurations lstm-* gru-2x16-* rnn_tanh-1x16-*"
    )
    assert status == 0
    assert everything["threads"] == 1 and everything["versions"]["torch"]["pretended"] == "1"
    assert everything["machine"]["logical_cpus"] >= 1
    modes = set()
    for result in everything["results"]:
        assert len(result["peak_seconds"]) == 3
        modes.add(result["configuration"]["rnn_mode"])
        ours, torch = result["peers"]["ours"], result["peers"]["torch"]
        if result["configuration"]["rnn_mode"] == "gru":
            assert torch == {"reason": "no gates", "is_error": False}
        else:
            assert len(ours["seconds"]) == len(torch["seconds"]) == 3
            assert torch["difference"] == 0
    assert modes == {"lstm", "gru", "rnn_tanh"}
    assert (output / "ratios.png").exists()
    assert "torch: no gates" in (output / "table.md").read_text()
    assert "this is not an answer" in (output / "worker-torch.log").read_text()


def test_passes_measure_every_configuration_again(pretended_peers):
    options = "--passes 2 --peers ours torch --configurations rnn_tanh-*"
    status, everything, output = run_benchmark(pretended_peers, options)
    measured = [json.dumps(result["configuration"]) for result in everything["results"]]
    assert status == 0 and everything["passes"] == 2
    assert len(measured) == 8 and measured[:4] == measured[4:] and len(set(measured)) == 4
    assert all(len(result["peers"]["torch"]["seconds"]) == 3 for result in everything["results"])
    assert "in 2 passes" in (output / "table.md").read_text()
    assert (output / "ratios.png").exists()


def test_check_option_measures_no_time(pretended_peers):
    status, everything, output = run_benchmark(
        pretended_peers, "--check --peers ours torch tf1-cell --configurations rnn_tanh-*"
    )
    assert status == 0  # the peer that dies in a step has the same results
    for result in everything["results"]:
        assert result["peers"]["torch"] == {"difference": 0}
        assert not result["peers"]["tf1-cell"].get("seconds")
    lines = (output / "table.md").read_text().splitlines()
    assert lines[0] == "Nothing was measured." and not (output / "ratios.png").exists()
    (line,) = [line for line in lines if line.startswith("- torch: 0.0e+00 (rnn_tanh-2x16")]
    assert line.endswith("; of 4 configurations)")


def assert_not_measured(everything, failing, reason, is_error):
    for result in everything["results"]:
        assert len(result["peers"]["ours"]["seconds"]) == 3
        found = result["peers"][failing]
        assert reason in found["reason"] and found["is_error"] == is_error
        assert "seconds" not in found


def without_environment(name):
    """Moves a peer to an environment that does not exist."""
    peers.CPU_PEERS[name] = peers.CPU_PEERS[name]._replace(environment="no_such")


def test_peers_that_fail_are_reported_and_the_others_are_measured(pretended_peers):
    without_environment("torch")
    for failing, reason in [
        ("keras", "wrong results"),
        ("tf1-cell", "ended with status 3"),
        ("torch", "$NO_SUCH_PYTHON is not set"),
    ]:
        options = "--peers ours %s --configurations rnn_tanh-1x16-*" % failing
        status, everything, _ = run_benchmark(pretended_peers, options)
        assert status == 1
        assert_not_measured(everything, failing, reason, is_error=True)


def test_a_peer_that_hangs_is_killed_and_the_others_are_measured(pretended_peers, monkeypatch):
    replace_peers(ours={}, torch={"hangs": True}, keras={})
    make_process = run.Benchmark.make_process

    def make(benchmark, name, peer):
        process = make_process(benchmark, name, peer)
        if peer.options.get("hangs"):
            process.answer_seconds = 0.5  # of the others, a slow machine may need more
        return process

    monkeypatch.setattr(run.Benchmark, "make_process", make)
    options = "--peers ours torch keras --configurations rnn_tanh-*"
    status, everything, _ = run_benchmark(pretended_peers, options)
    assert status == 1 and len(everything["results"]) == 4
    assert_not_measured(everything, "torch", "no answer", is_error=True)
    assert all(len(result["peers"]["keras"]["seconds"]) == 3 for result in everything["results"])
    last = everything["results"][-1]["peers"]["torch"]["reason"]
    assert last == "not started again: two requests had no answer in time"


def test_a_missing_environment_is_an_error_only_if_the_peer_is_named(pretended_peers):
    replace_peers(ours={}, torch={})
    without_environment("torch")
    status, everything, output = run_benchmark(pretended_peers, "--configurations rnn_tanh-1x16-*")
    assert status == 0
    assert_not_measured(everything, "torch", "$NO_SUCH_PYTHON is not set", is_error=False)
    assert "torch: $NO_SUCH_PYTHON is not set" in (output / "table.md").read_text()


def test_memory(pretended_peers, capfd):
    replace_peers(ours={"megabytes": 20}, torch={"megabytes": 60})
    options = "--memory --configurations rnn_tanh-*"
    status, everything, _ = run_benchmark(pretended_peers, options, "memory.json")
    assert status == 0 and len(everything["results"]) == 2
    for result in everything["results"]:
        for name, megabytes in [("ours", 20), ("torch", 60)]:
            found = result["peers"][name]["bytes"] / 2**20
            assert math.isclose(found, megabytes, abs_tol=3), (name, found)
    assert "at most as much as PyTorch in 2 of 2." in capfd.readouterr().out


def test_page_of_a_run(pretended_peers):
    _, _, output = run_benchmark(pretended_peers, "--peers ours torch --configurations rnn_tanh-*")
    (output / "memory.md").write_text("| memory |\n")
    path = record.keep(str(output), str(pretended_peers / "docs"))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for part in ["# ", "| logical cpus ", "| command ", "## Times", "| memory |", "pretended 1"]:
        assert part in text, (part, text)
    name = os.path.splitext(path)[0]
    assert os.path.basename(name) + ".png" in text and name.endswith("-threads")
    assert os.path.exists(name + ".png") and os.path.exists(name + ".json")


def test_pages_of_two_processors_of_one_name(tmp_path):
    """Both runs of a day are kept: their pages differ by family and model."""
    everything = {"date": "2026-11-25", "threads": 2, "dtype": "float", "command": "c", "rounds": 1}
    everything.update(load_before=0, versions={}, passes=1)
    paths = set()
    for family_and_model in ["25, 1", "25, 17", None]:
        everything["machine"] = {"cpu": "AMD EPYC", "family_and_model": family_and_model}
        if family_and_model is None:
            del everything["machine"]["family_and_model"]
        (tmp_path / "results.json").write_text(json.dumps(everything))
        paths.add(os.path.basename(record.keep(str(tmp_path), str(tmp_path / "docs"))))
    assert paths == {
        "2026-11-25-amd-epyc-family-and-model-25-1-2-threads.md",
        "2026-11-25-amd-epyc-family-and-model-25-17-2-threads.md",
        "2026-11-25-amd-epyc-2-threads.md",
    }


def test_a_run_in_bfloat16_names_the_dtype(pretended_peers):
    options = "--dtype bfloat16 --configurations rnn_tanh-1x16-*"
    status, everything, output = run_benchmark(pretended_peers, options)
    assert status == 0 and everything["dtype"] == "bfloat16"
    for result in everything["results"]:
        assert result["configuration"]["dtype"] == "bfloat16"
        assert list(result["peers"]) == ["ours", "torch"]
    path = record.keep(str(output), str(pretended_peers / "docs"))
    assert path.endswith("-1-threads-bfloat16.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert ", 1 threads, bfloat16, " in text.splitlines()[0] and "| dtype " in text
    assert "rnn_tanh-1x16-bi-b3-t6, bfloat16, inference" in text
