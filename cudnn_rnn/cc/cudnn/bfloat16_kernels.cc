#include "cudnn_rnn/cc/cudnn/bfloat16_kernels.h"

#include "cudnn_rnn/cc/cudnn/gpu_queue.h"

namespace cudnn_rnn {

// Each thread converts one element. A bfloat16 is the upper half of a float.
const char kBfloat16Ptx[] = R"(
.version 6.0
.target sm_50
.address_size 64

.visible .entry bfloat16_to_float(.param .u64 source, .param .u64 target, .param .u64 count)
{
  .reg .pred %beyond;
  .reg .u16 %half;
  .reg .u32 %block, %size, %thread, %word;
  .reg .u64 %index, %end, %from, %to, %offset;

  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  cvt.u64.u32 %offset, %thread;
  mad.wide.u32 %index, %block, %size, %offset;
  ld.param.u64 %end, [count];
  setp.ge.u64 %beyond, %index, %end;
  @%beyond ret;
  ld.param.u64 %from, [source];
  cvta.to.global.u64 %from, %from;
  shl.b64 %offset, %index, 1;
  add.u64 %from, %from, %offset;
  ld.global.u16 %half, [%from];
  cvt.u32.u16 %word, %half;
  shl.b32 %word, %word, 16;
  ld.param.u64 %to, [target];
  cvta.to.global.u64 %to, %to;
  shl.b64 %offset, %index, 2;
  add.u64 %to, %to, %offset;
  st.global.u32 [%to], %word;
  ret;
}

.visible .entry float_to_bfloat16(.param .u64 source, .param .u64 target, .param .u64 count)
{
  .reg .pred %beyond, %is_nan;
  .reg .u16 %half;
  .reg .u32 %block, %size, %thread, %word, %magnitude, %rounded, %quiet, %odd;
  .reg .u64 %index, %end, %from, %to, %offset;

  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  cvt.u64.u32 %offset, %thread;
  mad.wide.u32 %index, %block, %size, %offset;
  ld.param.u64 %end, [count];
  setp.ge.u64 %beyond, %index, %end;
  @%beyond ret;
  ld.param.u64 %from, [source];
  cvta.to.global.u64 %from, %from;
  shl.b64 %offset, %index, 2;
  add.u64 %from, %from, %offset;
  ld.global.u32 %word, [%from];
  shr.u32 %odd, %word, 16;
  and.b32 %odd, %odd, 1;
  add.u32 %rounded, %word, 32767;
  add.u32 %rounded, %rounded, %odd;
  or.b32 %quiet, %word, 4194304;
  and.b32 %magnitude, %word, 2147483647;
  setp.gt.u32 %is_nan, %magnitude, 2139095040;
  selp.b32 %rounded, %quiet, %rounded, %is_nan;
  shr.u32 %rounded, %rounded, 16;
  cvt.u16.u32 %half, %rounded;
  ld.param.u64 %to, [target];
  cvta.to.global.u64 %to, %to;
  shl.b64 %offset, %index, 1;
  add.u64 %to, %to, %offset;
  st.global.u16 [%to], %half;
  ret;
}
)";

namespace {

Status Launch(const GpuQueue& queue, void* kernel, const void* source, int64_t count,
              void* target) {
  constexpr int64_t kThreads = 256;
  constexpr int64_t kMaxBlocks = 0x7fffffff;
  if (count == 0) return Status();
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  if (blocks > kMaxBlocks) {
    return InvalidArgument("A bfloat16 tensor on a GPU must have fewer than ",
                           kMaxBlocks * kThreads, " elements, but has ", count, ".");
  }
  DeviceAddress source_address = AddressOf(source), target_address = AddressOf(target);
  unsigned long long elements = static_cast<uint64_t>(count);  // NOLINT: the kernel's type
  void* parameters[] = {&source_address, &target_address, &elements};
  return CUDNN_RNN_DRIVER_CALL(queue, cuLaunchKernel, kernel, static_cast<unsigned int>(blocks), 1,
                               1, static_cast<unsigned int>(kThreads), 1, 1, 0, queue.stream(),
                               parameters, nullptr);
}

}  // namespace

Bfloat16Kernels::~Bfloat16Kernels() {
  for (const auto& entry : loaded_) {
    if (entry.second.module == nullptr) continue;
    if (libraries_->cuCtxPushCurrent_v2(entry.first) != kCudaSuccess) continue;
    libraries_->cuModuleUnload(entry.second.module);
    void* context;
    libraries_->cuCtxPopCurrent_v2(&context);
  }
}

Status Bfloat16Kernels::Load(const GpuQueue& queue, Loaded* loaded) {
  std::lock_guard<std::mutex> lock(mutex_);
  // Insert first: only the insertion may throw. An entry without a module is not loaded yet.
  Loaded& known = loaded_[queue.context()];
  if (known.module != nullptr) {
    *loaded = known;
    return Status();
  }
  CUDNN_RNN_RETURN_IF_ERROR(
      CUDNN_RNN_DRIVER_CALL(queue, cuModuleLoadData, &loaded->module, kBfloat16Ptx));
  Status status = CUDNN_RNN_DRIVER_CALL(queue, cuModuleGetFunction, &loaded->to_float,
                                        loaded->module, "bfloat16_to_float");
  if (status.ok()) {
    status = CUDNN_RNN_DRIVER_CALL(queue, cuModuleGetFunction, &loaded->from_float, loaded->module,
                                   "float_to_bfloat16");
  }
  if (status.ok()) {
    known = *loaded;
  } else {
    libraries_->cuModuleUnload(loaded->module);
  }
  return status;
}

Status Bfloat16Kernels::ToFloat(const GpuQueue& queue, const void* source, int64_t count,
                                void* target) {
  Loaded loaded;
  CUDNN_RNN_RETURN_IF_ERROR(Load(queue, &loaded));
  return Launch(queue, loaded.to_float, source, count, target);
}

Status Bfloat16Kernels::FromFloat(const GpuQueue& queue, const void* source, int64_t count,
                                  void* target) {
  Loaded loaded;
  CUDNN_RNN_RETURN_IF_ERROR(Load(queue, &loaded));
  return Launch(queue, loaded.from_float, source, count, target);
}

}  // namespace cudnn_rnn
