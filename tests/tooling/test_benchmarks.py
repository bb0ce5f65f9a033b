"""The benchmarks' statistics are right, and one run from the peers' processes to the page.

The other peers of these runs are processes that compute nothing.
"""

from helpers.benchmark_modules import FOLDER, cells_of  # noqa: I001  (first: it extends sys.path)
from helpers.paths import ROOT
from helpers.processes import output_of
from helpers.versions import needs_tensorflow_2

import functools
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import gpu_summary
import machine
import numpy as np
import peers
import pictures
import pytest
import record
import run
from arguments import parse_arguments
from configurations import Configuration, configurations, parse
from measuring import Sample, measure_all
from problem import TOLERANCES, Mismatch, compare, result_names
from processes import worker_environment
from roofline import floor_of
from summary import describe, make_rows, mean_ratios
from tables import has_errors, make_cell

pytestmark = pytest.mark.once


def find(name, kind="inference"):
    (found,) = configurations(patterns=[name], kinds=[kind])
    return found


def make_result(name, kind="inference", **milliseconds):
    """Returns one configuration's result; the peak is 100 GFLOP/s, the memory has 50 GB/s."""
    return {
        "configuration": find(name, kind),
        "peak_seconds": [2 * 2048**3 / 100e9] * 3,
        "peak_of": "torch",
        "bytes_per_second": 50e9,
        "peers": {
            peer.replace("_", "-"): {"seconds": [t / 1000 * f for f in (1.1, 0.9, 1.0, 9.0, 1.0)]}
            for peer, t in milliseconds.items()
        },
    }


def test_operations():
    # In each of 2 layers and 2 directions, 3 gates of 4 units multiply and add x (3 wide in the
    # first layer, 2 * 4 in the second) and h (4 wide).
    one = Configuration("table", "gru", 2, 4, 3, "bidirectional", 5, 7, False, False)
    per_row = sum(2 * 3 * 4 * 2 * (width + 4) for width in (3, 8))
    assert one.operations == per_row * 5 * 7
    assert one._replace(is_training=True).operations == 3 * per_row * 5 * 7


@pytest.mark.parametrize("name", ["lstm-2x650-b20-t35-half", "lstm-4x512-b64-t50-half"])
def test_lengths_have_half_the_steps_on_average(name):
    one = find(name)
    assert len(one.lengths) == one.batch
    assert min(one.lengths) >= 1 and max(one.lengths) <= one.steps
    assert sum(one.lengths) / one.batch / one.steps == pytest.approx(0.5, abs=0.01)
    assert one.lengths != sorted(one.lengths) and one.lengths != sorted(one.lengths)[::-1]
    full = one._replace(has_lengths=False)
    assert one.operations / full.operations == pytest.approx(0.5, abs=0.01)


def test_names_mean_the_same_to_the_cpp_tests():
    """The table of names in the C++ test is also right here."""
    path = Path(ROOT, "tests", "core", "problem_text_test.cc")
    number, word = r"(\d+),\s+", r'"([^"]+)",\s+'
    row = r"\{" + 2 * word + 3 * number + word + 2 * number + r"\{([\d, ]*)\}\}"
    rows = re.findall(row, path.read_text(encoding="utf-8"))
    assert len(rows) >= 7
    for name, mode, layers, units, width, direction, batch, steps, lengths in rows:
        one = parse("table", name)
        sizes = [int(size) for size in (layers, units, width)]
        assert [one.rnn_mode, one.num_layers, one.num_units, one.input_size] == [mode, *sizes]
        assert [one.direction, one.batch, one.steps] == [direction, int(batch), int(steps)]
        assert one.lengths == ([int(length) for length in lengths.split(",")] if lengths else None)
        assert one.name == name


