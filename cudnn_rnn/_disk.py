"""Shared by the modules that write files under temporary names and then rename them."""

import os


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
