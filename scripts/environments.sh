# Finds Pythons and makes virtual environments; sourced by the other scripts.
# shellcheck shell=bash

TENSORFLOW="${TENSORFLOW:-tensorflow==2.21.0}"
TENSORFLOW_PYTHONS="3.10 3.11 3.12 3.13"        # what TensorFlow 2.21 has wheels for
TENSORFLOW_1="tensorflow-gpu==1.15.5"           # the last 1.15; runs on a CPU as well
TENSORFLOW_1_REQUIREMENTS="protobuf<3.21"       # newer ones reject its generated code
TORCH="${TORCH:-torch==2.13.0}"
# What the tests of cudnn_rnn.exchange, of exported graphs and of old programs run besides.
NEIGHBOURS="$TORCH safetensors==0.8.0 onnx==1.23.2 onnxruntime==1.32.0 tf2onnx==1.17.0 tensorflow-estimator==2.15.0 tf_slim==1.1.0"
# Modules are compiled when they are first imported, and not again by every process: without its
# .pyc files, an import of TensorFlow takes 9 s instead of 4.
unset PYTHONDONTWRITEBYTECODE
BENCH_REQUIREMENTS="numpy tabulate tqdm matplotlib" # of the program that measures the peers

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf '\nError: %s\n' "$*" >&2
    exit 1
}

# Prints the version, such as 3.11, of the given Python; fails if it does not run. (A Python may
# exist without running: pyenv puts a stub on PATH for every version that it knows.)
python_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# find_python "3.10 3.11": prints the first Python of these versions that runs, or fails. Considers
# only $PYTHON, if that is set.
find_python() {
    local version candidate found pyenv_root="${PYENV_ROOT:-${HOME:-}/.pyenv}"
    local candidates=()
    if command -v pyenv >/dev/null; then
        pyenv_root="$(pyenv root)"
    fi
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON") # the user's choice, or none
    else
        candidates=(python3 python)
        for version in $1; do
            candidates+=("python$version" "$pyenv_root/versions/$version".*/bin/"python$version")
        done
    fi
    for candidate in "${candidates[@]}"; do
        found="$(python_version "$candidate")" || continue
        for version in $1; do
            if [ "$found" = "$version" ]; then
                "$candidate" -c 'import sys; print(sys.executable)'
                return 0
            fi
        done
    done
    return 1
}

# Prints a Python that can run $TENSORFLOW; ends the script if there is none.
find_tensorflow_python() {
    find_python "$TENSORFLOW_PYTHONS" || fail "$TENSORFLOW needs one of the Pythons $TENSORFLOW_PYTHONS, but none was found.
${PYTHON:+PYTHON is $PYTHON, of version $(python_version "$PYTHON" || echo unknown).
}Install one of them (on PATH, or with pyenv), or name it: PYTHON=/path/to/python3.11"
}

# check_arguments SCRIPT ARGUMENT...: ends the calling script if SCRIPT rejects the arguments or if
# they ask for help. SCRIPT needs only Python, so this happens before an environment is made.
check_arguments() {
    local script="$1" argument
    shift
    python3 "$script" "$@" || exit
    for argument in "$@"; do
        case "$argument" in -h | --help) exit 0 ;; esac
    done
}

