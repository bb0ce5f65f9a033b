"""Builds the op library: finds its sources, the compiler and TensorFlow's flags.

`setup.py` (pip) and `configure.py` (Bazel) share this module, so that both build the same library
from the same lists. It needs Python 3.7 or later and only the standard library. Every user error
raises `SystemExit` with a text that says what to do; pip shows that text.
"""

import functools
import hashlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import build_cache

ROOT = os.path.dirname(os.path.abspath(__file__))
SOURCE_FOLDER = "cudnn_rnn/cc"
# The lists in sources.bzl whose sources include no TensorFlow header.
_CORE_LISTS = ("CORE_SOURCES", "CPU_SOURCES", "CUDNN_SOURCES")

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
    include_folder=tf.sysconfig.get_include(),
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
    pip install setuptools wheel tensorflow==2.21.0
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


class TensorFlow:
    """The TensorFlow to build against: its version, and its flags from `tf.sysconfig`."""

    def __init__(self, answer):
        self.version = answer["version"]
        self.git_version = answer["git_version"]
        self.cxx11_abi = answer["cxx11_abi"]
        self.include_folder = answer["include_folder"]
        self.library_folder = answer["library_folder"]
        self.link_flags = answer["link_flags"]
        flags = answer["compile_flags"]
        # As system headers, TensorFlow's headers give no warnings.
        self.include_flags = []
        for flag in flags:
            if flag.startswith("-I"):
                self.include_flags += ["-isystem", flag[2:]]
        self.definition_flags = [flag for flag in flags if not flag.startswith("-I")]
        if not any("-std=" in flag for flag in flags):
            self.definition_flags.append("-std=" + self._standard_of_release())

    @property
    def version_label(self):
        """The local part of the version of a package that is built for it, such as "+tf2.21"."""
        numbers = re.match(r"\d+\.\d+", self.version)
        return "+tf" + numbers.group() if numbers else ""

    def _standard_of_release(self):
        """Returns the C++ standard for a release before 2.11, whose flags name none.

        The headers of 2.10 need C++17. TensorFlow 1.15 does not load a library compiled as C++17.
        """
        major, minor = re.match(r"(\d+)\.(\d+)", self.version).groups()
        return "c++17" if (int(major), int(minor)) >= (2, 10) else "c++14"


@functools.lru_cache(maxsize=None)
def find_tensorflow():
    """Returns the `TensorFlow` that this Python imports.

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
        answer = _read_json(answer_path)
    problem = answer and _read_version_file()["tensorflow_problem"](answer["version"])
    if problem:
        raise SystemExit("\n" + problem)
    if process.returncode == 0:
        return TensorFlow(answer)
    lines = process.stdout.strip().splitlines()
    problem = lines[-1] if lines else "exit status %d, no message" % process.returncode
    raise SystemExit(_NO_TENSORFLOW.format(python=sys.executable, problem=problem))


def _read_json(path):
    """Returns the content of the file, None if the file does not exist."""
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def read_build_lists():
    """Returns the lists of `cudnn_rnn/cc/sources.bzl` by name: flags, and sources relative to it.

    The file is Starlark with only lists of strings, which is also valid Python.
    """
    lists = {}
    with open(os.path.join(ROOT, SOURCE_FOLDER, "sources.bzl")) as file:
        exec(compile(file.read(), "sources.bzl", "exec"), {"__builtins__": {}}, lists)
    return lists


def library_sources(names=_CORE_LISTS + ("TF_SOURCES",)):
    """Returns the op library's translation units in these lists, relative to the project."""
    lists = read_build_lists()
    return [SOURCE_FOLDER + "/" + path for name in names for path in lists[name]]


def find_compiler():
    """Returns the start of the compiler's command line: `$CXX`, by default `c++` or `g++`."""
    named = shlex.split(os.environ.get("CXX", ""))
    if named:
        if not shutil.which(named[0]):
            raise SystemExit(
                _NO_COMPILER.format(problem="CXX is %r, which was not found" % " ".join(named))
            )
        return named
    for name in ("c++", "g++"):
        if shutil.which(name):
            return [name]
    raise SystemExit(
        _NO_COMPILER.format(problem="neither c++ nor g++ is on PATH, and CXX is unset")
    )


