#!/bin/bash
# Builds a shared library without TensorFlow from the core, the CPU and cuDNN plans and a C API for
# tests and benchmarks (tests/cudnn/core_api.h), and prints its path. Needs no CUDA toolkit;
# recompiles only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

set_up_build
# shellcheck disable=SC2046 # no path holds white space
compile $(list_sources CORE_SOURCES CPU_SOURCES CUDNN_SOURCES) tests/cudnn/core_api.cc >&2
folder=.build/core-library
library="$folder/libcudnn_rnn_core.so"
mkdir -p "$folder"
# shellcheck disable=SC2086
$compiler -shared -Wl,--strip-debug,-z,defs "${objects[@]}" "${link_flags[@]}" -o "$library.new"
mv "$library.new" "$library" # whole or not at all; a process that has the old one keeps it
echo "$PWD/$library"
