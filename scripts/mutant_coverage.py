"""Records which lines of the package each test executes, for scripts/run_mutants.

  mutant_coverage.py FILE TESTS...

Runs pytest on all cores with pytest-cov, and writes a line of JSON to FILE for each test that
passes: [name, seconds, {path: lines}]. Lines that other processes execute are not recorded.
"""

import collections
import json
import os
import sys
import tempfile

import coverage
import pytest


class Reports:
    """A pytest plugin that adds up the seconds of each test."""

    def __init__(self):
        self.seconds, self.failed = collections.Counter(), set()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if not report.passed:  # failed or skipped
            self.failed.add(report.nodeid)


def lines_by_test(path):
    """Returns {test: {path: lines}} of a data file of coverage."""
    data = coverage.CoverageData(path)
    data.read()
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for file in data.measured_files():
        for line, contexts in data.contexts_by_lineno(file).items():
            for test in {context.rsplit("|", 1)[0] for context in contexts} - {""}:
                found[test][os.path.relpath(file)].append(line)
    return found


def main():
    path, tests = sys.argv[1], sys.argv[2:]
    reports = Reports()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COVERAGE_FILE"] = os.path.join(folder, "coverage")
        options = ["-q", "-p", "no:cacheprovider", "--numprocesses=auto", "--dist=loadfile"]
        options += ["--cov=cudnn_rnn", "--cov-context=test", "--cov-report="]
        status = pytest.main(options + tests, [reports])
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return int(status)
        lines = lines_by_test(os.environ["COVERAGE_FILE"])
    with open(path + ".unfinished", "w") as file:
        for test, seconds in reports.seconds.items():
            if test not in reports.failed:
                file.write(json.dumps([test, round(seconds, 2), lines[test]]) + "\n")
    os.replace(path + ".unfinished", path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
