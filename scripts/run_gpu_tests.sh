#!/bin/bash
# make test-gpu: runs the tests that need a GPU. Without a GPU they fail.
#
#   scripts/run_gpu_tests.sh [--core | --tensorflow] [pytest arguments]
#   scripts/run_gpu_tests.sh --core --core-device=cpu    the core's CPU plan instead, without a GPU
#
# --core: the core without TensorFlow, against PyTorch, with $TORCH_PYTHON (needs torch with CUDA,
#   numpy and pytest). Default: an environment that is made for it.
# --tensorflow: the ops, with $TENSORFLOW_PYTHON (needs TensorFlow 2.21, this package built for it,
#   and pytest). Default: the environment of `make test`.
# Without either option, both run, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environments.sh

parts="core tensorflow"
case "${1:-}" in
    --core) parts=core; shift ;;
    --tensorflow) parts=tensorflow; shift ;;
    --core-device=cpu) parts=core ;;
esac
status=0

run_core_tests() { # PYTEST-ARGUMENT...
    local python="${TORCH_PYTHON:-}"
    if [ -z "$python" ]; then
        make_torch_environment
        python=.venv/torch/bin/python
    fi
    if [ -z "${CUDNN_RNN_CORE_LIBRARY:-}" ]; then
        CUDNN_RNN_CORE_LIBRARY="$(bash scripts/cpp.sh path release cudnn_rnn_engine)"
    fi
    export CUDNN_RNN_CORE_LIBRARY
    say "The core against PyTorch: $CUDNN_RNN_CORE_LIBRARY"
    "$python" -m pytest -p no:cacheprovider tests/gpu/test_core_*.py "$@"
}

run_tensorflow_tests() { # PYTEST-ARGUMENT...
    local python="${TENSORFLOW_PYTHON:-}"
    if [ -z "$python" ]; then
        # The extra brings the libraries of CUDA; `make test` replaces this environment by its own.
        TENSORFLOW="${TENSORFLOW/#tensorflow==/tensorflow[and-cuda]==}"
        make_tensorflow_environment
        python=.venv/test-tf2.21/bin/python
    fi
    say "The ops in TensorFlow on a GPU"
    shopt -s nullglob # there may be no tests of Keras
    local files=(tests/gpu/test_{tensorflow,keras}*.py)
    # Ours for every node: by default, other libraries' CudnnRNNV3 may stay with TensorFlow's kernels.
    export CUDNN_RNN_GPU_KERNELS=cudnn_rnn
    # Not `python -m pytest`, which would import the package from the checkout.
    "$python" -c 'import sys, pytest; sys.path[:] = [p for p in sys.path if p]; sys.exit(pytest.main())' \
        -p no:cacheprovider "${files[@]}" "$@"
}

for part in $parts; do
    "run_${part}_tests" "$@" || status=1
done
exit "$status"
