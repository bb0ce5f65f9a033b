"""Checks a wheel without running it: its files, paths and symbols, and how the engine is found."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from build_support import adapter_name  # noqa: E402

MAXIMUM_BYTES = 25e6
# The newest glibc that the platform in the wheel's name may be of.
NEWEST_GLIBC = (2, 28)

ENGINE = "libcudnn_rnn_engine.so"
LIBRARIES = "cudnn_rnn/_libraries/"
CONTENTS = re.compile(
    r"cudnn_rnn(/[a-z0-9_]+)*/[a-z0-9_]+\.py$|cudnn_rnn/py\.typed$|cudnn_rnn-[^/]*\.dist-info/"
    r"|cudnn_rnn/_libraries/(libcudnn_rnn_engine\.so|ops_tf\d+\.\d+_abi[01]\.so|build_info\.json)$"
)


def check(wheel, descriptions, paths):
    """Raises `SystemExit` unless the wheel is as it has to be.

    Args:
      wheel: path of the wheel, as auditwheel wrote it.
      descriptions: paths of the descriptions of the TensorFlows that the wheel is for.
      paths: texts that no file of the wheel may contain.
    """
    tensorflows = {}
    for path in descriptions:
        with open(path) as file:
            description = json.load(file)
        tensorflows[adapter_name(description)] = description
    if os.path.getsize(wheel) > MAXIMUM_BYTES:
        fail(
            wheel, "it has %d bytes; expected at most %d" % (os.path.getsize(wheel), MAXIMUM_BYTES)
        )
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
            names = [name for name in archive.namelist() if not name.endswith("/")]
        check_contents(wheel, folder, names, paths)
        libraries = os.path.join(folder, LIBRARIES)
        check_build_info(wheel, libraries, tensorflows)
        check_needs(wheel, libraries, tensorflows)
        for name in tensorflows:
            check_search(wheel, os.path.join(libraries, name))


def fail(wheel, text):
    raise SystemExit("%s is wrong: %s." % (wheel, text))


def check_contents(wheel, folder, names, paths):
    """Fails for files that are not the package's, and for files that contain one of `paths`."""
    unexpected = [name for name in names if not CONTENTS.match(name)]
    if unexpected:
        fail(wheel, "these files do not belong into it: %s" % ", ".join(unexpected))
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        for path in [path for path in paths if os.fsencode(path) in content]:
            fail(wheel, "%s names a path of this machine, %s" % (name, path))


def check_build_info(wheel, libraries, tensorflows):
    """Fails unless the libraries are those that were asked for, as the build info describes."""
    with open(os.path.join(libraries, "build_info.json")) as file:
        described = json.load(file)["libraries"]
    expected = sorted([ENGINE] + list(tensorflows))
    found = sorted(name for name in os.listdir(libraries) if name.endswith(".so"))
    for what, names in (("has", found), ("describes", sorted(described))):
        if names != expected:
            text = "it %s the libraries %s; expected %s"
            fail(wheel, text % (what, ", ".join(names), ", ".join(expected)))
    for name, entry in described.items():
        with open(os.path.join(libraries, name), "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != entry["sha256"]:
                fail(wheel, "the SHA-256 of %s differs from the one in build_info.json" % name)


def check_needs(wheel, libraries, tensorflows):
    """Fails if a library needs a newer system than the wheel's name says, or than its TensorFlow.

    For libstdc++, only the wheel's name counts: TensorFlow 1.15 to 2.20 also supports systems whose
    libstdc++ lacks the C++11 ABI, which the engine has.
    """
    tags = re.findall(r"manylinux_(\d+)_(\d+)_", os.path.basename(wheel))
    promised = [(int(major), int(minor)) for major, minor in tags]
    if not promised or min(promised) > NEWEST_GLIBC:
        fail(wheel, "its name has no platform as old as manylinux_%d_%d" % NEWEST_GLIBC)
    engine = glibc_of(os.path.join(libraries, ENGINE))
    for name, tensorflow in tensorflows.items():
        theirs = glibc_of(tensorflow["library"])
        for library, ours in ((name, glibc_of(os.path.join(libraries, name))), (ENGINE, engine)):
            if ours > min(promised + [theirs]):
                text = "%s needs glibc %d.%d, but TensorFlow %s only %d.%d"
                fail(wheel, text % (library, *ours[:2], tensorflow["version"], *theirs[:2]))


def glibc_of(library):
    """Returns the oldest glibc that a library works with, such as (2, 14)."""
    printed = readelf("--version-info", library).partition("Version needs section")[2]
    versions = re.findall(r"Name: GLIBC_([\d.]+)", printed)
    return max(tuple(int(number) for number in version.split(".")) for version in versions)


def check_search(wheel, adapter):
    """Fails unless the adapter finds the engine only in its own folder."""
    printed = readelf("--dynamic", adapter)
    found = re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", printed)
    if found != [("RPATH", "$ORIGIN")] or "[%s]" % ENGINE not in printed:
        text = "%s has %s and needs %s; expected RPATH $ORIGIN, and that it needs %s"
        needed = ", ".join(re.findall(r"\(NEEDED\).*\[(.*)\]", printed))
        fail(wheel, text % (os.path.basename(adapter), found or "no RPATH", needed, ENGINE))


def readelf(option, library):
    command = ["readelf", option, "--wide", library]
    return subprocess.check_output(command, universal_newlines=True)
