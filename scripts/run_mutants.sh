#!/bin/bash
# Measures how many small changes of the code ("mutants") the tests notice.
#
#   make mutants ARGS="cpp FILE... [--count N] [--seed N] [--sanitize]"
#   make mutants ARGS="python FILE... [--tests PATH]... [--only PATTERN]"
# Makes mutants in a temporary copy of the tree. A mutant is killed if a test fails or takes too long.
# The diff of each survivor is printed: a test is missing, or the mutant changes no result.
# cpp: universalmutator changes a file of the core or the CPU plan (.cc, .h or .inc); core_test judges.
#   --count N       size of the sample (40), without those that do not build, or to the same code
#   --seed N        chooses the sample (1)
#   --sanitize      compiles with the address and undefined behavior sanitizers
# python: mutmut changes the bodies of functions and runs the tests that call the function.
#   --tests PATH    test files or folders to choose from; default: those of the file's package
#   --only PATTERN  names of mutants, such as "*regions*"; default: all of the file
#   "no tests": no test calls the function in its own process. TEST_PYTHON=... replaces the Python of
#   "make test"; it needs TensorFlow, pytest and the package.
set -euo pipefail
cd "$(dirname "$0")/.." && unset PYTHONPATH
. scripts/environments.sh

language="${1:-}" files=() tests=() only="*" count=40 seed=1 preset=release
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' scripts/run_mutants.sh && exit ;;
        cpp | python) ;;
        --count | --seed | --only) declare "${1#--}=$2" && shift ;;
        --tests) tests+=("$2") && shift ;;
        --sanitize) preset=sanitized ;;
        *) if [ -f "$1" ]; then files+=("$1"); else fail "there is no file '$1'. --help lists the options."; fi ;;
    esac
    shift
done
[[ "$language" =~ ^(cpp|python)$ && ${#files[@]} -gt 0 ]] || fail "expected cpp or python, and files. --help explains."

enter_copy() { # copies all files that git knows or does not ignore
    copy="$(mktemp -d)" && trap 'rm -rf "$copy"' EXIT
    git ls-files -z --cached --others --exclude-standard |
        tar --null --ignore-failed-read -cf - -T - | tar -xf - -C "$copy"
    cd "$copy"
}

run_cpp() {
    local bin="$PWD/.venv/universalmutator/bin" file started compile_mutant test_mutant
    make_requirements .venv/universalmutator "$(find_python "3.9 3.10 3.11 3.12 3.13 3.14")" universalmutator==1.14.1
    enter_copy
    CXXFLAGS="-O1 -w" cmake --preset "$preset" -B built >cmake.log || fail "CMake failed, see above."
    ninja -C built core_test >ninja.log || fail "core_test does not compile: $(tail -20 ninja.log)"
    cp built/programs/core_test unchanged
    # Fails if a mutant does not compile, or to the same code.
    compile_mutant="ninja -C built core_test && ! cmp -s built/programs/core_test unchanged"
    test_mutant="xargs -n 1 -P $(nproc) sh -c 'built/programs/core_test --only \$0 || exit 255' < tests.txt"
    started=$SECONDS
    ./unchanged --list | xargs -n 1 -P "$(nproc)" sh -c 'started=$(date +%s%N); ./unchanged --only $0 >&2 || exit 255
        echo $(($(date +%s%N) - started)) $0' | sort -n | cut -d " " -f 2 > tests.txt # the fastest first
    for file in "${files[@]}"; do
        touch "$file"
        ! ninja -C built -n core_test | grep -q "no work to do" ||
            fail "core_test does not use $file; expected a file of the core or the CPU plan."
        rm -rf mutants
        "$bin/mutate" "$file" cpp --noCheck --mutantDir mutants > mutate.log
        (cd mutants && ls) | sort -V | shuf -n "$count" --random-source=<(yes "$seed") > sample.txt
        "$bin/analyze_mutants" "$file" "$test_mutant" --compileCommand "$compile_mutant" --numMutants 1000000 \
            --fromFile sample.txt --noShuffle --mutantDir mutants --timeout "$((60 + 10 * (SECONDS - started)))"
        "$bin/show_mutants" notkilled.txt --mutantDir mutants --sourceDir "$(dirname "$file")"
        echo "$file: $(wc -l < killed.txt) killed, $(wc -l < notkilled.txt) survived"
    done
}

declare -A tests_of=([model]=tests/model [checkpoints]=tests/checkpoints [exchange]=tests/exchange
    [_native]=tests/engine [contrib]=tests/compat [plain]=tests/compat
    [cli]="tests/exchange/test_commands.py tests/tooling/test_command_line.py tests/tooling/test_doctor.py")

run_python() {
    local mutmut="$PWD/.venv/mutmut/bin/mutmut" defaults="" file others
    [ -n "${TEST_PYTHON:-}" ] || make_tensorflow_environment
    : "${TEST_PYTHON:=$PWD/.venv/test-tf2.21/bin/python}"
    make_requirements .venv/mutmut "$TEST_PYTHON" mutmut==3.8.1
    # mutmut runs the tests in its own process, so its environment includes theirs.
    "$TEST_PYTHON" -c "import sysconfig; print(sysconfig.get_path('purelib'))" > "$(echo .venv/mutmut/lib/*/site-packages)/tests.pth"
    for file in "${files[@]#cudnn_rnn/}"; do defaults+=" ${tests_of[${file%%/*}]:-tests/api tests/ops}"; done
    [ "${#tests[@]}" -gt 0 ] || read -ra tests <<<"$defaults"
    enter_copy
    mapfile -t others < <(ls | grep -vx cudnn_rnn)
    mkdir mutants # before Python starts, as it ignores the folders of PYTHONPATH that do not exist then
    export PYTHONPATH="$copy/mutants" TF_CPP_MIN_LOG_LEVEL=3 # also for the processes that tests start
    # A fork of a process that has run TensorFlow's threads hangs: hence the server.
    printf '%s\n' "[mutmut]" source_paths=cudnn_rnn/ process_isolation=forkserver timeout_constant=60 \
        "also_copy=" "${others[@]/#/  }" "only_mutate=" "${files[@]/#/  }" \
        "pytest_add_cli_args_test_selection=" "${tests[@]/#/  }" > setup.cfg
    "$mutmut" run --max-children "$(($(nproc) < 4 ? $(nproc) : 4))" "$only"
    "$mutmut" results --all true | grep -v "not checked" > results.txt || fail "no mutant has a name like '$only'."
    sed -n 's/^ *\(.*\): survived$/\1/p' results.txt | xargs -r -n 1 "$mutmut" show
    grep -v ": killed\|: survived" results.txt || true # such as "no tests" and "timeout"
    echo "${files[*]}: $(grep -c ": killed" results.txt) killed, $(grep -c ": survived" results.txt) survived"
}

"run_$language"
