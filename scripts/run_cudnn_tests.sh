#!/bin/bash
# Runs the C++ tests of the cuDNN plan on the mock of cuDNN, without a GPU or TensorFlow. The mock
# is linked into the program; its shared libraries are in the folder CUDNN_RNN_MOCK_FOLDER.
#
#   run_cudnn_tests.sh [--sanitize] [NAME]
#
# --sanitize: with the address and undefined behaviour sanitizers. NAME: only the tests whose names
# contain NAME.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

options=()
if [ "${1:-}" = --sanitize ]; then
    options=(--sanitize)
    shift
fi
CUDNN_RNN_MOCK_FOLDER="$(bash scripts/build_mock_cudnn.sh "${options[@]}")"
export CUDNN_RNN_MOCK_FOLDER
set_up_build "${options[@]}"
# shellcheck disable=SC2046
compile $(list_sources CORE_SOURCES CPU_SOURCES CUDNN_SOURCES) tests/cudnn/mock/*.cc \
    tests/cudnn/{plan_harness,core_api,failing_allocations}.cc tests/fuzz/fuzz_targets.cc \
    tests/cudnn/*_test.cc tests/core/main.cc
# shellcheck disable=SC2086
$compiler "${flags[@]}" "${objects[@]}" "${link_flags[@]}" -o "$build_folder/cudnn_test"
unlock_build
run_tests_on_all_cores "$build_folder/cudnn_test" "$@"
