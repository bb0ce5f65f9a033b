#!/bin/bash
# Lease A, the core without TensorFlow. The parts take at most 7 minutes 10 seconds. Arguments are
# passed to pytest; --core-device=mock with $CUDNN_RNN_MOCK_CUDNN rehearses the lease without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
lease=lease_a
. scripts/gpu_lease.sh

within 20 versions "$TORCH_PYTHON" scripts/gpu_versions.py "$results/versions.json"
set_tests "$TORCH_PYTHON"
tests+=(-m 'not persistent and not fills_memory') # before the last part

passes=1
if ! run_tests 40 smoke "${tests[@]}" tests/gpu/test_core_smoke.py "$@"; then
    echo "THE SMOKE TEST FAILED, see above: doubt what follows." | tee -a "$log"
    grep -qs '"event": "passed"' "$results/tests.jsonl" || passes=""
fi
run_tests 40 first_questions "${tests[@]}" tests/gpu/test_core_{first_questions,graphs}.py "$@"
# The long table of cases begins with the most telling ones. Its end, and what follows, may be left out.
core=("${tests[@]}" tests/gpu/test_core_{precision,dropout,against_torch,benchmark,calls}.py)
if [ -n "$passes" ]; then
    PYTEST_XDIST_AUTO_NUM_WORKERS="$((processors < 8 ? processors : 8))" run_tests 60 cases "${core[@]}" --maxfail=60 "$@"
else
    leave_out "no smoke test passed" cases
fi
# Each tensor gets its own allocation, so that memcheck sees its end. It does not follow processes.
if command -v compute-sanitizer >/dev/null; then
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 run_tests 35 memcheck compute-sanitizer --tool memcheck \
        --error-exitcode 9 "${in_process[@]}" tests/gpu/test_core_{against_torch,dropout}.py -m memcheck -x "$@"
else
    leave_out "compute-sanitizer is not on this machine" memcheck
fi

# The processor may have AMX, which the tests of the repository emulate elsewhere.
test_precisions() {
    local part failed=0
    for part in ForwardAgrees GradientsAgree Bfloat16 Precision; do
        CUDNN_RNN_TEST_SAMPLE=4 ./core_test "$part" || failed=1
    done
    return "$failed"
}

# measure_core THREADS PRECISION SHAPE...: prints medians of inference and training.
measure_core() {
    local threads="$1" precision="$2" shape training failed=0
    [ "$threads" -le 2 ] || [ "$threads" -le "$processors" ] || return 0
    for shape in "${@:3}"; do
        for training in "" --training; do
            echo "$shape-$precision $training, $threads threads:"
            ./core_benchmark "$shape-$precision" $training --threads "$threads" --rounds 3 |
                grep median | tail -n 1 || failed=1
        done
    done
    return "$failed"
}

# Measures how far more threads help, the fastest calls first, and then what each precision gains.
measure_cpu() {
    set -o pipefail
    local threads precision failed=0 shapes=(lstm-{1x512-b1-t50,2x650-b20-t35,4x512-b64-t50})
    test_precisions || failed=1
    for threads in 16 8 4 2 1; do
        measure_core "$threads" highest "${shapes[@]}" || failed=1
    done
    for threads in 16 2; do
        for precision in medium high; do
            measure_core "$threads" "$precision" "${shapes[@]}" || failed=1
        done
        for precision in highest medium high; do
            measure_core "$threads" "$precision" lstm-2x1500-b20-t35 || failed=1
        done
    done
    return "$failed"
}
export -f test_precisions measure_core measure_cpu
export processors
within 65 cpu bash -c measure_cpu

if [ -n "$passes" ]; then
    run_benchmark 70 50 core cudnn persistent torch
    PYTHONPATH="$packed/tools" within 35 one_process "$TORCH_PYTHON" benchmarks/one_process.py \
        --seconds 25 --output "$results" ${rehearses:+--device cpu}
    # The most likely to hang or to break the GPU; out of memory needs the GPU for itself. persist_dynamic
    # compiles kernels for seconds: few cases of each test.
    risky=("${core[@]}" -m 'persistent or fills_memory')
    run_tests 35 persistent "${risky[@]}" -k 'not persist_dynamic' "$@"
    run_tests 30 persist_dynamic "${risky[@]}" -k persist_dynamic --core-cases=4 "$@"
else
    leave_out "no smoke test passed" benchmark one_process persistent persist_dynamic
fi
finish
