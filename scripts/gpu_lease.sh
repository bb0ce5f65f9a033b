# Sourced by gpu_lease_*.sh in the folder that pack_for_gpu.sh made; sets the paths and the folder of
# the results. Every part of a lease is cut after its time, and a failure does not stop the others.
# $PARTS, if set, names the only parts to run; results of the others are kept.
# shellcheck shell=bash

[ -f PACKED ] || {
    echo "$PWD is not packed: run \`make pack-gpu\`, then the script of the same name in .gpu/run." >&2
    exit 1
}
packed="$PWD"
export CUDNN_RNN_CORE_LIBRARY="$packed/libcudnn_rnn_engine.so"
export TORCH_PYTHON="${TORCH_PYTHON:-python3}"
processors="$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" # nproc obeys these variables
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
export PYTHONUNBUFFERED=1
# Plugins of pytest that happen to be on the machine may import anything.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
results="${OUT:-$packed/results}/$lease"
# One log for all parts: a machine may return only a few files.
log="$results/log.txt"
[ -n "${PARTS:-}" ] || rm -rf "$results"
mkdir -p "$results"
touch "$log" "$results/status.txt"
status=0
seen="" # names of the parts that the lease has reached
factor="${TIME_FACTOR:-1}" # a rehearsal may be slower

# is_chosen NAME: whether $PARTS lets this part run. Remembers that the lease has reached it.
is_chosen() {
    seen+=" $1 "
    case " ${PARTS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
}

# within SECONDS NAME COMMAND...: runs the command with output to the log, interrupts it after SECONDS
# so that pytest writes its summary, and kills it if it goes on. Shows the end of the output, and
# writes the exit status and the seconds to status.txt.
within() {
    local limit="$(($1 * factor))" name="$2" code=0 before began="$SECONDS"
    shift 2
    is_chosen "$name" || return 0
    printf '\n== %s\n' "$name" | tee -a "$log"
    before="$(wc -c < "$log")"
    timeout -s INT -k "$((5 * factor))" "$limit" "$@" >> "$log" 2>&1 || code=$?
    tail -c "+$((before + 1))" "$log" | tail -n 25
    echo "$name: exit status $code after $((SECONDS - began)) s"
    echo "$name $code $((SECONDS - began))" >> "$results/status.txt"
    [ "$code" = 0 ] || status=1
    return "$code"
}

# leave_out REASON NAME...: records that chosen parts are not run.
leave_out() {
    local name
    for name in "${@:2}"; do
        is_chosen "$name" || continue
        printf '\n== %s\nNOT RUN: %s\n' "$name" "$1" | tee -a "$log"
        echo "$name not_run 0" >> "$results/status.txt"
    done
}

# run_tests SECONDS NAME COMMAND...: a part whose command is pytest. Records each test at once. In the
# last 8 seconds no test starts. A test that takes two thirds of the time ends its process.
run_tests() {
    local seconds="$1" name="$2"
    shift 2
    within "$seconds" "$name" "$@" --records="$results/tests.jsonl" --part="$name" \
        --seconds="$(((seconds - 8) * factor))" --test-seconds="$((seconds * 2 / 3 * factor))"
}

# set_tests PYTHON-COMMAND...: sets in_process to the command that runs pytest in that Python, and tests
# to the same with worker processes, $PYTEST_XDIST_AUTO_NUM_WORKERS or 1, if it has pytest-xdist. If a
# test ends its process, the next one then gets a new process. Workers get one test after the other, as
# the first tests are the most telling.
export PYTEST_XDIST_AUTO_NUM_WORKERS=1
set_tests() {
    in_process=("$@" -m pytest --all -p no:cacheprovider -q -rs --tb=short)
    tests=("${in_process[@]}")
    if "$@" -c 'import xdist' 2>/dev/null; then
        tests+=(-p xdist.plugin -n auto --maxschedchunk=1 --max-worker-restart=30)
    fi
}

# run_benchmark SECONDS BUDGET PEER...: $rehearses: on tiny models without a GPU. The logs of the
# peers go to the log. $BENCHMARK_SECONDS, if set, replaces SECONDS, to measure all models.
run_benchmark() {
    local seconds="${BENCHMARK_SECONDS:-$1}" budget options=()
    budget="$(((seconds - $1 + $2) * factor))"
    shift 2
    [ -z "$rehearses" ] || options=(--device cpu --quick)
    rm -rf worker_logs
    PYTHONPATH="$packed/tools${PYTHONPATH:+:$PYTHONPATH}" within "$seconds" benchmark "$TORCH_PYTHON" \
        benchmarks/run.py gpu --peers "$@" --seconds 1.5 --time-budget "$budget" \
        --answer-seconds "$((20 * factor))" --output "$results" --logs worker_logs "${options[@]}"
    tail -n 30 worker_logs/* >> "$log" 2>/dev/null
}

rehearses=""
case "$*" in
    *--core-device=mock*)
        rehearses=1
        export CUDNN_RNN_BENCHMARK_CUDNN="$CUDNN_RNN_MOCK_CUDNN"
        ;;
esac

finish() {
    local name
    for name in ${PARTS:-}; do
        case "$seen" in *" $name "*) continue ;; esac
        echo "PARTS NAMES $name, WHICH DID NOT COME UP. The parts of $lease are in ../README.md." | tee -a "$log"
        status=1
    done
    printf '\n== %s: ' "$lease"
    [ "$status" = 0 ] && echo "all parts passed, $SECONDS s" || echo "NOT ALL PARTS PASSED, $SECONDS s"
    cat "$results/status.txt"
    echo "results: $results"
    exit "$status"
}
