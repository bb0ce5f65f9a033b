#!/bin/bash
# make pack-gpu: makes .gpu/ with everything that a bare GPU machine needs to test and measure this
# project: the core library, the package with the op library for TensorFlow 2.21, tests, benchmarks
# and the scripts gpu_stage_*.sh. The machine must be x86-64 and have PyTorch with CUDA, pytest and,
# for the plots, tqdm and matplotlib. docs/gpu/README.md describes the next steps.
#
#   scripts/pack_for_gpu.sh [--tensorflow [PIECE_MB]]
#
# --tensorflow: also makes .gpu-tensorflow/ with TensorFlow 2.21 and the CUDA runtime for Python
#   $GPU_PYTHON_VERSION (3.12), for a machine that can install nothing, as tensorflow.tar.xz.00, .01,
#   ... of PIECE_MB (40) megabytes. Takes some minutes.
# $TENSORFLOW_PYTHON: a Python with TensorFlow 2.21, for which the op library is built. Default: the
#   environment of `make test`, which is made if needed.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

with_tensorflow=""
piece_mb=40 # with the checkout, less than an upload of 64 MB
if [ "${1:-}" = --tensorflow ]; then
    with_tensorflow=1
    piece_mb="${2:-$piece_mb}"
elif [ -n "${1:-}" ]; then
    fail "unknown argument $1; expected --tensorflow [PIECE_MB], or nothing. See the head of $0."
fi
[ "$(uname -m)" = x86_64 ] || fail "the libraries are for x86-64, but this machine is $(uname -m)"

target=.gpu
mkdir -p "$target"

say "Core library"
cp "$(bash scripts/build_core_library.sh)" "$target/"

# Copied by gpu_libraries.py under the names of libraries that the GPU machine lacks.
echo | ${CXX:-c++} -shared -fPIC -nostdlib -x c++ - -o "$target/empty_library.so"

say "Op library for $TENSORFLOW"
tensorflow_python="${TENSORFLOW_PYTHON:-}"
if [ -z "$tensorflow_python" ]; then
    make_tensorflow_environment
    tensorflow_python=.venv/test-tf2.21/bin/python
fi
rm -rf "$target/site"
mkdir -p "$target/site"
find cudnn_rnn -name '*.py' -exec cp --parents {} "$target/site" ';'
"$tensorflow_python" - "$target/site/cudnn_rnn/_cudnn_rnn_ops.so" <<'PY'
import sys
sys.path.insert(0, ".")
import build_support
build_support.build_library(sys.argv[1], ".build/op-library-for-gpu")
PY

say "Tests, benchmarks, scripts"
rm -rf "$target/tools"
"$tensorflow_python" -m pip --disable-pip-version-check install --quiet --no-deps --target "$target/tools" tabulate
rm -rf "$target"/{tests,benchmarks,scripts}
cp -r --parents tests/{conftest.py,helpers,gpu} benchmarks scripts "$target/"
find "$target" -name __pycache__ -prune -exec rm -rf {} +
{
    git describe --always --dirty 2>/dev/null || echo "not from git"
    date -u +%Y-%m-%d
} > "$target/PACKED"

if [ -n "$with_tensorflow" ]; then
    version="${GPU_PYTHON_VERSION:-3.12}"
    python="$(PYTHON='' find_python "$version")" || fail "--tensorflow needs Python $version here," \
        "because the GPU machine has that version. Install it, or name the machine's: GPU_PYTHON_VERSION=3.11"
    say "TensorFlow for Python $version (downloads about 1 GB, then compresses for some minutes)"
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    site="$work/site"
    "$python" -m venv "$work/venv"
    # The numpy that TensorFlow is tested with here; the machine's may be newer.
    numpy="numpy==$("$tensorflow_python" -c 'import numpy; print(numpy.__version__)')"
    # shellcheck disable=SC2086 # TENSORFLOW may be several requirements
    pip_install "$work/venv" --target "$site" $TENSORFLOW "$numpy" nvidia-cuda-runtime-cu12
    # Running a graph needs no headers, compilers or tests.
    rm -rf "$site"/tensorflow/include "$site"/clang "$site"/bin "$site"/pip "$site"/setuptools \
        "$site"/pkg_resources
    find "$site" -type d \( -name __pycache__ -o -name tests \) -prune -exec rm -rf {} +
    # Not the libraries that wheels bundle, whose layout strip may break.
    find "$site" -name '*.so*' -not -path '*.libs/*' -type f -size +4M -exec strip --strip-unneeded {} \; 2>/dev/null || true
    pieces=.gpu-tensorflow
    rm -rf "$pieces"
    mkdir "$pieces"
    tar -C "$site" -cf - . | xz -T0 -6 -c |
        split -d -a 2 -b "${piece_mb}M" - "$pieces/tensorflow.tar.xz."
    (cd "$pieces" && sha256sum tensorflow.tar.xz.* > SHA256SUMS)
    du -sh "$pieces"/*
fi

say "Packed"
du -sh "$target"/* | sort -k 2
