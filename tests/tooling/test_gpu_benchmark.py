"""Table, plot, turn-taking and records of the GPU benchmark, with made-up times."""

from helpers.benchmark_modules import FOLDER, ROOT, cells_of  # noqa: I001  (first: it extends sys.path)
from helpers.processes import output_of, status_and_text
from helpers.versions import needs_tensorflow_2

import json
import os

import pytest
from configurations import Configuration, gpu_configurations
from gpu_summary import SERIES, best, describe, draw, ratio
from measuring import Sample, measure_all
from tables import make_cell

pytestmark = pytest.mark.once


def make_result(core=1.0, auto=0.9, torch=1.5, cudnn=(1.2, 1.0), batch=20):
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
    result = make_result()
    core = best(result, "device_seconds", "core standard")
    assert core.seconds == pytest.approx(0.001)  # the outlier of 5.0 does not count
    assert core.spread == pytest.approx(0.1)
    cudnn = best(result, "device_seconds", "cuDNN *")
    assert cudnn.seconds == pytest.approx(0.001) and cudnn.variant == "persist_static"
    assert best(result, "device_seconds", "ours in TF") is None
    assert [round(ratio(result, one), 3) for one in SERIES] == [0.833, 0.9, 0.667, 0.8]


def test_unknown_values_give_no_number():
    result = make_result()
    peers = {name: result["peers"][name] for name in ("core standard", "torch.nn")}
    peers["cuDNN standard"] = {"reason": "no such library", "is_error": False}
    result = dict(result, peers=peers)
    assert [ratio(result, one) is None for one in SERIES] == [True, True, False, True]
    text = describe([result], left_out=["another"])
    assert "- cuDNN standard: no such library (lstm-2x650-b20-t35)" in text
    assert text.endswith("Not measured within the time budget:\n\n- another\n")


def test_table():
    text = describe([make_result(core=1.1), make_result(core=1.3, batch=1)])
    (cells,) = cells_of(text, "lstm-2x650-b20-t35")
    assert cells[1:3] == ["float", "training"]
    assert cells[3:6] == ["1.100", "1.200", "0.917"]
    assert cells[6:9] == ["0.900 (persist_static)", "1.000 (persist_static)", "0.900"]
    assert cells[12:] == ["2.000", "2.500", "0.800", "0.40 of 101.2", "-"]
    assert "- core standard / cuDNN standard: 1.083, lstm-2x650-b1-t35, training" in text
    assert "Widest spread" in text and "meaningless" not in text
    assert "meaningless" in describe([make_result()], is_dry_run=True)


def test_every_published_configuration_is_there():
    found = gpu_configurations()
    assert len(found) == len(set(found)) == 8 * 2 * 2
    assert {one.name for one in found} == set(
        "lstm-4x128-b64-t50 lstm-4x512-b64-t50 lstm-4x1024-b64-t50 lstm-2x650-b20-t35"
        " lstm-1x512-b1-t100 lstm-1x64-b64-t200 lstm-1x128-b64-t200"
        " lstm-5x1024-bi-b32-t200".split()
    )
    kinds = {(one.dtype, one.is_training) for one in found}
    assert kinds == {("float", True), ("float", False), ("half", True), ("half", False)}
    sizes = [one.num_layers * one.num_units**2 * one.batch * one.steps for one in found]
    assert sizes == sorted(sizes)
    modes = {one.rnn_mode for one in gpu_configurations(quick=True, rnn_modes=["gru", "lstm"])}
    assert modes == {"gru", "lstm"}


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


def test_picture(tmp_path):
    results = [make_result(), make_result(core=1.4, batch=1)]
    draw(results, "A GPU, a day", str(tmp_path / "ratios.png"))
    with open(str(tmp_path / "ratios.png"), "rb") as file:
        assert file.read(4) == b"\x89PNG"
    draw([], "nothing", str(tmp_path / "empty.png"))
    assert (tmp_path / "empty.png").exists()


