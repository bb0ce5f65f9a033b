# Sourced in the project's folder by the scripts that build C++ without TensorFlow, which share one
# set of flags and one folder of objects.

# set_up_build [--sanitize[=thread]]: sets build_folder, compiler, flags and link_flags.
# --sanitize: with the address and undefined behaviour sanitizers; --sanitize=thread: with the thread
# sanitizer. Locks the folder until `unlock_build` or the end of the script, as tests that run side by
# side build the same objects.
set_up_build() {
    build_folder=.build/cpp
    compiler="${CXX:-c++}"
    if ! command -v "${compiler%% *}" >/dev/null; then
        echo "There is no C++ compiler $compiler. Install g++ 8 or newer, or set CXX to your compiler." >&2
        exit 1
    fi
    mapfile -t flags < <(python3 -c "
import build_support
print('\n'.join(build_support.core_compile_flags()))")
    link_flags=(-pthread -ldl)
    local sanitizers=""
    case "${1:-}" in
        --sanitize) sanitizers=address,undefined build_folder=.build/cpp-sanitized ;;
        --sanitize=thread) sanitizers=thread build_folder=.build/cpp-thread-sanitized ;;
    esac
    [ -z "${CXX:-}" ] || build_folder+="-${CXX//[^[:alnum:]+]/-}" # objects of each compiler
    if [ -n "$sanitizers" ]; then
        flags+=(-Werror -O1 -g1 "-fsanitize=$sanitizers" -fno-sanitize-recover=all -fno-omit-frame-pointer)
        link_flags+=("-fsanitize=$sanitizers")
    fi
    mkdir -p "$build_folder"
    exec 9>"$build_folder/lock"
    flock 9
}

unlock_build() { exec 9>&-; }

# list_sources NAME...: prints the sources in these lists of sources.bzl.
list_sources() {
    python3 -c '
import sys
import build_support
print("\n".join(build_support.library_sources(sys.argv[1:])))' "$@"
}

# select_core_tests: sets sources to those of the core, the CPU plan and their tests. Replaces
# sources that use bfloat16 instructions this processor lacks by emulations, and adds their flags.
select_core_tests() {
    mapfile -t sources < <(list_sources CORE_SOURCES CPU_SOURCES)
    local feature source emulated=()
    for feature in avx512_bf16 amx_bf16; do
        if grep -qsw avx512bw /proc/cpuinfo && ! grep -qsw "$feature" /proc/cpuinfo; then
            emulated+=("$feature")
            flags+=("-DCUDNN_RNN_EMULATES_${feature^^}")
        fi
    done
    if [ "${#emulated[@]}" -gt 0 ]; then
        echo "emulated, as this processor lacks it: ${emulated[*]}"
        for source in tests/core/emulated/*.cc; do
            sources=("${sources[@]/#cudnn_rnn\/cc\/cpu\/$(basename "$source")/$source}")
        done
    fi
    sources+=(tests/core/*.cc)
}

# object_of SOURCE: prints the path of its object.
object_of() { echo "$build_folder/${1//\//_}.o"; }

# compile SOURCE...: sets objects, and compiles each object that is not newer than its source, all
# headers and the files that set the flags.
compile() {
    local source object newest
    # shellcheck disable=SC2012 # no name holds white space
    newest="$(find cudnn_rnn/cc tests build_support.py scripts/cpp_build.sh -name '*.h' -o -name '*.inc' \
        -o -name '*.bzl' -o -name build_support.py -o -name cpp_build.sh | xargs ls -t | head -1)"
    objects=()
    for source in "$@"; do
        object="$(object_of "$source")"
        objects+=("$object")
        if [ ! "$object" -nt "$source" ] || [ ! "$object" -nt "$newest" ]; then
            printf '%s\0%s\0' "$source" "$object"
        fi
    done > "$build_folder/todo"
    xargs -0 -r -n 2 -P "$(nproc)" python3 scripts/compile_object.py "$compiler" "${flags[@]}" \
        < "$build_folder/todo"
}

# run_tests_on_all_cores PROGRAM [NAME]: runs the tests whose names contain NAME, each in a process.
run_tests_on_all_cores() {
    local names
    names="$("$1" --list | grep -F -- "${2:-}")" || {
        echo "FAILED: no test has a name that contains '$2'." >&2
        return 1
    }
    if ! xargs -n 1 -P "$(nproc)" "$1" --only <<<"$names"; then
        echo "FAILED, see above. To run only the tests whose names contain NAME: $1 NAME" >&2
        return 1
    fi
    echo "$(wc -l <<<"$names") passed"
}
