"""The stages for a borrowed GPU machine (scripts/gpu_*), without a GPU.

The quick tests replace Python by a program that only logs its arguments. The slow one runs the
stages with the mock of cuDNN and the CPU's kernels.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree

import pytest

from helpers.paths import ROOT
from helpers.processes import SECONDS_FOR_A_PROCESS, output_of, status_and_text
from helpers.versions import needs_tensorflow_2

pytestmark = [pytest.mark.ci, pytest.mark.once]

COMPILER = os.environ.get("CXX", "c++").split()
STAGES = ("stage_1_core", "stage_2_tensorflow", "stage_3_benchmarks")


def make_library(path, *flags):
    """Creates a library without functions, and its folder."""
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    command = COMPILER + ["-shared", "-fPIC", "-nostdlib", "-x", "c++", "/dev/null", "-x", "none"]
    subprocess.run(command + list(flags) + ["-o", str(path)], check=True)


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
    add_pieces(folder / "tensorflow")
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
    with open(os.path.join(results, "status.txt")) as file:
        return process.returncode, process.stdout, file.read().splitlines()


# Logs its arguments, and fails if these contain the text $FAILS.
FAKE_PYTHON = """#!/bin/bash
echo "$*" >> "$CALLS"
case "$*" in
    *"$FAILS"*) echo "the reason"; exit 3 ;;
    *gpu_libraries.py* | "-W ignore -c "*) exec "$REAL_PYTHON" "$@" ;;
    *run.py*) touch "$OUT/stage_3_benchmarks/worker-one.log" ;;
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
    status, text, lines = run_stage(packed, STAGES[0], FAILS="--junitxml", **fake_python)
    assert status == 1 and "stage_1_core: FAILED" in text and "the reason" in text
    parts = ["few_cases 0", "all_cases 3", "out_of_memory 0", "compute_sanitizer not run"]
    assert lines == parts
    assert (tmp_path / "out" / STAGES[0] / "all_cases.log").read_text() == "the reason\n"
    status, text, lines = run_stage(packed, STAGES[1], FAILS="list_physical_devices", **fake_python)
    assert status == 1 and lines == ["devices 3", "doctor 0", "tests 0", "tests_auto 0"], text
    assert (packed / "tf" / "tensorflow" / "placeholder").exists()
    assert (tmp_path / "out" / STAGES[1] / "libraries.log").exists()
    status, text, lines = run_stage(packed, STAGES[2], "--quick", FAILS="nothing", **fake_python)
    assert status == 0 and lines == ["benchmark 0"], text
    with tarfile.open(str(tmp_path / "out" / STAGES[2] / "worker_logs.tar.gz")) as logs:
        assert logs.getnames() == ["worker-one.log"]
    calls = (tmp_path / "calls").read_text()
    assert "run.py gpu --peers core cudnn torch tensorflow" in calls and "--quick" in calls


def test_stages_without_tensorflow(packed, fake_python, tmp_path):
    (packed / "tensorflow" / "tensorflow.tar.xz.01").write_bytes(b"damaged")
    status, text, lines = run_stage(packed, STAGES[1], FAILS="nothing", **fake_python)
    assert status == 1 and lines == ["tensorflow missing"] and "tensorflow.tar.xz.01" in text
    status, text, lines = run_stage(packed, STAGES[2], FAILS="nothing", **fake_python)
    assert status == 0 and lines == ["tensorflow_peers not run", "benchmark 0"], text
    assert "--peers core cudnn torch --" in (tmp_path / "calls").read_text()


@needs_tensorflow_2
def test_tests_for_which_no_time_is_left_are_listed(tmp_path):
    report = tmp_path / "tests.xml"
    options = ("-p", "no:cacheprovider", "-q", "--core-device=cpu", "--seconds=0", "-k", "refused")
    tests = os.path.join(ROOT, "tests", "gpu", "test_tensorflow.py")
    status, text = status_and_text("-m", "pytest", tests, *options, "--junitxml=%s" % report)
    assert status == 124, text
    cases = list(ElementTree.parse(str(report)).getroot().iter("testcase"))
    assert len(cases) == 3
    assert {case.find("skipped").get("message") for case in cases} == {"not run within --seconds"}


@needs_tensorflow_2
@pytest.mark.release
def test_stages_on_the_mock(packed, tmp_path):
    """A short run of every stage; only the parts that need a GPU fail. Needs PyTorch."""
    build = ["bash", os.path.join(ROOT, "scripts", "build_mock_cudnn.sh")]
    folder = subprocess.check_output(build, universal_newlines=True).splitlines()[-1]
    build = ["bash", os.path.join(ROOT, "scripts", "build_core_library.sh")]
    library = subprocess.check_output(build, universal_newlines=True).splitlines()[-1]
    shutil.copy(library, str(packed))
    nvidia_smi = tmp_path / "bin" / "nvidia-smi"
    nvidia_smi.parent.mkdir()
    nvidia_smi.write_text("#!/bin/sh\necho 'Mock GPU, 999.1, 1 MiB, 9.0'\n")
    nvidia_smi.chmod(0o755)
    mock = os.path.join(folder, "libmock_cudnn.so")
    environment = {
        "TORCH_PYTHON": sys.executable,
        "TIME_FACTOR": "10",  # no result depends on the machine's speed
        "CUDNN_RNN_MOCK_CUDNN": mock,
        "CUDNN_RNN_BENCHMARK_CUDNN": mock,
        "PATH": "%s:%s" % (nvidia_smi.parent, os.environ["PATH"]),
    }
    arguments = (
        "--core-device=mock",
        "--seconds=9999",
        "--core-cases=2",
        "-k",
        "are_refused or inference",
    )
    status, text, lines = run_stage(packed, STAGES[0], *arguments, **environment)
    assert lines[:2] == ["few_cases 0", "all_cases 0"], text
    arguments = ("--core-device=cpu", "-k", "refused or tf32", "--seconds=9999")
    status, text, lines = run_stage(packed, STAGES[1], *arguments, **environment)
    assert lines == ["devices 1", "doctor 0", "tests 0", "tests_auto 0"], text
    arguments = ("--device", "cpu", "--quick", "--peers", "core", "cudnn", "torch")
    status, text, lines = run_stage(packed, STAGES[2], *arguments, **environment)
    assert status == 0 and lines == ["benchmark 0"], text
    for stage in STAGES:  # a machine may return only a few files
        assert len(os.listdir(str(packed / "results" / stage))) <= 8
    script = str(packed / "scripts" / "record_gpu_run.py")
    page = output_of(script, packed / "results", tmp_path / "docs").strip()
    with open(page) as file:
        text = file.read()
    for part in ("# Mock GPU", "| devices | FAILED (1) |", "all_cases: ", "core standard"):
        assert part in text, text
    with open(str(packed / "results" / STAGES[2] / "results.json")) as file:
        peers = json.load(file)["results"][0]["peers"]
    assert [peers[name].get("variant") for name in ("core standard", "cuDNN standard")] == [
        "standard"
    ] * 2
