"""`python -m cudnn_rnn doctor`: what is installed, whether it works, and what the GPU part uses.

The command works even if the package is broken: this process neither imports TensorFlow nor loads
the op library. Each trial runs in a subprocess, so that a crash yields a diagnosis as well.
"""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import textwrap

from cudnn_rnn._version import __version__
from cudnn_rnn.cli import cudnn_dependencies

_SECONDS_FOR_A_TRIAL = 1200  # only against hanging; long enough for a busy machine

_ERRORS_OF_PROGRAMS = """\
"No OpKernel was registered to support Op 'CudnnRNN...'", "Could not find device for node":
    The process that loads the graph or SavedModel has not imported this package, which
    registers the kernels. Add `import cudnn_rnn` before the graph is loaded.
"Cannot assign a device for operation ... /device:GPU:0":
    The graph is pinned to a GPU that is not available to the process. Create the session
    with tf.ConfigProto(allow_soft_placement=True).
See docs/serving.md for details."""

# Of marks in the table of whose kernels run.
_NOTES = {
    "(fails)": "(fails): on a GPU, the node raises an error or ends the process.",
    "(wrong)": "(wrong): on a GPU, the node's gradient is wrong, without an error.",
}

# The trials: programs that write a JSON object to the file named by their argument.

_ASK_TENSORFLOW = """
import json, sys
import tensorflow as tf
try:
    build = dict(tf.sysconfig.get_build_info())
except AttributeError:  # TensorFlow 1
    build = {"is_cuda_build": tf.test.is_built_with_cuda()}
answer = {
    "version": str(tf.version.VERSION),
    "git_version": str(tf.version.GIT_VERSION),
    "folder": tf.sysconfig.get_lib(),
    "cxx11_abi": int(tf.sysconfig.CXX11_ABI_FLAG),
    "is_cuda_build": bool(build.get("is_cuda_build")),
    "cuda_version": str(build.get("cuda_version", "")),
    "cudnn_version": str(build.get("cudnn_version", "")),
}
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
"""

# All values are 1, with one unit and one step: relu(1 * 1 + 1 * 1 + 1 + 1) = 4.
_TRY_LIBRARY = """
import json, sys
answer = {}
try:
    import cudnn_rnn
    from cudnn_rnn._native import library
    from cudnn_rnn.cli import doctor
    answer["library"] = library.library_path()
    answer["build_info"] = library.build_info()
    answer["contents"] = library.describe_contents()
    answer["cpu_report"] = doctor.cpu_report(answer["library"])
    import tensorflow.compat.v1 as tf
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        model = cudnn_rnn.CudnnRNNRelu(1, 1, 1)
        one = tf.ones([1, 1, 1])
        results = model(one, one, tf.ones([4]), is_training=False)
        with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
            answer["ones"] = [float(value.ravel()[0]) for value in session.run(results)]
except ImportError as error:
    answer["problem"] = str(error)
except Exception as error:
    answer["problem"] = "%s: %s" % (type(error).__name__, error)
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
"""

_ASK_GPU = """
import json, sys
import tensorflow.compat.v1 as tf
from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
from tensorflow.python.client import device_lib
devices = [device for device in device_lib.list_local_devices() if device.device_type == "GPU"]
answer = {"devices": [device.physical_device_desc or device.name for device in devices]}
# As in a program, TensorFlow has loaded its cuDNN by now.
answer["report"] = doctor.gpu_report(library.library_path())
answer["kernels"], answer["reason"] = doctor.kernels_in_charge()
answer["outcomes"] = doctor.outcomes()
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
"""

_OPEN_LIBRARIES_OF_CUDNN = """
import json, sys
from cudnn_rnn.cli import cudnn_dependencies
answer = cudnn_dependencies.problems(cudnn_dependencies.Cudnn(%r, %d))
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
"""


def cpu_report(library_path):
    """Returns each dtype's instruction set, and the precision, in this process, with reasons."""
    import ctypes

    report = ctypes.CDLL(library_path).cudnn_rnn_cpu_report
    report.restype = ctypes.c_char_p
    return report().decode("utf-8", "replace")


def gpu_report(library_path):
    """Opens cuDNN; returns the op library's report on GPU libraries, None if it has no GPU part."""
    import ctypes

    from cudnn_rnn._native import gpu_kernels

    if not hasattr(ctypes.CDLL(library_path), "cudnn_rnn_gpu_report"):
        return None
    return gpu_kernels.open_cudnn(library_path)[1]


