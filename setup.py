"""Builds and installs cudnn_rnn: `pip install --no-build-isolation .`

The op library is compiled against the TensorFlow of this environment; see `build_support.py`.
`make wheels` builds wheels for distribution.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # pip does not put it there

import build_support  # noqa: E402

try:
    from setuptools.command.build import build
except ImportError:  # setuptools before 62.4
    from distutils.command.build import build
try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

BUILD_INFO = "cudnn_rnn/_build_info.json"


class Build(build):
    """Builds in a temporary folder, so that no file of an earlier build gets into a wheel."""

    def initialize_options(self):
        super().initialize_options()
        self.build_base = tempfile.mkdtemp(prefix="cudnn_rnn_build_")
        atexit.register(shutil.rmtree, self.build_base, ignore_errors=True)


class BuildOpLibrary(build_ext):
    """Compiles the op library: a TensorFlow plug-in, not a Python extension module."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", os.sep) + ".so"  # the same name for every Python

    def build_extension(self, ext):
        build_support.build_library(
            os.path.abspath(self.get_ext_fullpath(ext.name)), os.path.abspath(self.build_temp)
        )

    def copy_extensions_to_source(self):  # pip install -e
        super().copy_extensions_to_source()
        self.copy_file(os.path.join(self.build_lib, BUILD_INFO), BUILD_INFO)


class Wheel(bdist_wheel):
    """A wheel for one platform and any Python.

    The op library calls TensorFlow and never Python, and the modules are Python for all versions.
    The file's version says which TensorFlow it is for.
    """

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


def tensorflow_label():
    """Returns the label of this environment's TensorFlow, "+tf2.21"; "" for an sdist."""
    commands = {"bdist_wheel", "dist_info", "editable_wheel", "develop", "install"}
    return build_support.find_tensorflow().version_label if commands & set(sys.argv) else ""


def version(label):
    """Returns the version of what is built: 0.2.0 of an sdist, 0.2.0+tf2.21 of a wheel.

    What is built from an sdist has the plain version, too. Otherwise pip would refuse an sdist from
    an index: its metadata would have another version than its file name.
    """
    is_sdist = os.path.exists(os.path.join(build_support.ROOT, "PKG-INFO"))
    return build_support.package_version() + ("" if is_sdist else label)


def contrib_packages(label):
    """Returns the packages that replace parts of tf.contrib for the TensorFlow of a label.

    Each tf_keras requires its own TensorFlow: without a version, pip would replace the user's.
    TensorFlow 1 has tf.contrib, and TensorFlow before 2.16 has Keras 2.
    """
    match = re.match(r"\+tf(\d+)\.(\d+)$", label)
    if not match:
        return ["tf_slim", "tf_keras"]
    release = tuple(int(number) for number in match.groups())
    if release < (2, 0):
        return []
    return ["tf_slim"] + ["tf_keras~=%d.%d.0" % release] * (release >= (2, 16))


def read_readme():
    with open(os.path.join(build_support.ROOT, "README.md"), encoding="utf-8") as file:
        return file.read()


LABEL = tensorflow_label()

setup(
    name="cudnn_rnn",
    version=version(LABEL),
    description="tf.contrib.cudnn_rnn for current versions of TensorFlow, on CPU and GPU",
    long_description=read_readme(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["cudnn_rnn", "cudnn_rnn.*"]),
    package_data={"cudnn_rnn": ["py.typed"]},
    include_package_data=False,
    ext_modules=[Extension("cudnn_rnn._cudnn_rnn_ops", sources=build_support.library_sources())],
    cmdclass={"build": Build, "build_ext": BuildOpLibrary, "bdist_wheel": Wheel},
    zip_safe=False,
    python_requires=">=3.7",
    # TensorFlow is required but not listed: it has many package names (tensorflow, tensorflow-gpu,
    # tensorflow-cpu, vendors' builds), and listing one could install a second TensorFlow over the
    # user's. The build and the import check for TensorFlow instead.
    install_requires=["numpy"],
    extras_require={
        "demo": ["matplotlib", "tqdm"],
        # Of cudnn_rnn.exchange.
        "torch": ["torch", "safetensors"],
        "onnx": ["onnx", "tf2onnx"],
        "plot": ["matplotlib"],
        # Of cudnn_rnn.contrib.
        "contrib": contrib_packages(LABEL),
        "test": ["pytest", "pytest-xdist", "hypothesis", "matplotlib", "tqdm", "tabulate"],
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: C++",
        "Operating System :: POSIX :: Linux",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
