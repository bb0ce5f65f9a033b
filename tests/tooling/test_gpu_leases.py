"""The leases of a borrowed GPU machine (scripts/gpu_*), without a GPU.

The quick tests replace Python by a program that only logs its arguments. The slow ones run the
leases with the mock of cuDNN and the CPU's kernels.
"""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import time

import pytest

from helpers.mock_kernels import build_mock
from helpers.paths import ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS, importable, output_of, status_and_text
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, pytest.mark.once]

COMPILER = os.environ.get("CXX", "c++").split()
LEASES = ("lease_a", "lease_b")


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


def fat_binary(*entries):
    """Returns a fat binary as nvcc makes it, of entries (kind, architecture, code)."""
    body = b"".join(
        struct.pack("<HHIQQIIQQQQ", kind, 1, 64, len(code), 0, 0, architecture, 0, 0, 0, 0) + code
        for kind, architecture, code in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_gpu_code_for_other_architectures_is_removed(tmp_path):
    """Nothing moves but the entries that stay; what is no fat binary stays as it is."""
    old, new, ptx = (2, 80, b"old" * 64), (2, 90, b"new" * 64), (1, 90, b"ptx" * 64)
    whole = fat_binary(old, ptx)
    several = fat_binary(old, new, ptx)
    start = several[:8] + b"as these bytes are code"
    (tmp_path / "library").write_bytes(b"before" + whole + start + several + b"after")
    script = os.path.join(ROOT, "scripts", "keep_gpu_code.py")
    output_of(script, "90", tmp_path / "library")
    kept = fat_binary(new).ljust(len(several), b"\0")
    assert (tmp_path / "library").read_bytes() == b"before" + whole + start + kept + b"after"
    status, text = status_and_text(script, "75", tmp_path / "library")
    assert status != 0 and "has no code for architecture 75" in text


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
    """Returns a folder like the .gpu/run of pack_for_gpu.sh, without the package."""
    folder = tmp_path / "copied elsewhere" / "run"
    for name in ("scripts", "tests", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(os.path.join(ROOT, name), str(folder / name), ignore=ignored)
    shutil.copy(str(empty_library), str(folder))
    for name in ("core_test", "core_benchmark"):
        (folder / name).write_text("#!/bin/sh\necho %s $* median\n" % name)
        (folder / name).chmod(0o755)
    (folder / "PACKED").write_text("a commit\na date\n")
    add_pieces(folder.parent / "tensorflow")
    return folder


def start_lease(packed, lease, *arguments, **environment):
    """Starts a lease; returns its process, which leads a process session of its own."""
    return subprocess.Popen(
        ["bash", str(packed / "scripts" / ("gpu_%s.sh" % lease))] + list(arguments),
        cwd="/",
        env=dict(os.environ, TENSORFLOW_FOLDER=str(packed / "tf"), **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        start_new_session=True,
    )


def run_lease(packed, lease, *arguments, **environment):
    """Runs a lease; returns its exit status, its output, and part and status of its status.txt."""
    process = start_lease(packed, lease, *arguments, **environment)
    text = process.communicate(timeout=SECONDS_FOR_A_PROCESS)[0]
    results = os.path.join(environment.get("OUT", str(packed / "results")), lease)
    assert len(os.listdir(results)) <= 8  # a machine may return only a few files
    with open(os.path.join(results, "status.txt")) as file:
        return process.returncode, text, [line.rsplit(" ", 1)[0] for line in file]


# Logs its arguments, and fails if these contain the text $FAILS.
FAKE_PYTHON = """#!/bin/bash
echo "$*" >> "$CALLS"
case "$*" in
    *"$FAILS"*) echo "the reason"; exit 3 ;;
    *gpu_libraries.py* | "-W ignore -c "*) exec "$REAL_PYTHON" "$@" ;;
    *run.py*) mkdir worker_logs && echo "what a peer said" > worker_logs/worker-one.log ;;
esac
"""


@pytest.fixture
def fake_python(tmp_path):
    """Returns the environment variables that make the leases run FAKE_PYTHON."""
    (tmp_path / "python").write_text(FAKE_PYTHON)
    (tmp_path / "python").chmod(0o755)
    return {
        "TORCH_PYTHON": str(tmp_path / "python"),
        "REAL_PYTHON": sys.executable,
        "CALLS": str(tmp_path / "calls"),
        "OUT": str(tmp_path / "out"),
        "PATH": "/usr/bin:/bin",  # without compute-sanitizer
    }


def lease_limits(lease):
    """Returns a dict by part of its limit in seconds."""
    with open(os.path.join(ROOT, "scripts", "gpu_%s.sh" % lease)) as file:
        text = file.read()
    limits = re.findall(r"\b(?:within|run_tests) (\d+) (\w+)", text)
    limits += [(one, "benchmark") for one in re.findall(r"\brun_benchmark (\d+)", text)]
    return {name: int(seconds) for seconds, name in limits}


@pytest.mark.parametrize("lease", LEASES)
def test_limits_of_the_parts(packed, fake_python, lease):
    """Together 7 minutes 10 seconds, four fifths of 9 minutes; if all are killed, 9 minutes."""
    limits = lease_limits(lease)
    _, _, lines = run_lease(packed, lease, FAILS="nothing", **fake_python)
    assert sorted(limits) == sorted(line.split()[0] for line in lines)
    assert sum(limits.values()) <= 430 and sum(limits.values()) + 5 * len(limits) <= 540


def test_a_failure_does_not_stop_the_parts_after_it(packed, fake_python, tmp_path):
    status, text, lines = run_lease(packed, "lease_a", FAILS="--part=cases", **fake_python)
    assert status == 1 and "lease_a: NOT ALL PARTS PASSED" in text and "the reason" in text
    parts = ["versions 0", "smoke 0", "first_questions 0", "cases 3", "memcheck not_run"]
    parts += ["cpu 0", "benchmark 0", "one_process 0", "persistent 0", "persist_dynamic 0"]
    assert lines == parts
    log = (tmp_path / "out" / "lease_a" / "log.txt").read_text()
    assert "== cases\nthe reason\n" in log and "core_test ForwardAgrees" in log
    assert "lstm-2x650-b20-t35-medium --training --threads 2" in log
    assert "what a peer said" in log
    status, text, lines = run_lease(packed, "lease_b", FAILS="list_physical_devices", **fake_python)
    parts = ["tensorflow 0", "libraries 0", "versions 0", "devices 3", "doctor 0", "tests 0"]
    assert status == 1 and lines == parts + ["tests_auto 0", "benchmark 0"], text
    assert (packed / "tf" / "tensorflow" / "placeholder").exists()
    assert "libcudart.so.12" in (tmp_path / "out" / "lease_b" / "log.txt").read_text()
    calls = (tmp_path / "calls").read_text()
    assert "run.py gpu --peers core cudnn persistent torch --" in calls
    assert "run.py gpu --peers core cudnn tensorflow --" in calls


def test_a_failed_smoke_test_is_said_first(packed, fake_python, tmp_path):
    status, text, lines = run_lease(packed, "lease_a", FAILS="--part=smoke", **fake_python)
    assert status == 1 and text.index("SMOKE TEST FAILED") < text.index("== first_questions")
    assert "SMOKE TEST FAILED" in (tmp_path / "out" / "lease_a" / "log.txt").read_text()
    parts = ["versions 0", "smoke 3", "first_questions 0", "cases not_run", "memcheck not_run"]
    left_out = ["benchmark", "one_process", "persistent", "persist_dynamic"]
    assert lines == parts + ["cpu 0"] + [part + " not_run" for part in left_out]


def test_chosen_parts_keep_the_results_of_the_others(packed, fake_python, tmp_path):
    _, _, before = run_lease(packed, "lease_a", FAILS="--part=cases", **fake_python)
    status, text, lines = run_lease(
        packed, "lease_a", FAILS="nothing", PARTS="cases one_process", **fake_python
    )
    assert status == 0 and lines == before + ["cases 0", "one_process 0"], text
    status, text, lines = run_lease(
        packed, "lease_a", FAILS="nothing", PARTS="versions benchmarks", **fake_python
    )
    assert status == 1 and "PARTS NAMES benchmarks, WHICH DID NOT COME UP" in text


def test_a_program_of_the_core_that_fails_fails_its_part(packed, fake_python):
    for name in ("core_test", "core_benchmark"):
        program, text = packed / name, (packed / name).read_text()
        program.write_text("#!/bin/sh\necho median\nexit 132\n")
        status, printed, lines = run_lease(
            packed, "lease_a", FAILS="nothing", PARTS="cpu", **fake_python
        )
        assert status == 1 and "cpu 1" in lines, printed
        program.write_text(text)


def test_missing_libraries_of_tensorflow(packed, fake_python):
    status, _, lines = run_lease(packed, "lease_b", FAILS="gpu_libraries.py", **fake_python)
    assert status == 1 and lines == ["tensorflow 0", "libraries 3"]


def test_damaged_pieces_of_tensorflow(packed, fake_python):
    (packed.parent / "tensorflow" / "tensorflow.tar.xz.01").write_bytes(b"damaged")
    status, text, lines = run_lease(packed, "lease_b", FAILS="nothing", **fake_python)
    assert status == 1 and lines == ["tensorflow 1"] and "tensorflow.tar.xz.01" in text


def test_persistent_algorithms_run_in_the_last_parts(packed, fake_python, tmp_path):
    """Only there: an illegal access breaks the GPU for the rest of its process."""
    run_lease(packed, "lease_a", FAILS="nothing", **fake_python)
    calls = [line for line in (tmp_path / "calls").read_text().splitlines() if "-m pytest" in line]
    for call, part in zip(calls[-2:], ["persistent", "persist_dynamic"]):
        assert "--part=" + part in call and " -m persistent or fills_memory " in call
    assert " -k not persist_dynamic" in calls[-2] and " -k persist_dynamic" in calls[-1]
    for call in calls[:-2]:
        assert " -m not persistent and not fills_memory " in call
        assert " -m persistent or" not in call


def test_memcheck_runs_the_process_that_tests(packed, fake_python, tmp_path):
    """It sees nothing of worker processes."""
    (tmp_path / "compute-sanitizer").write_text('#!/bin/sh\necho "memcheck: $*" >> "$CALLS"\n')
    (tmp_path / "compute-sanitizer").chmod(0o755)
    environment = dict(fake_python, PATH="%s:/usr/bin:/bin" % tmp_path)
    _, _, lines = run_lease(packed, "lease_a", FAILS="nothing", **environment)
    calls = (tmp_path / "calls").read_text().splitlines()
    (memcheck,) = [call for call in calls if call.startswith("memcheck: ")]
    assert "memcheck 0" in lines and " -m pytest " in memcheck and " -n " not in memcheck
    assert any("-m pytest " in call and " -n auto " in call for call in calls)


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
MADE_UP_LEASE = """
cd "$(dirname "$0")/.."
lease=lease_a
. scripts/gpu_lease.sh
within 2 sleeps "$TORCH_PYTHON" -c '
import time
print("what it did", flush=True)
time.sleep(9999)'
set_tests "$TORCH_PYTHON"
file=tests/gpu/test_made_up.py
factor=10
within 600 in_workers "${tests[@]}" "$file" --records="$results/tests.jsonl" \
    --part=in_workers --test-seconds=4
run_tests 60 killed "${in_process[@]}" "$file" -k "passes or ends"
run_tests 60 breaks "${in_process[@]}" "$file" -k "breaks or last"
within 60 last true
finish
"""


def read_events(results):
    """Returns the last event of each test, by part and name, and its text."""
    events, path = {}, results / "tests.jsonl"
    for line in path.read_text().splitlines(True) if path.exists() else ():
        if line.endswith("\n"):  # the last one may not be whole
            one = json.loads(line)
            test = one["part"], one["test"].partition("::test_")[2]
            events[test] = one["event"], one.get("text", "")
    return events


def record(results):
    """Returns the page of the results."""
    script = os.path.join(ROOT, "scripts", "record_gpu_run.py")
    with open(output_of(script, results, results / "docs").strip()) as file:
        return file.read()


@pytest.mark.sampled(4)
def test_hanging_and_dying_tests_cost_only_themselves(packed, tmp_path):
    make_library(tmp_path / "driver" / "libcuda.so.1", source=MADE_UP_DRIVER)
    (packed / "tests" / "gpu" / "test_made_up.py").write_text(MADE_UP_TESTS)
    (packed / "scripts" / "gpu_lease_a.sh").write_text(MADE_UP_LEASE)
    # A process in the background of a script has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status, text, lines = run_lease(
            packed,
            "lease_a",
            TORCH_PYTHON=sys.executable,
            LD_LIBRARY_PATH=str(tmp_path / "driver"),
            PYTHONPATH=importable(),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert lines == ["sleeps 124", "in_workers 1", "killed 137", "breaks 1", "last 0"], text
    results = packed / "results" / "lease_a"
    log = (results / "log.txt").read_text()
    assert "what it did" in log and "KeyboardInterrupt" in log
    assert 'test_made_up.py", line 11 in test_hangs' in log  # its stack
    events = read_events(results)
    in_workers = {name: found for (part, name), found in events.items() if part == "in_workers"}
    assert len(in_workers) == 6 and in_workers["fails"][0] == "failed"
    for name in ("hangs", "breaks_the_context", "ends_its_process"):
        assert in_workers[name][0] == "failed" and "crashed" in in_workers[name][1]
    assert in_workers["passes"][0] == in_workers["comes_last"][0] == "passed"
    assert events["killed", "ends_its_process"][0] == "started"
    assert "broke the CUDA context" in log and ("breaks", "comes_last") not in events
    (results / "versions.json").write_text('{"gpu": "Made up", "date": "2001-02-03"}')
    text = record(packed / "results")
    assert "in_workers: 6 tests: 2 passed, 4 failed, 0 unfinished, 0 not run." in text
    assert "killed: 2 tests: 1 passed, 0 failed, 1 unfinished, 0 not run." in text
    assert "Unfinished:\n\n- `tests/gpu/test_made_up.py::test_ends_its_process`" in text


@pytest.mark.sampled(4)
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


@pytest.fixture(scope="module")
def really_packed(tmp_path_factory):
    """Returns a copy of what pack_for_gpu.sh makes, beside pieces of an empty TensorFlow."""
    script = os.path.join(ROOT, "scripts", "pack_for_gpu.sh")
    environment = dict(os.environ, TENSORFLOW_PYTHON=sys.executable)
    command = ["bash", script, "--without-tensorflow"]
    subprocess.run(command, env=environment, check=True, timeout=SECONDS_FOR_A_PROCESS)
    with open(os.path.join(ROOT, ".gpu", "README.md")) as file:
        assert len(file.readlines()) == 10
    folder = tmp_path_factory.mktemp("copied elsewhere") / "run"
    shutil.copytree(os.path.join(ROOT, ".gpu", "run"), str(folder))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size < 50e6  # with the checkout, an upload of less than 64 MB
    add_pieces(folder.parent / "tensorflow")
    return folder


@pytest.fixture
def on_the_mock(tmp_path):
    """Returns the environment variables of a lease that runs on the mock of cuDNN."""
    folder = build_mock()
    nvidia_smi = tmp_path / "bin" / "nvidia-smi"
    nvidia_smi.parent.mkdir()
    nvidia_smi.write_text("#!/bin/sh\necho 'Mock GPU, 999.1, 1 MiB, 9.0'\n")
    nvidia_smi.chmod(0o755)
    return {
        "TORCH_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "TIME_FACTOR": "10",  # no result depends on the machine's speed
        "CUDNN_RNN_MOCK_CUDNN": os.path.join(folder, "libmock_cudnn.so"),
        "PATH": "%s:/usr/bin:/bin" % nvidia_smi.parent,  # without compute-sanitizer
    }


ON_MOCK = ("--core-device=mock", "--core-cases=2")


@needs_tensorflow_2
@pytest.mark.release
def test_leases_on_the_mock(really_packed, on_the_mock):
    """Both leases with few cases of each test. Needs PyTorch."""
    packed = really_packed
    status, text, lines = run_lease(packed, "lease_a", *ON_MOCK, **on_the_mock)
    parts = ["versions", "smoke", "first_questions", "cases", "memcheck", "cpu", "benchmark"]
    parts += ["one_process", "persistent", "persist_dynamic"]
    expected = [one + (" not_run" if one == "memcheck" else " 0") for one in parts]
    assert status == 0 and lines == expected, text
    status, text, lines = run_lease(packed, "lease_b", *ON_MOCK, **on_the_mock)
    parts = ["tensorflow 0", "libraries 0", "versions 0", "devices 1", "doctor 0", "tests 0"]
    assert lines == parts + ["tests_auto 0", "benchmark 0"], text
    log = (packed / "results" / "lease_b" / "log.txt").read_text()
    assert str(packed / "site" / "cudnn_rnn" / "_libraries") in log
    text = record(packed / "results")
    failed = "| devices | FAILED (1) |"
    for part in ("# Mock GPU", failed, "cases: ", "core standard", "GFLOP/s", "| ours "):
        assert part in text, text
    assert "Failed:" not in text and "Unfinished:" not in text
    peers = {}
    for lease in LEASES:
        with open(str(packed / "results" / lease / "results.json")) as file:
            peers.update(json.load(file)["results"][0]["peers"])
    for name in (
        "core standard",
        "cuDNN standard",
        "cuDNN persist_static",
        "torch.nn",
        "ours in TF",
    ):
        assert peers[name]["seconds"], (name, peers[name])


def kill_session(leader):
    """Kills all processes of a process session, as the end of a machine does."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(entry)) == leader:
                os.kill(int(entry), signal.SIGKILL)
        except ProcessLookupError:
            pass


@needs_tensorflow_2
@pytest.mark.release
def test_a_killed_lease_keeps_what_it_has_written(really_packed, on_the_mock, tmp_path):
    """Killed in the middle of the table of cases. Needs PyTorch."""
    results = tmp_path / "results" / "lease_a"
    environment = dict(on_the_mock, OUT=str(results.parent))
    process = start_lease(really_packed, "lease_a", *ON_MOCK, "--core-cases=4", **environment)
    try:
        deadline = time.monotonic() + SECONDS_FOR_A_PROCESS
        while not any(part == "cases" for part, _ in read_events(results)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        kill_session(process.pid)
        process.communicate()
    assert json.loads((results / "versions.json").read_text())["gpu"] == "Mock GPU"
    status = (results / "status.txt").read_text().splitlines()
    assert [line.split()[0] for line in status] == ["versions", "smoke", "first_questions"]
    text = record(results.parent)
    assert "| cases | UNFINISHED: the lease was killed | - |" in text
    assert "| smoke | passed |" in text and "\n\ncases: " in text
