"""Records the start and the outcome of every test in a file at once: a killed run keeps them.

What a test passes to pytest's `record_property` is in the field `found` of its outcome.
"""

import json


class Recorder:
    """A plugin of pytest. With pytest-xdist, it runs in the controlling process."""

    def __init__(self, path, part):
        """Appends to the file; `part` is the name of this run in the records."""
        self._file, self._part = open(path, "a"), part

    def _write(self, test, event, **fields):
        fields.update(part=self._part, test=test, event=event)
        self._file.write(json.dumps(fields, sort_keys=True) + "\n")
        self._file.flush()

    def pytest_runtest_logstart(self, nodeid):
        self._write(nodeid, "started")

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or not report.passed:
            text = report.longrepr[2] if report.skipped else report.longreprtext[-3000:]
            fields = {"seconds": round(report.duration, 2), "text": text}
            if report.user_properties:  # what the test gave to record_property
                fields["found"] = dict(report.user_properties)
            self._write(report.nodeid, report.outcome, **fields)

    def pytest_collectreport(self, report):
        if report.failed:
            self._write(report.nodeid, "failed", text=report.longreprtext[-3000:])
