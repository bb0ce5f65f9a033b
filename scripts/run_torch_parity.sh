#!/bin/bash
# make torch-parity: compares the tests' NumPy reference with PyTorch, in its own environment.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

make_torch_environment
.venv/torch/bin/python tests/programs/torch_parity.py