def describe_compiler(compiler):
    """Returns the compiler's name and version, such as "g++ 12.2.0"."""
    first_line = _compiler_version(compiler).splitlines()[0]
    version = re.search(r"\d+(\.\d+)+", re.sub(r"\(.*?\)", "", first_line))
    return "%s %s" % (
        os.path.basename(compiler[-1]),
        version.group() if version else "of unknown version",
    )


def _compiler_version(compiler):
    return _run(compiler + ["--version"], "querying the compiler's version")


def _common_flags():
    return read_build_lists()["COMPILE_FLAGS"] + ["-DNDEBUG", "-g0", "-pthread", "-I."]


def compile_flags(tensorflow):
    """Returns the flags for the sources that include TensorFlow's headers.

    The library must not contain paths of the build machine. TensorFlow's headers use `__FILE__` in
    their messages, so the flags rename its folder; debug information is off.
    """
    return (
        _common_flags()
        + ["-ffile-prefix-map=%s=tensorflow/include" % tensorflow.include_folder]
        + tensorflow.include_flags
        + tensorflow.definition_flags
        + _flags_of_user()
    )


def core_compile_flags(tensorflow=None):
    """Returns the flags for the sources that include no header of TensorFlow.

    From TensorFlow, they take only the C++ standard and the ABI of the standard library, so that
    an object can be reused for every TensorFlow in which these two are equal. Without one, they
    are those for the current releases.
    """
    shared = ["-D_GLIBCXX_USE_CXX11_ABI=1", "-std=c++17"]
    if tensorflow is not None:
        shared = [
            re.sub("^--std=", "-std=", flag)
            for flag in tensorflow.definition_flags
            if not flag.startswith("-DEIGEN_")
        ]
    return _common_flags() + shared + _flags_of_user()


def _flags_of_user():
    """Returns CXXFLAGS. They come last on the command line, so they override other flags."""
    return shlex.split(os.environ.get("CXXFLAGS", ""))


def build_library(output_path, temporary_folder):
    """Compiles and links the op library to `output_path`; writes the build info beside it."""
    start = time.time()
    if not sys.platform.startswith("linux"):
        raise SystemExit("cudnn_rnn works only on Linux, but this platform is %s." % sys.platform)
    tensorflow = find_tensorflow()
    compiler = find_compiler()
    flags = compile_flags(tensorflow)
    _try_compiler(compiler, flags, temporary_folder)
    compiler_name = describe_compiler(compiler)
    jobs = _number_of_jobs()
    print(
        "compiling for TensorFlow %s with %s, %d files at a time"
        % (tensorflow.version, compiler_name, jobs),
        flush=True,
    )
    objects = Compilation(compiler, tensorflow, temporary_folder).run(jobs)
    os.makedirs(os.path.dirname(output_path), exist_ok=True)
    _run(
        compiler
        + shlex.split(os.environ.get("LDFLAGS", ""))
        + ["-shared", "-pthread", "-Wl,--strip-debug", "-o", output_path]
        + objects
        + tensorflow.link_flags
        + ["-ldl"],
        "linking " + os.path.basename(output_path),
    )
    _write_build_info(output_path, tensorflow, compiler_name, flags)
    print("built in %d s" % (time.time() - start), flush=True)


class Compilation:
    """Compiles all sources of the op library; prints progress."""

    def __init__(self, compiler, tensorflow, folder):
        self._compiler = compiler
        self._folder = folder
        self._flags = compile_flags(tensorflow)
        self._core = CoreCompiler(compiler, core_compile_flags(tensorflow))

    def run(self, jobs):
        """Compiles with `jobs` compilers at a time; returns the paths of the objects."""
        sources = library_sources(("TF_SOURCES",) + _CORE_LISTS)
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(self._compile, source) for source in sources]
            try:
                for number, future in enumerate(as_completed(futures), 1):
                    progress = "[%*d/%d] " % (len(str(len(futures))), number, len(futures))
                    print(progress + future.result(), flush=True)
            finally:
                for future in futures:
                    future.cancel()
        self._core.clean_cache()
        return [self._object_path(source) for source in sources]

    def _object_path(self, source):
        return os.path.join(self._folder, source.replace("/", "_") + ".o")

    def _compile(self, source):
        """Compiles or loads the object of `source`; returns a progress line and any warnings."""
        path = self._object_path(source)
        if self._core.is_core(source):
            return self._core.compile(source, path)
        return source + _compile_one(self._compiler, self._flags, source, path)


