#!/bin/bash
# make torch-parity: the NumPy reference of the tests against PyTorch, in an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

make_torch_environment
.venv/torch/bin/python tests/torch_parity.py
