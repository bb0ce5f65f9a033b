"""Fixtures of the tests of the Python interface: what a test runs for each of."""

import pytest
import tensorflow.compat.v1 as tf

from helpers.cell_formulas import CELLS
from helpers.rnn_models import CLASSES, DIRECTIONS

tf.logging.set_verbosity(tf.logging.ERROR)


@pytest.fixture(params=CELLS)
def cell_class(request):
    return request.param


@pytest.fixture(params=sorted(CLASSES))
def rnn_mode(request):
    return request.param


@pytest.fixture(params=DIRECTIONS)
def direction(request):
    return request.param
