#!/bin/bash
# Stage 1 on a GPU machine: the core without TensorFlow. Ends within 7 minutes. Arguments are passed
# to pytest; --core-device=mock with $CUDNN_RNN_MOCK_CUDNN rehearses the stage without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
stage=stage_1_core
. scripts/gpu_stage.sh
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"

write_versions "$TORCH_PYTHON"

# The long table of cases comes last, as tests that start after --seconds are left out.
files=(tests/gpu/test_core_{benchmark,calls,dropout,against_torch}.py)
pytest_core=("$TORCH_PYTHON" -m pytest -p no:cacheprovider -q -rs --tb=short "${files[@]}")
# A few cases of each test first, to show general failures at once.
within 70 few_cases "${pytest_core[@]}" --core-cases=24 --maxfail=5 --seconds=50 \
    -k 'not out_of_memory and not forced_algorithm and not repeat' "$@"
parallel=()
if "$TORCH_PYTHON" -c 'import xdist' 2>/dev/null; then
    parallel=(-p xdist.plugin -n 6)
fi
within 190 all_cases "${pytest_core[@]}" "${parallel[@]}" --maxfail=60 --seconds=160 \
    -k 'not out_of_memory' --junitxml="$results/all_cases.xml" "$@"
# This test fills the GPU's memory, so it runs alone.
within 40 out_of_memory "${pytest_core[@]}" -k out_of_memory "$@"

# Each tensor gets its own allocation, so that memcheck sees its end.
if command -v compute-sanitizer >/dev/null; then
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 within 90 compute_sanitizer compute-sanitizer --tool memcheck \
        --error-exitcode 9 "${pytest_core[@]}" --core-cases=24 --seconds=60 -k test_training_and_inference -x "$@"
else
    echo "compute-sanitizer is not on this machine: NOT RUN" | tee "$results/compute_sanitizer.log"
    echo "compute_sanitizer not run" >> "$results/status.txt"
fi
finish
