# `make` alone explains; the work is in scripts/.

PYTHON ?=
TENSORFLOW ?= tensorflow==2.21.0
ARGS ?=
export PYTHON TENSORFLOW

.PHONY: help demo docs test python-test test-all core-test core-test-sanitized core-test-threads core-test-arm64 cudnn-test \
	cudnn-test-sanitized cudnn-host-test declarations torch-parity mutants test-gpu bench bench-core bench-gpu pack-gpu trials \
	try-versions wheel lint format clean

help:
	@echo "cudnn_rnn: tf.contrib.cudnn_rnn for current versions of TensorFlow, also on a CPU"
	@echo
	@echo "Install:"
	@echo "  pip install cudnn_rnn-0.3.0-....whl    a wheel, for any TensorFlow from 1.14 to 2.21"
	@echo "  pip install --no-build-isolation .     compile for the TensorFlow of this environment and install it"
	@echo
	@echo "Try (in a new environment under .venv):"
	@echo "  make demo                              train a character language model, save it, restore it"
	@echo "                                         twice, plot the loss; takes a few minutes on two cores"
	@echo "  make demo ARGS=--help                  list the options of the demo"
	@echo "  make demo PYTHON=... TENSORFLOW=...    use another Python or TensorFlow (default: $(TENSORFLOW))"
	@echo
	@echo "Develop:"
	@echo "  make test                              run the tests, in TensorFlow 2.21 and, with Python 3.7, 1.15.5;"
	@echo "                                         of large tables only a sample of the cases"
	@echo "  make test-all                          run all cases, as before a release"
	@echo "  make python-test ARGS='-k gradients'   run some of the Python tests"
	@echo "  make trials                            fuzzing, schedules, faults, load, errors: docs/reliability.md; takes an"
	@echo "                                         hour; ARGS=--help lists them, ARGS=--short takes five minutes"
	@echo "  make try-versions                      test many TensorFlow versions; takes two hours, downloads 9 GB;"
	@echo "                                         ARGS=--help lists the options"
	@echo "  make wheel                             build one wheel for all TensorFlow versions, into dist/; downloads 5 GB;"
	@echo "                                         ARGS='2.21 1.15' is for two of them, ARGS=--help explains"
	@echo "  make core-test                         run only the C++ tests, without TensorFlow"
	@echo "  make core-test-sanitized               the same with the address and undefined behavior sanitizers"
	@echo "  make core-test-threads                 the tests of thread teams with the thread sanitizer"
	@echo "  make core-test-arm64                   cross-compiled for ARM64, under an emulator; takes an hour or two"
	@echo "  make cudnn-test                        test the cuDNN plan on a mock of cuDNN, without a GPU"
	@echo "  make cudnn-test-sanitized              the same with the sanitizers"
	@echo "  make cudnn-host-test                   compare the mock and the plans' descriptors with real versions of cuDNN,"
	@echo "                                         without a GPU; downloads 1.4 GB once; ARGS='9.1.0.70' tries another"
	@echo "  make declarations                      compare our declarations of cuDNN with NVIDIA's headers"
	@echo "  make torch-parity                      compare the NumPy reference of the tests with PyTorch"
	@echo "  make mutants ARGS='cpp FILE'           measure which small changes of a file the tests notice; ARGS=--help"
	@echo "                                         explains, 'python FILE' is for the package"
	@echo "  make test-gpu                          run the GPU tests; they fail without a GPU"
	@echo "  make test-gpu ARGS=--core-device=cpu   run the same tests of the core with its CPU plan"
	@echo "  make bench                             compare with PyTorch, ONNX Runtime, OpenVINO, JAX, Keras and TensorFlow 1.15"
	@echo "                                         on a CPU"
	@echo "  make bench ARGS=--quick                dry run on tiny models; ARGS=--help lists the options"
	@echo "  make bench-core ARGS=lstm-2x650-b20-t35"
	@echo "                                         measure only the CPU plan; ARGS=--help lists the options"
	@echo "  make bench-gpu                         compare with bare cuDNN, PyTorch and TensorFlow on a GPU"
	@echo "  make pack-gpu                          pack two leases of a GPU machine without build tools: docs/gpu"
	@echo "  make docs                              build the site of docs/ in .build/site"
	@echo "  make docs ARGS=--serve                 serve it on this machine while you write"
	@echo "  make lint, make format                 check style and types, or fix the style"
	@echo "  make clean                             remove everything that these commands built"
	@echo
	@echo "With Bazel: python configure.py && bazel build //:cudnn_rnn/_libraries/ops.so"

demo:
	@bash scripts/run_demo.sh $(ARGS)

test: core-test python-test

python-test:
	@bash scripts/run_tests.sh $(ARGS)

test-all: core-test
	@bash scripts/run_tests.sh --all $(ARGS)

trials:
	@bash scripts/run_trials.sh $(ARGS)

try-versions:
	@python3 scripts/try_tensorflow_versions $(ARGS)

wheel:
	@python3 scripts/build_wheel $(ARGS)

core-test:
	@bash scripts/cpp.sh test release core_test

core-test-sanitized:
	@bash scripts/cpp.sh test sanitized core_test

core-test-threads:
	@bash scripts/cpp.sh test thread-sanitized team_test

core-test-arm64:
	@bash scripts/cpp.sh test aarch64 core_test
	@bash scripts/cpp.sh test aarch64-neoverse-n1 core_test

cudnn-test:
	@bash scripts/cpp.sh test release cudnn_test $(ARGS)

cudnn-test-sanitized:
	@bash scripts/cpp.sh test sanitized cudnn_test $(ARGS)

cudnn-host-test:
	@bash scripts/run_host_cudnn_tests.sh $(ARGS)

declarations:
	@bash scripts/check_declarations.sh

torch-parity:
	@bash scripts/run_torch_parity.sh

mutants:
	@bash scripts/run_mutants.sh $(ARGS)

test-gpu:
	@bash scripts/run_gpu_tests.sh $(ARGS)

bench:
	@bash scripts/run_cpu_benchmarks.sh $(ARGS)

bench-core:
	@program="$$(bash scripts/cpp.sh path release core_benchmark)" && "$$program" $(ARGS)

bench-gpu:
	@bash scripts/run_gpu_benchmarks.sh $(ARGS)

pack-gpu:
	@bash scripts/pack_for_gpu.sh $(ARGS)

docs:
	@bash scripts/build_site.sh $(ARGS)

lint:
	@bash scripts/lint.sh

format:
	@bash scripts/lint.sh --fix

clean:
	rm -rf .venv .build .gpu build dist cudnn_rnn.egg-info .tf_configure.bazelrc .pytest_cache .ruff_cache
	rm -rf cudnn_rnn/_libraries bazel-*
	find cudnn_rnn tests examples -name __pycache__ -prune -exec rm -rf {} +