def test_floors():
    one = find("lstm-1x512-b1-t50")
    floor = floor_of(one, 1e9, 1e9)
    matrix = 4 * 4 * 512 * 512  # bytes of W; R has as many
    assert floor.by_arithmetic == pytest.approx(2 * 2 * 4 * 512 * 512 * 50 / 1e9)
    assert floor.by_bytes == pytest.approx((50 * matrix + matrix) / 1e9)
    training = floor_of(one._replace(is_training=True), 1e9, 1e9)
    assert training.by_arithmetic == pytest.approx(3 * floor.by_arithmetic)
    assert training.by_bytes == pytest.approx((100 * matrix + 3 * matrix) / 1e9)
    decoding = floor_of(one._replace(group="decode"), 1e9, 1e9)
    assert decoding.by_bytes == pytest.approx(50 * 2 * matrix / 1e9)
    assert floor_of(one, 1e9, None).by_bytes is None
    assert floor_of(one._replace(dtype="bfloat16"), 1e9, 1e9).by_bytes == floor.by_bytes / 2


def test_a_row():
    one = find("lstm-2x650-b20-t35")
    result = make_result(one.name, ours=50.0, torch=75.0, onnxruntime=40.0)
    result["peers"]["keras"] = {"reason": "no", "is_error": False}
    (row,) = make_rows([result])
    assert row.ours.seconds == pytest.approx(0.050)  # the outlier does not count
    assert row.ratios == {"torch": [pytest.approx(1.5)], "onnxruntime": [pytest.approx(0.8)]}
    assert row.peak == pytest.approx(100e9)
    assert row.share == pytest.approx(one.operations / 0.050 / 100e9)


def test_geometric_means_leave_out_other_groups():
    rows = make_rows(
        [
            make_result("lstm-2x650-b20-t35", "training", ours=1, torch=4),
            make_result("lstm-4x1024-b64-t50", "training", ours=1, torch=1),
            make_result("lstm-2x650-b20-t35-half", "training", ours=1, torch=100),
        ]
    )
    assert mean_ratios(rows, "training", "torch") == [pytest.approx(2.0)]
    assert mean_ratios(rows, "inference", "torch") == []


def test_passes():
    """A pass on a slower machine changes no ratio, and a disturbed pass not the median."""
    gru, lstm = "gru-2x650-b20-t35", "lstm-1x512-b1-t50"
    results = [
        make_result(gru, ours=50.0, torch=75.0),
        make_result(lstm, ours=10.0, torch=30.0),
        make_result(gru, ours=100.0, torch=150.0),
        make_result(lstm, ours=20.0, torch=60.0),
        make_result(gru, ours=50.0, torch=30.0),
        make_result(lstm, ours=10.0, torch=20.0),
    ]
    for result, rate in zip(results, (100e9, 100e9, 50e9, 50e9, 100e9, 100e9)):
        result["peak_seconds"] = [2 * 2048**3 / rate]
        result["peers"]["torch"]["difference"] = 1e-14 * rate  # varies between passes
    rows = make_rows(results)
    assert [row.configuration.name for row in rows] == [gru, lstm]
    assert rows[0].ratios == {"torch": [pytest.approx(one) for one in (1.5, 1.5, 0.6)]}
    assert rows[0].share == pytest.approx(find(gru).operations / 0.050 / 100e9)
    assert rows[0].ours.seconds == pytest.approx(0.055)  # all 15 samples: 45, 50, 50, 55, 450 ...
    means = [(a * b) ** 0.5 for a, b in [(1.5, 3), (1.5, 3), (0.6, 2)]]
    assert mean_ratios(rows, "inference", "torch") == pytest.approx(means)
    text = describe(results)
    assert "in 3 passes" in text and "passes" not in describe(results[:2])
    assert cells_of(text, gru + ", inference")[0][3].startswith("1.50 [0.60 to 1.50] (")
    assert cells_of(text, lstm + ", inference")[0][3].startswith("3.00 [2.00 to 3.00] (")
    assert cells_of(text, "inference")[0][1] == "2.12 [1.10 to 2.12]"
    assert "- torch: 1.0e-03 (gru-2x650-b20-t35, inference; of 2 configurations)" in text


