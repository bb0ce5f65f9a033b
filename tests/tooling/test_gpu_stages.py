"""The stages for a borrowed GPU machine (scripts/gpu_*), without a GPU.

The quick tests replace Python by a program that only logs its arguments. The slow one runs the
stages with the mock of cuDNN and the CPU's kernels.
"""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest

from helpers.paths import ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS, importable, output_of, status_and_text
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, pytest.mark.once]

COMPILER = os.environ.get("CXX", "c++").split()
STAGES = ("stage_1_core", "stage_2_tensorflow", "stage_3_benchmarks")


def make_library(path, *flags, source=""):
    """Creates a library from C, by default without functions, and its folder."""
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    command = COMPILER + ["-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-x", "none"]
    command += list(flags) + ["-o", str(path)]
    subprocess.run(command, input=source, universal_newlines=True, check=True)


@pytest.fixture
def empty_library(tmp_path):
    make_library(tmp_path / "empty_library.so")
    return tmp_path / "empty_library.so"


def find_libraries(folder, empty_library, **environment):
    """Runs gpu_libraries.py without installed packages; returns folders of its path, and report."""
    script = os.path.join(ROOT, "scripts", "gpu_libraries.py")
    # -S: wheels of the test environment may have some of the libraries.
    status, text = status_and_text("-S", script, folder, empty_library, **environment)
    assert status == 0, text
    *lines, path = text.splitlines()
    return path.split(":"), dict(line.split(" ", 1) for line in lines)


def test_only_libraries_that_the_loader_does_not_find_are_replaced(tmp_path, empty_library):
    wheel, elsewhere = tmp_path / "tf" / "nvidia" / "cublas" / "lib", tmp_path / "elsewhere"
    make_library(wheel / "libcublas.so.12")
    make_library(elsewhere / "libcublasLt.so.12")
    dependency = tmp_path / "libdependency.so"
    make_library(dependency)
    make_library(elsewhere / "libcufft.so.11", "-Wl,--no-as-needed", str(dependency))
    dependency.unlink()
    stubs = tmp_path / "tf" / "stubs"
    make_library(stubs / "libcublasLt.so.12")  # of an earlier run that did not find the real one
    folders, reports = find_libraries(
        tmp_path / "tf", empty_library, LD_LIBRARY_PATH=str(elsewhere)
    )
    assert folders[0] == str(wheel) and folders[-2:] == [str(elsewhere), str(stubs)]
    assert reports["libcublas.so.12"] == "found: %s" % (wheel / "libcublas.so.12")
    assert reports["libcublasLt.so.12"] == "found: %s" % (elsewhere / "libcublasLt.so.12")
    assert reports["libcufft.so.11"].startswith("CANNOT BE OPENED, and has no stub: ")
    assert "libdependency" in reports["libcufft.so.11"]
    replaced = [name for name, report in reports.items() if "replaced by a stub" in report]
    assert sorted(os.listdir(str(stubs))) == sorted(replaced)
    assert not {"libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11"} & set(replaced)
    assert not {"libcudart.so.12", "libcudnn.so.9"} & set(replaced)


def test_with_stubs_every_name_opens(tmp_path, empty_library):
    folders, reports = find_libraries(tmp_path / "tf", empty_library, LD_LIBRARY_PATH=None)
    names = [name for name in reports if name not in ("libcudart.so.12", "libcudnn.so.9")]
    assert len(names) == 5
    program = "import ctypes, sys; [ctypes.CDLL(name) for name in sys.argv[1:]]"
    output_of("-c", program, *names, LD_LIBRARY_PATH=":".join(folders))


def add_pieces(folder):
    """Writes the pieces of an archive with a folder `tensorflow`, and their checksums."""
    folder.mkdir()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:xz") as file:
        file.addfile(tarfile.TarInfo("tensorflow/placeholder"))
    whole, sums = archive.getvalue(), []
    for index, piece in enumerate((whole[:70], whole[70:])):
        name = "tensorflow.tar.xz.%02d" % index
        (folder / name).write_bytes(piece)
        sums.append("%s  %s\n" % (hashlib.sha256(piece).hexdigest(), name))
    (folder / "SHA256SUMS").write_text("".join(sums))


