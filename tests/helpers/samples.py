"""Which cases of a test that is marked `sampled` run."""

import sys
import zlib


def sample_of(cases, n, turn, name=str):
    """Returns one of `n` of the cases, and at least one.

    Another Python version has another sample. Any `n` successive turns have every case.

    Args:
      cases: a list with at least one case.
      n: int, at least 1.
      turn: int, the number of the sample.
      name: a function that returns the name of a case.
    """

    def rank(case):
        return zlib.crc32(("%d.%d " % sys.version_info[:2] + name(case)).encode())

    step = min(n, len(cases))
    return sorted(cases, key=rank)[turn % step :: step]
