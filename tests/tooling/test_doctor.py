"""`python -m cudnn_rnn doctor` in working and in broken installations."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import __main__
from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
from helpers.processes import SECONDS_FOR_A_PROCESS

PACKAGE = os.path.dirname(os.path.abspath(cudnn_rnn.__file__))


def run_doctor(*arguments, **options):
    """Runs the command of the package in `folder`; returns (exit status, output)."""
    environment = dict(os.environ, **options.get("environment", {}))
    folder = options.get("folder")
    if folder:
        environment["PYTHONPATH"] = str(folder)
    process = subprocess.run(
        [sys.executable, "-m", "cudnn_rnn"] + list(arguments),
        cwd=str(folder or os.path.dirname(PACKAGE)),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=SECONDS_FOR_A_PROCESS,
    )
    return process.returncode, process.stdout


def copy_package(folder, **build_info):
    """Copies the installed package and changes its build info; returns the copy's folder."""
    target = os.path.join(str(folder), "cudnn_rnn")
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__", "cc"))
    source = os.path.dirname(library.library_path())
    for name in (library.LIBRARY_NAME, library.BUILD_INFO_NAME):
        shutil.copy(os.path.join(source, name), target)
    path = os.path.join(target, library.BUILD_INFO_NAME)
    with open(path) as file:
        info = json.load(file)
    info.update(build_info)
    with open(path, "w") as file:
        json.dump(info, file)
    return target


def tensorflow_that(folder, text):
    """Writes a fake TensorFlow that runs `text` when it is imported."""
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow" / "__init__.py").write_text(text)


def test_a_working_installation():
    status, printed = run_doctor("doctor")
    assert status == 0, printed
    assert printed.rstrip().endswith("cudnn_rnn works in this environment."), printed
    assert "BROKEN" not in printed
    for part in [
        cudnn_rnn.__version__,
        tf.version.VERSION,
        sys.executable,
        "%d.%d.%d" % sys.version_info[:3],
        library.library_path(),
        library.build_info()["compiler"],
        "computed the right numbers",
        "GPU kernels",
        "TensorFlow sees",
        "No OpKernel was registered to support Op",
        "Add `import cudnn_rnn`",
        "allow_soft_placement=True",
    ]:
        assert part in printed, (part, printed)
    assert "Traceback" not in printed


def test_library_of_another_tensorflow(tmp_path):
    copy_package(tmp_path, tensorflow="2.99.1")
    status, printed = run_doctor("doctor", folder=tmp_path)
    assert status == 1, printed
    assert "BROKEN: The op library does not work" in printed
    assert "built for TensorFlow 2.99.1" in printed and "--no-build-isolation" in printed
    assert "TensorFlow        " + tf.version.VERSION in printed
    assert "does not work in this environment" in printed.splitlines()[-1]
    assert "Traceback" not in printed


def test_damaged_library(tmp_path):
    with open(os.path.join(copy_package(tmp_path), library.LIBRARY_NAME), "wb") as file:
        file.write(b"half of a library")
    status, printed = run_doctor("doctor", folder=tmp_path)
    assert status == 1, printed
    assert "damaged or only partly updated" in printed and "--no-build-isolation" in printed


