#!/bin/bash
# Builds the mock of the CUDA driver and cuDNN (tests/cudnn/mock/mock_cudnn.h) as shared
# libraries:
#   libmock_cudnn.so          opened by tests/cudnn and the Python tests
#   libmock_cudnn_named.so    has cuDNN's name for the loader, libcudnn.so.9
#   libmock_cudnn_8.so        has the name libcudnn.so.8 and reports version 8.9.7
#   libmock_cudnn_old.so      has the name libcudnn.so.7 and reports version 7.6.5
#   libmock_cudnn_missing.so  lacks cudnnRNNBackwardWeights_v8
#   libcudnn_*.so.*           the parts of the real cuDNN 8 and 9 that RNNs need, all empty, linked
#                             against one another like the real ones
# Prints the folder of the libraries. --sanitize: with the address and undefined behaviour
# sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

set_up_build "$@"
version=tests/cudnn/mock/version.cc
# shellcheck disable=SC2046
compile $(list_sources CORE_SOURCES CPU_SOURCES) tests/cudnn/mock/*.cc >&2
shared=()
for object in "${objects[@]}"; do
    [ "$object" = "$(object_of "$version")" ] || shared+=("$object")
done

compile_version() { # NAME FLAG...
    local name="$1"
    shift
    # shellcheck disable=SC2086
    $compiler "${flags[@]}" "$@" -c "$version" -o "$build_folder/$name.o"
}
compile_version version_9 '-DCUDNN_RNN_MOCK_PART="libcudnn_graph.so.9"'
compile_version version_8 '-DCUDNN_RNN_MOCK_PART="libcudnn_ops_infer.so.8"' \
    -DCUDNN_RNN_MOCK_DEFAULT_VERSION=8907
compile_version version_7 -DCUDNN_RNN_MOCK_DEFAULT_VERSION=7605

# The parts are in the folder of the library that loads them.
shared_flags=("${flags[@]}" -shared -Wl,-rpath,\$ORIGIN)

link() { # NAME VERSION-OBJECT EXPORTS FLAG...
    local name="$1" version_object="$build_folder/$2.o" exports="$3"
    shift 3
    echo "$exports" > "$build_folder/$name.map"
    # shellcheck disable=SC2086
    $compiler "${shared_flags[@]}" "-Wl,--version-script=$build_folder/$name.map" -Wl,-Bsymbolic \
        "$@" "${shared[@]}" "$version_object" "${link_flags[@]}" -o "$build_folder/$name.so"
}

all='{ global: cu*; mock_*; local: *; };'
link libmock_cudnn version_9 "$all"
link libmock_cudnn_named version_9 "$all" -Wl,-soname,libcudnn.so.9
link libmock_cudnn_missing version_9 \
    '{ global: cu*; mock_*; local: cudnnRNNBackwardWeights_v8; *; };'
link libmock_cudnn_8 version_8 "$all" -Wl,-soname,libcudnn.so.8
link libmock_cudnn_old version_7 "$all" -Wl,-soname,libcudnn.so.7

link_part() { # NAME NEEDED...
    local name="$1"
    shift
    # shellcheck disable=SC2086
    $compiler "${shared_flags[@]}" "-Wl,-soname,$name" -x c++ /dev/null "${link_flags[@]}" \
        -Wl,--no-as-needed "-L$build_folder" "${@/#/-l:}" -o "$build_folder/$name"
}
link_part libcudnn_graph.so.9
link_part libcudnn_ops.so.9 libcudnn_graph.so.9
link_part libcudnn_adv.so.9 libcudnn_ops.so.9 libcudnn_graph.so.9
link_part libcudnn_ops_infer.so.8
link_part libcudnn_ops_train.so.8 libcudnn_ops_infer.so.8
link_part libcudnn_adv_infer.so.8 libcudnn_ops_infer.so.8
link_part libcudnn_adv_train.so.8 libcudnn_ops_infer.so.8 libcudnn_ops_train.so.8 libcudnn_adv_infer.so.8
echo "$PWD/$build_folder"
