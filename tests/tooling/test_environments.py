"""scripts/environments.sh: which wheel is built and installed into an environment, and when."""

import os
import shutil
import subprocess

import pytest

from helpers.paths import ROOT

pytestmark = pytest.mark.once

# Mocks the build of a wheel, Python, and pip; each writes its arguments to the log.
SETUP = """
set -euo pipefail
. scripts/environments.sh
make_requirements() { echo "requirements ${*:3}" >>log; mkdir -p "$1"; }
pip_install() { echo "pip ${*:2}" >>log; }
"""
BUILD_WHEEL = """#!/bin/bash
echo "build ${*:3}" >>log
[ "${BUILD_FAILS:-}" = "" ] || exit 1
mkdir -p "$2"
echo "a wheel" >"$2/cudnn_rnn.whl"
"""


@pytest.fixture
def run(tmp_path):
    """Returns a function that runs bash code in a copy of the project; it returns the new log."""
    for folder in ("cmake", "cudnn_rnn/_libraries", "scripts"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (
        "CMakeLists.txt",
        "setup.py",
        "build_support.py",
        "pyproject.toml",
        "MANIFEST.in",
        "README.md",
        "scripts/tensorflow_releases.py",
        "cudnn_rnn/layers.py",
    ):
        (tmp_path / name).write_text(name)
    shutil.copy(os.path.join(ROOT, "scripts", "environments.sh"), str(tmp_path / "scripts"))
    program = tmp_path / "scripts" / "build_wheel"
    program.write_text(BUILD_WHEEL)
    program.chmod(0o755)

    def run_code(code, **variables):
        (tmp_path / "log").write_text("")
        names = ("TENSORFLOW", "WHEEL", "WHEEL_TENSORFLOWS", "ONLY_REQUIREMENTS")
        environment = {name: os.environ[name] for name in os.environ if name not in names}
        process = subprocess.run(
            ["bash", "-c", SETUP + code],
            cwd=str(tmp_path),
            env=dict(environment, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        run_code.printed, run_code.status = process.stdout, process.returncode
        return (tmp_path / "log").read_text().splitlines()

    return run_code


MAKE = "make_environment env python test tensorflow-gpu==1.15.5 'protobuf<3.21'"


def test_versions_in_requirements(run):
    requirements = "'tensorflow[and-cuda]==2.20.0' 'torch==2.1' 'tensorflow-gpu==1.15.5'"
    run("versions_in 'tensorflow==2.21.0' %s 'protobuf<3.21'" % requirements)
    assert run.printed.split() == ["2.21", "2.20", "1.15"] and run.status == 0


def test_a_wheel_is_built_once_for_the_same_sources(run, tmp_path):
    log = run(MAKE)
    assert log[0] == "requirements setuptools wheel tensorflow-gpu==1.15.5 protobuf<3.21"
    assert log[1] == "build 1.15"
    assert log[2].endswith(".whl[test]") and log[3].startswith("pip --force-reinstall --no-deps")
    assert len(run(MAKE)) == 1  # only the requirements, which are there as well
    (tmp_path / "cudnn_rnn" / "_libraries" / "ops.so").write_text("of pip install -e")
    assert len(run(MAKE)) == 1
    (tmp_path / "cudnn_rnn" / "layers.py").write_text("changed")
    # The wheel is the same, here.
    assert run(MAKE)[1:] == ["build 1.15"]


def test_environments_share_a_wheel(run):
    """As the test environments do."""
    variables = {"WHEEL_TENSORFLOWS": "2.21\n1.15"}
    assert run(MAKE, **variables)[1] == "build 2.21 1.15"
    log = run("make_environment env2 python '' tensorflow==2.21.0", **variables)
    assert [line.split()[0] for line in log] == ["requirements", "pip", "pip"]


def test_a_given_wheel_is_installed(run, tmp_path):
    wheel = tmp_path / "given.whl"
    wheel.write_text("given")
    log = run(MAKE, WHEEL=str(wheel))
    assert log[1:] == ["pip %s[test]" % wheel, "pip --force-reinstall --no-deps %s" % wheel]
    wheel.write_text("another one")
    assert len(run(MAKE, WHEEL=str(wheel))) == 3


def test_only_requirements(run):
    assert len(run(MAKE, ONLY_REQUIREMENTS="1")) == 1


def test_a_failing_build_ends_the_script(run):
    log = run(MAKE + "; echo not reached", BUILD_FAILS="1")
    assert run.status != 0 and "not reached" not in run.printed and log[-1] == "build 1.15"
    assert run(MAKE)[1] == "build 1.15"  # the next run builds again


def test_a_requirement_without_version_is_refused(run):
    run("make_environment env python '' tensorflow")
    assert run.status != 0
    assert "no version of TensorFlow is required in: tensorflow. Name one" in run.printed
