#!/bin/bash
# make lint: runs ruff, mypy and clang-format, in pinned versions so that all machines agree.
# --fix (make format): corrects the style instead of reporting; mypy does not run.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environments.sh

folder=.venv/lint
# mypy 1.19.1 has wheels for these Pythons; no version has wheels for both 3.8 and 3.14.
python="$(find_python "3.9 3.10 3.11 3.12 3.13 3.14")" || fail "lint needs Python 3.9 or newer"
make_requirements "$folder" "$python" ruff==0.17.5 mypy==1.19.1 clang-format==14.0.6

cpp_files="$(find cudnn_rnn/cc tests benchmarks -name '*.cc' -o -name '*.h' -o -name '*.inc')"
if [ "${1:-}" = --fix ]; then
    "$folder/bin/ruff" check --fix .
    "$folder/bin/ruff" format .
    # shellcheck disable=SC2086
    "$folder/bin/clang-format" -i $cpp_files
else
    "$folder/bin/ruff" check .
    "$folder/bin/ruff" format --check .
    "$folder/bin/mypy"
    # shellcheck disable=SC2086
    "$folder/bin/clang-format" --dry-run -Werror $cpp_files
    echo "lint: clean"
fi