def test_tables_fit_in_a_terminal():
    """A table that is too wide is split; each part begins with the first column."""
    names = ["torch", "onnxruntime", "keras", "keras-ours", "tf1-cell", "tf1-fused"]
    results = [make_result("gru-2x650-b20-t35", ours=50.0, **dict.fromkeys(names, 123.0))] * 3
    tables = [line for line in describe(results).splitlines() if line.startswith("|")]
    assert max(map(len, tables)) <= 100
    rows = cells_of("\n".join(tables), "gru-2x650-b20-t35, inference")
    assert len(rows) > 2 and sum(len(row) - 1 for row in rows) == 2 + len(names) + 6


def test_peers_that_round():
    """A peer that rounds runs on request; its format is in tables and decides the tolerance."""
    rounding = {"ours-medium": "bfloat16", "openvino-bf16": "bfloat16", "onnxruntime-int8": "int8"}
    found = {name: one.arithmetic for name, one in peers.CPU_PEERS.items() if one.rounds}
    assert found == rounding
    usual = parse_arguments(["cpu"]).peers
    assert set(usual) == set(peers.CPU_PEERS) - set(rounding)
    assert parse_arguments(["cpu", "--peers", "ours", *rounding]).peers == ["ours", *rounding]
    result = make_result("lstm-2x650-b20-t35", ours=50.0, openvino=75.0)
    assert "OpenVINO, " not in describe([result]) and "number format" not in describe([result])
    result["peers"]["openvino-bf16"] = result["peers"]["openvino"]
    assert "| OpenVINO, bfloat16 " in describe([result]) and "number format" in describe([result])
    one = configurations(quick=True, kinds=["inference"])[0]
    expected = [np.ones([2, 3])] * len(result_names(one))
    results = [array * (1 + 0.9 * TOLERANCES["int8"]) for array in expected]
    assert compare(one, results, expected, ("float", "int8")) < TOLERANCES["int8"]
    with pytest.raises(Mismatch, match="expected at most %.2g" % TOLERANCES["float"]):
        compare(one, results, expected, ("float", "float"))


def test_every_peer_has_a_mark_in_the_plot():
    assert len(set(pictures.STYLES)) == len(pictures.STYLES) >= len(peers.CPU_PEERS) - 1


def test_the_environment_does_not_change_the_precision(monkeypatch):
    """Only a peer's options change it."""
    monkeypatch.setenv("CUDNN_RNN_FLOAT32_MATMUL_PRECISION", "medium")
    for peer, threads in [(peers.CPU_PEERS["ours"], 1), (peers.GPU_PEERS["core"][0], None)]:
        found = worker_environment(peer, threads)
        assert "CUDNN_RNN_FLOAT32_MATMUL_PRECISION" not in found


def test_comparison_of_results():
    one = configurations(quick=True, kinds=["training"])[0]
    names = result_names(one)
    array = np.arange(1.0, 7.0).reshape(2, 3)
    results = [array] * len(names)
    assert compare(one, results, results) == 0

    def compare_with(name, wrong):
        index = names.index(name)
        return compare(one, results[:index] + wrong + results[index + 1 :], results)

    assert 0 < compare_with("d_input", [array * (1 + 1e-5)]) < 1e-4
    assert compare(one._replace(dtype="bfloat16"), [array * 1.01] * len(names), results) < 0.02
    for name, wrong, text in [
        ("d_r_1_0", [array + 0.01], "d_r_1_0 differs by 0.0017"),
        ("output", [array * np.nan], "output differs by nan"),
        ("output", [array.T], r"output has shape \(3, 2\)"),
        ("d_input", [], "%d results, ours %d" % (len(names) - 1, len(names))),
    ]:
        with pytest.raises(Mismatch, match=text):
            compare_with(name, wrong)


def test_cpus_are_of_different_cores(monkeypatch):
    monkeypatch.setattr(machine, "_cores", lambda: [[0, 4], [1, 5], [2]])
    assert machine.choose_cpus(2) == [0, 1]
    assert machine.choose_cpus(5) == [0, 1, 2, 4, 5]
    assert machine.choose_cpus(6) is None


