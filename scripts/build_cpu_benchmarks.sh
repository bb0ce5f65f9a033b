#!/bin/bash
# build_cpu_benchmarks.sh core_benchmark|read_bandwidth [--sanitize]: builds the program of
# benchmarks/cpu and prints its path. For --sanitize see cpp_build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

name="${1:-}"
[ "$#" = 0 ] || shift
set_up_build "$@"
program="$build_folder/$name"
{
    # shellcheck disable=SC2046
    case "$name" in
        core_benchmark) compile $(list_sources CORE_SOURCES CPU_SOURCES) benchmarks/cpu/core_benchmark.cc ;;
        read_bandwidth)
            flags+=(-O3 -march=native) # with the widest vectors
            compile benchmarks/cpu/read_bandwidth.cc
            ;;
        *)
            echo "build_cpu_benchmarks.sh: the program is '$name'; expected core_benchmark or read_bandwidth"
            exit 1
            ;;
    esac
    # shellcheck disable=SC2086
    $compiler "${flags[@]}" "${objects[@]}" "${link_flags[@]}" -o "$program"
} >&2
echo "$PWD/$program"
