#!/bin/bash
# make trials: runs the trials of tests/trials; see --help. They run with $TRIALS_PYTHON and
# $TRIALS_PYTHON_TF1 (this package, the tests' requirements, TensorFlow 2.21 and 1.15.5), or in the
# environments of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

check_arguments tests/trials/run.py --check "$@"
if [ -z "${TRIALS_PYTHON:-}" ]; then
    make_tensorflow_environment
    TRIALS_PYTHON="$PWD/.venv/test-tf2.21/bin/python"
fi
if [ -z "${TRIALS_PYTHON_TF1:-}" ]; then
    python="$(PYTHON='' find_python 3.7)" || fail "the trials in TensorFlow 1.15 need Python 3.7 (on PATH, or pyenv's)"
    make_tensorflow_1_environment "$python"
    TRIALS_PYTHON_TF1="$PWD/.venv/test-tf1.15/bin/python"
fi
export TRIALS_PYTHON TRIALS_PYTHON_TF1
exec "$TRIALS_PYTHON" tests/trials/run.py "$@"
