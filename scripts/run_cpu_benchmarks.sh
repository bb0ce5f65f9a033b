#!/bin/bash
# make bench: measures our CPU kernels against PyTorch, ONNX Runtime, OpenVINO, JAX, Keras and
# TensorFlow 1.15. See --help. Each environment is made unless its variable names a Python:
# $TENSORFLOW_PYTHON (TensorFlow 2.21 and this package), $TORCH_PYTHON, $ONNXRUNTIME_PYTHON (also
# onnx and OpenVINO), $JAX_PYTHON (also flax), $TENSORFLOW_1_PYTHON (TensorFlow 1.15), and
# $BENCH_PYTHON (numpy, tabulate, tqdm, matplotlib) for the program itself.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
. scripts/environments.sh

JAX_PYTHONS="3.11 3.12 3.13" # what JAX 0.10 has wheels for

check_arguments benchmarks/arguments.py cpu "$@"
for argument in "$@"; do
    case "$argument" in --list | --list-environments) exit 0 ;; esac
done

for environment in $(python3 benchmarks/arguments.py cpu --list-environments "$@"); do
    case "$environment" in
        tensorflow)
            [ -n "${TENSORFLOW_PYTHON:-}" ] && continue
            make_tensorflow_environment
            TENSORFLOW_PYTHON="$PWD/.venv/test-tf2.21/bin/python"
            ;;
        torch)
            [ -n "${TORCH_PYTHON:-}" ] && continue
            make_torch_environment
            TORCH_PYTHON="$PWD/.venv/torch/bin/python"
            ;;
        onnxruntime)
            [ -n "${ONNXRUNTIME_PYTHON:-}" ] && continue
            python="$(find_tensorflow_python)"
            make_requirements .venv/onnxruntime "$python" "${ONNXRUNTIME:-onnxruntime==1.31.1}" \
                "${OPENVINO:-openvino==2026.4.1}" onnx numpy
            ONNXRUNTIME_PYTHON="$PWD/.venv/onnxruntime/bin/python"
            ;;
        jax)
            [ -n "${JAX_PYTHON:-}" ] && continue
            if python="$(find_python "$JAX_PYTHONS")"; then
                make_requirements .venv/jax "$python" "${JAX:-jax==0.10.2}" "${FLAX:-flax==0.12.8}"
                JAX_PYTHON="$PWD/.venv/jax/bin/python"
            else
                say "JAX is NOT MEASURED: it needs one of the Pythons $JAX_PYTHONS (on PATH, or pyenv's), and none was found"
            fi
            ;;
        tensorflow_1)
            [ -n "${TENSORFLOW_1_PYTHON:-}" ] && continue
            if python="$(PYTHON='' find_python 3.7)"; then
                make_requirements .venv/tf1.15 "$python" "$TENSORFLOW_1" "$TENSORFLOW_1_REQUIREMENTS"
                TENSORFLOW_1_PYTHON="$PWD/.venv/tf1.15/bin/python"
            else
                say "TensorFlow 1.15 is NOT MEASURED: it needs a Python 3.7 (python3.7 on PATH, or pyenv's), and none was found"
            fi
            ;;
    esac
done
if [ -z "${BENCH_PYTHON:-}" ]; then
    python="$(find_tensorflow_python)"
    # shellcheck disable=SC2086 # several requirements
    make_requirements .venv/bench "$python" $BENCH_REQUIREMENTS
    BENCH_PYTHON=.venv/bench/bin/python
fi
CUDNN_RNN_READ_BANDWIDTH="$(bash scripts/cpp.sh path release read_bandwidth)"
export TENSORFLOW_PYTHON TORCH_PYTHON ONNXRUNTIME_PYTHON JAX_PYTHON TENSORFLOW_1_PYTHON CUDNN_RNN_READ_BANDWIDTH
exec "$BENCH_PYTHON" benchmarks/run.py cpu "$@"