@pytest.mark.parametrize(
    "text, expected",
    [
        ("raise ImportError('no TensorFlow today')", "no TensorFlow today"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
        ("import os\nos._exit(7)", "exit status 7"),
    ],
    ids=["not_there", "crashes", "exits"],
)
def test_tensorflow_that_cannot_be_imported(tmp_path, text, expected):
    copy_package(tmp_path)
    tensorflow_that(tmp_path, text)
    status, printed = run_doctor("doctor", folder=tmp_path)
    assert status == 1, printed
    assert "BROKEN: TensorFlow cannot be imported" in printed
    assert expected in printed
    assert "pip install tensorflow" in printed
    assert "GPU\nNot checked" in printed
    if "SIGILL" in expected:
        assert "processor lacks an instruction" in printed


def test_wrong_numbers_are_noticed(monkeypatch):
    lines = []
    answer = {"library": "l", "build_info": {}, "ones": [4.0, 3.0]}
    monkeypatch.setattr(doctor, "run_trial", lambda program: (answer, None))
    patient = doctor.Doctor(lines.append)
    assert not patient._examine_library({"version": "2.21.0"}, None)
    assert patient.problems == 1
    assert any("wrong numbers" in line for line in lines)


def test_a_crashing_gpu_check_is_a_problem_with_advice(monkeypatch):
    lines = []
    monkeypatch.setattr(doctor, "run_trial", lambda program: (None, "signal 11"))
    patient = doctor.Doctor(lines.append)
    patient._examine_gpu({"is_cuda_build": True})
    assert patient.problems == 1
    text = "\n".join(lines)
    assert "signal 11" in text and "CUDA_VISIBLE_DEVICES" in text


def test_the_gpu_report_is_printed(monkeypatch):
    found = {
        "devices": ["device: 0, name: A GPU"],
        "report": "cuDNN 9.1.0: here\nGPU 0: A GPU",
        "kernels": "tensorflow",
        "reason": "CUDNN_RNN_GPU_KERNELS=tensorflow.",
    }
    lines = []
    monkeypatch.setattr(doctor, "run_trial", lambda program: (found, None))
    patient = doctor.Doctor(lines.append)
    patient._examine_gpu({"is_cuda_build": True})
    text = "\n".join(lines)
    assert patient.problems == 0 and "not a problem" not in text
    for part in (
        found["devices"][0],
        "cuDNN 9.1.0: here",
        "provided by TensorFlow",
        found["reason"],
    ):
        assert part in text


def test_library_without_a_gpu_part(tmp_path):
    """A library without the GPU report, as in older builds (here: libc), gives None."""
    assert doctor.gpu_report("libc.so.6") is None


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("sse2 avx2 fma avx512f avx512dq avx512bw avx512vl avx512_bf16", "avx512_bf16"),
        ("sse2 avx2 fma avx512f avx512dq avx512bw avx512vl", "avx512"),
        ("sse2 avx2 fma avx512f", "avx2"),
        ("sse2 avx2", "portable"),
    ],
)
def test_instruction_sets(tmp_path, monkeypatch, flags, expected):
    monkeypatch.delenv("CUDNN_RNN_CPU_INSTRUCTION_SET", raising=False)
    path = tmp_path / "cpuinfo"
    path.write_text("model name\t: x\nflags\t\t: %s\n" % flags)
    assert doctor.describe_instruction_set(str(path)).split(",")[0] == expected
    assert doctor.describe_instruction_set(str(tmp_path / "none")).startswith("portable")
    monkeypatch.setenv("CUDNN_RNN_CPU_INSTRUCTION_SET", "portable")
    assert "CUDNN_RNN_CPU_INSTRUCTION_SET=portable" in doctor.describe_instruction_set(str(path))


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"]])
def test_help_describes_the_command(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        __main__.main(arguments)
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "doctor" in printed and "whether it works" in printed
    if len(arguments) == 2:
        assert "exit status" in printed


def test_no_command_prints_the_help(capsys):
    assert __main__.main([]) == 2
    assert "doctor" in capsys.readouterr().out


def test_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        __main__.main(["patient"])
    assert caught.value.code == 2
    assert "doctor" in capsys.readouterr().err


def test_other_programs_with_the_same_arguments_are_not_affected(tmp_path):
    """`python -m other doctor` runs `other`, although that package imports cudnn_rnn."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_text("import cudnn_rnn\n")
    main = tmp_path / "other" / "__main__.py"
    main.write_text("import cudnn_rnn\nprint('RUNS', cudnn_rnn.CudnnLSTM.__name__)\n")
    process = subprocess.run(
        [sys.executable, "-m", "other", "doctor"],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path), os.path.dirname(PACKAGE)])),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=SECONDS_FOR_A_PROCESS,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.endswith("RUNS CudnnLSTM\n"), process.stdout
