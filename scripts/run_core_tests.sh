#!/bin/bash
# make core-test: runs the C++ tests of the core and the CPU plan, without TensorFlow, and checks
# that their benchmark runs.
#
#   run_core_tests.sh [--sanitize | --sanitize=thread]
#
# --sanitize: with the address and undefined behaviour sanitizers.
# --sanitize=thread: only the tests of teams, with the thread sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

set_up_build "$@"
if [ "${1:-}" = --sanitize=thread ]; then # teams need nothing but the core
    # shellcheck disable=SC2046
    compile $(list_sources CORE_SOURCES) tests/core/{team_test,main}.cc
    # shellcheck disable=SC2086
    $compiler "${flags[@]}" "${objects[@]}" "${link_flags[@]}" -o "$build_folder/team_test"
    unlock_build
    run_tests_on_all_cores "$build_folder/team_test"
    exit
fi
select_core_tests
compile "${sources[@]}"
# shellcheck disable=SC2086
$compiler "${flags[@]}" "${objects[@]}" "${link_flags[@]}" -o "$build_folder/core_test"
unlock_build
run_tests_on_all_cores "$build_folder/core_test"

program="$(bash scripts/build_cpu_benchmarks.sh core_benchmark "$@")"
"$program" lstm-2x40-i7-bi-b5-t4-half --training --threads 3 --rounds 3 > "$build_folder/core_benchmark.log"
"$program" gru-2x40-b20-t4 --training --rounds 1 --predict >> "$build_folder/core_benchmark.log"
echo "the benchmark of the core runs"
