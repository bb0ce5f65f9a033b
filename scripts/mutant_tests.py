"""Runs the tests of scripts/run_mutants in a copy of the tree, one mutant at a time."""

import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KILLED, SURVIVED = "killed", "survived"
EQUIVALENT, NOT_COMPILED = "equivalent", "did not compile"


class BaselineFailure(Exception):
    """The tests do not pass on the unchanged code."""


def copy_tree(folder):
    """Copies all files that git knows or does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(command, cwd=ROOT)
    archive = subprocess.Popen(
        ["tar", "--null", "-cf", "-", "-T", "-", "--ignore-failed-read"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    unpacking = subprocess.Popen(["tar", "-xf", "-", "-C", folder], stdin=archive.stdout)
    archive.stdin.write(names)
    archive.stdin.close()
    if archive.wait() or unpacking.wait():
        raise OSError("The tree cannot be copied to %s." % folder)


class _Change:
    """The copy with a mutant while the context lasts."""

    def __init__(self, folder, mutant):
        self._path = os.path.join(folder, mutant.path)
        self._mutant = mutant

    def __enter__(self):
        self._times = os.stat(self._path)
        with open(self._path) as file:
            self._text = file.read()
        start, end = self._mutant.start, self._mutant.end
        if self._text[start:end] != self._mutant.before:
            raise ValueError("%s has changed since the mutants were made." % self._mutant.path)
        self._write(self._text[:start] + self._mutant.after + self._text[end:])

    def __exit__(self, *_):
        self._write(self._text)
        # Unchanged objects are newer.
        os.utime(self._path, ns=(self._times.st_atime_ns, self._times.st_mtime_ns))

    def _write(self, text):
        with open(self._path, "w") as file:
            file.write(text)


def _status(command, folder, seconds):
    """Returns the exit status of a program, None after `seconds`; and its output.

    Counts short waits instead of reading the clock: while this process is stopped, no time passes.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        for wait in range(int(seconds * 50)):
            if process.poll() is not None:
                break
            time.sleep(0.001 if wait < 50 else 0.02)
        else:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None, ""
        log.seek(0)
        return process.returncode, log.read()


def _seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class CppTests:
    """The tests of the core, each in a process, from the fastest to the slowest until one fails.

    Unchanged objects are those of `make core-test`. What the mutant changes, a source or all
    sources that include a header, is compiled with -O1. If all tests pass, they run again with the
    address and undefined behavior sanitizers, as in CI. Mutants of core/team* first run the tests
    of teams with the thread sanitizer, mutants of memory orders run only these.
    """

    patterns = ["cudnn_rnn/cc/core/*", "cudnn_rnn/cc/cpu/*"]

    def __init__(self, folder, say, record_folder):
        self._folder = folder
        select = "select_core_tests"
        self._whole = _Program(folder, say, record_folder, "cpp", "", select)
        self._sanitized = _Program(
            folder, say, record_folder, "cpp-sanitized", "--sanitize", select
        )
        select = "sources=($(list_sources CORE_SOURCES) tests/core/{team_test,main}.cc)"
        self._teams = _Program(
            folder, say, record_folder, "cpp-thread-sanitized", "--sanitize=thread", select
        )

    def prepare(self):
        pass  # each program is built when it is needed

    def judge(self, mutant):
        """Returns (result, what killed it)."""
        if mutant.operator == "memory order":  # x86 keeps most orders whatever the code asks for
            programs = [self._teams]
        elif "/core/team" in mutant.path:
            programs = [self._teams, self._whole, self._sanitized]
        else:
            programs = [self._whole, self._sanitized]
        for program in programs:
            program.prepare()
            for sources in program.steps(mutant.path):
                with _Change(self._folder, mutant):
                    if not program.build_mutant(sources):
                        return NOT_COMPILED, ""
                    failed = program.first_failure()
                if failed:
                    return KILLED, failed
        return SURVIVED, ""


