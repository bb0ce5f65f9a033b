#!/bin/bash
# make demo: trains, saves and restores a character language model in its own environment. Passes
# its arguments to examples/character_language_model.py.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

check_arguments examples/demo_options.py "$@"

pythons="$TENSORFLOW_PYTHONS"
if [ "$TENSORFLOW" != "tensorflow==2.21.0" ]; then
    pythons="3.7 3.8 3.9 3.10 3.11 3.12 3.13" # pip says so where the chosen TensorFlow has no wheel
fi
python="$(find_python "$pythons")" || fail "$TENSORFLOW needs one of these Pythons: $pythons.
Found: ${PYTHON:-python3}, version $(python_version "${PYTHON:-python3}" || echo none).
Install one of them, or name it:
    make demo PYTHON=/path/to/python3.11
or with a Python 3.7 choose TensorFlow 1.15:
    make demo PYTHON=python3.7 TENSORFLOW='$TENSORFLOW_1 $TENSORFLOW_1_REQUIREMENTS'"

# shellcheck disable=SC2086 # TENSORFLOW may be several requirements
make_environment .venv/demo "$python" demo $TENSORFLOW
exec .venv/demo/bin/python examples/character_language_model.py "$@"
