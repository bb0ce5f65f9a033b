#!/bin/bash
# make python-test: runs pytest against the installed package in TensorFlow 2.21 and, if there is a
# Python 3.7, in TensorFlow 1.15.5. Passes its arguments to pytest.
# REQUIRE_TF115=1 makes a missing Python 3.7 an error.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

run_pytest() { # NAME FOLDER PYTEST-ARGUMENT...
    local name="$1" folder="$2"
    shift 2
    say "Python tests in $name"
    # Not `python -m pytest`, which would import the package from the checkout.
    # One process for each core, but at most four, as each takes up to 1 GB. The tests of a file
    # share a process. PyTorch's threads must not spin, as the processes share the cores.
    if OMP_WAIT_POLICY=passive "$folder/bin/pytest" --numprocesses=auto --maxprocesses=4 \
        --dist=loadfile --junitxml="$folder/tests.xml" "$@"; then
        ran+=("$name: passed")
    else
        ran+=("$name: FAILED")
        status=1
    fi
}

ran=()
status=0
python_1="$(PYTHON='' find_python 3.7)" || python_1=""
# One wheel, for both.
WHEEL_TENSORFLOWS="$(versions_in "$TENSORFLOW" ${python_1:+"$TENSORFLOW_1"})"
if [ -n "$python_1" ]; then # pip uses one core
    ONLY_REQUIREMENTS=1 make_tensorflow_1_environment "$python_1" &
fi

if python="$(find_python "$TENSORFLOW_PYTHONS")"; then
    make_tensorflow_environment
    wait # so that pip does not disturb the tests
    run_pytest "$TENSORFLOW, Python $(python_version "$python")" .venv/test-tf2.21 "$@"
else
    ran+=("$TENSORFLOW: NOT RUN, it needs a Python of $TENSORFLOW_PYTHONS (on PATH, or pyenv's) and none was found")
    status=1
fi

if [ -n "$python_1" ]; then
    make_tensorflow_1_environment "$python_1"
    run_pytest "$TENSORFLOW_1, Python 3.7" .venv/test-tf1.15 "$@"
else
    ran+=("$TENSORFLOW_1: NOT RUN, it needs a Python 3.7 (python3.7 on PATH, or pyenv's) and none was found")
    if [ -n "${REQUIRE_TF115:-}" ]; then
        status=1
    fi
fi

say "What was tested"
printf '  %s\n' "${ran[@]}"
exit "$status"