def write_run(folder):
    """Writes results of stages 1 and 3 with one failed test; stage 3 was killed in a part."""
    for stage in ("stage_1_core", "stage_3_benchmarks"):
        (folder / stage).mkdir()
        (folder / stage / "versions.json").write_text(
            json.dumps({"date": "2001-02-03", "gpu": "NVIDIA X200 (PCIe)", "driver": "999.1"})
        )
        (folder / stage / "status.txt").write_text("all_cases 1\ncompute_sanitizer not run\n")
    records = [
        dict(test=test, event=event, part="all_cases", text=text)
        for test, event, text in [
            ("good", "started", ""),
            ("bad", "started", ""),
            ("good", "passed", ""),
            ("bad", "failed", "a line\nthe error"),
            ("bad", "failed", "the worker died"),
            ("late", "started", ""),
            ("late", "skipped", "not run within --seconds"),
            ("stuck", "started", ""),
        ]
    ]
    text = "\n".join(map(json.dumps, records)) + '\n{"test": "in the mid'
    (folder / "stage_1_core" / "tests.jsonl").write_text(text)
    (folder / "stage_1_core" / "log.txt").write_text("\n== all_cases\nwhy it failed\n")
    (folder / "stage_3_benchmarks" / "log.txt").write_text("\n== benchmark\nhow far it got\n")
    (folder / "stage_3_benchmarks" / "table.md").write_text("| a table |\n")
    (folder / "stage_3_benchmarks" / "ratios.png").write_bytes(b"a picture")


def record_run(*arguments):
    script = os.path.join(ROOT, "scripts", "record_gpu_run.py")
    return status_and_text(script, *arguments)


def test_record_of_a_run(tmp_path):
    write_run(tmp_path)
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status == 0, printed
    assert printed.strip() == str(tmp_path / "docs" / "2001-02-03-nvidia-x200-pcie.md")
    with open(printed.strip()) as file:
        text = file.read()
    for part in [
        "# NVIDIA X200 (PCIe), 2001-02-03",
        "| driver | 999.1 |",
        "| all_cases | FAILED (1) |",
        "| compute_sanitizer | not run |",
        "all_cases: 4 tests: 1 passed, 1 failed, 1 unfinished, 1 not run.",
        "Failed:\n\n- `bad`: the error\n\nUnfinished:\n\n- `stuck`\n",
        "End of the log of all_cases:\n\n```\nwhy it failed\n```",
        "| benchmark | UNFINISHED: the stage was killed |",
        "how far it got",
        "## Ops in TensorFlow\n\nNot run.",
        "| a table |",
        "(2001-02-03-nvidia-x200-pcie.png)",
    ]:
        assert part in text, (part, text)
    assert (tmp_path / "docs" / "2001-02-03-nvidia-x200-pcie.png").exists()


def test_runs_without_a_gpu_are_not_recorded(tmp_path):
    write_run(tmp_path)
    for stage in ("stage_1_core", "stage_3_benchmarks"):
        text = '{"date": "2001-02-03", "nvidia_smi_missing": "why it failed"}'
        (tmp_path / stage / "versions.json").write_text(text)
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status != 0 and "saw no GPU" in printed and "nvidia-smi: why it failed" in printed
    assert not (tmp_path / "docs").exists()


def test_missing_versions_are_named(tmp_path):
    write_run(tmp_path)
    (tmp_path / "stage_1_core" / "versions.json").unlink()
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status == 0, printed
    with open(printed.strip()) as file:
        assert "`versions.json` is missing" in file.read()
    (tmp_path / "stage_3_benchmarks" / "versions.json").unlink()
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status != 0 and str(tmp_path / "stage_1_core" / "versions.json") in printed


def test_versions_are_written_before_an_import_ends_the_process(tmp_path):
    (tmp_path / "numpy.py").write_text("__version__ = '1.2'\n")
    (tmp_path / "torch.py").write_text("import os\nos._exit(7)\n")
    script = os.path.join(ROOT, "scripts", "gpu_versions.py")
    path = tmp_path / "versions.json"
    status, _ = status_and_text("-S", script, path, PYTHONPATH=str(tmp_path))
    assert status == 7 and json.loads(path.read_text())["numpy"] == "1.2"
