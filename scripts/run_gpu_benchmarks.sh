#!/bin/bash
# make bench-gpu: measures our kernels against bare cuDNN, torch.nn and TensorFlow's own kernels.
# See --help. $TORCH_PYTHON (torch with CUDA, numpy, tabulate, tqdm, matplotlib) and $TENSORFLOW_PYTHON
# (TensorFlow and this package) choose the Pythons; by default, environments are made.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environments.sh

check_arguments benchmarks/arguments.py gpu "$@"

if [ -z "${TORCH_PYTHON:-}" ]; then
    make_torch_environment
    TORCH_PYTHON="$PWD/.venv/torch/bin/python"
fi
if [ -z "${TENSORFLOW_PYTHON:-}" ]; then
    make_tensorflow_environment
    TENSORFLOW_PYTHON="$PWD/.venv/test-tf2.21/bin/python"
fi
if [ -z "${CUDNN_RNN_CORE_LIBRARY:-}" ]; then
    CUDNN_RNN_CORE_LIBRARY="$(bash scripts/cpp.sh path release cudnn_rnn_engine)"
fi
export TENSORFLOW_PYTHON TORCH_PYTHON CUDNN_RNN_CORE_LIBRARY
exec "$TORCH_PYTHON" benchmarks/run.py gpu "$@"
