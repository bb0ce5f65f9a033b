"""The TensorFlow releases that cudnn_rnn is tested with, and their headers.

`RELEASES` is the only list of these releases. To compile for a release, `unpack` takes the headers
and the library from its wheel: neither TensorFlow nor a Python of its age has to be installed. The
headers of all releases take 3 GB in .build/tensorflow.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import List, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(ROOT)

import build_support  # noqa: E402

FOLDER = os.path.join(ROOT, ".build", "tensorflow")
# A folder in which the user keeps TensorFlow's wheels. Without it, a wheel is deleted once it is
# unpacked.
WHEELS_VARIABLE = "TENSORFLOW_WHEELS"


class Release(NamedTuple):
    """A release of TensorFlow, the Python to test it in, and what to install for that."""

    tensorflow: str
    python: str
    requirements: List[str]

    @property
    def minor(self):
        return minor_version(self.tensorflow)


# Old releases set no upper bounds on their requirements.
RELEASES = [
    Release("1.14.0", "3.7", ["tensorflow==1.14.0", "protobuf<3.21", "gast<0.3", "h5py<3"]),
    Release("1.15.0", "3.7", ["tensorflow==1.15.0", "protobuf<3.21", "h5py<3", "numpy<1.20"]),
    Release("1.15.5", "3.7", ["tensorflow-gpu==1.15.5", "protobuf<3.21"]),
    Release("2.0.4", "3.7", ["tensorflow==2.0.4", "protobuf<3.21", "h5py<3", "numpy<1.20"]),
    Release("2.1.4", "3.7", ["tensorflow-cpu==2.1.4", "protobuf<3.21", "h5py<3", "numpy<1.20"]),
    Release("2.2.3", "3.8", ["tensorflow-cpu==2.2.3", "protobuf<3.21", "h5py<3", "numpy<1.20"]),
    Release("2.3.4", "3.8", ["tensorflow-cpu==2.3.4", "protobuf<3.21"]),
    Release("2.4.4", "3.8", ["tensorflow==2.4.4", "protobuf<3.21"]),
    Release("2.5.3", "3.9", ["tensorflow-cpu==2.5.3", "protobuf<3.21"]),
    Release("2.6.5", "3.9", ["tensorflow-cpu==2.6.5", "protobuf<3.21"]),
    Release("2.7.4", "3.9", ["tensorflow-cpu==2.7.4", "protobuf<3.21", "numpy<2"]),
    Release("2.8.4", "3.8", ["tensorflow==2.8.4", "protobuf<3.21"]),
    Release("2.9.3", "3.10", ["tensorflow==2.9.3", "numpy<2"]),
    Release("2.10.1", "3.10", ["tensorflow==2.10.1", "numpy<2"]),
    Release("2.11.1", "3.10", ["tensorflow-cpu==2.11.1", "numpy<2"]),
    Release("2.12.1", "3.11", ["tensorflow==2.12.1", "numpy<2"]),
    Release("2.13.1", "3.11", ["tensorflow==2.13.1"]),
    Release("2.14.1", "3.11", ["tensorflow-cpu==2.14.1", "numpy<2"]),
    Release("2.15.1", "3.11", ["tensorflow==2.15.1"]),
    Release("2.16.2", "3.11", ["tensorflow==2.16.2"]),
    Release("2.17.1", "3.11", ["tensorflow==2.17.1"]),
    Release("2.18.1", "3.11", ["tensorflow==2.18.1"]),
    Release("2.19.1", "3.11", ["tensorflow==2.19.1"]),
    Release("2.20.0", "3.12", ["tensorflow==2.20.0"]),
    Release("2.21.0", "3.11", ["tensorflow==2.21.0"]),
    Release("2.21.0", "3.13", ["tensorflow==2.21.0"]),
]

MACHINES = ("x86_64", "aarch64")
# For ARM, a package of another name has the wheels before 2.16. It has no 2.11.1.
_OLDEST_FOR_ARM, _OLDEST_UNDER_ITS_NAME_FOR_ARM = (2, 10), (2, 16)
_OTHER_RELEASES_FOR_ARM = {"2.11": "2.11.0"}
# The oldest with a package that has no GPU kernels and is therefore smaller.
_OLDEST_WITH_CPU_PACKAGE = (2, 1)

# The glibc of the systems that a wheel is for, in pip's names.
_PLATFORMS = {
    "x86_64": ["manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_27"],
    "aarch64": ["manylinux2014", "manylinux_2_17", "manylinux_2_27"],
}
# In a wheel, before and after 2.1.
_WANTED = re.compile(
    r"(?:[^/]+\.data/(?:purelib|platlib)/)?tensorflow(?:_core)?/"
    r"(include/.*[^/]|libtensorflow_framework\.so\.\d+)$"
)
# Part of a symbol's name if the standard library's strings have the C++11 ABI.
_NEW_ABI = b"ToStringB5cxx11"


def minor_version(version):
    """Returns "2.21" of "2.21.0"."""
    return re.match(r"\d+\.\d+", version).group()


def newest_of_each_minor(machine="x86_64"):
    """Returns a dict from each minor version to its newest release with a wheel for `machine`.

    The first of several Pythons is chosen.
    """
    newest = {}
    for release in RELEASES:
        if machine == "aarch64" and _numbers(release.tensorflow) < _OLDEST_FOR_ARM:
            continue
        found = newest.get(release.minor)
        if found is None or found.tensorflow != release.tensorflow:
            newest[release.minor] = release
    return newest


def chosen(names, machine="x86_64"):
    """Returns the newest release of each minor version in `names`, oldest first; all for no names.

    `names` may have patch releases as well: "2.21.0" chooses 2.21. Raises `SystemExit` for a name
    that is not in the list.
    """
    known = newest_of_each_minor(machine)
    wanted = set()
    for name in names:
        match = re.match(r"(\d+\.\d+)(\.\d+)?$", name)
        if match is None or match.group(1) not in known:
            raise SystemExit(
                "TensorFlow %s is not in the list for %s; expected one or more of: %s. To compile "
                "for it, add it to RELEASES in scripts/tensorflow_releases.py."
                % (name, machine, ", ".join(known))
            )
        wanted.add(match.group(1))
    return [release for minor, release in known.items() if not names or minor in wanted]


def unpack(release, python, machine="x86_64"):
    """Unpacks the headers and the library of a release; returns the path of their description.

    Does nothing that an earlier call has done. The description is what setup.py reads: see
    cmake/adapters.cmake.

    Args:
      release: a `Release`.
      python: path of a Python with pip, which downloads.
      machine: one of MACHINES.
    """
    package, version = _package_for(release, machine)
    folder = os.path.join(FOLDER, "%s-%s" % (version, machine))
    if not os.path.exists(folder):
        os.makedirs(FOLDER, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as temporary:
            wheel = _find_wheel(package, version, machine)
            if wheel is None:
                downloads = os.environ.get(WHEELS_VARIABLE) or os.path.join(temporary, "wheels")
                _download(package, version, release.python, python, machine, downloads)
                wheel = _find_wheel(package, version, machine, downloads)
            print("Unpacking the headers of TensorFlow %s ..." % version, flush=True)
            whole = os.path.join(temporary, "whole")
            _extract(wheel, whole)
            os.rename(whole, folder)
    description = folder + ".json"
    with tempfile.NamedTemporaryFile("w", dir=FOLDER, delete=False) as file:
        json.dump(_describe(folder, version, machine), file, indent=2)
    os.rename(file.name, description)
    return description


def _numbers(version):
    return tuple(int(number) for number in version.split(".")[:2])


def _package_for(release, machine):
    """Returns the name and the version of the package whose wheel has the headers."""
    numbers = _numbers(release.tensorflow)
    if machine == "x86_64":
        has_cpu_package = numbers >= _OLDEST_WITH_CPU_PACKAGE
        return "tensorflow-cpu" if has_cpu_package else "tensorflow", release.tensorflow
    if numbers >= _OLDEST_UNDER_ITS_NAME_FOR_ARM:
        return "tensorflow", release.tensorflow
    version = _OTHER_RELEASES_FOR_ARM.get(release.minor, release.tensorflow)
    return "tensorflow-cpu-aws", version


def _find_wheel(package, version, machine, folder=None):
    """Returns the path of the wheel, for any Python, in `folder` or the user's; None without it."""
    folder = folder or os.environ.get(WHEELS_VARIABLE)
    pattern = re.compile(
        r"%s-%s-.*_%s\.whl$" % (package.replace("-", "_"), re.escape(version), machine)
    )
    for name in sorted(os.listdir(folder)) if folder and os.path.isdir(folder) else []:
        if pattern.match(name):
            return os.path.join(folder, name)
    return None


