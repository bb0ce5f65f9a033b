#!/bin/bash
# build_trial.sh NAME [--sanitize]: builds tests/trials/NAME.cc with the core and the CPU plan, and
# prints the program's path. For --sanitize see cpp_build.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/cpp_build.sh

name="$1"
set_up_build "${@:2}"
{
    # shellcheck disable=SC2046
    compile $(list_sources CORE_SOURCES CPU_SOURCES) "tests/trials/$name.cc"
    # shellcheck disable=SC2086
    $compiler "${flags[@]}" "${objects[@]}" "${link_flags[@]}" -o "$build_folder/$name"
} >&2
echo "$PWD/$build_folder/$name"
