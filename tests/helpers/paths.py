"""Folders of the project that tests read."""

import os

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
GOLDEN = os.path.join(TESTS, "golden")
PROGRAMS = os.path.join(TESTS, "programs")
