"""What a build of the op library needs to know: sources, compiler, TensorFlow's flags.

Used by `setup.py` (pip) and `configure.py` (Bazel), so that both build the same library from the
same lists. Runs on Python 3.7 and later with the standard library alone. Every problem that a user
can have here ends in a `SystemExit` whose text says what to do: pip shows that text.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.abspath(__file__))
SOURCE_FOLDER = "cudnn_rnn/cc"

# TensorFlow is asked in a process of its own: an import that dies cannot take the build with it,
# and what TensorFlow prints does not mix with the answer.
_ASK_TENSORFLOW = """
import json, sys
import tensorflow as tf
answer = {
    "version": str(tf.version.VERSION),
    "git_version": str(tf.version.GIT_VERSION),
    "cxx11_abi": int(tf.sysconfig.CXX11_ABI_FLAG),
    "include_folder": tf.sysconfig.get_include(),
    "library_folder": tf.sysconfig.get_lib(),
    "compile_flags": tf.sysconfig.get_compile_flags(),
    "link_flags": tf.sysconfig.get_link_flags(),
}
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
"""

_NO_TENSORFLOW = """
cudnn_rnn is compiled against the TensorFlow of the environment it is installed into, and
TensorFlow cannot be imported by {python}:
    {problem}

Install TensorFlow first, then build in the same environment, where pip can see it:
    pip install setuptools wheel tensorflow==2.21.0
    pip install --no-build-isolation .

If TensorFlow is installed already: a plain `pip install .` builds in an isolated environment,
where there is none. The option --no-build-isolation is needed.
"""

_NO_COMPILER = """
cudnn_rnn is compiled when it is installed, and no working C++ compiler was found:
    {problem}

