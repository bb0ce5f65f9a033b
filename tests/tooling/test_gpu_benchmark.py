"""Statistics, table, verdicts, plot and turn-taking of benchmarks/gpu, with made-up times."""

import json
import os
import subprocess
import sys

import pytest

from helpers.benchmark_modules import FOLDER, import_from


@pytest.fixture(autouse=True)
def import_from_the_benchmark():
    with import_from("gpu", "common"):
        yield


def make_results(core=1.0, torch=1.5, ours=2.0, builtin=2.5, cudnn=(1.2, 1.0), batch=20):
    """Returns the results of one configuration for these times in milliseconds."""
    from configurations import Configuration

    configuration = Configuration("lstm", "unidirectional", 2, 650, 650, batch, 35, "float", True)

    def result(peer, variant, milliseconds, on_device=True):
        seconds = [milliseconds / 1000 * factor for factor in (1.1, 0.9, 1.0, 5.0, 1.0)]
        return {
            "configuration": dict(configuration._asdict()),
            "key": configuration.key,
            "peer": peer,
            "variant": variant,
            "device_seconds": seconds if on_device else [],
            "wall_seconds": seconds,
        }

    results = [
        result("core", "persist_static", core),
        result("torch.nn", "", torch),
        result("TensorFlow", "ours", ours, False),
        result("TensorFlow", "built-in CudnnRNN", builtin, False),
        result("TensorFlow", "built-in CudnnRNNV3", builtin * 2, False),
    ]
    names = ("standard", "persist_static")
    return results + [result("cuDNN", name, time) for name, time in zip(names, cudnn)]


def test_quantiles():
    from quantities import quantile

    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.25) == 1.75
    assert quantile([7.0], 0.9) == 7.0


def test_a_row_has_medians_and_the_best_of_each_peer():
    from summary import make_rows

    (row,) = make_rows(make_results())
    assert row.core.seconds == pytest.approx(0.001)  # the outlier of 5.0 does not count
    assert row.cudnn.seconds == pytest.approx(0.001) and row.cudnn.variant == "persist_static"
    assert row.builtin.seconds == pytest.approx(0.0025)
    assert row.builtin.variant == "built-in CudnnRNN"
    assert row.ours.variant == "ours"
    assert row.core.spread == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes, missed",
    [
        ({}, []),
        ({"core": 1.02}, []),
        ({"core": 1.021}, ["within 2% of bare cuDNN"]),
        ({"torch": 0.99}, ["not slower than torch.nn"]),
        ({"torch": 1.0}, []),
        ({"torch": 1.0, "batch": 1}, ["faster than torch.nn"]),
        ({"builtin": 1.9}, ["not slower than TensorFlow's kernels"]),
        ({"builtin": 2.0, "batch": 1}, ["faster than TensorFlow's kernels"]),
        ({"core": 3.0, "ours": 3.0, "batch": 1}, ["within", "faster than t", "faster than T"]),
    ],
)
def test_goals(changes, missed):
    from summary import make_rows, verdicts

    (row,) = make_rows(make_results(**changes))
    found = verdicts(row)
    assert len(found) == 3
    wrong = [goal for goal, _, is_met in found if not is_met]
    assert len(wrong) == len(missed), wrong
    assert all(goal.startswith(start) for goal, start in zip(wrong, missed)), wrong


def test_unknown_values_give_no_goal_and_no_number():
    from summary import describe, make_rows, verdicts

    results = [result for result in make_results() if result["peer"] in ("core", "torch.nn")]
    refused = {key: results[0][key] for key in ("configuration", "key")}
    results.append(dict(refused, peer="cuDNN", reason="no such library"))
    (row,) = make_rows(results)
    assert row.cudnn is None and row.builtin is None
    assert [goal for goal, _, _ in verdicts(row)] == ["not slower than torch.nn"]
    text = describe(results)
    assert "- cuDNN: no such library (lstm 2 x 650, batch 20, 35 steps, float, training)" in text