def kernels_in_charge():
    """Returns (provider of the GPU kernels, reason), two str."""
    from cudnn_rnn._native import gpu_kernels

    return gpu_kernels.kernels_in_charge()


def outcomes():
    """Returns whose GPU kernels run each group of ops, a list of `gpu_choice.Outcome`s."""
    from cudnn_rnn._native import gpu_kernels

    return list(gpu_kernels.choice().outcomes)


class Doctor:
    """Prints its findings; `problems` counts those that keep the package from working."""

    def __init__(self, print_line=print):
        self._print = print_line
        self.problems = 0

    def examine(self):
        """Runs all checks; returns the exit status."""
        self._section("Versions")
        folder = os.path.dirname(os.path.dirname(__file__))
        self._fact("cudnn_rnn", "%s in %s" % (__version__, folder))
        self._fact("Python", "%s, %s" % (platform.python_version(), sys.executable))
        self._fact("Platform", platform.platform())
        tensorflow, problem = run_trial(_ASK_TENSORFLOW)
        text = "cannot be imported" if tensorflow is None else describe_tensorflow(tensorflow)
        self._fact("TensorFlow", text)
        self._section("CPU")
        works = self._examine_library(tensorflow, problem)
        self._section("GPU")
        if not works:
            self._print("Not checked. Fix the problem above first.")
        else:
            self._examine_gpu(tensorflow)
            self._section("Common errors of programs")
            self._print(textwrap.indent(_ERRORS_OF_PROGRAMS, "  "))
        self._section("Summary")
        if self.problems:
            self._print("cudnn_rnn does not work in this environment. See the advice above.")
        else:
            self._print("cudnn_rnn works in this environment.")
        return 1 if self.problems else 0

    def _examine_library(self, tensorflow, problem):
        if tensorflow is None:
            self._broken("TensorFlow cannot be imported by this Python.", problem)
            self._print("Install TensorFlow into this environment, for example with")
            self._print("    %s -m pip install tensorflow==2.21.0" % sys.executable)
            return False
        found, problem = run_trial(_TRY_LIBRARY)
        if found is not None and "problem" in found:
            problem, found = found["problem"], None
        if found is None:
            self._broken("The op library does not work with this TensorFlow.", problem)
            return False
        self._fact("Op library", found["library"])
        info = found["build_info"]
        version = info.get("tensorflow", "of unknown version")
        compiler = info.get("compiler", "an unknown compiler")
        self._fact("Built", "for TensorFlow %s, with %s" % (version, compiler))
        self._fact("Libraries for", "\n".join(textwrap.wrap(found["contents"], 80)))
        report = found["cpu_report"]
        if tensorflow["version"].startswith("1."):  # whose ops have no bfloat16
            report = re.sub(r"^bfloat16:.*\n?", "", report, flags=re.MULTILINE)
        instruction_sets, _, precision = report.partition("precision: ")
        self._fact("Instruction sets", instruction_sets.rstrip())
        self._fact("Float32 precision", precision.rstrip())
        if found["ones"] != [4.0, 4.0]:
            self._broken(
                "An RNN with one unit computes wrong numbers.",
                "Its outputs are %s; expected [4.0, 4.0]. Please report this." % found["ones"],
            )
            return False
        self._fact("Test run", "an RNN with one unit ran and computed the right numbers")
        return True

    def _examine_gpu(self, tensorflow):
        found, problem = run_trial(_ASK_GPU)
        if found is None:
            self._broken("The GPU check failed. RNNs work on the CPU.", problem)
            self._print("To hide the GPU from TensorFlow, set CUDA_VISIBLE_DEVICES= (empty).")
            return
        if tensorflow["is_cuda_build"]:
            without = "no GPU, although it was built with GPU support"
        else:
            without = "no GPU, because it was built without GPU support"
        for device in found["devices"] or [without]:
            self._fact("TensorFlow sees", device)
        without = "not used; this op library was built without GPU support"
        self._fact("cuDNN", without if found["report"] is None else found["report"])
        self._examine_libraries_of_cudnn(found["report"] or "", bool(found["devices"]))
        if found["reason"] != found["report"]:
            owner = "This package's" if found["kernels"] == "cudnn_rnn" else "TensorFlow's own"
            self._fact("GPU kernels", "%s run the ops. %s" % (owner, found["reason"]))
        if found["devices"] or found["kernels"] == "cudnn_rnn":  # where there is a driver, at least
            self._print("  Whose kernels run the ops on a GPU (docs/gpu/README.md):")
            self._print(textwrap.indent(describe_outcomes(found["outcomes"]), "    "))
        if not found["devices"]:
            self._print("This is not a problem: RNNs run on the CPU.")

    def _examine_libraries_of_cudnn(self, report, has_gpu):
        for cudnn in cudnn_dependencies.cudnns_in(report):
            problems, crash = run_trial(_OPEN_LIBRARIES_OF_CUDNN % cudnn)
            if crash is not None:
                text = "Opening it ended the process.\n" + crash
                problems = {"A library that %s loads" % cudnn.path: text}
            if not problems:
                self._fact("cuDNN's parts", "can be opened, and so can cuBLASLt and NVRTC")
            for name, text in problems.items():
                if has_gpu:
                    self._broken("RNNs cannot run on the GPU: %s" % name, text)
                else:
                    self._fact("Missing", name + "\n" + text)

    def _section(self, title):
        self._print("")
        self._print(title)

    def _fact(self, name, text):
        lines = str(text).splitlines() or [""]
        self._print("  %-18s%s" % (name, lines[0]))
        for line in lines[1:]:
            self._print(" " * 20 + line)

    def _broken(self, text, details):
        self.problems += 1
        self._print("BROKEN: " + text)
        self._print(textwrap.indent(details.strip(), "    "))