# Prints a checksum of everything that determines what a wheel contains.
fingerprint() {
    {
        printf '%s\n' "$@"
        find CMakeLists.txt cmake setup.py build_support.py pyproject.toml MANIFEST.in README.md cudnn_rnn \
            scripts/build_wheel scripts/tensorflow_releases.py -type f \
            ! -path '*/_libraries/*' ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum
}

# make_wheel VERSION...: prints the path of a wheel for these minor versions of TensorFlow. Builds it
# if the sources changed since the last call for the same versions.
make_wheel() {
    local dist built
    dist=".build/wheel/for-$(printf '%s\n' "$@" | sha256sum | cut -c 1-8)"
    built="$(fingerprint "$@")"
    if [ "$(cat "$dist/stamp" 2>/dev/null)" != "$built" ]; then
        say "Building a wheel for TensorFlow $* (about a minute for each)" >&2
        rm -f "$dist/stamp"
        scripts/build_wheel --dist "$dist" "$@" >&2 || fail "there is no wheel; the reason is above."
        printf '%s\n' "$built" >"$dist/stamp"
    fi
    printf '%s\n' "$dist"/*.whl
}

# versions_in REQUIREMENT...: prints the minor versions of TensorFlow in pip's requirements.
versions_in() {
    local requirement
    for requirement in "$@"; do
        if [[ "$requirement" =~ ^tensorflow[a-z-]*(\[[a-z,-]+\])?==([0-9]+\.[0-9]+) ]]; then
            printf '%s\n' "${BASH_REMATCH[2]}"
        fi
    done
}

# Runs pip in the environment FOLDER.
pip_install() { # FOLDER ARGUMENT...
    # Few of the many modules that are installed are ever imported, and then Python compiles them.
    "$1/bin/python" -m pip --disable-pip-version-check install --quiet --no-compile "${@:2}"
}

# make_requirements FOLDER PYTHON REQUIREMENT...
# Makes a virtual environment with the requirements. Does nothing if a stamp in FOLDER shows that
# the last call was the same.
make_requirements() {
    local folder="$1" python="$2"
    shift 2
    local wanted="$python $*"
    if [ "$(cat "$folder/requirements.stamp" 2>/dev/null)" != "$wanted" ]; then
        say "Making $folder with Python $(python_version "$python") and $* (downloads, takes a while)"
        rm -rf "$folder"
        "$python" -m venv "$folder" || fail "cannot make a virtual environment with $python" \
            "(on Debian and Ubuntu: apt-get install python3-venv)"
        pip_install "$folder" "$@" ||
            fail "pip cannot install $* for $python; its message is above. The next run starts over."
        printf '%s\n' "$wanted" >"$folder/requirements.stamp"
    fi
}

# make_environment FOLDER PYTHON EXTRA REQUIREMENT...
# Like make_requirements, but also installs this project; repeats that only if something changed.
# One of the requirements is a TensorFlow.
#   EXTRA               a key of setup.py's extras_require, or an empty string
#   WHEEL               installs this wheel
#   WHEEL_TENSORFLOWS   without WHEEL, builds one for these versions; by default, for the one that is
#                       required
#   ONLY_REQUIREMENTS   if set, leaves the project out
make_environment() {
    local folder="$1" python="$2" extra="$3" wheel="${WHEEL:-}" versions wanted
    shift 3
    make_requirements "$folder" "$python" setuptools wheel "$@"
    [ -z "${ONLY_REQUIREMENTS:-}" ] || return 0
    if [ -z "$wheel" ]; then
        versions="${WHEEL_TENSORFLOWS:-$(versions_in "$@")}"
        [ -n "$versions" ] || fail "no version of TensorFlow is required in: $*. Name one, such as tensorflow==2.21.0"
        # shellcheck disable=SC2086 # several versions
        wheel="$(make_wheel $versions)" || exit
    fi
    wanted="$extra $(sha256sum <"$wheel")"
    if [ "$(cat "$folder/project.stamp" 2>/dev/null)" != "$wanted" ]; then
        say "Installing cudnn_rnn into $folder"
        rm -f "$folder/project.stamp"
        # First what the extra requires, then this wheel, even over another one of the same version.
        pip_install "$folder" "$wheel${extra:+[$extra]}" && pip_install "$folder" --force-reinstall --no-deps "$wheel" ||
            fail "cudnn_rnn cannot be installed into $folder; the reason is above."
        printf '%s\n' "$wanted" >"$folder/project.stamp"
    fi
}

# Makes the environment of `make test`: $TENSORFLOW, this package, pytest and $NEIGHBOURS.
make_tensorflow_environment() {
    local python
    python="$(find_tensorflow_python)" || exit
    # shellcheck disable=SC2086 # several requirements
    make_environment .venv/test-tf2.21 "$python" test $TENSORFLOW $NEIGHBOURS
}

# Makes the environment of `make test` for TensorFlow 1.15, with the given Python 3.7.
make_tensorflow_1_environment() {
    make_environment .venv/test-tf1.15 "$1" test "$TENSORFLOW_1" "$TENSORFLOW_1_REQUIREMENTS"
}

# Makes .venv/torch: PyTorch, and the requirements of the tests and benchmarks that compare with it.
make_torch_environment() {
    local python
    python="$(find_tensorflow_python)" || exit # PyTorch has wheels for the same Pythons
    # shellcheck disable=SC2086 # several requirements
    make_requirements .venv/torch "$python" $TORCH pytest $BENCH_REQUIREMENTS
}