def make_gpu_result(core=1.0, auto=0.9, torch=1.5, cudnn=(1.2, 1.0), batch=20):
    """Returns the result of one configuration for these times in milliseconds."""
    shape = ("gpu", "lstm", 2, 650, 650, "unidirectional", batch, 35, False)
    configuration = Configuration(*shape, is_training=True)

    def entry(variant, milliseconds, on_device=True):
        seconds = [milliseconds / 1000 * factor for factor in (1.1, 0.9, 1.0, 5.0, 1.0)]
        device_seconds = seconds if on_device else []
        return {"variant": variant, "seconds": seconds, "device_seconds": device_seconds}

    peers = {
        "core standard": dict(entry("standard", core), launch=[0.0004, 0.1012]),
        "core auto": entry("persist_static", auto),
        "torch.nn": entry("", torch),
        "ours in TF": entry("", 2.0, False),
        "CudnnRNNV3 of TF": entry("", 2.5, False),
    }
    for variant, milliseconds in zip(("standard", "persist_static"), cudnn):
        peers["cuDNN " + variant] = entry(variant, milliseconds)
    return {"configuration": configuration, "peers": peers}


TF32_SWITCHES = {
    "tensorflow_kernels": "tf.config.experimental.tensor_float_32_execution_enabled()",
    "torch_network": "torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32",
}


@pytest.mark.release
@needs_tensorflow_2
@pytest.mark.parametrize("worker", list(TF32_SWITCHES))
def test_workers_disable_tf32(worker):
    program = "import sys; sys.path[:0] = sys.argv[1:]; from %s import *; " % worker
    program += "start({'threads': None, 'device': 'cpu'}); print(%s)" % TF32_SWITCHES[worker]
    printed = output_of("-c", program, FOLDER, os.path.join(FOLDER, "workers"))
    assert "False" in printed and "True" not in printed


def test_quartiles():
    assert make_cell([3.0, 1.0, 2.0]).seconds == 2.0
    assert make_cell([1.0, 2.0, 3.0, 4.0])[::2] == (2.5, 1.5 / 2.5)
    assert make_cell([7.0], "name") == (7.0, "name", 0.0)
    assert make_cell([]) is None


def test_cells_are_medians_of_the_best_variant():
    result = make_gpu_result()
    core = gpu_summary.best(result, "device_seconds", "core standard")
    assert core.seconds == pytest.approx(0.001)  # the outlier of 5.0 does not count
    assert core.spread == pytest.approx(0.1)
    cudnn = gpu_summary.best(result, "device_seconds", "cuDNN *")
    assert cudnn.seconds == pytest.approx(0.001) and cudnn.variant == "persist_static"
    assert gpu_summary.best(result, "device_seconds", "ours in TF") is None
    assert [round(gpu_summary.ratio(result, one), 3) for one in gpu_summary.SERIES] == [
        0.833,
        0.9,
        0.9,
        0.667,
        0.8,
    ]


def test_unknown_values_give_no_number():
    result = make_gpu_result()
    peers = {name: result["peers"][name] for name in ("core standard", "torch.nn")}
    peers["cuDNN standard"] = {"reason": "no such library", "is_error": False}
    result = dict(result, peers=peers)
    assert [gpu_summary.ratio(result, one) is None for one in gpu_summary.SERIES] == [
        True,
        True,
        True,
        False,
        True,
    ]
    text = gpu_summary.describe([result])
    assert "- cuDNN standard: no such library (lstm-2x650-b20-t35)" in text


def test_missed_goals_are_named():
    results = [make_gpu_result(), make_gpu_result(core=1.0, auto=1.1, batch=64)]
    text = gpu_summary.describe(results)
    key = results[1]["configuration"].key
    assert "- core auto / core standard: 1.100, %s (goal: at most 1.02, missed)" % key in text
    assert "- core standard / cuDNN standard: 0.833, %s (goal: at most 1.02)" % key in text
    assert "- core auto / fastest of cuDNN: 1.100, %s\n" % key in text


def test_a_peer_of_ours_that_fails_is_an_error():
    result = make_gpu_result()
    assert not has_errors([result], gpu_summary.OURS)
    for name, is_error in [("torch.nn", False), ("core auto", True), ("ours in TF", True)]:
        failure = {name: {"reason": "why", "is_error": True}}
        failed = dict(result, peers=dict(result["peers"], **failure))
        assert has_errors([result, failed], gpu_summary.OURS) == is_error
        assert has_errors([result, failed])
    refused = dict(result, peers={"core auto": {"reason": "not supported", "is_error": False}})
    assert not has_errors([refused], gpu_summary.OURS)


