"""Limits after which something that should end counts as stuck.

They are the last resort: no result depends on them, however busy the machine is.
"""

SECONDS_FOR_A_PROCESS = 3000
# Longer, so that a test first ends its own processes.
SECONDS_FOR_A_TEST = 3600
