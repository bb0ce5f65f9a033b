// The mock of CUDA's driver: modules, and the two kernels that the project launches.

#include <cmath>
#include <cstring>

#include "tests/cudnn/mock/state.h"

namespace cudnn_rnn {

using mock::Arguments;
using mock::Call;
using mock::Kernel;
using mock::Module;

namespace {

constexpr char kToFloat[] = "bfloat16_to_float";
constexpr char kFromFloat[] = "float_to_bfloat16";

template <typename Body>
int Run(const char* name, const std::string& arguments, const Body& body) {
  return mock::Run(mock::Library::kDriver, name, arguments, body);
}

// Returns whether the PTX text has `.entry NAME(`, with any white space.
bool HasEntry(const std::string& image, const std::string& name) {
  const char* const space = " \t\r\n";
  const std::string entry = ".entry";
  for (size_t found = image.find(entry); found != std::string::npos;
       found = image.find(entry, found + 1)) {
    const size_t start = image.find_first_not_of(space, found + entry.size());
    if (start == std::string::npos || image.compare(start, name.size(), name) != 0) continue;
    const size_t end = image.find_first_not_of(space, start + name.size());
    if (end != std::string::npos && image[end] == '(') return true;
  }
  return false;
}

void Bfloat16ToFloat(const uint16_t* source, float* target, unsigned long long count) {
  for (unsigned long long i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(source[i]) << 16;
    std::memcpy(&target[i], &bits, sizeof(bits));
  }
}

// Rounds to nearest, ties to even; every NaN becomes 0x7fff.
void FloatToBfloat16(const float* source, uint16_t* target, unsigned long long count) {
  for (unsigned long long i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &source[i], sizeof(bits));
    if (std::isnan(source[i])) {
      target[i] = 0x7fff;
    } else {
      target[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
  }
}

int Launch(Call* call, const Kernel& kernel, unsigned long long num_threads, void** parameters) {
  DeviceAddress source_address, target_address;
  unsigned long long count;
  for (int i = 0; i < 3; ++i) {
    if (parameters[i] == nullptr) return call->Violation("parameter ", i, " is null");
  }
  std::memcpy(&source_address, parameters[0], sizeof(source_address));
  std::memcpy(&target_address, parameters[1], sizeof(target_address));
  std::memcpy(&count, parameters[2], sizeof(count));
  if (count > num_threads) {
    return call->Violation(num_threads, " threads for ", count, " elements");
  }
  void* const source = reinterpret_cast<void*>(source_address);
  void* const target = reinterpret_cast<void*>(target_address);
  const size_t source_size = kernel.to_float ? 2 : 4;
  const size_t target_size = 6 - source_size;
  const int64_t source_bytes = static_cast<int64_t>(count * source_size);
  const int64_t target_bytes = static_cast<int64_t>(count * target_size);
  MOCK_RETURN_IF_FAILED(call->NeedMemory("source", source, source_bytes, source_size));
  MOCK_RETURN_IF_FAILED(call->NeedMemory("target", target, target_bytes, target_size));
  if (mock::Overlap(source, source_bytes, target, target_bytes)) {
    return call->Violation("source and target overlap");
  }
  if (kernel.to_float) {
    Bfloat16ToFloat(static_cast<uint16_t*>(source), static_cast<float*>(target), count);
  } else {
    FloatToBfloat16(static_cast<float*>(source), static_cast<uint16_t*>(target), count);
  }
  return 0;
}

}  // namespace

extern "C" {

int cuModuleLoadData(void** module, const void* image) {
  return Run("cuModuleLoadData", "", [&](Call* call) {
    Module created;
    MOCK_RETURN_IF_FAILED(call->NeedContext(&created.device));
    if (module == nullptr || image == nullptr) return call->Violation("an argument is null");
    created.image = static_cast<const char*>(image);
    for (const char* directive : {".version", ".target", ".address_size 64"}) {
      if (created.image.find(directive) == std::string::npos) {
        return call->Violate(Concatenate("the PTX text has no ", directive),
                             mock::kDriverInvalidPtx);
      }
    }
    *module = call->state().modules.Add(created);
    return 0;
  });
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  return Run("cuModuleGetFunction", Arguments("name", name == nullptr ? "" : name),
             [&](Call* call) {
               if (function == nullptr || name == nullptr)
                 return call->Violation("an argument is null");
               Module* found;
               MOCK_RETURN_IF_FAILED(call->Need(&call->state().modules, module, "module", &found));
               if (!HasEntry(found->image, name)) {
                 return call->Violate(Concatenate("the module has no .entry ", name),
                                      mock::kDriverNotFound);
               }
               const bool to_float = std::strcmp(name, kToFloat) == 0;
               if (!to_float && std::strcmp(name, kFromFloat) != 0) {
                 return call->Violation("the mock does not know the kernel ", name);
               }
               *function = call->state().kernels.Add({module, to_float});
               return 0;
             });
}

// The addresses of the module's functions stay known, but must not be used any more.
int cuModuleUnload(void* module) {
  return mock::RunRelease(mock::Library::kDriver, "cuModuleUnload", "", [&](Call* call) {
    Module* found;
    MOCK_RETURN_IF_FAILED(call->Need(&call->state().modules, module, "module", &found));
    int device;
    MOCK_RETURN_IF_FAILED(call->NeedContext(&device));
    if (found->device != device) return call->Violation("the module is of another device");
    call->state().modules.Remove(module);
    return 0;
  });
}

int cuLaunchKernel(void* function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                   unsigned int shared_memory_bytes, void* stream, void** parameters,
                   void** extra) {
  return Run(
      "cuLaunchKernel", Arguments("grid", grid_x, "block", block_x, "stream", stream),
      [&](Call* call) {
        MOCK_RETURN_IF_FAILED(call->NeedStream(stream));
        Kernel* kernel;
        MOCK_RETURN_IF_FAILED(call->Need(&call->state().kernels, function, "function", &kernel));
        Module* module;
        MOCK_RETURN_IF_FAILED(
            call->Need(&call->state().modules, kernel->module, "module", &module));
        if (module->device != call->state().CurrentDevice()) {
          return call->Violate("the function's module is of another device",
                               mock::kDriverInvalidHandle);
        }
        if (grid_x < 1 || grid_x > 2147483647u || grid_y != 1 || grid_z != 1) {
          return call->Violation("grid ", grid_x, " x ", grid_y, " x ", grid_z);
        }
        if (block_x < 1 || block_x > 1024 || block_y != 1 || block_z != 1) {
          return call->Violation("block ", block_x, " x ", block_y, " x ", block_z);
        }
        if (shared_memory_bytes != 0) return call->Violation("the kernels need no shared memory");
        if (parameters == nullptr || extra != nullptr) {
          return call->Violation("parameters are null, or extra is not");
        }
        return Launch(call, *kernel, static_cast<unsigned long long>(grid_x) * block_x, parameters);
      });
}

}  // extern "C"

}  // namespace cudnn_rnn