class _Program:
    """A test program: the objects of the unchanged sources, and those of the current mutant."""

    def __init__(self, folder, say, record_folder, build, option, select):
        """`build`: the folder of objects in .build. `option`: of set_up_build in cpp_build.sh.

        `select`: a command for the shell that sets the array `sources`.
        """
        self._folder = folder
        self._say = say
        self._record_folder = record_folder
        self._build = build
        self._set_up = ". scripts/cpp_build.sh && set_up_build %s && %s && " % (option, select)
        self._is_sanitized = bool(option)
        self._flags = []
        self._files_of = {}  # by source: what it includes, and itself
        self._seconds_of_test = {}

    def prepare(self):
        if self._files_of:
            return
        self._say("%s: unchanged objects" % self._build)
        ready = os.path.join(ROOT, ".build", self._build)
        if os.path.isdir(ready):
            os.makedirs(os.path.join(self._folder, ".build"), exist_ok=True)
            copy = ["cp", "-a", ready, os.path.join(self._folder, ".build")]
            subprocess.check_call(copy)
        write = "printf '%%s\\n' \"${%s[@]}\" > %s"
        lists = " && ".join(write % (name, name) for name in ("flags", "sources"))
        if self._shell('compile "${sources[@]}" && ' + lists) != 0:
            raise BaselineFailure("The unchanged sources do not compile.")
        with open(os.path.join(self._folder, "flags")) as file:
            self._flags = file.read().split()
        with open(os.path.join(self._folder, "sources")) as file:
            for source in file.read().split():
                command = ["c++", *self._flags, "-MM", source]
                rule = subprocess.check_output(command, cwd=self._folder, universal_newlines=True)
                self._files_of[source] = rule.replace("\\\n", " ").split()[1:]
        self._time_tests()

    def steps(self, path):
        """Returns lists of the sources that depend on the file at `path`: test after each.

        Kernels of several instruction sets are compiled from the same text. Nearly all mutants are
        killed when only one of them has changed. Mutants that reach the sanitizers are not.
        """
        changed = [source for source, files in self._files_of.items() if path in files]
        kernels = [source for source in changed if "/kernels_" in source]
        if len(changed) == 1 or kernels != changed:
            return [changed]
        portable = [source for source in kernels if "portable" in source]
        return [portable, changed] if portable and not self._is_sanitized else [changed]

    def build_mutant(self, sources):
        """Compiles the sources; returns whether they compile and link."""
        changed = {source: "%d.mutant.o" % number for number, source in enumerate(sources)}
        commands = [
            ["c++", *self._flags, "-O1", "-w", "-c", source, "-o", name]
            for source, name in changed.items()
        ]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            if not all(pool.map(self._succeeds, commands)):
                return False
        return self._link(changed)

    def first_failure(self):
        """Returns the name of the first test that fails or takes too long, None if all pass."""
        names = sorted(self._seconds_of_test, key=self._seconds_of_test.get)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            tests = [pool.submit(self._failure_of, name) for name in names]
            failure = next(filter(None, (test.result() for test in tests)), None)
            for test in tests:
                test.cancel()
        return failure

    def _failure_of(self, name):
        limit = 30 + 20 * self._seconds_of_test[name]
        status, _ = _status(["./test_program", "--only", name], self._folder, limit)
        if status == 0:
            return None
        return name if status is not None else name + " (time limit)"

    def _time_tests(self):
        """Runs all tests on the unchanged code, unless the record has their times."""
        path = os.path.join(self._record_folder, self._build + "_" + self._state() + ".json")
        if os.path.exists(path):
            with open(path) as file:
                self._seconds_of_test = json.load(file)
            return
        if not self._link({}):
            raise BaselineFailure("The unchanged objects cannot be linked.")
        _, names = _status(["./test_program", "--list"], self._folder, 60)
        for name in names.split():
            self._say("%s: %s" % (self._build, name))
            before = _seconds_of_children()
            status, output = _status(["./test_program", "--only", name], self._folder, 3600)
            if status != 0:
                raise BaselineFailure("%s fails on the unchanged code:\n%s" % (name, output))
            self._seconds_of_test[name] = round(_seconds_of_children() - before, 2)
        os.makedirs(self._record_folder, exist_ok=True)
        with open(path, "w") as file:
            json.dump(self._seconds_of_test, file)

    def _state(self):
        key = hashlib.sha256()
        for path in sorted({path for paths in self._files_of.values() for path in paths}):
            with open(os.path.join(self._folder, path), "rb") as file:
                key.update(hashlib.sha256(file.read()).digest())
        return key.hexdigest()[:16]

    def _link(self, changed):
        objects = [
            changed.get(source) or ".build/%s/%s.o" % (self._build, source.replace("/", "_"))
            for source in self._files_of
        ]
        sanitizers = [flag for flag in self._flags if flag.startswith("-fsanitize=")]
        command = ["c++", *sanitizers, *objects, "-pthread", "-ldl", "-o", "test_program"]
        return self._succeeds(command)

    def _shell(self, command):
        return subprocess.call(["bash", "-c", self._set_up + command], cwd=self._folder)

    def _succeeds(self, command):
        return subprocess.call(command, cwd=self._folder, stderr=subprocess.DEVNULL) == 0


