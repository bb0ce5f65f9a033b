"""Runs Keras's own tests of its recurrent layers with this package's layers in their place.

    python tests/programs/run_keras_tests.py FOLDER [PYTEST ARGUMENTS]

FOLDER is `keras/src/layers/rnn` of Keras's sources, of the version that is installed.
"""

import os
import sys

import pytest
from keras.src import layers

import cudnn_rnn.keras

NAMES = ("lstm", "gru", "simple_rnn", "bidirectional", "time_distributed")


class Replacement:
    """Puts the layers into the namespace from which Keras's tests take them."""

    def pytest_configure(self, config):
        for name in cudnn_rnn.keras.__all__:
            setattr(layers, name, getattr(cudnn_rnn.keras, name))
        config.addinivalue_line("markers", "requires_trainable_backend: of Keras's tests")


def main(folder, *arguments):
    files = [os.path.join(folder, name + "_test.py") for name in NAMES]
    options = ["-p", "no:cacheprovider", "--rootdir", folder, "-c", os.devnull]
    return pytest.main(options + files + list(arguments), plugins=[Replacement()])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
