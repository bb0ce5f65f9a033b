"""`python -m cudnn_rnn doctor` in working and in broken installations."""

import json
import os
import platform
import shutil
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn._native import gpu_kernels, library
from cudnn_rnn.cli import cudnn_dependencies, doctor
from helpers.processes import status_and_text

pytestmark = pytest.mark.ci

PACKAGE = os.path.dirname(os.path.abspath(cudnn_rnn.__file__))


@pytest.mark.parametrize(
    "cuda, cudnn, expected",
    [
        ("12.5.1", "9", "built with GPU support: CUDA 12.5.1, cuDNN 9"),
        ("12.5.1", None, "built with GPU support: CUDA 12.5.1"),
        (None, None, "built with GPU support"),
    ],
)
def test_versions_of_the_gpu_libraries(cuda, cudnn, expected):
    answer = {"version": "2.21.0", "git_version": "v2.21.0", "folder": "/tensorflow"}
    answer.update(is_cuda_build=True, cuda_version=cuda, cudnn_version=cudnn)
    assert doctor.describe_tensorflow(answer).splitlines()[1] == expected


def run_doctor(folder=None):
    """Runs the command of the package in `folder`; returns (exit status, output)."""
    variables = {"PYTHONPATH": str(folder)} if folder else {}
    folder = folder or os.path.dirname(PACKAGE)
    return status_and_text("-m", "cudnn_rnn", "doctor", folder=folder, **variables)


def assert_broken(folder, *parts):
    """Checks that the doctor of the package in `folder` reports a problem; returns its output."""
    status, printed = run_doctor(folder)
    assert status == 1, printed
    for part in parts:
        assert part in printed, (part, printed)
    assert "does not work in this environment" in printed.splitlines()[-1]
    return printed


def copy_package(folder):
    """Copies the installed package with its libraries; returns the copy's folder."""
    target = os.path.join(str(folder), "cudnn_rnn")
    ignored = shutil.ignore_patterns("__pycache__", "cc", library.LIBRARIES_FOLDER)
    shutil.copytree(PACKAGE, target, ignore=ignored)
    libraries = os.path.join(target, library.LIBRARIES_FOLDER)
    shutil.copytree(os.path.dirname(library.library_path()), libraries)
    return target


@pytest.mark.release
def test_a_working_installation():
    status, printed = run_doctor()
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
        "Instruction sets  float: ",
        " " * 20 + "half: ",
        "Float32 precision highest, the default",
        "TensorFlow sees",
        "No OpKernel was registered to support Op",
        "Add `import cudnn_rnn`",
        "allow_soft_placement=True",
    ]:
        assert part in printed, (part, printed)
    assert "Traceback" not in printed


def remove_adapter(path):
    """Makes the package one for other versions of TensorFlow."""
    info_path = os.path.join(os.path.dirname(path), library.BUILD_INFO_NAME)
    with open(info_path) as file:
        info = json.load(file)
    del info["libraries"][os.path.basename(path)]
    with open(info_path, "w") as file:
        json.dump(info, file)


def damage(path):
    with open(path, "wb") as file:
        file.write(b"half of a library")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "change, reason, advice",
    [
        (remove_adapter, "has no library for TensorFlow", "--no-build-isolation"),
        (damage, "damaged or only partly updated", "Install it again"),
    ],
)
def test_a_library_that_does_not_work(tmp_path, change, reason, advice):
    libraries = os.path.join(copy_package(tmp_path), library.LIBRARIES_FOLDER)
    change(os.path.join(libraries, os.path.basename(library.library_path())))
    tensorflow = "TensorFlow        " + tf.version.VERSION
    parts = "BROKEN: The op library does not", reason, advice, tensorflow
    assert "Traceback" not in assert_broken(tmp_path, *parts)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("raise ImportError('no TensorFlow today')", ["no TensorFlow today"]),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGILL)",
            ["SIGILL", "processor lacks an instruction"],
        ),
        ("import os\nos._exit(7)", ["exit status 7"]),
    ],
    ids=["not_there", "crashes", "exits"],
)
def test_tensorflow_that_cannot_be_imported(tmp_path, text, expected):
    copy_package(tmp_path)
    (tmp_path / "tensorflow.py").write_text(text)
    parts = "BROKEN: TensorFlow cannot be imported", "pip install tensorflow", "GPU\nNot checked"
    assert_broken(tmp_path, *parts, *expected)


