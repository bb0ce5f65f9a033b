"""Checks of a wheel that do not run it: its files, paths, symbols and how its libraries are found."""

import hashlib
import json
import os
import re
import subprocess
import tempfile
import zipfile

MAXIMUM_BYTES = 25e6

ENGINE = "libcudnn_rnn_engine.so"
LIBRARIES = "cudnn_rnn/_libraries/"
CONTENTS = re.compile(
    r"cudnn_rnn(/[a-z_]+)*/[a-z0-9_]+\.py$|cudnn_rnn/py\.typed$|cudnn_rnn-[^/]*\.dist-info/"
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


def adapter_name(description):
    """Returns the name of the adapter for a described TensorFlow."""
    minor = re.match(r"\d+\.\d+", description["version"]).group()
    return "ops_tf%s_abi%d.so" % (minor, description["cxx11_abi"])


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
    """Fails if an adapter needs a newer system than its TensorFlow, or the engine than any."""
    engine = needs_of(os.path.join(libraries, ENGINE))
    tags = re.findall(r"manylinux_(\d+)_(\d+)_", os.path.basename(wheel))
    if not tags:
        fail(wheel, "its name has no platform such as manylinux_2_28")
    promised = min((int(major), int(minor)) for major, minor in tags)
    for name, tensorflow in tensorflows.items():
        theirs = needs_of(tensorflow["library"])
        ours = needs_of(os.path.join(libraries, name))
        for library, needs in ((name, ours), (ENGINE, engine)):
            newer = [key for key in needs if needs[key] > theirs.get(key, ())]
            if newer or needs.get("GLIBC", ()) > promised:
                text = "%s needs %s; TensorFlow %s needs %s"
                texts = (library, describe(needs), tensorflow["version"], describe(theirs))
                fail(wheel, text % texts)


def needs_of(library):
    """Returns the newest symbol version that the library needs, by name: {"GLIBC": (2, 14)}."""
    needs = {}
    printed = readelf("--version-info", library).partition("Version needs section")[2]
    for name, version in re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI)_([\d.]+)", printed):
        numbers = tuple(int(number) for number in version.split("."))
        needs[name] = max(needs.get(name, numbers), numbers)
    return needs


def describe(needs):
    return ", ".join(
        "%s %s" % (name, ".".join(str(number) for number in needs[name])) for name in sorted(needs)
    )


def check_search(wheel, adapter):
    """Fails unless the adapter finds the engine in its own folder, whatever LD_LIBRARY_PATH says."""
    printed = readelf("--dynamic", adapter)
    found = re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", printed)
    if found != [("RPATH", "$ORIGIN")] or "[%s]" % ENGINE not in printed:
        text = "%s has %s and needs %s; expected RPATH $ORIGIN, and that it needs %s"
        needed = ", ".join(re.findall(r"\(NEEDED\).*\[(.*)\]", printed))
        fail(wheel, text % (os.path.basename(adapter), found or "no RPATH", needed, ENGINE))


def readelf(option, library):
    command = ["readelf", option, "--wide", library]
    return subprocess.check_output(command, universal_newlines=True)