def test_kernels_that_only_one_of_two_runs_are_listed():
    result = make_gpu_result()
    ours = {"gemm": [4, 97.5], "cell": [4, 40.0], "clear": [2, 1.0]}
    kernels = {"core standard": ours, "cuDNN standard": None}
    for name, found in kernels.items():
        result["peers"][name]["kernels"] = found
    assert "Kernels of" not in gpu_summary.describe([result])
    theirs = {"gemm": [4, 99.5], "cell": [4, 30.0], "other": [1, 1.0]}
    result["peers"]["cuDNN standard"]["kernels"] = theirs
    text = gpu_summary.describe([result])
    assert "2 and 0 times, 1 and 0 us: `clear`" in text
    assert "0 and 1 times, 0 and 1 us: `other`" in text
    assert "4 and 4 times, 40 and 30 us: `cell`" in text  # more than 3% of a step
    assert "gemm" not in text


def pretended_run(name, seconds, log, clock):
    """Returns a fake run whose steps take `seconds` each; logs its calls."""

    def run(num_steps):
        log.append((name, num_steps))
        clock[0] += seconds * num_steps
        return Sample(seconds)

    return run


def test_peers_take_turns():
    log, clock = [], [0.0]
    seconds = {"slow": 0.01, "fast": 0.0001, "very slow": 1.0}
    runs = {name: pretended_run(name, one, log, clock) for name, one in seconds.items()}
    samples = measure_all(runs, 10, 0.02, clock=lambda: clock[0])
    assert {name: len(found) for name, found in samples.items()} == dict.fromkeys(runs, 10)
    measured = log[9:]  # after three runs of each
    rounds = [measured[start : start + 3] for start in range(0, 30, 3)]
    assert all({name for name, _ in one} == set(runs) for one in rounds)
    assert len({tuple(name for name, _ in one) for one in rounds}) > 1
    assert set(measured) == {("slow", 2), ("fast", 200), ("very slow", 1)}


def test_measuring_ends_in_time_with_at_least_three_rounds():
    log, clock = [], [0.0]
    runs = {"only": pretended_run("only", 1.0, log, clock)}
    samples = measure_all(runs, 50, 0.02, deadline=8.5, clock=lambda: clock[0])
    assert len(samples["only"]) == 4
    samples = measure_all(runs, 50, 0.02, deadline=0.0, clock=lambda: clock[0])
    assert len(samples["only"]) == 3


# A peer module for worker.py. Its options make it wrong or let it exit in a step.
PRETENDED = """
import os
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
        if self.options.get("is_mortal"):
            os._exit(3)

    def results(self):
        return [np.full(3, self.total * self.options.get("factor", 1))] * self.count
"""


@pytest.fixture
def pretended_peers(tmp_path, monkeypatch):
    """Replaces the benchmark's peers by processes of this Python that compute nothing."""
    (tmp_path / "pretended.py").write_text(PRETENDED)
    options = {"ours": {}, "torch": {}, "keras": {"factor": 1.01}, "tf1-cell": {"is_mortal": True}}
    pretended = {
        name: peers.Peer(name, "torch", "pretended", options=one) for name, one in options.items()
    }
    original = dict(peers.CPU_PEERS)
    peers.CPU_PEERS.clear()
    peers.CPU_PEERS.update(pretended)
    monkeypatch.setenv("TORCH_PYTHON", sys.executable)
    monkeypatch.delenv("CUDNN_RNN_READ_BANDWIDTH", raising=False)
    make = functools.partialmethod(run.Benchmark.make_process, PYTHONPATH=str(tmp_path))
    monkeypatch.setattr(run.Benchmark, "make_process", make)
    yield tmp_path
    peers.CPU_PEERS.clear()
    peers.CPU_PEERS.update(original)  # in the order of the tables