class PythonTests:
    """The tests that execute the mutated line, in the environment of a Python.

    A run of all tests records which lines each executes. The record is valid for one state of the
    package and the tests.
    """

    patterns = ["cudnn_rnn/**/*.py"]

    def __init__(self, folder, say, python, test_paths, record_folder):
        self._folder = folder
        self._say = say
        self._python = python
        self._test_paths = test_paths
        self._record_folder = record_folder
        self._environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
        search_path = [folder, os.environ.get("PYTHONPATH")]
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, search_path))
        self._tests = []  # (name, seconds, {path: lines})
        self._server = None

    def prepare(self):
        self._take_compiled_files()
        with open(self._record_coverage()) as file:
            for line in file:
                name, seconds, lines = json.loads(line)
                lines = {path: set(found) for path, found in lines.items()}
                self._tests.append((name, seconds, lines))
        self._server = subprocess.Popen(
            [self._python, os.path.join(ROOT, "scripts", "mutant_server.py")],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            universal_newlines=True,
        )

    def judge(self, mutant):
        tests = self._tests_of(mutant)
        if not tests:
            return SURVIVED, "no test executes it"
        with _Change(self._folder, mutant):
            try:
                compile(open(os.path.join(self._folder, mutant.path)).read(), mutant.path, "exec")
            except SyntaxError:
                return NOT_COMPILED, ""
            seconds = 60 + 20 * sum(test[1] for test in tests)
            status, log = self._run(["-x", *(test[0] for test in tests)], seconds)
        if status == 0:
            return SURVIVED, "%d tests pass" % len(tests)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", log, re.M)
        return KILLED, failed.group(1) if failed else "status %s" % status

    def _tests_of(self, mutant):
        """Returns the tests to run, the fastest first."""
        with open(os.path.join(self._folder, mutant.path)) as file:
            last = mutant.line + file.read()[mutant.start : mutant.end].count("\n")
        lines = set(range(mutant.line, last + 1))
        by_time = sorted(self._tests, key=lambda test: test[1])
        found = [test for test in by_time if lines & test[2].get(mutant.path, set())]
        if found:
            return found
        # Import executes the line, or a process that a test starts.
        return [test for test in by_time if mutant.path in test[2] or self._imports(test)]

    def _imports(self, test):
        """Returns whether the test imports the package anew, or lists its public names."""
        with open(os.path.join(self._folder, test[0].partition("::")[0])) as file:
            return re.search("^from (helpers.processes|programs) import", file.read(), re.M)

    def _take_compiled_files(self):
        program = "import importlib.util as u; print(u.find_spec('cudnn_rnn').origin)"
        origin = subprocess.check_output(
            [self._python, "-c", program], cwd=self._folder + "/docs", universal_newlines=True
        )
        installed = os.path.dirname(origin.strip())
        for name in ("_cudnn_rnn_ops.so", "_build_info.json"):
            os.symlink(os.path.join(installed, name), os.path.join(self._folder, "cudnn_rnn", name))

    def _record_coverage(self):
        """Returns the file that says which lines each test executes; runs all tests to make it."""
        record = os.path.join(self._record_folder, self._state() + ".jsonl")
        if os.path.exists(record):
            return record
        self._say("coverage of all tests (minutes)")
        os.makedirs(self._record_folder, exist_ok=True)
        program = os.path.join(ROOT, "scripts", "mutant_coverage.py")
        command = [self._python, program, record, *self._test_paths]
        environment = dict(self._environment, PYTHONUNBUFFERED="1")
        if subprocess.call(command, cwd=self._folder, env=environment):
            raise BaselineFailure("The tests cannot run, see above.")
        return record

    def _state(self):
        """Returns a checksum of the package and of the tests."""
        key = hashlib.sha256(repr(self._test_paths).encode())
        for folder in ("cudnn_rnn", "tests"):
            pattern = os.path.join(self._folder, folder, "**", "*.py")
            for name in sorted(glob.glob(pattern, recursive=True)):
                with open(name, "rb") as file:
                    key.update(hashlib.sha256(file.read()).digest())
        return key.hexdigest()[:16]

    def _run(self, arguments, seconds):
        log = os.path.join(self._folder, "mutant.log")
        arguments = ["-q", "-p", "no:cacheprovider", *arguments]
        request = {"arguments": arguments, "seconds": seconds, "log": log}
        print(json.dumps(request), file=self._server.stdin, flush=True)
        status = json.loads(self._server.stdout.readline())["status"]
        with open(log, errors="replace") as file:
            return status, file.read()


Result = collections.namedtuple("Result", "mutant result detail")
