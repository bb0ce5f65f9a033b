# `make` alone explains; the work is in scripts/.

PYTHON ?=
TENSORFLOW ?= tensorflow==2.21.0
ARGS ?=
export PYTHON TENSORFLOW

.PHONY: help demo test python-test test-all core-test core-test-sanitized cudnn-test cudnn-test-sanitized declarations \
	torch-parity test-gpu bench bench-core bench-gpu pack-gpu try-versions lint \
	format clean

help:
	@echo "cudnn_rnn: tf.contrib.cudnn_rnn for today's TensorFlow, on a CPU too"
	@echo
	@echo "Use it, in an environment that has TensorFlow:"
	@echo "  pip install --no-build-isolation .     compiles it for that TensorFlow and installs it"
	@echo
	@echo "Try it (makes its own environment under .venv, nothing else is touched):"
	@echo "  make demo                              trains a character language model, saves it, restores"
	@echo "                                         it twice, plots the loss; a few minutes on two cores"
	@echo "  make demo ARGS=--help                  what else the demo can do"
	@echo "  make demo PYTHON=... TENSORFLOW=...    another Python, another TensorFlow ($(TENSORFLOW))"
	@echo
	@echo "Work on it:"
	@echo "  make test                              the tests, in TensorFlow 2.21 and (with a Python 3.7) 1.15.5; of some"
	@echo "                                         large tables only a sample of the cases"
	@echo "  make test-all                          all cases"
	@echo "  make python-test ARGS='-k gradients'   some of the Python tests, without those in C++"
	@echo "  make try-versions                      installation and some tests in every TensorFlow of a list; about"
	@echo "                                         an hour, downloads 8 GB; ARGS=--help says what it takes"
	@echo "  make core-test                         only the C++ tests, without TensorFlow"
	@echo "  make core-test-sanitized               the same with the address and undefined behaviour sanitizers"
	@echo "  make cudnn-test                        the cuDNN plans on a stand-in for cuDNN, without a GPU"
	@echo "  make cudnn-test-sanitized              the same with the sanitizers"
	@echo "  make declarations                      what is declared of cuDNN, against NVIDIA's headers"
	@echo "  make torch-parity                      the tests' NumPy reference against PyTorch"
	@echo "  make test-gpu                          the tests that run on a GPU; without one they fail"
	@echo "  make test-gpu ARGS=--core-device=cpu   the core's CPU plan through the same tests, against PyTorch"
	@echo "  make bench                             speed on a CPU against PyTorch, ONNX Runtime, Keras, TensorFlow 1.15"
	@echo "  make bench ARGS=--quick                tries that on tiny models; ARGS=--help says what else it can do"
	@echo "  make bench-core ARGS='lstm 2 650'      speed of the CPU plan by itself; ARGS=--help says what it takes"
	@echo "  make bench-gpu                         speed on a GPU against cuDNN itself, PyTorch and TensorFlow"
	@echo "  make pack-gpu                          all of that for a GPU machine that can build nothing: docs/gpu"
	@echo "  make lint, make format                 check style and types, or correct the style"
	@echo "  make clean                             removes what these commands built"
	@echo
	@echo "With Bazel: python configure.py && bazel build //:cudnn_rnn/_cudnn_rnn_ops.so"

demo:
	@bash scripts/run_demo.sh $(ARGS)

test: core-test python-test

python-test:
	@bash scripts/run_tests.sh $(ARGS)

test-all: core-test
	@bash scripts/run_tests.sh --all $(ARGS)

try-versions:
	@python3 scripts/try_tensorflow_versions $(ARGS)

core-test:
	@bash scripts/run_core_tests.sh

core-test-sanitized:
	@bash scripts/run_core_tests.sh --sanitize

cudnn-test:
	@bash scripts/run_cudnn_tests.sh $(ARGS)

cudnn-test-sanitized:
	@bash scripts/run_cudnn_tests.sh --sanitize $(ARGS)

declarations:
	@bash scripts/check_declarations.sh

torch-parity:
	@bash scripts/run_torch_parity.sh

test-gpu:
	@bash scripts/run_gpu_tests.sh $(ARGS)

bench:
	@bash scripts/run_cpu_benchmarks.sh $(ARGS)

bench-core:
	@bash scripts/run_core_benchmark.sh $(ARGS)

bench-gpu:
	@bash scripts/run_gpu_benchmarks.sh $(ARGS)

pack-gpu:
	@bash scripts/pack_for_gpu.sh $(ARGS)

lint:
	@bash scripts/lint.sh

format:
	@bash scripts/lint.sh --fix

clean:
	rm -rf .venv .build .gpu build dist cudnn_rnn.egg-info .tf_configure.bazelrc .pytest_cache .ruff_cache
	rm -f cudnn_rnn/_cudnn_rnn_ops.so cudnn_rnn/_build_info.json bazel-*
	find cudnn_rnn tests examples -name __pycache__ -prune -exec rm -rf {} +
