#!/bin/bash
# Stage 2 on a GPU machine: the ops in TensorFlow 2.21. Ends within 8 minutes. Arguments are passed
# to pytest; --core-device=mock with $CUDNN_RNN_MOCK_CUDNN rehearses the stage without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
stage=stage_2_tensorflow
. scripts/gpu_stage.sh

find_or_unpack() { unpack_tensorflow && find_tensorflow; }
part tensorflow find_or_unpack || finish
in_tensorflow=(env "PYTHONPATH=$TENSORFLOW_PYTHONPATH" "LD_LIBRARY_PATH=$TENSORFLOW_LD_LIBRARY_PATH" "$TENSORFLOW_PYTHON")

write_versions "${in_tensorflow[@]}"
# With all of TensorFlow's log: if it finds no GPU, the log names the missing library.
TF_CPP_MIN_LOG_LEVEL=0 within 50 devices "${in_tensorflow[@]}" -c '
import tensorflow as tf
print(tf.__version__, tf.config.list_physical_devices("GPU"))
assert tf.config.list_physical_devices("GPU"), "TensorFlow finds no GPU"'
within 70 doctor "${in_tensorflow[@]}" -m cudnn_rnn doctor
# Ours for every node: by default, other libraries' CudnnRNNV3 may stay with TensorFlow's kernels.
export CUDNN_RNN_GPU_KERNELS=cudnn_rnn
shopt -s nullglob # there may be no tests of Keras
files=(tests/gpu/test_{tensorflow,keras}*.py)
tests=("${in_tensorflow[@]}" -m pytest --all -p no:cacheprovider -q -rs --tb=short --maxfail=30)
find_workers "${in_tensorflow[@]}"
run_tests 170 tests "${tests[@]}" "${workers[@]}" "${files[@]}" "$@"
CUDNN_RNN_ALGO=auto run_tests 60 tests_auto "${tests[@]}" "${workers[@]}" \
    tests/gpu/test_tensorflow.py::test_first_version_of_the_op "$@"
finish
