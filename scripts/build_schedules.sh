#!/bin/bash
# build_schedules.sh [FOLDER]: builds the explorer of the team's schedules (tests/schedules) and
# prints the program's path. With FOLDER: builds there, of the team in FOLDER/cudnn_rnn/cc/core.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

set_up_build
folder="${1:-}"
build_folder=.build/schedules
mkdir -p "$build_folder"
flags+=(-Werror -g1 -U_FORTIFY_SOURCE -fno-pie)
{
    compile tests/schedules/{explorer,fibers,interface,main,memory}.cc
    explorer=("${objects[@]}")
    if [ -n "$folder" ]; then
        build_folder="$folder"
        flags=("-I$folder" "${flags[@]}")
        folder+=/
    fi
    # Without the library of this sanitizer: interface.cc takes its place.
    flags+=(-O1 -fsanitize=thread)
    compile "$folder"cudnn_rnn/cc/core/{team,team_recruiter}.cc tests/schedules/cases.cc
    # Of functions that both halves have, the linker keeps the first: the observed one.
    # shellcheck disable=SC2086
    $compiler "${objects[@]}" "${explorer[@]}" "${link_flags[@]}" -no-pie \
        -Wl,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock \
        -Wl,--wrap=_ZNSt6chrono3_V212steady_clock3nowEv -o "$build_folder/schedules"
} >&2
case "$build_folder" in
/*) echo "$build_folder/schedules" ;;
*) echo "$PWD/$build_folder/schedules" ;;
esac
