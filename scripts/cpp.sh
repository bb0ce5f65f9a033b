#!/bin/bash
# Builds C++ with CMake and runs its tests. CMakePresets.json describes the presets, cmake/ the targets.
#
#   cpp.sh build PRESET [-DVARIABLE=VALUE...] TARGET...   builds the targets
#   cpp.sh path PRESET [-DVARIABLE=VALUE...] TARGET       also prints the path of the program, the
#                                                         engine, or the folder of mock_cudnn
#   cpp.sh test PRESET PROGRAM [PART]                     builds a test program and runs its tests,
#                                                         those whose names match the regular
#                                                         expression PART
#
# $CXX is the compiler, MAX_JOBS the number of compilers at a time. Several calls may run at a time.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    printf 'cpp.sh: %s\n' "$*" >&2
    exit 1
}

command="${1:-}" preset="${2:-}"
case "$command" in
    build | path | test) [ "$#" -ge 3 ] || fail "$command needs a preset and a target. See the head of $0." ;;
    *) fail "the command is '$command'; expected build, path or test. See the head of $0." ;;
esac
shift 2
options=()
while [[ "${1:-}" = -D* ]]; do
    options+=("$1")
    shift
done

for program in cmake ninja; do
    command -v "$program" >/dev/null ||
        fail "there is no $program. Install it: apt-get install cmake ninja-build, or pip install cmake ninja."
done
presets="$(sed -n 's/^ *"name": "\(.*\)",$/\1/p' CMakePresets.json | paste -sd " ")"
[[ " $presets " = *" $preset "* ]] || fail "the preset is '$preset'; expected one of: $presets."
# Another checkout can use the objects that ccache keeps of this one.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# Objects of each compiler are apart.
folder=".build/$preset${CXX:+-${CXX//[^[:alnum:]+]/-}}"

build() { # TARGET...
    local log="$folder/build.log" jobs="${MAX_JOBS:-$(nproc)}"
    mkdir -p "$folder"
    exec 9>"$folder/lock" # tests that run side by side build the same targets
    flock 9
    if ! { cmake --preset "$preset" -B "$folder" "${options[@]}" &&
        cmake --build "$folder" --parallel "$jobs" --target "$@"; } >"$log" 2>&1 9>&-; then
        cat "$log" >&2
        fail "preset $preset, targets $*: the build failed, see above."
    fi
    grep -A 3 "warning:" "$log" >&2 || true
    exec 9>&-
}

run_tests() { # PROGRAM [PART]
    local log="$folder/$1.log" part="${2:-}"
    # The dot ends the program's name in that of a test.
    if ! ctest --test-dir "$folder" --parallel "$(nproc)" --output-on-failure --no-tests=error \
        --label-regex "^$1\$" --tests-regex "\\..*$part" >"$log" 2>&1; then
        grep -vE ' Passed +[0-9.]+ sec$|^ +Start ' "$log" >&2
        fail "preset $preset: tests of $1${part:+ whose names contain $part} failed, see above." \
            "$folder/programs/$1 PART runs some in one process."
    fi
    echo "$(grep -c ' Passed ' "$log") passed"
}

case "$command" in
    build) build "$@" ;;
    test)
        build "$1"
        run_tests "$@"
        ;;
    path)
        build "$1"
        case "$1" in
            mock_cudnn) echo "$PWD/$folder/mock" ;;
            cudnn_rnn_engine) echo "$PWD/$folder/libraries/libcudnn_rnn_engine.so" ;;
            failing_*) echo "$PWD/$folder/programs/$1.so" ;;
            *) echo "$PWD/$folder/programs/$1" ;;
        esac
        ;;
esac
