#!/bin/bash
# Stage 1 on a GPU machine: the core without TensorFlow. Ends within 8 minutes. Arguments are passed
# to pytest; --core-device=mock with $CUDNN_RNN_MOCK_CUDNN rehearses the stage without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
stage=stage_1_core
. scripts/gpu_stage.sh
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"

write_versions "$TORCH_PYTHON"

# The long table of cases comes last, as tests that start late are left out.
files=(tests/gpu/test_core_{benchmark,calls,dropout,against_torch}.py)
pytest_core=("$TORCH_PYTHON" -m pytest --all -p no:cacheprovider -q -rs --tb=short "${files[@]}")
find_workers "$TORCH_PYTHON"
# cuDNN's persistent algorithms come last: they are the most likely to hang or to break the GPU.
usual=(-m 'not persistent and not fills_memory')
# A few cases of each test first, to show general failures at once.
run_tests 65 few_cases "${pytest_core[@]}" "${workers[@]}" "${usual[@]}" -k 'not repeat' \
    --core-cases=24 --maxfail=5 "$@"
PYTEST_XDIST_AUTO_NUM_WORKERS=6 run_tests 165 all_cases "${pytest_core[@]}" "${workers[@]}" \
    "${usual[@]}" --maxfail=60 "$@"
run_tests 40 out_of_memory "${pytest_core[@]}" "${workers[@]}" -m fills_memory "$@"

# Each tensor gets its own allocation, so that memcheck sees its end.
if command -v compute-sanitizer >/dev/null; then
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 run_tests 75 compute_sanitizer compute-sanitizer --tool memcheck \
        --error-exitcode 9 "${pytest_core[@]}" --core-cases=24 -k test_training_and_inference -x "$@"
else
    echo "compute-sanitizer is not on this machine: NOT RUN"
    echo "compute_sanitizer not run" >> "$results/status.txt"
fi
PYTEST_XDIST_AUTO_NUM_WORKERS=3 run_tests 90 persistent "${pytest_core[@]}" "${workers[@]}" \
    -m persistent "$@"
finish
