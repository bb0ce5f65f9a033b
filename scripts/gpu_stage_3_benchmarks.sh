#!/bin/bash
# Stage 3 on a GPU machine: the benchmark, with the peers in TensorFlow if stage 2 unpacked it. Ends
# within 8 minutes; the results list what it had no time for. Arguments are passed to the benchmark;
# --device cpu --quick rehearses the stage without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
stage=stage_3_benchmarks
. scripts/gpu_stage.sh

peers=(core cudnn torch)
if find_tensorflow >> "$log" 2>&1; then
    peers+=(tensorflow)
else
    echo "TensorFlow is not there: its peers are NOT RUN"
    echo "tensorflow_peers not run" >> "$results/status.txt"
fi
write_versions "$TORCH_PYTHON"
export PYTHONPATH="$packed/tools${PYTHONPATH:+:$PYTHONPATH}" # what the program needs beside torch
# The logs of the peers become one file: a machine may return only a few.
rm -rf worker_logs
within 420 benchmark "$TORCH_PYTHON" benchmarks/run.py gpu --peers "${peers[@]}" --seconds 7 --time-budget 300 \
    --output "$results" --logs "$packed/worker_logs" "$@"
tar -czf "$results/worker_logs.tar.gz" worker_logs
finish