class CoreCompiler:
    """Compiles sources of the core; takes their objects from the cache if they are there."""

    def __init__(self, compiler, flags):
        self._compiler = compiler
        self._flags = flags
        self._cache = build_cache.open_cache(flags)
        self._compiler_version = _compiler_version(compiler)
        self._sources = frozenset(library_sources(_CORE_LISTS))

    def is_core(self, source):
        """Tells whether `source` includes only headers of the core, which its key covers."""
        return source in self._sources

    def compile(self, source, path):
        """Writes the object of `source` to `path`; returns a progress line and any warnings."""
        key = self._key(source)
        if self._cache.load(key, path):
            return source + " (cached by an earlier build)"
        warnings = _compile_one(self._compiler, self._flags, source, path)
        # Does not cache warnings, which every build shows, or a file that changed meanwhile.
        if not warnings and key == self._key(source):
            self._cache.store(key, path)
        return source + warnings

    def clean_cache(self):
        """Keeps the cache within its size limit."""
        self._cache.remove_least_recently_used()

    def _key(self, source):
        files = [source] + _core_headers()
        return build_cache.object_key(
            self._compiler, self._compiler_version, self._flags, files, ROOT
        )


def _compile_one(compiler, flags, source, path):
    """Compiles `source`; returns the warnings on lines of their own, "" if there are none."""
    warnings = _run(compiler + flags + ["-c", source, "-o", path], "compiling " + source)
    return "\n" + warnings if warnings else ""


def _core_headers():
    """Returns the headers that core sources may include, relative to the project."""
    paths = [
        "/".join([SOURCE_FOLDER, folder, name])
        for folder in ("core", "cpu", "cudnn")
        for name in os.listdir(os.path.join(ROOT, SOURCE_FOLDER, folder))
        if name.endswith((".h", ".inc"))
    ]
    return sorted(paths)


def package_version():
    """Returns the version of the package without importing it."""
    return _read_version_file()["__version__"]


def _read_version_file():
    return runpy.run_path(os.path.join(ROOT, "cudnn_rnn", "_version.py"))


def _write_build_info(library_path, tensorflow, compiler_name, flags):
    with open(library_path, "rb") as file:
        library_sha256 = hashlib.sha256(file.read()).hexdigest()
    build_info = {
        "cudnn_rnn": package_version(),
        "tensorflow": tensorflow.version,
        "tensorflow_git_version": tensorflow.git_version,
        "cxx11_abi": tensorflow.cxx11_abi,
        "compiler": compiler_name,
        "cxx_standard": [flag for flag in flags if "-std=" in flag][-1].partition("=")[2],
        "library_sha256": library_sha256,
    }
    with open(os.path.join(os.path.dirname(library_path), "_build_info.json"), "w") as file:
        json.dump(build_info, file, indent=2)
        file.write("\n")


def _try_compiler(compiler, flags, temporary_folder):
    """Compiles a trivial library with the build's flags, to report a broken compiler early."""
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
    return len(os.sched_getaffinity(0))  # memory: up to 1 GB per source with TensorFlow's headers


def _run(command, purpose):
    """Runs a command in the project's folder; returns its output, `SystemExit` if it fails."""
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
        raise SystemExit("%s failed:\n%s\n%s%s" % (purpose, line, process.stdout, _hint(process)))
    return process.stdout


def _hint(process):
    """Returns advice if a compiler was killed, as Linux does when memory runs out."""
    if process.returncode > 0 and "Killed" not in process.stdout:
        return ""
    return (
        "The compiler was killed, probably because memory ran out. Set MAX_JOBS=1, and build again."
    )
