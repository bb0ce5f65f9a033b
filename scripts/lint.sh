#!/bin/bash
# make lint: ruff and clang-format, of fixed versions so that every machine agrees.
# --fix (make format): changes the files instead of complaining.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environments.sh

folder=.venv/lint
requirements="ruff==0.17.5 clang-format==14.0.6"
python="$(find_python "3.8 3.9 3.10 3.11 3.12 3.13 3.14")" || fail "lint needs Python 3.8 or newer"
if [ "$(cat "$folder/requirements.stamp" 2>/dev/null)" != "$requirements" ]; then
    say "Installing $requirements"
    rm -rf "$folder"
    "$python" -m venv "$folder"
    # shellcheck disable=SC2086
    "$folder/bin/python" -m pip --disable-pip-version-check install --quiet $requirements
    printf '%s\n' "$requirements" > "$folder/requirements.stamp"
fi

cpp_files="$(find cudnn_rnn/cc tests -name '*.cc' -o -name '*.h' -o -name '*.inc')"
if [ "${1:-}" = --fix ]; then
    "$folder/bin/ruff" check --fix .
    "$folder/bin/ruff" format .
    # shellcheck disable=SC2086
    "$folder/bin/clang-format" -i $cpp_files
else
    "$folder/bin/ruff" check .
    "$folder/bin/ruff" format --check .
    # shellcheck disable=SC2086
    "$folder/bin/clang-format" --dry-run -Werror $cpp_files
    echo "lint: clean"
fi
