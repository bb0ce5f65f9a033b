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
run_tests 40 first_questions "${tests[@]}" tests/gpu/test_core_first_questions.py "$@"
# The long table of cases begins with the most telling ones. Its end, and what follows, may be left out.
core=("${tests[@]}" tests/gpu/test_core_{precision,dropout,against_torch,benchmark,calls}.py)
if [ -n "$passes" ]; then
    PYTEST_XDIST_AUTO_NUM_WORKERS="$((processors < 8 ? processors : 8))" run_tests 60 cases "${core[@]}" --maxfail=60 "$@"
else
    leave_out "no smoke test passed" cases
fi
# Each tensor gets its own allocation, so that memcheck sees its end. It does not follow processes.
if command -v compute-sanitizer >/dev/null; then
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 run_tests 40 memcheck compute-sanitizer --tool memcheck \
        --error-exitcode 9 "${in_process[@]}" tests/gpu/test_core_{against_torch,dropout}.py -m memcheck -x "$@"
else
    leave_out "compute-sanitizer is not on this machine" memcheck
fi

measure_cpu() {
    local threads model
    for threads in 1 2 4 8 16; do
        [ "$threads" -le "$processors" ] || continue
        for model in lstm-1x512-b1-t50 "lstm-2x650-b20-t35 --training" \
            "lstm-2x650-b20-t35-bfloat16 --training" "lstm-4x512-b64-t50 --training"; do
            echo "$model, $threads threads:"
            # shellcheck disable=SC2086 # several arguments
            ./core_benchmark $model --threads "$threads" --rounds 9 | grep median
        done
    done
}
export -f measure_cpu
export processors
within 55 cpu bash -c measure_cpu

if [ -n "$passes" ]; then
    run_benchmark 70 50 core cudnn persistent torch
    PYTHONPATH="$packed/tools" within 35 one_process "$TORCH_PYTHON" benchmarks/one_process.py \
        --seconds 25 --output "$results" ${rehearses:+--device cpu}
    # The most likely to hang or to break the GPU; out of memory needs the GPU for itself. persist_dynamic
    # compiles kernels for seconds.
    risky=("${core[@]}" -m 'persistent or fills_memory')
    run_tests 40 persistent "${risky[@]}" -k 'not persist_dynamic' "$@"
    run_tests 30 persist_dynamic "${risky[@]}" -k persist_dynamic "$@"
else
    leave_out "no smoke test passed" benchmark one_process persistent persist_dynamic
fi
finish