def test_table_and_missed_goals():
    from summary import describe

    text = describe(make_results(core=1.1))
    line = next(line for line in text.splitlines() if line.startswith("| lstm"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["lstm 2 x 650, batch 20, 35 steps", "float", "training"]
    assert cells[3:6] == ["1.100 (persist_static)", "1.000 (persist_static)", "1.100"]
    assert cells[9:] == ["2.000", "2.500 (built-in CudnnRNN)", "0.800"]
    assert "Goals met: 2 of 3." in text
    assert "training: 1.100, within 2% of bare cuDNN" in text
    assert "Widest spread" in text
    assert "Goals" not in describe(make_results(core=1.1), is_dry_run=True)


def test_every_published_configuration_is_there():
    from configurations import configurations

    found = configurations()
    assert len(found) == len(set(found)) == 8 * 2 * 2
    sizes = {(c.num_layers, c.num_units, c.batch, c.steps, c.direction[:2]) for c in found}
    assert sizes == {
        (4, 128, 64, 50, "un"),
        (4, 512, 64, 50, "un"),
        (4, 1024, 64, 50, "un"),
        (2, 650, 20, 35, "un"),
        (1, 512, 1, 100, "un"),
        (1, 64, 64, 200, "un"),
        (1, 128, 64, 200, "un"),
        (5, 1024, 32, 200, "bi"),
    }
    assert {(c.dtype, c.is_training) for c in found} == {
        (dtype, kind) for dtype in ("float", "half") for kind in (True, False)
    }
    assert all(c.input_size == c.num_units for c in found)


class PretendedRun:
    """A fake run whose steps take `seconds` each; logs its calls."""

    def __init__(self, name, seconds, log, clock):
        self.name, self.seconds, self.log, self.clock = name, seconds, log, clock

    def run(self, num_steps):
        from measuring import Sample

        self.log.append((self.name, num_steps))
        self.clock[0] += self.seconds * num_steps
        return Sample(None, self.seconds)


def test_peers_take_turns():
    from measuring import measure_all

    log, clock = [], [0.0]
    runs = {
        "slow": PretendedRun("slow", 0.01, log, clock),
        "fast": PretendedRun("fast", 0.0001, log, clock),
        "very slow": PretendedRun("very slow", 1.0, log, clock),
    }
    samples = measure_all(runs, 10, 0.02, clock=lambda: clock[0])
    assert {name: len(found) for name, found in samples.items()} == dict.fromkeys(runs, 10)
    measured = log[9:]  # after three runs of each
    rounds = [measured[start : start + 3] for start in range(0, 30, 3)]
    assert all({name for name, _ in one} == set(runs) for one in rounds)
    assert len({tuple(name for name, _ in one) for one in rounds}) > 1
    assert set(measured) == {("slow", 2), ("fast", 200), ("very slow", 1)}


def test_measuring_ends_in_time_with_at_least_three_rounds():
    from measuring import measure_all

    log, clock = [], [0.0]
    run = PretendedRun("only", 1.0, log, clock)
    samples = measure_all({"only": run}, 50, 0.02, deadline=8.5, clock=lambda: clock[0])
    assert len(samples["only"]) == 4
    samples = measure_all({"only": run}, 50, 0.02, deadline=0.0, clock=lambda: clock[0])
    assert len(samples["only"]) == 3


def test_picture(tmp_path):
    from plot import draw

    results = make_results() + [
        dict(result, key="other, half, inference") for result in make_results(core=1.4, batch=1)
    ]
    draw(results, "A GPU, a day", str(tmp_path / "ratios.png"))
    with open(str(tmp_path / "ratios.png"), "rb") as file:
        assert file.read(4) == b"\x89PNG"
    draw([], "nothing", str(tmp_path / "empty.png"))
    assert (tmp_path / "empty.png").exists()


def test_the_help_needs_no_environment():
    script = os.path.join(FOLDER, "gpu", "arguments.py")
    command = [sys.executable, "-S", script]  # -S hides installed packages
    help_text = subprocess.check_output(command + ["--help"], universal_newlines=True)
    assert "--rnn-modes" in help_text and "examples:" in help_text
    assert subprocess.check_output(command + ["--quick"]) == b""
    wrong = subprocess.Popen(command + ["--peers", "nobody"], stderr=subprocess.PIPE)
    assert b"nobody" in wrong.communicate()[1] and wrong.returncode != 0


def write_run(folder):
    """Writes results of stages 1 and 3 with one failed test."""
    for stage in ("stage_1_core", "stage_3_benchmarks"):
        (folder / stage).mkdir()
        (folder / stage / "versions.json").write_text(
            json.dumps({"date": "2001-02-03", "gpu": "NVIDIA X200 (PCIe)", "driver": "999.1"})
        )
        (folder / stage / "status.txt").write_text("all_cases 1\ncompute_sanitizer not run\n")
    (folder / "stage_1_core" / "all_cases.xml").write_text(
        '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="0">'
        '<testcase classname="c" name="good"/><testcase classname="c" name="good2"/>'
        '<testcase classname="c" name="bad"><failure>no</failure></testcase>'
        "</testsuite></testsuites>"
    )
    (folder / "stage_3_benchmarks" / "table.md").write_text("| a table |\n")
    (folder / "stage_3_benchmarks" / "ratios.png").write_bytes(b"a picture")


def record_run(*arguments):
    script = os.path.join(os.path.dirname(FOLDER), "scripts", "record_gpu_run.py")
    process = subprocess.run(
        [sys.executable, script] + [str(argument) for argument in arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    return process.returncode, process.stdout


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
        "all_cases: 3 tests: 2 passed, 1 failed, 0 errors, 0 skipped.",
        "- `c.bad`",
        "## Ops in TensorFlow\n\nNot run.",
        "| a table |",
        "(2001-02-03-nvidia-x200-pcie.png)",
    ]:
        assert part in text, (part, text)
    assert (tmp_path / "docs" / "2001-02-03-nvidia-x200-pcie.png").exists()


def test_runs_without_a_gpu_are_not_recorded(tmp_path):
    write_run(tmp_path)
    for stage in ("stage_1_core", "stage_3_benchmarks"):
        (tmp_path / stage / "versions.json").write_text('{"date": "2001-02-03"}')
    status, printed = record_run(tmp_path, tmp_path / "docs")
    assert status != 0 and "saw no GPU" in printed
    assert not (tmp_path / "docs").exists()
