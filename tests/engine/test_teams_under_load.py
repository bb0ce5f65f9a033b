"""Calls must not deadlock, however busy the thread pool: a short form of a scenario that hung."""

import os

import pytest

from helpers.paths import PROGRAMS
from helpers.processes import output_of

pytestmark = [pytest.mark.once, pytest.mark.ci]


@pytest.mark.sampled(4)
def test_decode_loops_finish_beside_training_and_products():
    """Makes more calls than the pool's queue holds (1,024) while other work uses its threads."""
    sizes = ["--trainers=1", "--multipliers=1", "--layers=1", "--units=512"]
    sizes += ["--decoder-units=256", "--steps=1500", "--rounds=2"]
    printed = output_of(os.path.join(PROGRAMS, "training_beside_decoding.py"), *sizes)
    assert "\n4 loops of 1500 steps" in printed, printed
