#!/bin/bash
# Compiles the core with both plans, CPU and cuDNN, and its C API (cudnn_rnn/cc/cudnn/c_api.h) into
# one shared library without TensorFlow, and prints its path. Needs no CUDA toolkit; compiles again
# only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=.build/core-library
library="$folder/libcudnn_rnn_core.so"
ask() { python3 -c "import build_support; print('\n'.join($1))"; }

sources="$(ask 'build_support.library_sources(["CORE_SOURCES", "CPU_SOURCES", "CUDNN_SOURCES"])')"
mapfile -t flags < <(ask 'build_support.read_build_lists()["COMPILE_FLAGS"]')
flags+=(-std=c++14 -DNDEBUG -I. -pthread)
compiler="${CXX:-c++}"
mkdir -p "$folder"

# Only what changed: an object is newer than its source, every header and the flags.
newest_header="$(find cudnn_rnn/cc -name '*.h' -o -name '*.inc' -o -name '*.bzl' | xargs ls -t | head -1)"
objects=()
for source in $sources; do
    object="$folder/${source//\//_}.o"
    objects+=("$object")
    if [ ! "$object" -nt "$source" ] || [ ! "$object" -nt "$newest_header" ] ||
        [ ! "$object" -nt scripts/build_core_library.sh ]; then
        printf '%s\0%s\0' "$source" "$object"
    fi
done > "$folder/todo"
if [ -s "$folder/todo" ] || [ ! -e "$library" ]; then
    xargs -0 -r -n 2 -P "$(nproc)" sh -c '
        compiler="$1"; shift; flags="$1"; shift
        echo "compiling $1" >&2
        $compiler $flags -c "$1" -o "$2"' compile "$compiler" "${flags[*]}" < "$folder/todo"
    # shellcheck disable=SC2086
    $compiler -shared -pthread -Wl,--strip-debug,-z,defs "${objects[@]}" -ldl -o "$library.new"
    mv "$library.new" "$library" # whole or not at all; a process that has the old one keeps it
fi
echo "$PWD/$library"
