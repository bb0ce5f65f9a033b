#!/bin/bash
# Runs ruff, mypy and clang-format, in pinned versions so that all machines agree.
#
#   lint.sh                      make lint: reports
#   lint.sh --fix                make format: corrects the style instead; mypy does not run
#   lint.sh --fix TOOL FILE...   one tool on these files, for the hooks of .pre-commit-config.yaml
#
# TOOL: ruff-check, ruff-format, mypy (ignores the files) or clang-format.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environments.sh

folder=.venv/lint
# mypy 1.19.1 has wheels for these Pythons; no version has wheels for both 3.8 and 3.14.
python="$(find_python "3.9 3.10 3.11 3.12 3.13 3.14")" ||
    fail "lint needs Python 3.9 to 3.14. Install one, or name it: PYTHON=/path/to/python3.11"
make_requirements "$folder" "$python" ruff==0.17.5 mypy==1.19.1 clang-format==14.0.6

ruff_check=()
ruff_format=(--check)
clang_format=(--dry-run -Werror)
fix=""
if [ "${1:-}" = --fix ]; then
    fix=1
    ruff_check=(--fix)
    ruff_format=()
    clang_format=(-i)
    shift
fi

run_tool() { # TOOL FILE...
    local tool="$1"
    shift
    case "$tool" in
        ruff-check) "$folder/bin/ruff" check --force-exclude "${ruff_check[@]}" "$@" ;;
        ruff-format) "$folder/bin/ruff" format --force-exclude "${ruff_format[@]}" "$@" ;;
        mypy) "$folder/bin/mypy" ;;
        clang-format) "$folder/bin/clang-format" "${clang_format[@]}" "$@" ;;
        *) fail "there is no tool $tool; expected ruff-check, ruff-format, mypy or clang-format" ;;
    esac
}

if [ "$#" -gt 0 ]; then
    run_tool "$@"
    exit
fi
run_tool ruff-check .
run_tool ruff-format .
[ -n "$fix" ] || run_tool mypy
mapfile -t cpp_files < <(find cudnn_rnn/cc tests benchmarks -name '*.cc' -o -name '*.h' -o -name '*.inc')
run_tool clang-format "${cpp_files[@]}"
[ -n "$fix" ] || echo "lint: clean"
