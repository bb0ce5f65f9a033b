"""Finds the libraries that TensorFlow 2.21 opens before it registers a GPU; replaces missing ones.

    python gpu_libraries.py TENSORFLOW_FOLDER EMPTY_LIBRARY

Run it with the Python that will run TensorFlow. It prints the LD_LIBRARY_PATH for that process and,
on stderr, where each library was found.

Kernels of this project and TensorFlow's RNN kernels need only the CUDA runtime and cuDNN. A machine
may lack the other libraries; each of those is replaced by a copy of EMPTY_LIBRARY, a stub without
functions, in TENSORFLOW_FOLDER/stubs. Stubs come last in the path and are made only for names that
the loader does not find anywhere: a stub that hides a real libcublasLt.so.12 would end the process
when cuDNN calls it.
"""

import glob
import json
import os
import shutil
import subprocess
import sys

# Needed by the kernels; never replaced.
_NEEDED = ("libcudart.so.12", "libcudnn.so.9")
_REPLACEABLE = (
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
)

# Opens the libraries named by the arguments in a process of its own; prints [path, error] by name.
_OPEN = """
import ctypes, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
    except OSError as problem:
        found[name] = [None, str(problem)]
        continue
    with open("/proc/self/maps") as maps:
        paths = [line.split(None, 5)[5].strip() for line in maps if "/" + name in line]
    found[name] = [paths[0] if paths else "(unknown path)", None]
print(json.dumps(found))
"""


def library_folders(tensorflow_folder):
    """Returns the folders of NVIDIA's wheels and of CUDA installations, in the order of search."""
    entries = [tensorflow_folder] + [entry for entry in sys.path if entry]
    folders = [
        folder
        for entry in entries
        for folder in sorted(glob.glob(os.path.join(entry, "nvidia", "*", "lib")))
    ]
    # These folders have many other libraries; they are searched only for names that are wanted.
    places = [os.path.join(entry, "torch", "lib") for entry in entries]
    places += sorted(glob.glob("/usr/local/cuda*/lib64")) + [os.path.join(sys.prefix, "lib")]
    wanted = _NEEDED + _REPLACEABLE
    folders += [
        place
        for place in places
        if any(os.path.exists(os.path.join(place, name)) for name in wanted)
    ]
    folders += filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    return list(dict.fromkeys(folders))


def try_to_open(folders):
    """Returns a dict by library name of (path, None), or (None, the loader's error)."""
    printed = subprocess.check_output(
        [sys.executable, "-c", _OPEN] + list(_NEEDED + _REPLACEABLE),
        env=dict(os.environ, LD_LIBRARY_PATH=":".join(folders)),
        universal_newlines=True,
    )
    return json.loads(printed)


def is_absent(name, error):
    """Returns whether the loader found no file; the error of one with a missing dependency differs.

    For the latter, glibc names the dependency.
    """
    return error.startswith(name + ": cannot open shared object file")


def replace_missing(tensorflow_folder, empty_library):
    """Makes the stubs and reports on stderr; returns the LD_LIBRARY_PATH."""
    stubs = os.path.join(tensorflow_folder, "stubs")
    shutil.rmtree(stubs, ignore_errors=True)  # of an earlier run, which may have found less
    os.makedirs(stubs)
    folders = [one for one in library_folders(tensorflow_folder) if one != stubs]
    for name, (path, error) in try_to_open(folders).items():
        if path:
            report = "found: " + path
        elif name in _REPLACEABLE and is_absent(name, error):
            shutil.copy(empty_library, os.path.join(stubs, name))
            report = "not found; replaced by a stub without functions"
        else:
            report = "CANNOT BE OPENED, and has no stub: " + error
        print("%s %s" % (name, report), file=sys.stderr)
    return ":".join(folders + [stubs])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(replace_missing(*map(os.path.abspath, sys.argv[1:])))
