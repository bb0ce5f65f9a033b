"""Time limits after which a process or test counts as stuck.

They are a last resort: no result depends on them, even on a busy machine.
"""

SECONDS_FOR_A_PROCESS = 3000
# Longer, so that a test ends its own processes first.
SECONDS_FOR_A_TEST = 3600
