"""Fixtures of the tests of the Python interface: what a test runs for each of, and eager mode."""

import pytest
from tensorflow.python.eager import context

from helpers.cell_formulas import CELLS
from helpers.rnn_models import CLASSES, DIRECTIONS


@pytest.fixture(params=CELLS)
def cell_class(request):
    return request.param


@pytest.fixture(params=sorted(CLASSES))
def rnn_mode(request):
    return request.param


@pytest.fixture(params=DIRECTIONS)
def direction(request):
    return request.param


@pytest.fixture
def eager():
    with context.eager_mode():
        yield
