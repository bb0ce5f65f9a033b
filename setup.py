"""Builds and installs cudnn_rnn: `pip install --no-build-isolation .`

The libraries are compiled for the TensorFlow of this environment, or for those that the environment
variable CUDNN_RNN_TENSORFLOWS describes; see `build_support.py`.
"""

import atexit
import glob
import os
import shutil
import sys
import tempfile

from setuptools import Distribution, find_packages, setup
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


class Build(build):
    """Builds in a temporary folder, so that no file of an earlier build gets into a wheel."""

    def initialize_options(self):
        super().initialize_options()
        self.build_base = tempfile.mkdtemp(prefix="cudnn_rnn_build_")
        atexit.register(shutil.rmtree, self.build_base, ignore_errors=True)


class BuildLibraries(build_ext):
    """Builds the engine and its adapters to TensorFlow; none of them is a Python module."""

    def run(self):
        build_support.build_libraries(self._folder(), os.path.abspath(self.build_temp))

    def get_outputs(self):
        return glob.glob(os.path.join(self._folder(), "*"))

    def get_output_mapping(self):  # of pip install -e
        return {}

    def _folder(self):
        parent = build_support.ROOT if self.inplace else os.path.abspath(self.build_lib)
        return os.path.join(parent, "cudnn_rnn", "_libraries")


class PlatformDistribution(Distribution):
    """Tells setuptools that the package is for one platform and that `build_ext` must run."""

    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    """A wheel for one platform and any Python: the libraries call TensorFlow and never Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


def read_readme():
    with open(os.path.join(build_support.ROOT, "README.md"), encoding="utf-8") as file:
        return file.read()


setup(
    name="cudnn_rnn",
    version=build_support.package_version(),
    description="tf.contrib.cudnn_rnn for current versions of TensorFlow, on CPU and GPU",
    long_description=read_readme(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["cudnn_rnn", "cudnn_rnn.*"]),
    package_data={"cudnn_rnn": ["py.typed"]},
    include_package_data=False,
    distclass=PlatformDistribution,
    cmdclass={"build": Build, "build_ext": BuildLibraries, "bdist_wheel": Wheel},
    zip_safe=False,
    python_requires=">=3.7",
    # TensorFlow is required but not listed: it has many package names (tensorflow, tensorflow-gpu,
    # tensorflow-cpu, vendors' builds), and listing one could install a second TensorFlow over the
    # user's. The build and the import check for TensorFlow instead. No extra lists tf_keras either,
    # because each version of it requires its own TensorFlow.
    install_requires=["numpy"],
    extras_require={
        "demo": ["matplotlib", "tqdm"],
        # Of cudnn_rnn.exchange.
        "torch": ["torch", "safetensors"],
        "onnx": ["onnx", "tf2onnx"],
        "plot": ["matplotlib"],
        # Of cudnn_rnn.contrib.
        "contrib": ["tf_slim"],
        "test": ["pytest", "pytest-xdist", "hypothesis", "matplotlib", "tqdm", "tabulate"],
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: C++",
        "Operating System :: POSIX :: Linux",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