@pytest.fixture
def examine(monkeypatch):
    """Yields a function that runs a part of the doctor on the answer of a trial.

    It returns what the part returns, the number of problems, and the text.
    """

    def run_part(name, answer, *arguments):
        lines = []
        monkeypatch.setattr(doctor, "run_trial", lambda program: answer)
        patient = doctor.Doctor(lines.append)
        result = getattr(patient, name)(*arguments)
        return result, patient.problems, "\n".join(lines)

    return run_part


TENSORFLOW = {"version": "2.21.0", "git_version": "v2.21.0-rc1", "folder": "/tensorflow"}
TENSORFLOW.update(is_cuda_build=False, cxx11_abi=1, cuda_version="", cudnn_version="")
WORKING_LIBRARY = {
    "library": "/package/library.so",
    "build_info": {"tensorflow": "2.21.0", "compiler": "gcc 13"},
    "contents": "TensorFlow 1.15 (C++ ABI 0), 2.21 (C++ ABI 1)",
    "cpu_report": "float: portable\nhalf: portable\nprecision: highest, the default\n",
    "ones": [4.0, 4.0],
}
NO_GPU = {"devices": [], "report": None, "kernels": "tensorflow", "reason": "a reason"}
NO_GPU.update(outcomes=[["CudnnRNN", "tensorflow", "tensorflow", "why"]])
WORKING = [TENSORFLOW, WORKING_LIBRARY, NO_GPU]


def run_all_checks(monkeypatch, capsys, answers):
    """Runs the command on the answers of the trials; a str is a crash of the trial.

    Returns the exit status and the printed text.
    """
    programs = [doctor._ASK_TENSORFLOW, doctor._TRY_LIBRARY, doctor._ASK_GPU]
    waiting = list(zip(programs, answers))

    def run_trial(program):
        expected, answer = waiting.pop(0)
        assert program == expected
        return (None, answer) if isinstance(answer, str) else (answer, None)

    monkeypatch.setattr(doctor, "run_trial", run_trial)
    status = doctor.run(None)
    assert not waiting
    return status, capsys.readouterr().out


def test_all_checks_of_a_working_installation(monkeypatch, capsys):
    status, printed = run_all_checks(monkeypatch, capsys, WORKING)
    assert status == 0
    lines = printed.splitlines()
    titles = ["Versions", "CPU", "GPU", "Common errors of programs", "Summary"]
    assert [line for line in lines if line in titles] == titles
    assert all(lines[lines.index(title) - 1] == "" for title in titles)
    facts = {
        "cudnn_rnn": "%s in %s" % (cudnn_rnn.__version__, PACKAGE),
        "Python": "%d.%d.%d, %s" % (sys.version_info[:3] + (sys.executable,)),
        "Platform": platform.platform(),
        "TensorFlow": "2.21.0 (v2.21.0-rc1), /tensorflow",
        "Op library": "/package/library.so",
        "Built": "for TensorFlow 2.21.0, with gcc 13",
        "Libraries for": "TensorFlow 1.15 (C++ ABI 0), 2.21 (C++ ABI 1)",
        "Instruction sets": "float: portable",
        "Float32 precision": "highest, the default",
        "Test run": "an RNN with one unit ran and computed the right numbers",
        "TensorFlow sees": "no GPU, because it was built without GPU support",
        "cuDNN": "not used; this op library was built without GPU support",
        "GPU kernels": "TensorFlow's own run the ops. a reason",
    }
    for fact in facts.items():
        assert "  %-18s%s" % fact in lines, (fact, printed)
    assert '\n  "No OpKernel was registered to support Op' in printed
    assert "This is not a problem: RNNs run on the CPU." in printed
    assert lines[-1] == "cudnn_rnn works in this environment."


@pytest.mark.parametrize(
    "answers, parts",
    [
        (
            ["No module named 'tensorflow'"],
            [
                "  TensorFlow        cannot be imported",
                "BROKEN: TensorFlow cannot be imported by this Python.",
                "    No module named 'tensorflow'",
                "Install TensorFlow into this environment, for example with\n"
                "    %s -m pip install tensorflow==" % sys.executable,
                "GPU\nNot checked. Fix the problem above first.",
            ],
        ),
        (
            [TENSORFLOW, "signal 4"],
            [
                "BROKEN: The op library does not work with this TensorFlow.\n    signal 4",
                "Not checked",
            ],
        ),
        (
            [TENSORFLOW, {"library": "l", "problem": "it was built for TensorFlow 1.15"}],
            [
                "BROKEN: The op library does not work with this TensorFlow.\n    it was",
                "Not checked",
            ],
        ),
        (WORKING[:2] + ["signal 11"], ["BROKEN: The GPU check failed. RNNs work on the CPU."]),
    ],
    ids=["tensorflow", "library_crashes", "library_refuses", "gpu"],
)
def test_all_checks_of_a_broken_installation(monkeypatch, capsys, answers, parts):
    status, printed = run_all_checks(monkeypatch, capsys, answers)
    assert status == 1 and printed.count("BROKEN") == 1
    for part in parts:
        assert part in printed, (part, printed)
    last = "cudnn_rnn does not work in this environment. See the advice above."
    assert printed.splitlines()[-2:] == ["Summary", last]


