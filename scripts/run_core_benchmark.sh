#!/bin/bash
# make bench-core: builds and runs the benchmark of the CPU plan without TensorFlow. See --help.
# --build: only builds the program and prints its path.
set -euo pipefail
cd "$(dirname "$0")/.."

program="$(bash scripts/build_cpu_benchmarks.sh core_benchmark)"
if [ "${1:-}" = --build ]; then
    echo "$program"
else
    exec "$program" "$@"
fi
