"""Builds the package's libraries with CMake: finds TensorFlow and the programs, runs the build.

`setup.py` (pip) and `configure.py` (Bazel) share this module. It needs Python 3.7 or later and only
the standard library. Every user error raises `SystemExit` with a text that says what to do; pip
shows that text.
"""

import functools
import hashlib
import json
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.abspath(__file__))
# Descriptions of TensorFlow releases to compile for (cmake/adapters.cmake), separated by colons.
TENSORFLOWS_VARIABLE = "CUDNN_RNN_TENSORFLOWS"

# Runs in a subprocess: a crashing import cannot end the build, and TensorFlow's output does not mix
# with the answer. The version is written first, because an old TensorFlow may lack the rest.
_TENSORFLOW_QUERY = """
import json, sys
import tensorflow as tf

def write_answer(**answer):
    with open(sys.argv[1], "w") as file:
        json.dump(answer, file)

version = str(tf.__version__)
write_answer(version=version)
write_answer(
    version=version,
    git_version=str(tf.version.GIT_VERSION),
    cxx11_abi=int(tf.sysconfig.CXX11_ABI_FLAG),
    library_folder=tf.sysconfig.get_lib(),
    compile_flags=tf.sysconfig.get_compile_flags(),
    link_flags=tf.sysconfig.get_link_flags(),
)
"""

_NO_TENSORFLOW = """
cudnn_rnn is compiled for the TensorFlow of the environment that it is installed into, but
{python} cannot import TensorFlow:
    {problem}

Install TensorFlow first, then build in the same environment, where pip can see it:
    pip install setuptools wheel cmake ninja tensorflow==2.21.0
    pip install --no-build-isolation .

If TensorFlow is already installed, add the option --no-build-isolation: a plain `pip install .`
builds in an isolated environment, which has no TensorFlow.
"""

_NO_COMPILER = """
cudnn_rnn is compiled when it is installed, but no working C++ compiler was found:
    {problem}

Install g++ 8 or newer (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++;
conda: conda install gxx_linux-64), or set the environment variable CXX to your compiler. Then run
pip again.
"""

_NO_PROGRAM = """
cudnn_rnn is compiled when it is installed, but the program {name} was found neither in
{folder} nor on PATH. Install it, then run pip again:
    pip install cmake ninja
"""

_KILLED = "A compiler was killed, probably because memory ran out. Set MAX_JOBS=1, and build again."


@functools.lru_cache(maxsize=None)
def find_tensorflow():
    """Returns the description of the TensorFlow that this Python imports: cmake/adapters.cmake.

    Raises `SystemExit` with advice if TensorFlow cannot be imported or is not supported.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer_path = os.path.join(folder, "answer.json")
        process = subprocess.run(
            [sys.executable, "-c", _TENSORFLOW_QUERY, answer_path],
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        answer = _read_json(answer_path) if os.path.exists(answer_path) else None
    problem = answer and _read_version_file()["tensorflow_problem"](answer["version"])
    if problem:
        raise SystemExit("\n" + problem)
    if process.returncode == 0:
        return describe_tensorflow(answer)
    lines = process.stdout.strip().splitlines()
    problem = lines[-1] if lines else "exit status %d, no message" % process.returncode
    raise SystemExit(_NO_TENSORFLOW.format(python=sys.executable, problem=problem))


def describe_tensorflow(answer):
    """Returns the description of a TensorFlow, given what `_TENSORFLOW_QUERY` writes."""
    flags = answer["compile_flags"]
    standards = [flag.partition("=")[2] for flag in flags if "-std=" in flag]
    (library,) = [flag[3:] for flag in answer["link_flags"] if flag.startswith("-l:")]
    return {
        "version": answer["version"],
        "git_version": answer["git_version"],
        "cxx11_abi": answer["cxx11_abi"],
        "cxx_standard": (
            int(standards[-1][-2:]) if standards else standard_of_release(answer["version"])
        ),
        "include_folders": [flag[2:] for flag in flags if flag.startswith("-I")],
        "definitions": [
            flag[2:] for flag in flags if flag.startswith("-D") and "_CXX11_ABI" not in flag
        ],
        "library": os.path.join(answer["library_folder"], library),
        "machine": platform.machine(),
    }


def standard_of_release(version):
    """Returns the C++ standard for a release before 2.11, whose flags name none.

    The headers of 2.10 need C++17. TensorFlow 1.15 does not load a library compiled as C++17.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return 14 if numbers and tuple(map(int, numbers.groups())) < (2, 10) else 17


