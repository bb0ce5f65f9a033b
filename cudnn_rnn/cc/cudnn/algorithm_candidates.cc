#include "cudnn_rnn/cc/cudnn/algorithm_candidates.h"

namespace cudnn_rnn {
namespace {

int64_t Capability(const CandidateCall& call) {
  return call.device.compute_capability_major * 10 + call.device.compute_capability_minor;
}

bool IsMultipleOf(int64_t factor, int64_t value) { return value % factor == 0; }

// The most units that persist_static_small_h supports.
int64_t MaxUnitsOfSmallH(const CandidateCall& call) {
  const RnnMode mode = call.config.mode;
  const bool has_one_gate = mode == RnnMode::kRelu || mode == RnnMode::kTanh;
  if (call.is_training) return has_one_gate ? 256 : 128;
  return has_one_gate ? 384 : 192;
}

struct Rule {
  const char* reason;
  bool (*excludes)(const CandidateCall& call);
};

// The sources of the rules below, by reading unless marked [H200]. (The rules of
// WhyNotSupported are in CI, with real versions of cuDNN: `make cudnn-host-test`.)
//   [torch]  get_algo in PyTorch's aten/src/ATen/native/cudnn/RNN.cpp and the functions that it
//            calls. Left out are its rules for speed alone, since a trial measures that.
//   [cudnn]  NVIDIA's documentation of cudnnRNNAlgo_t.
//   [H200]   seen on an H200 with cuDNN 9.19 (docs/gpu): right results with a batch of 4, and at
//            1x512 with one sequence five times faster than standard.

// For both persistent algorithms. [torch] has the rules on devices for persist_static only, and
// runs persist_static_small_h everywhere; here they hold for both until one has run on such a
// device.
const Rule kRulesOfAll[] = {
    {"needs compute capability 6.0 [cudnn]",
     [](const CandidateCall& call) { return Capability(call) < 60; }},
    {"is excluded on sm_75 [torch]",
     [](const CandidateCall& call) { return Capability(call) == 75; }},
    {"fails in some cases on sm_86, seen on an A40 [torch]",
     [](const CandidateCall& call) { return Capability(call) == 86; }},
    {"fails like on sm_86 with fewer than 98 multiprocessors from sm_80 on, as an A30 has [torch]",
     [](const CandidateCall& call) {
       return Capability(call) >= 80 && call.device.num_multiprocessors < 98;
     }},
};

const Rule kRulesOfPersistStatic[] = {
    {"is excluded before sm_70 [torch]",
     [](const CandidateCall& call) { return Capability(call) < 70; }},
    {"is unreliable for GRU from sm_80 on [torch]",
     [](const CandidateCall& call) {
       return Capability(call) >= 80 && call.config.mode == RnnMode::kGru;
     }},
    {"needs a batch size that is a multiple of 8 [torch], but not on sm_90 [H200]",
     [](const CandidateCall& call) {
       return Capability(call) != 90 && !IsMultipleOf(8, call.shape.batch_size);
     }},
    {"is limited to half, one layer and one direction [torch], but not on sm_90 [H200]",
     [](const CandidateCall& call) {
       const RnnConfig& config = call.config;
       return Capability(call) != 90 && (config.data_type != DataType::kHalf ||
                                         config.num_layers > 1 || config.num_directions() > 1);
     }},
    {"is limited to num_units up to 1024 [torch]",
     [](const CandidateCall& call) { return call.config.num_units > 1024; }},
    {"is limited to num_units and input_size that are multiples of 128 [torch]",
     [](const CandidateCall& call) {
       return !IsMultipleOf(128, call.config.num_units) ||
              !IsMultipleOf(128, call.config.input_size);
     }},
};

const Rule kRulesOfSmallH[] = {
    {"has limits on num_units, lower ones in training [torch]",
     [](const CandidateCall& call) { return call.config.num_units > MaxUnitsOfSmallH(call); }},
};

template <size_t count>
const char* FindReason(const Rule (&rules)[count], const CandidateCall& call) {
  for (const Rule& rule : rules) {
    if (rule.excludes(call)) return rule.reason;
  }
  return nullptr;
}

}  // namespace

const char* WhyNotTried(Algorithm algorithm, const CandidateCall& call) {
  if (algorithm == Algorithm::kPersistDynamic) {
    return "compiles its kernels at run time, for every batch size [cudnn]";
  }
  const char* reason = WhyNotSupported(algorithm, call.config, /*is_padded=*/false);
  if (reason == nullptr) reason = FindReason(kRulesOfAll, call);
  if (reason != nullptr) return reason;
  return algorithm == Algorithm::kPersistStatic ? FindReason(kRulesOfPersistStatic, call)
                                                : FindReason(kRulesOfSmallH, call);
}

std::vector<Algorithm> AlgorithmsToTry(const CandidateCall& call) {
  std::vector<Algorithm> algorithms;
  for (const Algorithm algorithm :
       {Algorithm::kPersistStatic, Algorithm::kPersistStaticSmallH, Algorithm::kPersistDynamic}) {
    if (WhyNotTried(algorithm, call) == nullptr) algorithms.push_back(algorithm);
  }
  return algorithms;
}

}  // namespace cudnn_rnn
