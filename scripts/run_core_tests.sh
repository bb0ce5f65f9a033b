#!/bin/bash
# make core-test: the C++ tests of the core and the CPU plan, without TensorFlow.
# --sanitize: with the address and undefined behaviour sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=.build/core-tests
ask() { python3 -c "import build_support; print('\n'.join($1))"; }

sources="$(ask 'build_support.library_sources(["CORE_SOURCES", "CPU_SOURCES"])')"
mapfile -t flags < <(ask 'build_support.read_build_lists()["COMPILE_FLAGS"]')
flags+=(-std=c++14 -I. -pthread)
if [ "${1:-}" = --sanitize ]; then
    folder=.build/core-tests-sanitized
    flags+=(-Werror -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
fi
compiler="${CXX:-c++}"
mkdir -p "$folder"

# Only what changed: an object is newer than its source, every header and the flags.
newest_header="$(find cudnn_rnn/cc tests/core -name '*.h' -o -name '*.inc' -o -name '*.bzl' | xargs ls -t | head -1)"
objects=()
for source in $sources tests/core/*.cc; do
    object="$folder/${source//\//_}.o"
    objects+=("$object")
    if [ ! "$object" -nt "$source" ] || [ ! "$object" -nt "$newest_header" ] ||
        [ ! "$object" -nt scripts/run_core_tests.sh ]; then
        printf '%s\0%s\0' "$source" "$object"
    fi
done > "$folder/todo"
xargs -0 -r -n 2 -P "$(nproc)" sh -c '
    compiler="$1"; shift; flags="$1"; shift
    echo "compiling $1"
    $compiler $flags -c "$1" -o "$2"' compile "$compiler" "${flags[*]}" < "$folder/todo"
# shellcheck disable=SC2086
$compiler "${flags[@]}" "${objects[@]}" -o "$folder/core_test"
"$folder/core_test"
