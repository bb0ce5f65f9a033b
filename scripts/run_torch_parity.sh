#!/bin/bash
# make torch-parity: compares the tests' NumPy reference with PyTorch, with $TORCH_PYTHON (needs torch
# and numpy) or in an environment that is made for it.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

if [ -z "${TORCH_PYTHON:-}" ]; then
    make_torch_environment
    TORCH_PYTHON=.venv/torch/bin/python
fi
"$TORCH_PYTHON" tests/programs/torch_parity.py
