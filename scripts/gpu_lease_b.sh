#!/bin/bash
# Lease B, the ops in TensorFlow 2.21. The parts take at most 7 minutes 10 seconds. Arguments are passed
# to pytest; --core-device=mock with $CUDNN_RNN_MOCK_CUDNN rehearses the lease without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
lease=lease_b
. scripts/gpu_lease.sh
unpacked="${TENSORFLOW_FOLDER:-${TMPDIR:-/tmp}/tensorflow-for-gpu}"

# Unpacks the pieces of TensorFlow unless that is done. Python's tarfile: the machine may lack xz.
unpack() { # PIECES FOLDER
    [ ! -d "$2/tensorflow" ] || return 0
    cd "$1" && sha256sum --quiet -c SHA256SUMS || return 1
    rm -rf "$2.new"
    mkdir -p "$2.new"
    cat tensorflow.tar.xz.* | "$TORCH_PYTHON" -W ignore -c '
import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1])' "$2.new" || return 1
    mv "$2.new" "$2"
}
export -f unpack
within 60 tensorflow bash -c 'unpack "$@"' unpack "${TENSORFLOW_PIECES:-$packed/../tensorflow}" "$unpacked" || finish

# TensorFlow runs in processes with their own PYTHONPATH and folders of libraries.
export TENSORFLOW_PYTHON="${TENSORFLOW_PYTHON:-$TORCH_PYTHON}"
export TENSORFLOW_PYTHONPATH="$packed/site:$unpacked"
library_path="$unpacked.library_path"
within 15 libraries bash -c '"$TENSORFLOW_PYTHON" scripts/gpu_libraries.py "$1" empty_library.so > "$2"' \
    libraries "$unpacked" "$library_path" || finish
TENSORFLOW_LD_LIBRARY_PATH="$(cat "$library_path")"
export TENSORFLOW_LD_LIBRARY_PATH CUDA_MODULE_LOADING=LAZY
in_tensorflow=(env "PYTHONPATH=$TENSORFLOW_PYTHONPATH" "LD_LIBRARY_PATH=$TENSORFLOW_LD_LIBRARY_PATH" "$TENSORFLOW_PYTHON")

within 25 versions "${in_tensorflow[@]}" scripts/gpu_versions.py "$results/versions.json"
# With all of TensorFlow's log: if it finds no GPU, the log names the missing library.
TF_CPP_MIN_LOG_LEVEL=0 within 35 devices "${in_tensorflow[@]}" -c '
import tensorflow as tf
print(tf.__version__, tf.config.list_physical_devices("GPU"))
assert tf.config.list_physical_devices("GPU"), "TensorFlow finds no GPU"'
within 60 doctor "${in_tensorflow[@]}" -m cudnn_rnn doctor
# Ours for every node: by default, other libraries' CudnnRNNV3 may stay with TensorFlow's kernels.
export CUDNN_RNN_GPU_KERNELS=cudnn_rnn
set_tests "${in_tensorflow[@]}"
# Three processes: an import of TensorFlow takes longer than most tests, and the GPU has room for all.
PYTEST_XDIST_AUTO_NUM_WORKERS="$((processors < 8 ? 1 : 3))" run_tests 120 tests "${tests[@]}" --maxfail=30 tests/gpu/test_{tensorflow,keras}*.py "$@"
CUDNN_RNN_ALGO=auto run_tests 40 tests_auto "${tests[@]}" \
    tests/gpu/test_tensorflow.py::test_first_version_of_the_op "$@"
run_benchmark 75 45 core cudnn tensorflow
finish
