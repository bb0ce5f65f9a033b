#!/bin/bash
# make pack-gpu: makes .gpu/ with all that the two leases of a GPU machine need, and a README that says
# what to send and to run. Needs no GPU. docs/gpu/README.md describes the leases.
#
#   scripts/pack_for_gpu.sh [--without-tensorflow]
#
# --without-tensorflow: only .gpu/run, without TensorFlow for lease B, which takes some minutes.
# $TENSORFLOW_PYTHON: a Python with TensorFlow 2.21, for which the libraries are built. Default: the
#   environment of `make test`, which is made if needed.
# $GPU_PYTHON_VERSION: the Python of the GPU machine (3.12). $GPU_ARCHITECTURE: the compute capability
#   of its GPU without the dot (90, for H100 and H200). $GPU_PIECE_MB: the size of a piece (51).
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

case "$*" in
    "") with_tensorflow=1 ;;
    --without-tensorflow) with_tensorflow="" ;;
    *) fail "unknown arguments $*; expected --without-tensorflow, or nothing. See the head of $0." ;;
esac
[ "$(uname -m)" = x86_64 ] || fail "the libraries are for x86-64, but this machine is $(uname -m)"
machine_python="${GPU_PYTHON_VERSION:-3.12}" architecture="${GPU_ARCHITECTURE:-90}"
piece_mb="${GPU_PIECE_MB:-51}" # with the checkout, less than an upload of 64 MB

target=.gpu/run
rm -rf "$target"
mkdir -p "$target/site"

say "Engine, its tests and its benchmark for CPUs"
for program in cudnn_rnn_engine core_test core_benchmark; do
    cp "$(bash scripts/cpp.sh path release "$program")" "$target/"
done
# Copied by gpu_libraries.py under the names of libraries that the GPU machine lacks.
echo | ${CXX:-c++} -shared -fPIC -nostdlib -x c++ - -o "$target/empty_library.so"

say "Libraries for $TENSORFLOW"
tensorflow_python="${TENSORFLOW_PYTHON:-}"
if [ -z "$tensorflow_python" ]; then
    make_tensorflow_environment
    tensorflow_python=.venv/test-tf2.21/bin/python
fi
find cudnn_rnn -name '*.py' -exec cp --parents {} "$target/site" ';'
"$tensorflow_python" - "$target/site/cudnn_rnn/_libraries" <<'PY'
import sys
sys.path.insert(0, ".")
import build_support
build_support.build_libraries(sys.argv[1], ".build/libraries-for-gpu")
PY

say "Tests, benchmarks, scripts"
"$tensorflow_python" -m pip --disable-pip-version-check install --quiet --no-deps --target "$target/tools" tabulate tqdm
cp -r --parents tests/{conftest.py,helpers,gpu} benchmarks scripts/{gpu_*,record_gpu_run.py} "$target/"
find "$target" -name __pycache__ -prune -exec rm -rf {} +
{
    git describe --always --dirty 2>/dev/null || echo "not from git"
    date -u +%Y-%m-%d
} > "$target/PACKED"

# Makes .gpu/tensorflow: what TensorFlow needs for the tests, without the code for other GPUs.
pack_tensorflow() {
    local python site work pieces="$PWD/.gpu/tensorflow"
    python="$(PYTHON='' find_python "$machine_python")" || fail "lease B needs Python $machine_python here," \
        "because the GPU machine has that version. Install it, name the machine's with GPU_PYTHON_VERSION," \
        "or leave TensorFlow out: make pack-gpu ARGS=--without-tensorflow"
    say "TensorFlow for Python $machine_python (downloads 1 GB, then compresses for some minutes)"
    work="$(mktemp -d)"
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$work'" EXIT
    site="$work/site"
    "$python" -m venv "$work/venv"
    # shellcheck disable=SC2086 # TENSORFLOW may be several requirements
    pip_install "$work/venv" --target "$site" $TENSORFLOW nvidia-cuda-runtime-cu12
    # numpy is the machine's. Our tests import nothing of the rest.
    rm -rf "$site"/{numpy,numpy.libs,h5py,h5py.libs,grpc,clang,bin,pip,setuptools,pkg_resources,wheel} \
        "$site"/tensorflow/{include,compiler/tf2xla/ops/_xla_ops.so,compiler/mlir/stablehlo/stablehlo_extension.so} \
        "$site"/nvidia/*/include
    find "$site" -type d \( -name __pycache__ -o -name tests \) -prune -exec rm -rf {} +
    find "$site" -name '*.a' -delete
    # An import of TensorFlow imports this library, of 80 MB, but only its profiler calls it.
    rm "$site"/tensorflow/python/profiler/internal/_pywrap_profiler_plugin.so
    touch "$site"/tensorflow/python/profiler/internal/_pywrap_profiler_plugin.py
    python3 scripts/keep_gpu_code.py "$architecture" "$site"/tensorflow/libtensorflow_{cc,framework}.so.2
    find "$site" -name '*.so*' -type f -size +1M -exec strip --strip-unneeded {} +
    rm -rf "$pieces"
    mkdir "$pieces"
    tar -C "$site" -cf - . | xz -T0 --memlimit-compress=50% --x86 --lzma2=preset=9e -c | split -d -a 2 -b "${piece_mb}M" - "$pieces/tensorflow.tar.xz."
    (cd "$pieces" && sha256sum tensorflow.tar.xz.* > SHA256SUMS)
}
[ -z "$with_tensorflow" ] || pack_tensorflow

parts_of() { # LEASE: prints its parts, each with its limit in seconds
    sed -nE 's/^.*\b(within|run_tests) ([0-9]+) (\w+) .*$/\3 \2/p; s/^.*run_benchmark ([0-9]+) .*$/benchmark \1/p' \
        "scripts/gpu_lease_$1.sh" | paste -sd, | sed 's/,/, /g'
}

cat > .gpu/README.md <<README
# cudnn_rnn on a GPU machine, $(head -n 1 "$target/PACKED")

- The machine: Linux on x86-64; python3 with PyTorch for CUDA, numpy, pytest and matplotlib; no network. Lease B: Python $machine_python, compute capability $architecture.
- Lease A, the core without TensorFlow. Send \`run\` ($(du -sm "$target" | cut -f1) MB). Run \`bash run/scripts/gpu_lease_a.sh\`, in the folder that contains \`run\`.
- Its parts, with their limits in seconds: $(parts_of a).
- Lease B, the ops in TensorFlow. Send \`run\` and \`tensorflow\` ($(du -sm .gpu/tensorflow 2>/dev/null | cut -f1 || echo "not packed, 0") MB; one piece after the other, if uploads are small). Run \`bash run/scripts/gpu_lease_b.sh\`.
- Its parts, with their limits in seconds: $(parts_of b).
- Other places: \`OUT\` names another folder for results than \`run/results\`, \`TENSORFLOW_PIECES\` another than \`tensorflow\`.
- Bring back \`run/results/lease_a\` and \`lease_b\`: at most 8 files each, of less than 16 MB, written as the lease goes on. A lease that is cut keeps what it has written.
- Read \`log.txt\`, or \`status.txt\` with each part's exit status and seconds. \`python3 run/scripts/record_gpu_run.py results docs\` makes a page of the folder that contains both.
README
say "Packed"
du -sm .gpu/* "$target"/* | sort -k 2
