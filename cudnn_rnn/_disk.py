"""Shared by the modules that write files under temporary names and then rename them."""

import glob
import os
from typing import List

# Of a folder's name while it is incomplete, after the name that it will have. The folder that it
# replaces is moved into it, as REPLACED.
_PARTIAL = ".partial-"
REPLACED = "old"


def partial_prefix(output: str) -> str:
    """Returns what the names of incomplete folders for the path `output` start with."""
    return os.path.basename(os.path.abspath(output)) + _PARTIAL


def moved_away(output: str) -> List[str]:
    """Returns where the folder `output` is if a process ended while it was being replaced."""
    if os.path.lexists(output):
        return []
    path = os.path.join(os.path.dirname(os.path.abspath(output)), partial_prefix(output))
    return glob.glob(os.path.join(glob.escape(path) + "*", REPLACED))


def synchronize(path: str) -> None:
    """Waits until a file is on its disk; raises `OSError` if the system could not write it."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def failed_write(path: str, error: BaseException) -> str:
    """Returns the text of an error about a file or folder that could not be replaced."""
    return (
        "%s cannot be written: %s. Free space on the disk, make the folder writable, or choose "
        "another path." % (path, error)
    )
