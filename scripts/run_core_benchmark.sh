#!/bin/bash
# make bench-core: builds and runs the benchmark of the CPU plan without TensorFlow. See --help.
set -euo pipefail
cd "$(dirname "$0")/.."
program="$(bash scripts/build_cpu_benchmarks.sh core_benchmark)"
exec "$program" "$@"