def _download(package, version, for_python, python, machine, folder):
    print("Downloading the wheel of %s %s ..." % (package, version), flush=True)
    digits = for_python.replace(".", "")
    command = [python, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--dest", folder]
    command += ["--implementation", "cp", "--python-version", for_python]
    command += ["--abi", "cp%s%s" % (digits, "m" if digits == "37" else "")]
    for platform in _PLATFORMS[machine]:
        command += ["--platform", "%s_%s" % (platform, machine)]
    if subprocess.call(command + ["%s==%s" % (package, version)]) != 0:
        raise SystemExit(
            "pip cannot download %s %s for Python %s on %s; the reason is above. If you have the "
            "wheel, name its folder in the environment variable %s."
            % (package, version, for_python, machine, WHEELS_VARIABLE)
        )


def _extract(wheel, folder):
    """Writes the headers and libtensorflow_framework of a wheel to a folder."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            match = _WANTED.match(name)
            if match is None:
                continue
            path = os.path.join(folder, *match.group(1).split("/"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(name) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)
    if not os.path.isdir(os.path.join(folder, "include")):
        raise SystemExit("%s has no folder include; expected a wheel of TensorFlow." % wheel)


def _library_in(folder):
    (name,) = [name for name in os.listdir(folder) if name.startswith("libtensorflow_framework")]
    return os.path.join(folder, name)


def _describe(folder, version, machine):
    """Returns the description of the TensorFlow in the folder, as a dict."""
    library = _library_in(folder)
    with open(library, "rb") as file:
        has_new_abi = _NEW_ABI in file.read()
    numbers = _numbers(version)
    return {
        "version": version,
        # One library serves all patch releases.
        "git_version": None,
        "cxx11_abi": int(has_new_abi),
        "cxx_standard": build_support.standard_of_release(version),
        "include_folders": [os.path.join(folder, "include")],
        # What `tf.sysconfig.get_compile_flags()` defines besides the ABI.
        "definitions": ["EIGEN_MAX_ALIGN_BYTES=64"] if numbers >= (2, 6) else [],
        "library": library,
        "machine": machine,
    }
