#!/bin/bash
# Builds the mock of the CUDA driver and cuDNN (tests/cudnn/mock/mock_cudnn.h) as shared
# libraries:
#   libmock_cudnn.so          opened by tests/cudnn and the Python tests
#   libmock_cudnn_named.so    has cuDNN's name for the loader, libcudnn.so.9
#   libmock_cudnn_old.so      reports version 7.6.5
#   libmock_cudnn_missing.so  lacks cudnnRNNBackwardWeights_v8
#   libcudnn_adv.so.9         empty; with the real cuDNN 9, it computes RNNs
# Prints the folder of the libraries. --sanitize: with the address and undefined behaviour
# sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

set_up_build "$@"
version=tests/cudnn/mock/version.cc
# shellcheck disable=SC2046
compile $(list_sources CORE_SOURCES CPU_SOURCES) tests/cudnn/mock/*.cc >&2

link() { # NAME VERSION-SCRIPT OBJECT...
    local name="$1" exports="$2"
    shift 2
    echo "$exports" > "$build_folder/$name.map"
    # shellcheck disable=SC2086
    $compiler "${flags[@]}" -shared "-Wl,--version-script=$build_folder/$name.map" -Wl,-Bsymbolic \
        "$@" "${link_flags[@]}" -o "$build_folder/$name.so"
}

exports='cu*; mock_*;'
link libmock_cudnn "{ global: $exports local: *; };" "${objects[@]}"
link libmock_cudnn_named "{ global: $exports local: *; };" "${objects[@]}" \
    -Wl,-soname,libcudnn.so.9
link libmock_cudnn_missing "{ global: $exports local: cudnnRNNBackwardWeights_v8; *; };" \
    "${objects[@]}"
old_version="$build_folder/old_version.o"
# shellcheck disable=SC2086
$compiler "${flags[@]}" -DCUDNN_RNN_MOCK_DEFAULT_VERSION=7605 -c "$version" -o "$old_version"
others=()
for object in "${objects[@]}"; do
    [ "$object" = "$(object_of "$version")" ] || others+=("$object")
done
link libmock_cudnn_old "{ global: $exports local: *; };" "${others[@]}" "$old_version"
# shellcheck disable=SC2086
$compiler "${flags[@]}" -shared -x c++ /dev/null "${link_flags[@]}" \
    -o "$build_folder/libcudnn_adv.so.9"
echo "$PWD/$build_folder"
