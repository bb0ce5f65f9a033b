"""Shared by the modules that write files under temporary names and then rename them."""

import glob
import os
from typing import List

# A folder is written inside a temporary folder with the final name and this suffix. The folder that
# the new one replaces moves there, too, under the name REPLACED.
PARTIAL = ".partial-"
REPLACED = "old"


def moved_away(output: str) -> List[str]:
    """Returns where the folder `output` is if a process ended while it was being replaced."""
    if os.path.lexists(output):
        return []
    return glob.glob(glob.escape(os.path.abspath(output) + PARTIAL) + "*" + os.sep + REPLACED)


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
