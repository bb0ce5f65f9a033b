#!/bin/bash
# check_declarations.sh INCLUDE_FOLDER: compiles cudnn_types.h against NVIDIA's own headers, which
# the include folder of TensorFlow's Linux wheel (tf.sysconfig.get_include(), 2.21) holds.
set -euo pipefail
cd "$(dirname "$0")/.."

headers="${1:?usage: check_declarations.sh INCLUDE_FOLDER}/third_party/gpus"
for header in cuda/include/cuda.h cudnn/include/cudnn.h; do
    if [ ! -f "$headers/$header" ]; then
        echo "check_declarations.sh: $headers has no $header" >&2
        exit 1
    fi
done
${CXX:-c++} -std=c++14 -fsyntax-only -Wall -Wextra -Werror -I. \
    -isystem "$headers/cuda/include" -isystem "$headers/cudnn/include" \
    tests/cudnn/declarations_check.cc
echo "the declarations agree with NVIDIA's headers"
