"""Keeps compiled objects between builds: those of sources that include no TensorFlow header.

Such an object depends on the compiler, the flags and the sources alone, so a build for another
TensorFlow, or a second build for the same one, can take it from the cache. The environment variable
CUDNN_RNN_BUILD_CACHE names the folder; "off" means no cache. The default folder is
$XDG_CACHE_HOME/cudnn_rnn/objects or ~/.cache/cudnn_rnn/objects.

The cache never breaks a build: a file that is damaged, missing or cannot be written counts as
absent. Builds that run at the same time may share the folder, because each file appears complete.
"""

import hashlib
import os
import re
import shutil
import tempfile

FOLDER_VARIABLE = "CUDNN_RNN_BUILD_CACHE"
# A build for one TensorFlow leaves about 4 MB. The files used last are kept.
MOST_BYTES = 100 * 2**20

# Change it where the meaning of a key or the content of a file changes.
_FORMAT = b"cudnn_rnn object cache 1\n"
_DIGEST_SIZE = hashlib.sha256().digest_size
# The compiler reads these as well.
_COMPILER_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
# Flags whose meaning is the same on every machine, whatever files it has. `-march=native` is not
# among them, nor is `-include FILE`.
_PORTABLE_FLAG = re.compile(
    r"--?std=.*|-I\.|-[DU]\w.*|-O\w*|-g\d?|-W[\w=-]*|-w|-pipe|-pthread|-m(?!.*native)[\w.=-]+"
    r"|-f(?!profile|plugin)[\w-]+|-ffp-contract=\w+|-fvisibility=\w+"
)


class ObjectCache:
    """A folder of compiled objects, each under a key that names all it was made from."""

    def __init__(self, folder, most_bytes=MOST_BYTES):
        self._folder = folder
        self._most_bytes = most_bytes

    def load(self, key, path):
        """Writes the object with this key to `path`; returns False if there is none."""
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
        """Keeps the object in `path` under this key."""
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

    def remove_what_is_old(self):
        """Removes the files used longest ago until the folder has its size again."""
        try:
            files = [(entry.stat(), entry.path) for entry in os.scandir(self._folder)]
            total = 0
            for status, path in sorted(files, key=lambda file: file[0].st_mtime, reverse=True):
                total += status.st_size
                if total > self._most_bytes:
                    os.remove(path)
        except OSError:  # another build removes files as well
            pass


class NoCache:
    """Has nothing and keeps nothing."""

    def load(self, key, path):
        return False

    def store(self, key, path):
        pass

    def remove_what_is_old(self):
        pass


def open_cache(flags):
    """Returns the cache for a build with these flags."""
    folder = _chosen_folder()
    if folder and _is_usable(folder) and all(_PORTABLE_FLAG.fullmatch(flag) for flag in flags):
        return ObjectCache(folder)
    return NoCache()


def object_key(compiler, compiler_version, flags, files, root):
    """Returns the key of an object.

    Args:
      compiler: the start of the command line, a list of str.
      compiler_version: what the compiler prints for `--version`.
      flags: a list of str.
      files: paths relative to `root`: the source and all that it may include.
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
    if not os.path.isabs(parent):  # the XDG specification says to ignore it
        parent = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(parent, "cudnn_rnn", "objects") if os.path.isabs(parent) else None


def _is_usable(folder):
    """Tells whether this user may write there; root uses only what belongs to root, as pip does.

    `sudo pip install` keeps the home folder of the user, who could put other objects there.
    """
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    try:
        if os.geteuid() == 0:
            return os.stat(folder).st_uid == 0
        return os.access(folder, os.W_OK)
    except OSError:
        return False
