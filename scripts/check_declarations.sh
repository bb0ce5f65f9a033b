#!/bin/bash
# make declarations: compiles our declarations of CUDA and cuDNN against NVIDIA's headers.
# check_declarations.sh [INCLUDE_FOLDER]: TensorFlow's Linux wheel contains the headers, in the
# folder that tf.sysconfig.get_include() returns. Default: in the TensorFlow 2.21 of `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."

include_folder="${1:-}"
if [ -z "$include_folder" ]; then
    python=.venv/test-tf2.21/bin/python
    if [ ! -x "$python" ]; then
        echo "make declarations needs the TensorFlow that make test installs: run that first" >&2
        exit 1
    fi
    include_folder="$("$python" -W ignore -c 'import tensorflow as tf; print(tf.sysconfig.get_include())')"
fi
headers="$include_folder/third_party/gpus"
for header in cuda/include/cuda.h cudnn/include/cudnn.h; do
    if [ ! -f "$headers/$header" ]; then
        echo "check_declarations.sh: $headers has no $header." >&2
        echo "Pass the folder that tf.sysconfig.get_include() of TensorFlow 2 for Linux returns." >&2
        exit 1
    fi
done
bash scripts/cpp.sh build release "-DCUDNN_RNN_CUDA_HEADERS=$headers" declarations
echo "the declarations agree with NVIDIA's headers"
