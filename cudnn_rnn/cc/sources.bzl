"""The C++ files of the op library, named once: BUILD loads this file, setup.py executes it.

Paths are relative to cudnn_rnn/cc. Only plain list literals may stand here, so that it is both
valid Starlark and valid Python.
"""

CORE_SOURCES = [
    "core/param_layout.cc",
    "core/reserve_space.cc",
    "core/rnn_config.cc",
    "core/rnn_plan.cc",
    "core/team.cc",
]

CPU_SOURCES = [
    "cpu/buffer_exchange.cc",
    "cpu/cpu_plan.cc",
    "cpu/dropout.cc",
    "cpu/engine.cc",
    "cpu/engine_backward.cc",
    "cpu/engine_gradients.cc",
    "cpu/engine_steps.cc",
    "cpu/gemm.cc",
    "cpu/kernels_avx2.cc",
    "cpu/kernels_avx512.cc",
    "cpu/kernels_avx512_bf16.cc",
    "cpu/kernels_portable.cc",
    "cpu/kernels.cc",
    "cpu/packed_sequences.cc",
]

CUDNN_SOURCES = [
    "cudnn/algorithm.cc",
    "cudnn/algorithm_trial.cc",
    "cudnn/bfloat16_kernels.cc",
    "cudnn/bfloat16_plan.cc",
    "cudnn/c_api.cc",
    "cudnn/cudnn_plan.cc",
    "cudnn/cudnn_plan_run.cc",
    "cudnn/driver_memory.cc",
    "cudnn/dropout_state.cc",
    "cudnn/gpu_libraries.cc",
    "cudnn/gpu_queue.cc",
    "cudnn/gpu_runtime.cc",
    "cudnn/plan_cache.cc",
    "cudnn/weight_regions.cc",
]

TF_SOURCES = [
    "tf/adapter.cc",
    "tf/compat.cc",
    "tf/cpu_backend.cc",
    "tf/cpu_registration.cc",
    "tf/cudnn_backend.cc",
    "tf/gpu_registration.cc",
    "tf/host_reserved.cc",
    "tf/params_kernels.cc",
    "tf/registration.cc",
    "tf/rnn_kernels.cc",
    "tf/rnn_model.cc",
]

HEADERS = [
    "core/arena.h",
    "core/checked_math.h",
    "core/device_memory.h",
    "core/parallel_runner.h",
    "core/param_layout.h",
    "core/reserve_space.h",
    "core/rnn_config.h",
    "core/rnn_plan.h",
    "core/status.h",
    "core/team.h",
    "cpu/activations.inc",
    "cpu/bfloat16_panels.inc",
    "cpu/buffer_exchange.h",
    "cpu/cells.inc",
    "cpu/cpu_plan.h",
    "cpu/dropout.h",
    "cpu/engine.h",
    "cpu/engine_layers.h",
    "cpu/engine_steps.h",
    "cpu/float16.h",
    "cpu/gemm.h",
    "cpu/kernels.h",
    "cpu/kernels.inc",
    "cpu/packed_sequences.h",
    "cpu/panels.inc",
    "cpu/products.inc",
    "cpu/vectors.inc",
    "cpu/vectors_avx512.inc",
    "cudnn/algorithm.h",
    "cudnn/algorithm_trial.h",
    "cudnn/bfloat16_kernels.h",
    "cudnn/bfloat16_plan.h",
    "cudnn/c_api.h",
    "cudnn/cudnn_plan.h",
    "cudnn/cudnn_plan_workspace.h",
    "cudnn/cudnn_types.h",
    "cudnn/descriptors.h",
    "cudnn/driver_memory.h",
    "cudnn/dropout_state.h",
    "cudnn/gpu_libraries.h",
    "cudnn/gpu_queue.h",
    "cudnn/gpu_runtime.h",
    "cudnn/plan_cache.h",
    "cudnn/weight_regions.h",
    "tf/adapter.h",
    "tf/compat.h",
    "tf/cpu_backend.h",
    "tf/cudnn_backend.h",
    "tf/device_backend.h",
    "tf/gpu_registration.h",
    "tf/host_reserved.h",
    "tf/params_kernels.h",
    "tf/registration.h",
    "tf/rnn_kernels.h",
    "tf/rnn_model.h",
]

# Beyond what TensorFlow asks for. The inner loops are plain C++ that the compiler turns into
# vector code, which needs -O3, fused multiply-add, and leave to ignore floating-point traps;
# NaN, infinities and the order of additions keep their meaning.
COMPILE_FLAGS = [
    "-O3",
    "-ffp-contract=fast",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
]
