"""Writes result files."""

import os


def write_whole(path, text):
    """Replaces a file atomically: readers see the old text or the new one, never a part."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