Install g++ 8 or newer (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++;
conda: conda install gxx_linux-64), or name your compiler in the environment variable CXX, and
run pip again.
"""


class TensorFlow:
    """The TensorFlow to build against: its version and its flags, all from `tf.sysconfig`."""

    def __init__(self, answer):
        self.version = answer["version"]
        self.git_version = answer["git_version"]
        self.cxx11_abi = answer["cxx11_abi"]
        self.include_folder = answer["include_folder"]
        self.library_folder = answer["library_folder"]
        self.link_flags = answer["link_flags"]
        flags = answer["compile_flags"]
        # TensorFlow's headers are system headers: their warnings are not ours to read.
        self.include_flags = []
        for flag in flags:
            if flag.startswith("-I"):
                self.include_flags += ["-isystem", flag[2:]]
        self.definition_flags = [flag for flag in flags if not flag.startswith("-I")]
        if not any("-std=" in flag for flag in flags):
            # TensorFlow 1.15 names no standard, and does not load a library compiled as C++17.
            self.definition_flags.append("-std=c++14")


def ask_tensorflow():
    """Returns the `TensorFlow` that this Python imports; `SystemExit` with advice if none."""
    with tempfile.TemporaryDirectory() as folder:
        answer_path = os.path.join(folder, "answer.json")
        process = subprocess.run(
            [sys.executable, "-c", _ASK_TENSORFLOW, answer_path],
            env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        if process.returncode == 0:
            with open(answer_path) as file:
                return TensorFlow(json.load(file))
    lines = process.stdout.strip().splitlines()
    problem = lines[-1] if lines else "exit status %d, no message" % process.returncode
    raise SystemExit(_NO_TENSORFLOW.format(python=sys.executable, problem=problem))


def read_build_lists():
    """Returns the lists of `cudnn_rnn/cc/sources.bzl` by name: sources relative to it, flags.

    The file is Starlark with nothing but lists of strings in it, which is Python too.
    """
    lists = {}
    with open(os.path.join(ROOT, SOURCE_FOLDER, "sources.bzl")) as file:
        exec(compile(file.read(), "sources.bzl", "exec"), {"__builtins__": {}}, lists)
    return lists


def library_sources(names=("CORE_SOURCES", "CPU_SOURCES", "CUDNN_SOURCES", "TF_SOURCES")):
    """Returns the translation units of the op library, or a part, relative to the project."""
    lists = read_build_lists()
    return [SOURCE_FOLDER + "/" + path for name in names for path in lists[name]]


def find_compiler():
    """Returns the compiler as the start of a command line: `$CXX`, else `c++`, else `g++`."""
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        if not shutil.which(named[0]):
            raise SystemExit(
                _NO_COMPILER.format(problem="CXX is %r, which is no program" % " ".join(named))
            )
        return named
    for name in ("c++", "g++"):
        if shutil.which(name):
            return [name]
    raise SystemExit(_NO_COMPILER.format(problem="neither c++ nor g++ is on PATH, CXX is not set"))


def describe_compiler(compiler):
    """Returns for example "g++ 12.2.0"."""
    first_line = _run(compiler + ["--version"], "asking the compiler's version").splitlines()[0]
    version = re.search(r"\d+(\.\d+)+", re.sub(r"\(.*?\)", "", first_line))
    return "%s %s" % (
        os.path.basename(compiler[-1]),
        version.group() if version else "of unknown version",
    )


def compile_flags(tensorflow):
    """Returns the flags for every translation unit.

    No path of this machine may reach the library: TensorFlow's headers use `__FILE__` in their
    messages, so its folder is renamed, and there is no debug information. What the user says in
    CXXFLAGS comes first: it adds, but changes nothing that is decided here.
    """
    return (
        shlex.split(os.environ.get("CXXFLAGS", ""))
        + read_build_lists()["COMPILE_FLAGS"]
        + ["-DNDEBUG", "-g0", "-pthread", "-I."]
        + ["-ffile-prefix-map=%s=tensorflow/include" % tensorflow.include_folder]
        + tensorflow.include_flags
        + tensorflow.definition_flags
    )


def build_library(output_path, temporary_folder):
    """Compiles and links the op library to `output_path` and writes the build info beside it."""
    tensorflow = ask_tensorflow()
    compiler = find_compiler()
    flags = compile_flags(tensorflow)
    _try_compiler(compiler, flags, temporary_folder)
    compiler_name = describe_compiler(compiler)
    print("compiling for TensorFlow %s with %s" % (tensorflow.version, compiler_name), flush=True)
    os.makedirs(os.path.dirname(output_path), exist_ok=True)

    def compile_one(source):
        path = os.path.join(temporary_folder, source.replace("/", "_") + ".o")
        warnings = _run(compiler + flags + ["-c", source, "-o", path], "compiling " + source)
        print(source, warnings, sep="\n" if warnings else "", flush=True)
        return path

    with ThreadPoolExecutor(_number_of_jobs()) as pool:
        objects = list(pool.map(compile_one, library_sources()))
    _run(
        compiler
        + shlex.split(os.environ.get("LDFLAGS", ""))
        + ["-shared", "-pthread", "-Wl,--strip-debug", "-o", output_path]
        + objects
        + tensorflow.link_flags
        + ["-ldl"],
        "linking " + os.path.basename(output_path),
    )
    _write_build_info(output_path, tensorflow, compiler_name)


def package_version():
    """Returns the version in `cudnn_rnn/_version.py` without importing the package."""
    with open(os.path.join(ROOT, "cudnn_rnn", "_version.py")) as file:
        return re.search(r'__version__ = "(.+)"', file.read()).group(1)


def _write_build_info(library_path, tensorflow, compiler_name):
    with open(library_path, "rb") as file:
        library_sha256 = hashlib.sha256(file.read()).hexdigest()
    build_info = {
        "cudnn_rnn": package_version(),
        "tensorflow": tensorflow.version,
        "tensorflow_git_version": tensorflow.git_version,
        "cxx11_abi": tensorflow.cxx11_abi,
        "compiler": compiler_name,
        "library_sha256": library_sha256,
    }
    with open(os.path.join(os.path.dirname(library_path), "_build_info.json"), "w") as file:
        json.dump(build_info, file, indent=2)
        file.write("\n")


def _try_compiler(compiler, flags, temporary_folder):
    """Compiles a trivial program with our flags: a compiler that cannot work says so at once."""
    os.makedirs(temporary_folder, exist_ok=True)
    source = os.path.join(temporary_folder, "trivial.cc")
    with open(source, "w") as file:
        file.write("#include <string>\nstd::string trivial() { return std::string(3, 'x'); }\n")
    output = os.path.join(temporary_folder, "trivial.so")
    try:
        _run(compiler + flags + ["-shared", source, "-o", output], "trying the compiler")
    except SystemExit as problem:
        raise SystemExit(_NO_COMPILER.format(problem=str(problem).strip().replace("\n", "\n    ")))


def _number_of_jobs():
    if os.environ.get("MAX_JOBS", "").isdigit():
        return max(1, int(os.environ["MAX_JOBS"]))
    return min(os.cpu_count() or 1, 8)  # each takes up to 1 GB over TensorFlow's headers


def _run(command, purpose):
    """Runs a command in the project's folder, returns what it prints; `SystemExit` if it fails."""
    try:
        process = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
    except OSError as problem:
        raise SystemExit("%s failed: %s" % (purpose, problem))
    if process.returncode != 0:
        line = " ".join(shlex.quote(word) for word in command)
        raise SystemExit("%s failed:\n%s\n%s" % (purpose, line, process.stdout))
    return process.stdout