def describe_outcomes(outcomes):
    """Returns a table with a line for each of the `gpu_choice.Outcome`s, or of lists like them."""
    rows = [("ops", "nodes of cudnn_rnn", "nodes of others", "why")] + outcomes
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    notes = [
        note for mark, note in _NOTES.items() if any(mark in cell for row in rows for cell in row)
    ]
    if notes:
        lines += notes + ['Place it on the CPU, with tf.device("/cpu:0").']
    return "\n".join(lines)


def run_trial(program):
    """Runs one of the trials in a subprocess.

    Returns:
      (the JSON object that it wrote, None), or (None, its last lines of output and its status).
    """
    with tempfile.TemporaryDirectory() as folder:
        answer_path = os.path.join(folder, "answer.json")
        try:
            process = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", program, answer_path],
                env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
                timeout=_SECONDS_FOR_A_TRIAL,
            )
        except subprocess.TimeoutExpired:
            return None, "The process did not end within %d seconds." % _SECONDS_FOR_A_TRIAL
        if process.returncode == 0:
            with open(answer_path, encoding="utf-8") as file:
                return json.load(file), None
    printed = process.stdout.strip().splitlines()[-12:]
    return None, "\n".join(printed + [describe_exit(process.returncode)])


def describe_exit(status):
    """Describes in words how a process ended, given its `subprocess` return code."""
    if status >= 0:
        return "(exit status %d)" % status
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    text = "(the process was terminated by signal %d, %s)" % (-status, name)
    if name == "SIGILL":
        text += (
            "\nThis processor lacks an instruction that TensorFlow or the op library was built for."
        )
    return text


def describe_tensorflow(answer):
    """Returns one or two lines about TensorFlow from the answer of the trial."""
    lines = ["%s (%s), %s" % (answer["version"], answer["git_version"], answer["folder"])]
    lines.append("built %s GPU support" % ("with" if answer["is_cuda_build"] else "without"))
    if answer["is_cuda_build"]:
        versions = {"CUDA": answer["cuda_version"], "cuDNN": answer["cudnn_version"]}
        known = ["%s %s" % (name, version) for name, version in versions.items() if version]
        lines[-1] += ": " + ", ".join(known) if known else ""
    return "\n".join(lines)


_DESCRIPTION = """\
Reports what is installed and whether it works.

The command reports the versions; checks that TensorFlow can be imported, that the package has an op
library for this TensorFlow, and that a small RNN computes the right numbers; and shows which driver
and cuDNN were found and which kernels run on a GPU. It changes nothing. It takes a few seconds,
because each check starts TensorFlow in a new process."""

_EPILOG = """\
exit status:
  0  the package works; a GPU is not required
  1  a check failed; the output says what to do

Include the complete output in a bug report."""


def add_arguments(parser):
    """Adds the command's description to its `argparse.ArgumentParser`."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(options):
    """Runs the command; returns the exit status."""
    del options
    return Doctor().examine()