@pytest.mark.ci
def test_a_run_from_the_peers_to_its_page(pretended_peers):
    """Peers that refuse a model, are wrong or die get no time; the others are measured."""
    output = pretended_peers / "output"
    options = ["--passes", "2", "--configurations", "gru-2x16-*", "rnn_tanh-1x16-*"]
    arguments = ["cpu", "--quick", "--threads", "1", "--output", str(output)] + options
    assert run.main(arguments) == 1
    everything = json.loads((output / "results.json").read_text())
    keys = [json.dumps(result["configuration"]) for result in everything["results"]]
    assert keys[: len(keys) // 2] == keys[len(keys) // 2 :]
    modes = set()
    for result in everything["results"]:
        modes.add(result["configuration"]["rnn_mode"])
        found = result["peers"]
        if result["configuration"]["rnn_mode"] == "gru":
            assert found["torch"] == {"reason": "no gates", "is_error": False}
            continue
        assert len(found["ours"]["seconds"]) == len(found["torch"]["seconds"]) == 3
        assert found["torch"]["difference"] == 0 and len(result["peak_seconds"]) == 3
        for name, reason in [("keras", "wrong results"), ("tf1-cell", "ended with status 3")]:
            assert reason in found[name]["reason"] and found[name]["is_error"]
            assert "seconds" not in found[name]
    assert modes == {"gru", "rnn_tanh"}
    path = record.keep(str(output), str(pretended_peers / "docs"))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for part in ["| logical cpus ", "| command ", "## Times", "in 2 passes", "pretended 1"]:
        assert part in text, (part, text)
    name = os.path.splitext(path)[0]
    assert os.path.exists(name + ".png") and os.path.exists(name + ".json")


# What the modules of some peers import; a Python may lack the libraries.
LIBRARIES = {
    "ours": "tensorflow",
    "onnxruntime_network": "onnxruntime",
    "openvino_network": "openvino",
    "jax_network": "flax",
}


@pytest.mark.sampled(4)
@pytest.mark.ci
@needs_tensorflow_2
def test_peers_compute_the_same(tmp_path, monkeypatch):
    """Those that run in this Python and those whose environment `make bench` has made."""
    chosen = []
    for name, peer in peers.CPU_PEERS.items():
        if peer.module not in LIBRARIES or name == "plain":
            continue
        made = os.path.join(ROOT, ".venv", peer.environment, "bin", "python")
        is_made = os.path.exists(made)
        if is_made or importlib.util.find_spec(LIBRARIES[peer.module]):
            python = made if is_made else sys.executable
            monkeypatch.setenv(peer.environment.upper() + "_PYTHON", python)
            chosen.append(name)
    assert {"ours", "ours-medium"} <= set(chosen)
    models = ["lstm-2x24-i10-b4-t8-half", "gru-2x24-i10-bi-b3-t6", "rnn_tanh-2x16-b3-t6", "decode"]
    arguments = ["cpu", "--quick", "--check", "--threads", "1", "--output", str(tmp_path)]
    assert run.main([*arguments, "--peers", *chosen, "--configurations", *models]) == 0
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    found = [pair for one in results for pair in one["peers"].items()]
    compared = {name for name, one in found if "difference" in one}
    assert compared >= set(chosen) - {"openvino-bf16"}  # a processor may have no bfloat16


def test_pages_of_two_processors_of_one_name(tmp_path):
    """Both runs of a day are kept: their pages differ by family and model."""
    everything = {"date": "2026-11-25", "threads": 2, "dtype": "float", "command": "c", "rounds": 1}
    everything.update(load_before=0, versions={}, passes=1)
    paths = set()
    for family_and_model in ["25, 1", "25, 17"]:
        everything["machine"] = {"cpu": "AMD EPYC", "family_and_model": family_and_model}
        (tmp_path / "results.json").write_text(json.dumps(everything))
        paths.add(os.path.basename(record.keep(str(tmp_path), str(tmp_path / "docs"))))
    assert paths == {
        "2026-11-25-amd-epyc-family-and-model-25-1-2-threads.md",
        "2026-11-25-amd-epyc-family-and-model-25-17-2-threads.md",
    }