@pytest.mark.parametrize(
    "is_cuda_build, expected",
    [
        (True, "no GPU, although it was built with GPU support"),
        (False, "no GPU, because it was built without GPU support"),
    ],
)
def test_why_tensorflow_sees_no_gpu(examine, is_cuda_build, expected):
    _, _, text = examine("_examine_gpu", (NO_GPU, None), {"is_cuda_build": is_cuda_build})
    assert text.splitlines()[0] == "  TensorFlow sees   " + expected


def test_wrong_numbers_are_noticed(examine):
    answer = dict(WORKING_LIBRARY, ones=[4.0, 3.0]), None
    works, problems, text = examine("_examine_library", answer, {"version": "2.21.0"}, None)
    assert not works and problems == 1 and "wrong numbers" in text


def test_lines_of_a_fact_begin_in_one_column():
    lines = []
    doctor.Doctor(lines.append)._fact("Name", "first\nsecond")
    assert lines[0].index("first") == lines[1].index("second") > len("  Name")


def test_a_crashing_gpu_check_is_a_problem_with_advice(examine):
    answer = None, "signal 11"
    _, problems, text = examine("_examine_gpu", answer, {"is_cuda_build": True})
    assert problems == 1 and "signal 11" in text and "CUDA_VISIBLE_DEVICES" in text


def test_the_gpu_report_is_printed(examine):
    found = {
        "devices": ["device: 0, name: A GPU"],
        "report": "cuDNN 9.1.0: here\nGPU 0: A GPU",
        "kernels": "tensorflow",
        "reason": "CUDNN_RNN_GPU_KERNELS=tensorflow.",
        "outcomes": [
            ["CudnnRNN, gradient", "tensorflow, as CudnnRNNV3", "tensorflow (fails)", "why"],
            ["CudnnRNNV3", "tensorflow", "tensorflow", "because"],
        ],
    }
    _, problems, text = examine("_examine_gpu", (found, None), {"is_cuda_build": True})
    assert problems == 0 and "not a problem" not in text
    for part in found["devices"] + ["cuDNN 9.1.0: here", found["reason"]]:
        assert part in text
    table = [line.split("  ") for line in text.splitlines()[-5:-2]]
    assert [[cell.strip() for cell in line if cell] for line in table] == [
        ["ops", "nodes of cudnn_rnn", "nodes of others", "why"],
        ["CudnnRNN, gradient", "tensorflow, as CudnnRNNV3", "tensorflow (fails)", "why"],
        ["CudnnRNNV3", "tensorflow", "tensorflow", "because"],
    ]
    assert "on a GPU, the node raises an error" in text and "(wrong)" not in text


def test_wrong_gradients_of_tensorflows_kernels_are_explained():
    lines = doctor.describe_outcomes([["training", "cudnn_rnn", "tensorflow (wrong)", "why"]])
    assert "(wrong): on a GPU, the node's gradient is wrong" in lines and "/cpu:0" in lines
    assert "(fails)" not in lines


def test_without_a_gpu_nothing_is_said_of_its_kernels(examine):
    """What would fail on a GPU would only alarm users without one."""
    found = {"devices": [], "report": "No NVIDIA driver was found.", "kernels": "tensorflow"}
    found.update(reason=found["report"], outcomes=[["CudnnRNN", "tensorflow (fails)", "", ""]])
    _, problems, text = examine("_examine_gpu", (found, None), {"is_cuda_build": True})
    assert problems == 0 and "No NVIDIA driver" in text and "This is not a problem" in text
    assert "fails" not in text


REPORT = "cuDNN 9.13.0: /somewhere/cudnn/lib/libcudnn.so.9\nNVIDIA driver for CUDA 12.8: here"


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_library_that_cudnn_needs_is_missing(examine, has_gpu):
    answer = {"libnvrtc.so.12": "cuDNN compiles kernels with it. Install it."}, None
    _, problems, text = examine("_examine_libraries_of_cudnn", answer, REPORT, has_gpu)
    assert problems == has_gpu
    assert "libnvrtc.so.12" in text and "Install it." in text


