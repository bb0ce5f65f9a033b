"""Runs Keras's own tests of its recurrent layers with this package's layers in their place.

    python tests/programs/run_keras_tests.py [PYTEST ARGUMENTS]

The tests are those of the installed Keras 3. The last line says how many calls of each model the
fused op computed. If it computed none, the program fails: the tests then were of Keras's layers.
"""

import collections
import functools
import os
import sys

import pytest
from keras.src import layers

import cudnn_rnn.keras
from cudnn_rnn.keras import _fused_call

FOLDER = os.path.join(os.path.dirname(layers.__file__), "rnn")
NAMES = ("lstm", "gru", "simple_rnn", "bidirectional", "time_distributed")


class Replacement:
    """Puts the layers into the namespace from which Keras's tests take them."""

    def __init__(self):
        self.calls = collections.Counter()  # of the fused op, by `rnn_mode`

    def pytest_configure(self, config):
        for name in cudnn_rnn.keras.__all__:
            setattr(layers, name, getattr(cudnn_rnn.keras, name))
        _fused_call.run = self._counted(_fused_call.run)
        config.addinivalue_line("markers", "requires_trainable_backend: of Keras's tests")

    def _counted(self, run):
        @functools.wraps(run)
        def counted(config, *arguments, **named):
            results = run(config, *arguments, **named)
            self.calls[config.rnn_mode] += 1
            return results

        return counted


def main(*arguments):
    files = [os.path.join(FOLDER, name + "_test.py") for name in NAMES]
    options = ["-p", "no:cacheprovider", "--rootdir", FOLDER, "-c", os.devnull]
    replacement = Replacement()
    status = pytest.main(options + files + list(arguments), plugins=[replacement])
    calls = ["%s %d" % item for item in sorted(replacement.calls.items())]
    print("calls that the fused op computed:", ", ".join(calls) or "none")
    return status or (0 if calls else 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