@pytest.fixture
def packed(tmp_path, empty_library):
    """Returns a folder like the .gpu/ of pack_for_gpu.sh, without the package."""
    folder = tmp_path / "copied elsewhere"
    for name in ("scripts", "tests", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(os.path.join(ROOT, name), str(folder / name), ignore=ignored)
    shutil.copy(str(empty_library), str(folder))
    (folder / "PACKED").write_text("a commit\na date\n")
    add_pieces(tmp_path / ".gpu-tensorflow")
    return folder


def run_stage(packed, stage, *arguments, **environment):
    """Runs a stage; returns its exit status, its output, and the lines of its status.txt."""
    process = subprocess.run(
        ["bash", str(packed / "scripts" / ("gpu_%s.sh" % stage))] + list(arguments),
        cwd="/",
        env=dict(os.environ, TENSORFLOW_FOLDER=str(packed / "tf"), **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=SECONDS_FOR_A_PROCESS,
    )
    results = os.path.join(environment.get("OUT", str(packed / "results")), stage)
    assert len(os.listdir(results)) <= 8  # a machine may return only a few files
    with open(os.path.join(results, "status.txt")) as file:
        return process.returncode, process.stdout, file.read().splitlines()


# Logs its arguments, and fails if these contain the text $FAILS.
FAKE_PYTHON = """#!/bin/bash
echo "$*" >> "$CALLS"
case "$*" in
    *"$FAILS"*) echo "the reason"; exit 3 ;;
    *gpu_libraries.py* | "-W ignore -c "*) exec "$REAL_PYTHON" "$@" ;;
    *run.py*) mkdir worker_logs && touch worker_logs/worker-one.log ;;
esac
"""


@pytest.fixture
def fake_python(tmp_path):
    """Returns the environment variables that make the stages run FAKE_PYTHON."""
    (tmp_path / "python").write_text(FAKE_PYTHON)
    (tmp_path / "python").chmod(0o755)
    return {
        "TORCH_PYTHON": str(tmp_path / "python"),
        "REAL_PYTHON": sys.executable,
        "CALLS": str(tmp_path / "calls"),
        "OUT": str(tmp_path / "out"),
        "PATH": "/usr/bin:/bin",  # without compute-sanitizer
    }


def test_a_failure_does_not_stop_the_parts_after_it(packed, fake_python, tmp_path):
    status, text, lines = run_stage(packed, STAGES[0], FAILS="--part=all_cases", **fake_python)
    assert status == 1 and "stage_1_core: FAILED" in text and "the reason" in text
    parts = ["versions 0", "few_cases 0", "all_cases 3", "out_of_memory 0"]
    assert lines == parts + ["compute_sanitizer not run", "persistent 0"]
    assert "== all_cases\nthe reason\n" in (tmp_path / "out" / STAGES[0] / "log.txt").read_text()
    status, text, lines = run_stage(packed, STAGES[1], FAILS="list_physical_devices", **fake_python)
    parts = ["tensorflow 0", "versions 0", "devices 3", "doctor 0", "tests 0", "tests_auto 0"]
    assert status == 1 and lines == parts, text
    assert (packed / "tf" / "tensorflow" / "placeholder").exists()
    assert "libcudart.so.12" in (tmp_path / "out" / STAGES[1] / "log.txt").read_text()
    fails = dict(fake_python, FAILS="gpu_versions")
    status, text, lines = run_stage(packed, STAGES[2], "--quick", **fails)
    assert status == 1 and lines == ["versions 3", "benchmark 0"], text
    with tarfile.open(str(tmp_path / "out" / STAGES[2] / "worker_logs.tar.gz")) as logs:
        assert "worker_logs/worker-one.log" in logs.getnames()
    calls = (tmp_path / "calls").read_text()
    assert "run.py gpu --peers core cudnn torch tensorflow" in calls and "--quick" in calls


def test_stages_without_tensorflow(packed, fake_python, tmp_path):
    (tmp_path / ".gpu-tensorflow" / "tensorflow.tar.xz.01").write_bytes(b"damaged")
    status, text, lines = run_stage(packed, STAGES[1], FAILS="nothing", **fake_python)
    assert status == 1 and lines == ["tensorflow 1"] and "tensorflow.tar.xz.01" in text
    status, text, lines = run_stage(packed, STAGES[2], FAILS="nothing", **fake_python)
    parts = ["tensorflow_peers not run", "versions 0", "benchmark 0"]
    assert status == 0 and lines == parts, text
    assert "--peers core cudnn torch --" in (tmp_path / "calls").read_text()


def test_persistent_algorithms_run_in_the_last_part(packed, fake_python, tmp_path):
    """Only there: an illegal access breaks the GPU for the rest of its process."""
    run_stage(packed, STAGES[0], FAILS="nothing", **fake_python)
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if "-m pytest" in line]
    assert "--part=persistent" in calls[-1] and " -m persistent " in calls[-1]
    for call in calls[:-1]:
        assert " -m not persistent and not fills_memory " in call or " -m fills_memory " in call


@pytest.mark.release  # needs PyTorch
def test_no_other_part_has_a_test_of_a_persistent_algorithm():
    folder = os.path.join(ROOT, "tests", "gpu")
    files = [name for name in os.listdir(folder) if name.startswith("test_core")]
    files = [os.path.join(folder, name) for name in files]
    command = ("-m", "pytest", "--collect-only", "-q", "--all", "-p", "no:cacheprovider")
    found = {
        marker: output_of(*command, "-m", marker, *files, folder=ROOT).splitlines()
        for marker in ("persistent", "not persistent")
    }
    risky = re.compile(r"persist_|\bauto\b|automatic_choice")
    assert any(map(risky.search, found["persistent"]))
    assert not list(filter(risky.search, found["not persistent"]))
    assert not [one for one in found["persistent"] if "::" in one and not risky.search(one)]


MADE_UP_TESTS = """
import os, signal, time

def test_passes():
    pass

def test_fails():
    assert not "the reason"

def test_hangs():
    time.sleep(9999)

def test_breaks_the_context():
    os.environ["CUDA_STATUS"] = "700"
    assert not "illegal access"

def test_ends_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_comes_last():
    assert "CUDA_STATUS" not in os.environ
"""

# A driver with a context, whose error is $CUDA_STATUS.
MADE_UP_DRIVER = """
#include <stdlib.h>
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { *active = 1; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxPushCurrent_v2(void* context) { return 0; }
int cuCtxPopCurrent_v2(void** context) { return 0; }
int cuCtxSynchronize() { return getenv("CUDA_STATUS") ? atoi(getenv("CUDA_STATUS")) : 0; }
"""

# Parts that hang, with and without worker processes, that die, and that end well.
MADE_UP_STAGE = """
cd "$(dirname "$0")/.."
stage=stage_1_core
. scripts/gpu_stage.sh
within 2 sleeps "$TORCH_PYTHON" -c '
import time
print("what it did", flush=True)
time.sleep(9999)'
pytest=("$TORCH_PYTHON" -m pytest -q --all -p no:cacheprovider tests/gpu/test_made_up.py)
find_workers "$TORCH_PYTHON"
factor=10
within 600 in_workers "${pytest[@]}" "${workers[@]}" --records="$results/tests.jsonl" \
    --part=in_workers --test-seconds=4
run_tests 60 killed "${pytest[@]}" -k "passes or ends"
run_tests 60 breaks "${pytest[@]}" -k "breaks or last"
within 60 last true
finish
"""


def test_hanging_and_dying_tests_cost_only_themselves(packed, tmp_path):
    make_library(tmp_path / "driver" / "libcuda.so.1", source=MADE_UP_DRIVER)
    (packed / "tests" / "gpu" / "test_made_up.py").write_text(MADE_UP_TESTS)
    (packed / "scripts" / "gpu_stage_1_core.sh").write_text(MADE_UP_STAGE)
    # A process in the background of a script has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status, text, lines = run_stage(
            packed,
            STAGES[0],
            TORCH_PYTHON=sys.executable,
            LD_LIBRARY_PATH=str(tmp_path / "driver"),
            PYTHONPATH=importable(),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert lines == ["sleeps 124", "in_workers 1", "killed 137", "breaks 1", "last 0"], text
    results = packed / "results" / STAGES[0]
    log = (results / "log.txt").read_text()
    assert "what it did" in log and "KeyboardInterrupt" in log
    assert 'test_made_up.py", line 11 in test_hangs' in log  # its stack
    outcomes = {}
    for line in (results / "tests.jsonl").read_text().splitlines():
        one = json.loads(line)
        name = one["test"].partition("::test_")[2]
        outcomes.setdefault((one["part"], name), []).append((one["event"], one.get("text", "")))
    in_workers = {name: found for (part, name), found in outcomes.items() if part == "in_workers"}
    assert len(in_workers) == 6 and all(found[0][0] == "started" for found in in_workers.values())
    assert [event for event, _ in in_workers["fails"]] == ["started", "failed"]
    for name in ("hangs", "breaks_the_context", "ends_its_process"):
        event, text = in_workers[name][-1]
        assert event == "failed" and "crashed" in text
    assert "illegal access" in in_workers["breaks_the_context"][1][1]
    assert in_workers["passes"][-1][0] == in_workers["comes_last"][-1][0] == "passed"
    assert outcomes["killed", "ends_its_process"] == [("started", "")]
    assert "broke the CUDA context" in log and ("breaks", "comes_last") not in outcomes
    (results / "versions.json").write_text('{"gpu": "Made up", "date": "2001-02-03"}')
    script = packed / "scripts" / "record_gpu_run.py"
    page = output_of(script, packed / "results", tmp_path / "docs").strip()
    with open(page) as file:
        text = file.read()
    assert "in_workers: 6 tests: 2 passed, 4 failed, 0 unfinished, 0 not run." in text
    assert "killed: 2 tests: 1 passed, 0 failed, 1 unfinished, 0 not run." in text
    assert "Unfinished:\n\n- `tests/gpu/test_made_up.py::test_ends_its_process`" in text


@needs_tensorflow_2
def test_tests_for_which_no_time_is_left_are_listed(tmp_path):
    records = tmp_path / "tests.jsonl"
    options = ("-p", "no:cacheprovider", "-q", "--core-device=cpu", "--seconds=0", "-k", "refused")
    tests = os.path.join(ROOT, "tests", "gpu", "test_tensorflow.py")
    status, text = status_and_text("-m", "pytest", tests, *options, "--records=%s" % records)
    assert status == 124, text
    found = [json.loads(line) for line in records.read_text().splitlines()]
    assert [one["event"] for one in found] == ["started", "skipped"] * 3
    assert "not run within --seconds" in found[1]["text"]


@pytest.fixture
def really_packed(tmp_path):
    """Returns a copy of what pack_for_gpu.sh makes, beside pieces of an empty TensorFlow."""
    script = os.path.join(ROOT, "scripts", "pack_for_gpu.sh")
    environment = dict(os.environ, TENSORFLOW_PYTHON=sys.executable)
    subprocess.run(["bash", script], env=environment, check=True, timeout=SECONDS_FOR_A_PROCESS)
    folder = tmp_path / "copied elsewhere"
    ignored = shutil.ignore_patterns("results")  # of a run by hand
    shutil.copytree(os.path.join(ROOT, ".gpu"), str(folder), ignore=ignored)
    add_pieces(tmp_path / ".gpu-tensorflow")
    return folder


@needs_tensorflow_2
@pytest.mark.release
def test_stages_on_the_mock(really_packed, tmp_path):
    """Every stage with its own selection, and few cases of each test. Needs PyTorch."""
    packed = really_packed
    build = ["bash", os.path.join(ROOT, "scripts", "build_mock_cudnn.sh")]
    folder = subprocess.check_output(build, universal_newlines=True).splitlines()[-1]
    nvidia_smi = tmp_path / "bin" / "nvidia-smi"
    nvidia_smi.parent.mkdir()
    nvidia_smi.write_text("#!/bin/sh\necho 'Mock GPU, 999.1, 1 MiB, 9.0'\n")
    nvidia_smi.chmod(0o755)
    mock = os.path.join(folder, "libmock_cudnn.so")
    environment = {
        "TORCH_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "TIME_FACTOR": "10",  # no result depends on the machine's speed
        "CUDNN_RNN_MOCK_CUDNN": mock,
        "CUDNN_RNN_BENCHMARK_CUDNN": mock,
        "PATH": "%s:/usr/bin:/bin" % nvidia_smi.parent,  # without compute-sanitizer
    }
    arguments = ("--core-device=mock", "--core-cases=2")
    status, text, lines = run_stage(packed, STAGES[0], *arguments, **environment)
    # 5: no test, as the one of memory needs a GPU.
    parts = ["versions 0", "few_cases 0", "all_cases 0", "out_of_memory 5"]
    assert lines == parts + ["compute_sanitizer not run", "persistent 0"], text
    status, text, lines = run_stage(packed, STAGES[1], *arguments, **environment)
    parts = ["tensorflow 0", "versions 0", "devices 1", "doctor 0", "tests 0", "tests_auto 0"]
    assert lines == parts, text
    log = (packed / "results" / STAGES[1] / "log.txt").read_text()
    assert str(packed / "site" / "cudnn_rnn" / "_cudnn_rnn_ops.so") in log
    arguments = ("--device", "cpu", "--quick")
    status, text, lines = run_stage(packed, STAGES[2], *arguments, **environment)
    assert status == 0 and lines == ["versions 0", "benchmark 0"], text
    script = str(packed / "scripts" / "record_gpu_run.py")
    page = output_of(script, packed / "results", tmp_path / "docs").strip()
    with open(page) as file:
        text = file.read()
    for part in ("# Mock GPU", "| devices | FAILED (1) |", "all_cases: ", "core standard"):
        assert part in text, text
    assert "Failed:" not in text and "Unfinished:" not in text
    with open(str(packed / "results" / STAGES[2] / "results.json")) as file:
        peers = json.load(file)["results"][0]["peers"]
    for name in ("core standard", "cuDNN standard", "cuDNN persist_static", "ours in TF"):
        assert peers[name]["seconds"], (name, peers[name])
