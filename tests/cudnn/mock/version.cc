// What differs between the builds of the mock. In its own file, so that a build with another
// version recompiles only this file.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "tests/cudnn/mock/state.h"

#ifndef CUDNN_RNN_MOCK_DEFAULT_VERSION
#define CUDNN_RNN_MOCK_DEFAULT_VERSION 91300
#endif
// The part of cuDNN that cudnnGetVersion loads; null: none.
#ifndef CUDNN_RNN_MOCK_PART
#define CUDNN_RNN_MOCK_PART nullptr
#endif

namespace cudnn_rnn {
namespace mock {

const int64_t kBuiltVersion = CUDNN_RNN_MOCK_DEFAULT_VERSION;

void LoadPartOrAbort() {
  const char* const part = CUDNN_RNN_MOCK_PART;
  if (part == nullptr || dlopen(part, RTLD_NOW | RTLD_LOCAL) != nullptr) return;
  std::fprintf(stderr, "The mock of cuDNN could not load %s.\n", dlerror());
  std::abort();
}

}  // namespace mock
}  // namespace cudnn_rnn