@pytest.mark.parametrize("has_gpu", [True, False])
def test_all_libraries_that_cudnn_needs_can_be_opened(examine, has_gpu):
    _, problems, text = examine("_examine_libraries_of_cudnn", ({}, None), REPORT, has_gpu)
    assert problems == 0
    assert text.split(None, 2) == [
        "cuDNN's",
        "parts",
        "can be opened, and so can cuBLASLt and NVRTC",
    ]


def test_a_library_that_ends_the_process_when_it_is_opened(examine):
    answer = None, "signal 11"
    _, problems, text = examine("_examine_libraries_of_cudnn", answer, REPORT, True)
    assert problems == 1 and "signal 11" in text and "ended the process" in text


@pytest.mark.sampled(4)
def test_libraries_that_do_not_exist(tmp_path):
    program = doctor._OPEN_LIBRARIES_OF_CUDNN % (str(tmp_path / "libcudnn.so.9"), 9)
    answer, crash = doctor.run_trial(program)
    assert crash is None and "libcudnn_adv.so.9" in answer
    assert "(pip install nvidia-cudnn-cu12)" in answer["libcudnn_adv.so.9"]


REFUSED = """No cuDNN 8.0.0 or newer was found. Tried:
  loaded already: libcudnn.so.9: not loaded
  LD_LIBRARY_PATH: /a folder/libcudnn.so.9: libcudnn_adv.so.9, which computes RNNs, cannot be opened
  wheel: /w/lib/libcudnn.so.8: libcudnn_adv_infer.so.8, which computes RNNs, cannot be opened: why
  the loader's path: /a folder/libcudnn.so.9: libcudnn_adv.so.9, which computes RNNs, cannot be
Install cuDNN"""


@pytest.mark.once
def test_cudnns_that_a_report_names():
    """The one in use, or those that lack a library; old and missing ones need no other advice."""
    used = cudnn_dependencies.Cudnn("/somewhere/cudnn/lib/libcudnn.so.9", 9)
    assert cudnn_dependencies.cudnns_in(REPORT) == [used]
    refused = [("/a folder/libcudnn.so.9", 9), ("/w/lib/libcudnn.so.8", 8)]
    assert cudnn_dependencies.cudnns_in(REFUSED) == refused
    for report in ["", "No NVIDIA driver", REFUSED.split("LD_LIBRARY")[0]]:
        assert cudnn_dependencies.cudnns_in(report) == []


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_cudnn_that_lacks_a_library_is_examined(examine, has_gpu):
    answer = {"libcudnn_graph.so.9": "cuDNN computes RNNs with it. Install it."}, None
    _, problems, text = examine("_examine_libraries_of_cudnn", answer, REFUSED, has_gpu)
    assert problems == 2 * has_gpu
    assert "libcudnn_graph.so.9" in text and "Install it." in text


@pytest.mark.once
@pytest.mark.parametrize(
    "error, blamed, advice",
    [
        (
            "libcudnn_graph.so.9: cannot open shared object file: No such file or directory",
            "libcudnn_graph.so.9",
            "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.1.0.70",
        ),
        ("/x/lib/libcudnn_ops.so.9: file too short", "libcudnn_ops.so.9", "nvidia-cudnn-cu12"),
        ("libcublas.so.12: cannot open it", "libcublas.so.12", "(pip install nvidia-cublas-cu12)"),
        ("libz.so.1: cannot open it", "libz.so.1", "Install libz.so.1 with your system's packages"),
        ("out of memory", "libcudnn_adv.so.9", "nvidia-cudnn-cu12"),
    ],
)
def test_advice_names_the_library_that_is_missing(tmp_path, error, blamed, advice):
    """A wheel that pip takes for installed must be installed again."""
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudnn_adv.so.9").write_bytes(b"..libcublasLt.so.12\0")
    (tmp_path / "nvidia_cudnn_cu12-9.1.0.70.dist-info").mkdir()

    def open_library(path):
        if "libcudnn_adv" in path:
            raise OSError(error)

    found = cudnn_dependencies.problems(
        cudnn_dependencies.Cudnn(str(folder / "libcudnn.so.9"), 9), open_library
    )
    assert list(found) == [blamed]
    assert error in found[blamed] and advice in found[blamed]


