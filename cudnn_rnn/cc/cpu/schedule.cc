#include "cudnn_rnn/cc/cpu/schedule.h"

#include <algorithm>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cpu/gemm.h"

namespace cudnn_rnn {
namespace {

// Maximum rows of a single step for which weights are not packed as a whole.
constexpr int64_t kMaxRowsOfDecodeSteps = 32;
// Maximum rows of a single step for which float and double use dot products.
constexpr int64_t kMaxRowsOfDotProducts = 8;

// In processor cycles. A step that costs less is not worth sharing among any number of threads.
constexpr int64_t kStepWorthSharing = 4000;

// The wavefront's blocks. With many blocks per layer, little time is lost while the wavefront fills
// and drains; with several steps per block, a block is worth a barrier and its input products fill
// a tile.
constexpr int64_t kBlocksPerLayer = 8;
constexpr int64_t kStepsPerBlock = 8;

// Returns the cost of a step in one direction.
int64_t StepCyclesOf(bool is_forward, const RnnConfig& config, int64_t batch_size,
                     const KernelTraits& kernels) {
  const int64_t width = is_forward ? config.output_size() : config.num_units;
  return StepCycles(kernels.lanes, batch_size, config.num_units, config.num_gates() * width);
}

Decision<Packing> RecurrentWeightPacking(const SequenceShape& shape, const KernelTraits& kernels) {
  if (shape.num_steps != 1) return {Packing::kWhole, "many steps use the panels"};
  if (shape.batch_size > kMaxRowsOfDecodeSteps) {
    return {Packing::kWhole, "one step, but of more than 32 sequences"};
  }
  if (kernels.rounds()) {
    return {Packing::kNone, "one step of at most 32 sequences, in bfloat16"};
  }
  if (shape.batch_size <= kMaxRowsOfDotProducts) {
    return {Packing::kNone, "one step of at most 8 sequences"};
  }
  return {Packing::kByTile, "one step of 9 to 32 sequences"};
}

Decision<int64_t> ConcurrentLayers(const RnnConfig& config, const SequenceShape& shape,
                                   const KernelTraits& kernels) {
  if (config.num_layers == 1) return {1, "the model has one layer"};
  if (config.num_directions() > 1) {
    return {1, "a bidirectional layer needs the whole output of the layer below"};
  }
  if (shape.num_steps < 2 * kStepsPerBlock) return {1, "fewer than 16 steps make no wavefront"};
  if (StepCyclesOf(/*is_forward=*/true, config, shape.batch_size, kernels) >= kStepWorthSharing) {
    return {1, "a step is worth sharing among threads"};
  }
  return {config.num_layers, "a step is too small to share among threads"};
}

Decision<Packing> InputWeightPacking(const SequenceShape& shape, const KernelTraits& kernels,
                                     const Schedule& schedule) {
  const Decision<Packing>& recurrent = schedule.recurrent_weights;
  if (recurrent.value != Packing::kWhole) return recurrent;
  if (schedule.concurrent_layers.value > 1) {
    return {Packing::kWhole, "every block of the wavefront uses the panels"};
  }
  if (CheckedSize(kMaxRowsOfPackedTiles) < CheckedSize(shape.num_steps) * shape.batch_size) {
    return {Packing::kWhole, "more than 64 rows (steps * sequences) use the panels"};
  }
  if (kernels.rounds()) return {Packing::kWhole, "products in bfloat16 use whole panels"};
  return {Packing::kByTile, "at most 64 rows (steps * sequences)"};
}

Decision<Division> StepDivision(const Schedule& schedule, const RnnConfig& config,
                                int64_t batch_size, const KernelTraits& kernels, Pass pass,
                                int64_t num_blocks, const PassThreads& threads) {
  if (threads.count == 1) return {Division::kDirections, "there is one thread"};
  const int64_t forward_cycles = StepCyclesOf(/*is_forward=*/true, config, batch_size, kernels);
  const bool is_forward = pass == Pass::kInference || pass == Pass::kTraining;
  const int64_t cycles = StepCyclesOf(is_forward, config, batch_size, kernels);
  if (schedule.concurrent_layers.value > 1 && num_blocks > 1 &&
      forward_cycles < threads.min_cycles_to_wait) {
    return {Division::kLayers,
            "a step is not worth a barrier, but the layers can run side by side"};
  }
  if (cycles * config.num_directions() < threads.min_cycles_to_wait) {
    return {Division::kDirections, "a step is not worth a barrier"};
  }
  if (threads.count <= config.num_directions()) {
    return {Division::kDirections, "each thread has a direction, which needs no barrier"};
  }
  return {Division::kTiles, "a step is worth a barrier"};
}

// In the order of the enumerators.
const char* const kPackingNames[] = {"packed as a whole", "packed by tiles", "not packed"};
const char* const kDivisionNames[] = {"all threads share each step",
                                      "one thread for each direction", "a wavefront of layers"};
const char* const kStorageNames[] = {"in the workspace", "in the reserve space"};

template <typename Value, size_t size>
std::string Line(const std::string& subject, const Decision<Value>& decision,
                 const char* const (&names)[size]) {
  return Concatenate(subject, ": ", names[static_cast<size_t>(decision.value)], " (",
                     decision.reason, ")\n");
}

}  // namespace

Schedule MakeSchedule(const RnnConfig& config, const SequenceShape& shape,
                      const KernelTraits& kernels) {
  Schedule schedule;
  schedule.recurrent_weights = RecurrentWeightPacking(shape, kernels);
  schedule.concurrent_layers = ConcurrentLayers(config, shape, kernels);
  schedule.input_weights = InputWeightPacking(shape, kernels, schedule);
  return schedule;
}

Decision<Storage> GateStorage(const RnnConfig& config, Pass pass) {
  if (config.num_gates() == 1) {
    return {Storage::kWorkspace, "a simple RNN's gradient reads only the output"};
  }
  switch (pass) {
    case Pass::kInference:
      return {Storage::kWorkspace, "no gradient follows"};
    case Pass::kTraining:
      return {Storage::kReserveSpace, "the gradient reads them"};
    case Pass::kBackward:
      return {Storage::kWorkspace, "the caller keeps the reserve space"};
    case Pass::kBackwardInPlace:
      break;
  }
  return {Storage::kReserveSpace, "the gradients overwrite the gates"};
}

PassSchedule MakePassSchedule(const Schedule& schedule, const RnnConfig& config,
                              const SequenceShape& shape, const KernelTraits& kernels, Pass pass,
                              int64_t num_steps, const PassThreads& threads) {
  PassSchedule result;
  result.num_blocks = std::min(kBlocksPerLayer * config.num_layers, num_steps / kStepsPerBlock);
  result.division =
      StepDivision(schedule, config, shape.batch_size, kernels, pass, result.num_blocks, threads);
  result.gates = GateStorage(config, pass);
  return result;
}

std::string ExplainSchedule(const RnnConfig& config, const SequenceShape& shape,
                            const KernelTraits& kernels, bool is_training,
                            const PassThreads& threads) {
  const Schedule schedule = MakeSchedule(config, shape, kernels);
  std::string text =
      Concatenate("kernels: ", kernels.instruction_set, ", ", kernels.lanes, " lanes\n");
  text += Line("forward W", schedule.input_weights, kPackingNames);
  text += Line("forward R", schedule.recurrent_weights, kPackingNames);
  text += Concatenate("concurrent layers: ", schedule.concurrent_layers.value, " (",
                      schedule.concurrent_layers.reason, ")\n");
  const auto add_pass = [&](const std::string& name, Pass pass, const std::string& gates) {
    const PassSchedule decided =
        MakePassSchedule(schedule, config, shape, kernels, pass, shape.num_steps, threads);
    text += Line(name + " steps", decided.division, kDivisionNames);
    text += Line(gates, decided.gates, kStorageNames);
  };
  add_pass("forward", is_training ? Pass::kTraining : Pass::kInference, "gates");
  if (is_training) add_pass("backward", Pass::kBackward, "gradients of gates");
  return text + Concatenate("a forward step costs ",
                            StepCyclesOf(/*is_forward=*/true, config, shape.batch_size, kernels),
                            " cycles per direction, a barrier is worth ",
                            threads.min_cycles_to_wait, "; ", threads.count, " threads\n");
}

}  // namespace cudnn_rnn
