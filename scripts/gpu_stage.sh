# Sourced by gpu_stage_*.sh: sets the paths on a GPU machine, either in a .gpu/ that pack_for_gpu.sh
# made or in a checkout that has one, and the folder of the results.
# shellcheck shell=bash

if [ -f PACKED ]; then
    packed="$PWD"
else
    packed="$PWD/.gpu"
    [ -f "$packed/PACKED" ] || {
        echo "There is no .gpu/: run scripts/pack_for_gpu.sh on a machine that can build." >&2
        exit 1
    }
fi
export CUDNN_RNN_CORE_LIBRARY="$packed/libcudnn_rnn_core.so"
export TORCH_PYTHON="${TORCH_PYTHON:-python3}"
export PYTHONUNBUFFERED=1
results="${OUT:-$packed/results}/$stage"
mkdir -p "$results"
status=0

# within SECONDS NAME COMMAND...: runs the command for at most SECONDS, with output to
# results/NAME.log, and shows the end of the log. After a failure, sets status and goes on.
within() {
    local seconds="$1" name="$2" code=0
    shift 2
    printf '\n== %s (at most %d s)\n' "$name" "$seconds"
    timeout -k 10 "$seconds" "$@" > "$results/$name.log" 2>&1 || code=$?
    tail -n 25 "$results/$name.log"
    [ "$code" != 124 ] || echo "$name: stopped after $seconds s"
    echo "$name: exit status $code"
    echo "$name $code" >> "$results/status.txt"
    [ "$code" = 0 ] || status=1
}

write_versions() { # PYTHON-COMMAND...
    timeout -k 5 40 "$@" scripts/gpu_versions.py "$results/versions.json"
}

# Finds the unpacked TensorFlow; fails if there is none. Sets the Python that runs TensorFlow in its
# own process, its PYTHONPATH and the folders of the libraries that TensorFlow opens.
find_tensorflow() {
    tensorflow_folder="${TENSORFLOW_FOLDER:-${TMPDIR:-/tmp}/tensorflow-for-gpu}"
    [ -d "$tensorflow_folder/tensorflow" ] || return 1
    local stubs="$tensorflow_folder/stubs"
    TENSORFLOW_PYTHONPATH="$packed/site:$tensorflow_folder"
    TENSORFLOW_LD_LIBRARY_PATH="$stubs:$("$TORCH_PYTHON" -c '
import glob, os, sys
folders = [f for entry in sys.argv[1:] + sys.path for f in sorted(glob.glob(os.path.join(entry, "nvidia", "*", "lib")))]
print(":".join(folders))' "$tensorflow_folder")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export TENSORFLOW_PYTHONPATH TENSORFLOW_LD_LIBRARY_PATH
    export TENSORFLOW_PYTHON="${TENSORFLOW_PYTHON:-$TORCH_PYTHON}"
}

# Unpacks the pieces of pack_for_gpu.sh --tensorflow ($TENSORFLOW_PIECES: their folder), and makes
# empty stubs of the CUDA 12 libraries that TensorFlow needs only to register a GPU. TensorFlow's
# own matrix products and transforms then fail on the GPU; its RNN kernels do not use them.
unpack_tensorflow() {
    local pieces="${TENSORFLOW_PIECES:-$packed/tensorflow}"
    tensorflow_folder="${TENSORFLOW_FOLDER:-${TMPDIR:-/tmp}/tensorflow-for-gpu}"
    if [ ! -d "$tensorflow_folder/tensorflow" ]; then
        [ -f "$pieces/SHA256SUMS" ] || {
            echo "TensorFlow is neither in $tensorflow_folder nor, in pieces, in $pieces" >&2
            return 1
        }
        (cd "$pieces" && sha256sum --quiet -c SHA256SUMS) || return 1
        rm -rf "$tensorflow_folder.new"
        mkdir -p "$tensorflow_folder.new"
        cat "$pieces"/tensorflow.tar.xz.* | tar -xJ -C "$tensorflow_folder.new" || return 1
        mv "$tensorflow_folder.new" "$tensorflow_folder"
    fi
    mkdir -p "$tensorflow_folder/stubs"
    local name
    for name in libcublas.so.12 libcublasLt.so.12 libcufft.so.11 libcusolver.so.11 libcusparse.so.12; do
        [ -e "$tensorflow_folder/stubs/$name" ] ||
            echo | gcc -shared -fPIC -Wl,-soname,"$name" -x c - -o "$tensorflow_folder/stubs/$name" ||
            return 1
    done
}

finish() {
    printf '\n== %s: ' "$stage"
    [ "$status" = 0 ] && echo "passed" || echo "FAILED"
    cat "$results/status.txt"
    echo "results: $results"
    exit "$status"
}