@pytest.mark.once
@pytest.mark.parametrize(
    "major, built_for, expected",
    [
        (9, b"..libcublasLt.so.12\0", ["libcudnn_adv.so.9", "libcublasLt.so.12", "libnvrtc.so.12"]),
        (9, b"..libcublasLt.so.13\0", ["libcudnn_adv.so.9", "libcublasLt.so.13", "libnvrtc.so.13"]),
        (9, b"nothing", ["libcudnn_adv.so.9", "libcublasLt.so.12", "libnvrtc.so.12"]),
        (9, b"", ["libcudnn_adv.so.9", "libcublasLt.so.12", "libnvrtc.so.12"]),
        (
            8,
            b"..libcublasLt.so.11\0",
            [
                "libcudnn_adv_infer.so.8",
                "libcudnn_adv_train.so.8",
                "libcublasLt.so.11",
                "libnvrtc.so.11.2",
            ],
        ),
    ],
)
def test_libraries_that_cudnn_needs(tmp_path, major, built_for, expected):
    """Each is opened where cuDNN's own run-time path leads, else by its name."""
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    cublas = tmp_path / "nvidia" / "cublas" / "lib"
    folder.mkdir(parents=True)
    cublas.mkdir(parents=True)
    (folder / expected[0]).write_bytes(b"")
    linked = expected[0] if major == 9 else "libcudnn_ops_infer.so.8"  # as the real ones are
    (folder / linked).write_bytes(built_for)
    (cublas / expected[-2]).write_bytes(b"")
    opened = []

    def open_library(path):
        opened.append(path)
        if path == expected[-1]:
            raise OSError("no such library")

    cudnn = cudnn_dependencies.Cudnn(str(folder / "libcudnn.so"), major)
    found = cudnn_dependencies.problems(cudnn, open_library)
    assert list(found) == [expected[-1]]
    assert "no such library" in found[expected[-1]] and "pip install nvidia-" in found[expected[-1]]
    assert str(folder / expected[0]) in opened and str(cublas / expected[-2]) in opened
    assert {os.path.basename(path) for path in opened} == set(expected)


@pytest.mark.once
def test_advice_for_an_incomplete_wheel_of_cuda_11(tmp_path):
    """The libraries that are left name no version of CUDA."""
    (tmp_path / "nvidia_cudnn_cu11-8.5.0.96.dist-info").mkdir()
    path = str(tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.8")

    def open_library(path):
        raise OSError("libcudnn_ops_infer.so.8: cannot open shared object file")

    found = cudnn_dependencies.problems(cudnn_dependencies.Cudnn(path, 8), open_library)
    assert list(found) == ["libcudnn_ops_infer.so.8"]
    assert "nvidia-cudnn-cu11==8.5.0.96)" in found["libcudnn_ops_infer.so.8"]


def test_library_without_a_gpu_part():
    """A library without the GPU report, as in older builds (here: libc), gives None."""
    assert doctor.gpu_report("libc.so.6") is None


def test_the_gpu_report_opens_cudnn_in_the_library(monkeypatch):
    path = library.library_path()
    monkeypatch.setattr(gpu_kernels, "open_cudnn", lambda path: (True, "opened for " + path))
    assert doctor.gpu_report(path) == "opened for " + path


def test_the_kernels_in_charge_are_those_of_this_process():
    assert doctor.kernels_in_charge() == cudnn_rnn.kernels_in_charge()
    outcomes = doctor.outcomes()
    assert outcomes == list(gpu_kernels.choice().outcomes) != []
    assert all(outcome.group in doctor.describe_outcomes(outcomes) for outcome in outcomes)


@pytest.mark.once
@pytest.mark.parametrize(
    "status, expected",
    [
        (0, "(exit status 0)"),
        (7, "(exit status 7)"),
        (-11, "(the process was terminated by signal 11, SIGSEGV)"),
        (
            -4,
            "(the process was terminated by signal 4, SIGILL)\nThis processor lacks an instruction "
            "that TensorFlow or the op library was built for.",
        ),
        (-1000, "(the process was terminated by signal 1000, unknown)"),
    ],
)
def test_how_a_process_ended(status, expected):
    assert doctor.describe_exit(status) == expected


@pytest.mark.once
def test_a_trial_that_fails_shows_its_last_lines():
    answer, text = doctor.run_trial("for i in range(20): print('line', i)\nraise SystemExit(7)")
    assert answer is None
    assert text.splitlines() == ["line %d" % i for i in range(8, 20)] + ["(exit status 7)"]


@pytest.mark.once
def test_a_trial_that_hangs_is_ended(monkeypatch):
    def run(command, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    text = "The process did not end within %d seconds." % doctor._SECONDS_FOR_A_TRIAL
    assert doctor.run_trial("") == (None, text)