def build_libraries(output, folder):
    """Builds the engine and the adapters in `folder`; copies them to the folder `output`.

    Also writes build_info.json there, which the package reads before it loads a library.
    """
    if not sys.platform.startswith("linux"):
        raise SystemExit("cudnn_rnn works only on Linux, but this platform is %s." % sys.platform)
    os.makedirs(folder, exist_ok=True)
    descriptions = _descriptions(folder)
    _check_compiler_exists()
    cmake, ninja = _find_program("cmake"), _find_program("ninja")
    configure = [cmake, "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=" + ninja]
    configure += ["-DCUDNN_RNN_TENSORFLOWS=" + ";".join(descriptions)]
    _run(configure + shlex.split(os.environ.get("CMAKE_ARGS", "")), "configuring the build")
    tensorflows = [_read_json(path) for path in descriptions]
    versions = ", ".join(tensorflow["version"] for tensorflow in tensorflows)
    print("compiling for TensorFlow %s" % versions, flush=True)
    jobs = str(_number_of_jobs())
    _run([cmake, "--build", folder, "--parallel", jobs], "compiling", shows_output=True)
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(os.path.join(folder, "libraries"), output)
    _write_build_info(output, tensorflows, _read_json(os.path.join(folder, "compiler.json")))


def _descriptions(folder):
    """Returns the paths of the descriptions of the TensorFlow releases to compile for."""
    named = os.environ.get(TENSORFLOWS_VARIABLE, "")
    if named:
        paths = [os.path.abspath(path) for path in named.split(os.pathsep) if path]
        for path in paths:
            if not os.path.isfile(path):
                raise SystemExit(
                    "The environment variable %s names %s, but there is no such file. It must list "
                    "descriptions of TensorFlow releases (cmake/adapters.cmake), separated by %s. "
                    "Unset it to compile for the TensorFlow of this environment."
                    % (TENSORFLOWS_VARIABLE, path, os.pathsep)
                )
        return paths
    path = os.path.join(os.path.abspath(folder), "tensorflow.json")
    with open(path, "w") as file:
        json.dump(find_tensorflow(), file)
    return [path]


def _find_program(name):
    """Returns the path of a program that pip can install. The environment's own come first."""
    folder = os.path.join(sys.prefix, "bin")
    path = shutil.which(name, path=folder) or shutil.which(name)
    if not path:
        raise SystemExit(_NO_PROGRAM.format(name=name, folder=folder))
    return path


def _check_compiler_exists():
    """CMake uses `$CXX`, by default `c++` or `g++`."""
    named = shlex.split(os.environ.get("CXX", ""))
    if named and not shutil.which(named[0]):
        problem = "CXX is %r, which was not found" % " ".join(named)
        raise SystemExit(_NO_COMPILER.format(problem=problem))
    if not named and not (shutil.which("c++") or shutil.which("g++")):
        problem = "neither c++ nor g++ is on PATH, and CXX is unset"
        raise SystemExit(_NO_COMPILER.format(problem=problem))


def package_version():
    """Returns the version of the package without importing it."""
    return _read_version_file()["__version__"]


def _read_version_file():
    return runpy.run_path(os.path.join(ROOT, "cudnn_rnn", "_version.py"))


def _read_json(path):
    with open(path) as file:
        return json.load(file)


def _write_build_info(output, tensorflows, compiler):
    libraries = {}
    for name in sorted(os.listdir(output)):
        with open(os.path.join(output, name), "rb") as file:
            libraries[name] = {"sha256": hashlib.sha256(file.read()).hexdigest()}
    for tensorflow in tensorflows:
        libraries[adapter_name(tensorflow)].update(
            tensorflow=tensorflow["version"],
            tensorflow_git_version=tensorflow["git_version"],
            cxx11_abi=tensorflow["cxx11_abi"],
            cxx_standard="c++%d" % tensorflow["cxx_standard"],
        )
    build_info = dict(cudnn_rnn=package_version(), **compiler)
    build_info["libraries"] = libraries
    with open(os.path.join(output, "build_info.json"), "w") as file:
        json.dump(build_info, file, indent=2)
        file.write("\n")


def adapter_name(tensorflow):
    """Returns the file name of the adapter for a described TensorFlow, as cmake/adapters.cmake."""
    minor = re.match(r"\d+\.\d+", tensorflow["version"])
    version = minor.group() if minor else tensorflow["version"]
    return "ops_tf%s_abi%d.so" % (version, tensorflow["cxx11_abi"])


def _number_of_jobs():
    if os.environ.get("MAX_JOBS", "").isdigit():
        return max(1, int(os.environ["MAX_JOBS"]))
    return len(os.sched_getaffinity(0))  # memory: up to 1 GB per source with TensorFlow's headers


def _run(command, purpose, shows_output=False):
    """Runs a command; raises `SystemExit` with its output and advice if it fails."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    ) as process:
        for line in process.stdout:
            lines.append(line)
            if shows_output:
                print(line, end="", flush=True)
    if process.returncode == 0:
        return
    output = "".join(lines)
    if "compile a simple test program" in output or "CMAKE_CXX_COMPILER" in output:
        raise SystemExit(_NO_COMPILER.format(problem=output.strip().replace("\n", "\n    ")))
    line = " ".join(shlex.quote(word) for word in command)
    raise SystemExit(
        "%s failed:\n%s\n%s\n%s" % (purpose, line, output, _KILLED * ("Killed" in output))
    )
