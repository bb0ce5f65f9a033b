# Sourced by gpu_stage_*.sh in the folder that contains scripts/: sets the paths on a GPU machine and
# the folder of the results, and goes to the .gpu/ that pack_for_gpu.sh made. That is the folder
# itself or, in a checkout, one in it.
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
cd "$packed" || exit 1
export CUDNN_RNN_CORE_LIBRARY="$packed/libcudnn_rnn_core.so"
export TORCH_PYTHON="${TORCH_PYTHON:-python3}"
export PYTHONUNBUFFERED=1
# Plugins of pytest that happen to be on the machine may import anything.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
results="${OUT:-$packed/results}/$stage"
# One log for all parts: a machine may return only a few files.
log="$results/log.txt"
mkdir -p "$results"
rm -f "$results/tests.jsonl"
: > "$log"
: > "$results/status.txt"
status=0
factor="${TIME_FACTOR:-1}" # a rehearsal may be slower

# part NAME COMMAND...: runs the command, which may be a function, with output to the log, and shows
# the end of the output. A failure is written to status.txt and does not stop the stage.
part() {
    local name="$1" code=0 before
    shift
    printf '\n== %s\n' "$name" | tee -a "$log"
    before="$(wc -c < "$log")"
    "$@" >> "$log" 2>&1 || code=$?
    tail -c "+$((before + 1))" "$log" | tail -n 25
    echo "$name: exit status $code"
    echo "$name $code" >> "$results/status.txt"
    [ "$code" = 0 ] || status=1
    return "$code"
}

# within SECONDS NAME COMMAND...: a part that is interrupted after SECONDS, so that pytest writes its
# summary, and killed if it goes on.
within() {
    local seconds="$(($1 * factor))" name="$2"
    shift 2
    part "$name" timeout -s INT -k 15 "$seconds" "$@"
}

# run_tests SECONDS NAME COMMAND...: a part whose command is pytest. Records each test at once. In the
# last 20 seconds no test starts. A test that hangs for 75 seconds ends its process.
run_tests() {
    local seconds="$1" name="$2"
    shift 2
    within "$seconds" "$name" "$@" --records="$results/tests.jsonl" --part="$name" \
        --seconds="$(((seconds - 20) * factor))" --test-seconds="$((75 * factor))"
}

# find_workers PYTHON-COMMAND...: sets workers to pytest's arguments for running the tests in worker
# processes, $PYTEST_XDIST_AUTO_NUM_WORKERS or 1, if that Python has pytest-xdist. If a test ends its
# process, the next one gets a new process.
export PYTEST_XDIST_AUTO_NUM_WORKERS=1
find_workers() {
    workers=()
    if "$@" -c 'import xdist' 2>/dev/null; then
        workers=(-p xdist.plugin -n auto --max-worker-restart=30)
    fi
}

write_versions() { # PYTHON-COMMAND...
    within 35 versions "$@" scripts/gpu_versions.py "$results/versions.json"
}

tensorflow_folder="${TENSORFLOW_FOLDER:-${TMPDIR:-/tmp}/tensorflow-for-gpu}"

# Unpacks the pieces of pack_for_gpu.sh --tensorflow ($TENSORFLOW_PIECES: their folder) unless that
# is done.
unpack_tensorflow() {
    local pieces="${TENSORFLOW_PIECES:-$(dirname "$packed")/.gpu-tensorflow}"
    [ ! -d "$tensorflow_folder/tensorflow" ] || return 0
    [ -f "$pieces/SHA256SUMS" ] || {
        echo "TensorFlow is neither in $tensorflow_folder nor, in pieces, in $pieces."
        return 1
    }
    (cd "$pieces" && sha256sum --quiet -c SHA256SUMS) || return 1
    rm -rf "$tensorflow_folder.new"
    mkdir -p "$tensorflow_folder.new"
    # Python's tarfile: the machine may lack xz.
    cat "$pieces"/tensorflow.tar.xz.* | timeout 80 "$TORCH_PYTHON" -W ignore -c '
import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1])' "$tensorflow_folder.new" || return 1
    mv "$tensorflow_folder.new" "$tensorflow_folder"
}

# Finds the unpacked TensorFlow; fails if there is none. Sets the Python that runs TensorFlow in its
# own process, its PYTHONPATH and the folders of the libraries that TensorFlow opens; reports these.
find_tensorflow() {
    [ -d "$tensorflow_folder/tensorflow" ] || return 1
    export TENSORFLOW_PYTHON="${TENSORFLOW_PYTHON:-$TORCH_PYTHON}"
    export TENSORFLOW_PYTHONPATH="$packed/site:$tensorflow_folder"
    TENSORFLOW_LD_LIBRARY_PATH="$(timeout 30 "$TENSORFLOW_PYTHON" scripts/gpu_libraries.py "$tensorflow_folder" \
        empty_library.so)" || return 1
    export TENSORFLOW_LD_LIBRARY_PATH
    # The wheels have no code for the newest GPUs: kernels are compiled when first used, and kept.
    export CUDA_MODULE_LOADING=LAZY CUDA_CACHE_MAXSIZE=4294967296
}

finish() {
    printf '\n== %s: ' "$stage"
    [ "$status" = 0 ] && echo "passed" || echo "FAILED"
    cat "$results/status.txt"
    echo "results: $results"
    exit "$status"
}
