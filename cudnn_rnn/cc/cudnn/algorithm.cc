#include "cudnn_rnn/cc/cudnn/algorithm.h"

#include "cudnn_rnn/cc/cudnn/cudnn_types.h"

namespace cudnn_rnn {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::kAuto, Algorithm::kStandard,
                                     Algorithm::kPersistStatic, Algorithm::kPersistStaticSmallH,
                                     Algorithm::kPersistDynamic};

}  // namespace

Status ParseAlgorithm(const std::string& text, Algorithm* algorithm) {
  *algorithm = Algorithm::kAuto;
  if (text.empty()) return Status();
  std::string names;
  for (const Algorithm known : kAlgorithms) {
    if (text == Name(known)) {
      *algorithm = known;
      return Status();
    }
    names += Concatenate(names.empty() ? "" : ", ", Name(known));
  }
  return InvalidArgument("The environment variable ", kAlgorithmVariable, " must be one of ", names,
                         ", but is '", text, "'.");
}

const char* Name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kStandard:
      return "standard";
    case Algorithm::kPersistStatic:
      return "persist_static";
    case Algorithm::kPersistStaticSmallH:
      return "persist_static_small_h";
    case Algorithm::kPersistDynamic:
      return "persist_dynamic";
  }
  return "unknown";
}

int CudnnAlgorithmOf(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kPersistStatic:
      return kCudnnAlgorithmPersistStatic;
    case Algorithm::kPersistStaticSmallH:
      return kCudnnAlgorithmPersistStaticSmallH;
    case Algorithm::kPersistDynamic:
      return kCudnnAlgorithmPersistDynamic;
    case Algorithm::kAuto:
    case Algorithm::kStandard:
      break;
  }
  return kCudnnAlgorithmStandard;
}

}  // namespace cudnn_rnn
