#!/bin/bash
# Builds the explorer of the team's schedules (tests/schedules) and prints the program's path.
# With an argument, headers and sources of cudnn_rnn/cc are looked for in that folder first.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

set_up_build
build_folder=.build/schedules
changed="${1:-}"
mkdir -p "$build_folder"
flags+=(-O1 -g1 -U_FORTIFY_SOURCE -fno-pie)
[ -z "$changed" ] || flags=("-I$changed" "${flags[@]}")
{
    compile tests/schedules/{explorer,fibers,interface,main,memory}.cc
    explorer=("${objects[@]}")
    # Without the library of this sanitizer: interface.cc takes its place.
    flags+=(-fsanitize=thread)
    sources=(cudnn_rnn/cc/core/{team,team_recruiter}.cc)
    compile "${sources[@]}" tests/schedules/cases.cc
    # Of functions that both halves have, the linker keeps the first: the observed one.
    # shellcheck disable=SC2086
    $compiler "${objects[@]}" "${explorer[@]}" "${link_flags[@]}" -no-pie \
        -Wl,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock \
        -Wl,--wrap=_ZNSt6chrono3_V212steady_clock3nowEv -o "$build_folder/schedules"
} >&2
echo "$PWD/$build_folder/schedules"
