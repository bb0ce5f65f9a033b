"""Caches compiled objects of sources that include no TensorFlow header.

Such an object depends only on the compiler, the flags and the sources, so later builds, also for
another TensorFlow and of the C++ tests, can reuse it. The environment variable
CUDNN_RNN_BUILD_CACHE names the folder; "off" disables the cache. The default folder is
$XDG_CACHE_HOME/cudnn_rnn/objects or ~/.cache/cudnn_rnn/objects.

The cache never breaks a build: a damaged or missing file is a cache miss, and failed writes are
ignored. Concurrent builds may share the folder, because files are replaced atomically.
"""

import hashlib
import os
import re
import shutil
import tempfile

FOLDER_VARIABLE = "CUDNN_RNN_BUILD_CACHE"
# The cache keeps the most recently used files. A build for one TensorFlow stores about 4 MB.
MAX_BYTES = 100 * 2**20

# Must change whenever the meaning of a key or the file format changes.
_FORMAT = b"cudnn_rnn object cache 1\n"
_DIGEST_SIZE = hashlib.sha256().digest_size
# Environment variables that affect the compiler.
_COMPILER_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
# Flags whose meaning does not depend on the machine or its files, unlike `-march=native` and
# `-include FILE`. Other flags disable the cache.
_PORTABLE_FLAG = re.compile(
    r"--?std=.*|-I\.|-[DU]\w.*|-O\w*|-g\d?|-W[\w=-]*|-w|-pipe|-pthread|-m(?!.*native)[\w.=-]+"
    r"|-f(?!profile|plugin)[\w-]+|-ffp-contract=\w+|-fvisibility=\w+"
)


class ObjectCache:
    """A folder of compiled objects; the key of each identifies everything it was built from."""

    def __init__(self, folder, max_bytes=MAX_BYTES):
        self._folder = folder
        self._max_bytes = max_bytes

    def load(self, key, path):
        """Writes the object with this key to `path`; returns False on a cache miss."""
        try:
            cached = os.path.join(self._folder, key)
            with open(cached, "rb") as file:
                digest, content = file.read(_DIGEST_SIZE), file.read()
            if hashlib.sha256(content).digest() != digest:
                return False
            with open(path, "wb") as file:
                file.write(content)
            os.utime(cached)
            return True
        except OSError:
            return False

    def store(self, key, path):
        """Stores the object in `path` under this key."""
        try:
            with open(path, "rb") as file:
                content = file.read()
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            descriptor, unfinished = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(hashlib.sha256(content).digest() + content)
                os.replace(unfinished, os.path.join(self._folder, key))
            except OSError:
                os.remove(unfinished)
        except OSError:
            pass

    def remove_least_recently_used(self):
        """Removes the least recently used files until the folder is within its size limit."""
        try:
            files = [(entry.stat(), entry.path) for entry in os.scandir(self._folder)]
            total = 0
            for status, path in sorted(files, key=lambda file: file[0].st_mtime, reverse=True):
                total += status.st_size
                if total > self._max_bytes:
                    os.remove(path)
        except OSError:  # another build may remove files at the same time
            pass


class NoCache:
    """A disabled cache: always misses, stores nothing."""

    def load(self, key, path):
        return False

    def store(self, key, path):
        pass

    def remove_least_recently_used(self):
        pass


def open_cache(flags):
    """Returns the cache for a build with these flags, a `NoCache` if it cannot be used."""
    folder = _chosen_folder()
    if folder and _is_usable(folder) and all(_PORTABLE_FLAG.fullmatch(flag) for flag in flags):
        return ObjectCache(folder)
    return NoCache()


def object_key(compiler, compiler_version, flags, files, root):
    """Returns the key of an object.

    Args:
      compiler: the start of the command line, a list of str.
      compiler_version: output of the compiler's `--version`.
      flags: a list of str.
      files: paths relative to `root`: the source and every file that it may include.
      root: the folder in which the compiler runs.
    """
    program = os.path.realpath(shutil.which(compiler[0]) or compiler[0])
    environment = [os.environ.get(name, "") for name in _COMPILER_VARIABLES]
    key = hashlib.sha256(_FORMAT)
    for text in [program, compiler_version, *compiler[1:], "", *flags, "", *environment]:
        key.update(text.encode("utf-8", "surrogateescape") + b"\0")
    for path in files:
        with open(os.path.join(root, path), "rb") as file:
            content = file.read()
        key.update(b"%s\0%d\0%s" % (path.encode(), len(content), content))
    return key.hexdigest()


def _chosen_folder():
    """Returns an absolute path, or None for no cache."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return None if chosen == "off" else os.path.abspath(chosen)
    parent = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(parent):  # the XDG specification says to ignore a relative path
        parent = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(parent, "cudnn_rnn", "objects") if os.path.isabs(parent) else None


def _is_usable(folder):
    """Tells whether this user may write there; root, as in pip, uses only folders of root.

    `sudo pip install` keeps the home folder of the user, who could plant objects in the cache.
    """
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    try:
        if os.geteuid() == 0:
            return os.stat(folder).st_uid == 0
        return os.access(folder, os.W_OK)
    except OSError:
        return False
