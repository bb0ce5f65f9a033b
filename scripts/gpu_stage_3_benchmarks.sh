#!/bin/bash
# Stage 3 on a GPU machine: the benchmark, with the peers in TensorFlow if stage 2 unpacked it. Ends
# within 9 minutes; the results list what it had no time for.
set -uo pipefail
cd "$(dirname "$0")/.."
stage=stage_3_benchmarks
. scripts/gpu_stage.sh
: > "$results/status.txt"

peers=(core cudnn torch)
if find_tensorflow; then
    peers+=(tensorflow)
else
    echo "TensorFlow is not there: its peers are NOT RUN"
fi
write_versions "$TORCH_PYTHON"
export PYTHONPATH="$packed/tools${PYTHONPATH:+:$PYTHONPATH}" # what the program needs beside torch
within 460 benchmark "$TORCH_PYTHON" benchmarks/run.py gpu --peers "${peers[@]}" --time-budget 380 \
    --output "$results" "$@"
finish
