#!/bin/bash
# make torch-parity: the NumPy reference of the tests against PyTorch, in an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

python="$(find_python "$TENSORFLOW_PYTHONS")" || fail "PyTorch needs one of these Pythons: $TENSORFLOW_PYTHONS"
make_requirements .venv/torch "$python" "${TORCH:-torch==2.13.0}" numpy
.venv/torch/bin/python tests/torch_parity.py
