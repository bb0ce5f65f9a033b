#include "cudnn_rnn/cc/cpu/schedule.h"

#include <algorithm>

#include "cudnn_rnn/cc/core/checked_math.h"
#include "cudnn_rnn/cc/core/status.h"
#include "cudnn_rnn/cc/cpu/gemm.h"

namespace cudnn_rnn {
namespace {

// Returns the maximum rows of a single step for which float and double use dot products. A tile of
// dot products has 4 rows with 16 lanes, 2 with 8 and 1 with 4. Each further tile of rows reads the
// weights again.
int64_t MaxRowsOfDotProducts(const KernelTraits& kernels) {
  return std::min<int64_t>(kernels.lanes * 3 / 4, 8);
}

// In processor cycles. A step that costs less is not worth sharing among any number of threads.
constexpr int64_t kStepWorthSharing = 4000;

// Division::kRows: every thread reads all of R in every step, from its L2 cache. R's panels may
// take three quarters of that, which leaves room for W, x and the gates: at least 512 KiB, if the
// cache is small or unknown, and at most 1 MiB, because 1.6 of 2 MiB were slower than shared steps.
// The rows of a share must be enough for an efficient tile.
constexpr int64_t kMinBytesOfSharedPanels = int64_t(1) << 19;
constexpr int64_t kMaxBytesOfSharedPanels = int64_t(1) << 20;
constexpr int64_t kMinRowsPerShare = 4;
// AMX: processors that have it have 2 MiB of L2 cache. R may fill it if a share has the rows of two
// registers: reading R again then costs less than a barrier and h' of other threads.
constexpr int64_t kMinRowsPerAmxShare = 8;
constexpr int64_t kMaxBytesOfAmxPanels = int64_t(2) << 20;
constexpr int64_t kMinRowsPerLargeAmxShare = 32;

// A step of one row is limited by reading R's panels if these are so large that they come from the
// L3 cache; a step of a few rows, if they come from memory.
constexpr int64_t kMinBytesLimitingOneRow = int64_t(8) << 20;
constexpr int64_t kMinBytesLimitingFewRows = int64_t(24) << 20;
constexpr int64_t kMaxRowsLimitedByReading = 4;

// The wavefront's blocks. With many blocks per layer, little time is lost while the wavefront fills
// and drains; with several steps per block, a block is worth a barrier and its input products fill
// a tile.
constexpr int64_t kBlocksPerLayer = 8;
constexpr int64_t kStepsPerBlock = 8;

// Input products in blocks: each reads all of W, but the gates of a block take less memory and stay
// in the L3 cache until the steps read them.
constexpr int64_t kGateBytesPerBlock = int64_t(16) << 20;

// Input products in the steps: the gates stay in the L1 cache instead of being written and read
// again, but every step reads W, which pays if W is small.
constexpr int64_t kMinRowsToRereadWeights = 8;
constexpr int64_t kMaxBytesReadInSteps = int64_t(1) << 20;

// Returns the bytes of an element of the engine's buffers.
int64_t ElementBytes(const RnnConfig& config) {
  return config.data_type == DataType::kDouble ? 8 : 4;
}

// Returns the cost of a step in one direction.
int64_t StepCyclesOf(bool is_forward, const RnnConfig& config, int64_t batch_size,
                     const KernelTraits& kernels) {
  const int64_t width = is_forward ? config.output_size() : config.num_units;
  return StepCycles(kernels.lanes, batch_size, config.num_units, config.num_gates() * width);
}

Decision<Packing> RecurrentWeightPacking(const SequenceShape& shape, const KernelTraits& kernels) {
  if (shape.num_steps != 1) return {Packing::kWhole, "many steps use the panels"};
  if (!IsDecodeStep(shape)) return {Packing::kWhole, "one step, but of more than 32 sequences"};
  if (kernels.rounds()) {
    return {Packing::kWhole, "one step, but bfloat16 is packed faster than converted to float"};
  }
  if (shape.batch_size <= MaxRowsOfDotProducts(kernels)) {
    return {Packing::kNone, "one step of few sequences, for which packing would take longer"};
  }
  return {Packing::kByTile, "one step of at most 32 sequences"};
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

Decision<bool> ProductsInSteps(const RnnConfig& config, const SequenceShape& shape,
                               const KernelTraits& kernels, const Schedule& schedule) {
  if (kernels.row_multiple == 1) return {false, "the kernels are not those of AMX"};
  if (kernels.planes > 1) return {false, "factors are split"};
  if (schedule.recurrent_weights.value != Packing::kWhole) return {false, "W is not packed"};
  if (schedule.concurrent_layers.value > 1) return {false, "the wavefront has blocks of its own"};
  if (config.skips_input_projection()) return {false, "the first layer has no W"};
  if (config.num_gates() > 1 && config.num_units % kernels.lanes != 0) {
    return {false, "a gate begins within a panel of W"};
  }
  if (shape.batch_size < kMinRowsToRereadWeights) return {false, "fewer than 8 sequences"};
  const int64_t inputs = std::max(config.input_size, config.LayerInputSize(config.num_layers - 1));
  const CheckedSize bytes = CheckedSize(inputs) * config.num_gates() * config.num_units * 2;
  if (kMaxBytesReadInSteps < bytes) return {false, "W is large"};
  return {true, "the gates of a tile stay in the L1 cache"};
}

Decision<int64_t> StepsPerBlock(const RnnConfig& config, const SequenceShape& shape,
                                const Schedule& schedule) {
  const int64_t all = shape.num_steps;
  if (schedule.concurrent_layers.value > 1) return {all, "the wavefront has blocks of its own"};
  // Of one step, in all directions.
  const CheckedSize bytes = CheckedSize(config.num_gates()) * config.num_units *
                            config.num_directions() * ElementBytes(config) * shape.batch_size;
  if (bytes * all < CheckedSize(2 * kGateBytesPerBlock)) {
    return {all, "the gates of all steps are small"};
  }
  const int64_t steps =
      CheckedSize(kGateBytesPerBlock) < bytes ? 1 : kGateBytesPerBlock / bytes.value();
  return {steps, "the gates of all steps are large"};
}

CheckedSize RecurrentPanelBytes(const RnnConfig& config, const KernelTraits& kernels) {
  return PanelSize(kernels, CheckedSize(config.output_size())) *
         NumPanels(kernels, config.num_units) * config.num_gates() * ElementBytes(config);
}

// Returns whether R's panels fit a core's L2 cache, beside the other data of a step.
bool FitsCoreCache(const RnnConfig& config, const KernelTraits& kernels) {
  const int64_t room = kernels.core_cache_bytes / 4 * 3;
  return !(std::min(std::max(room, kMinBytesOfSharedPanels), kMaxBytesOfSharedPanels) <
           RecurrentPanelBytes(config, kernels));
}

// Returns the number of shares for Division::kRows, or 1 if it does not apply. Shares of sequences
// of different lengths would be uneven.
int64_t RowGroups(const RnnConfig& config, const SequenceShape& shape, const KernelTraits& kernels,
                  const PassLengths& lengths, const PassThreads& threads,
                  bool has_products_in_steps) {
  const int64_t directions = config.num_directions();
  if (lengths.longest < 2 || threads.count % directions != 0) return 1;
  if (lengths.sum != lengths.longest * shape.batch_size) return 1;
  const int64_t groups = threads.count / directions;
  const bool is_large = !FitsCoreCache(config, kernels);
  const bool is_amx = kernels.row_multiple > 1;
  if (is_large && (!is_amx || has_products_in_steps ||
                   kMaxBytesOfAmxPanels < RecurrentPanelBytes(config, kernels))) {
    return 1;
  }
  const int64_t min_rows = is_large ? kMinRowsPerLargeAmxShare
                           : is_amx ? kMinRowsPerAmxShare
                                    : kMinRowsPerShare;
  return shape.batch_size < groups * min_rows ? 1 : groups;
}

Decision<Division> StepDivision(const Schedule& schedule, const RnnConfig& config,
                                int64_t batch_size, const KernelTraits& kernels, Pass pass,
                                const PassSchedule& pass_schedule, const PassThreads& threads) {
  if (threads.count == 1) return {Division::kDirections, "there is one thread"};
  const int64_t forward_cycles = StepCyclesOf(/*is_forward=*/true, config, batch_size, kernels);
  const bool is_forward = pass == Pass::kInference || pass == Pass::kTraining;
  const int64_t cycles = StepCyclesOf(is_forward, config, batch_size, kernels);
  if (schedule.concurrent_layers.value > 1 && pass_schedule.num_blocks > 1 &&
      forward_cycles < threads.min_cycles_to_wait) {
    return {Division::kLayers,
            "a step is not worth a barrier, but the layers can run side by side"};
  }
  if (pass_schedule.row_groups > 1) {
    return {Division::kRows, "each thread has enough sequences, and R fits its cache"};
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
const char* const kDivisionNames[] = {
    "all threads share each step", "one thread for each direction",
    "each thread has a share of the sequences", "a wavefront of layers"};
const char* const kProductNames[] = {"before the steps", "in each step"};
const char* const kStorageNames[] = {"in the workspace", "in the reserve space"};

template <typename Value, size_t size>
std::string Line(const std::string& subject, const Decision<Value>& decision,
                 const char* const (&names)[size]) {
  return Concatenate(subject, ": ", names[static_cast<size_t>(decision.value)], " (",
                     decision.reason, ")\n");
}

}  // namespace

bool ReadingLimitsSteps(const RnnConfig& config, const SequenceShape& shape,
                        const KernelTraits& kernels) {
#if defined(CUDNN_RNN_ROUNDS_IN_ALL_SHAPES)  // tests/trials/errors.py
  return true;
#endif
  const int64_t min_bytes =
      shape.batch_size == 1 ? kMinBytesLimitingOneRow : kMinBytesLimitingFewRows;
  return shape.num_steps > 1 && shape.batch_size <= kMaxRowsLimitedByReading &&
         !(RecurrentPanelBytes(config, kernels) < min_bytes);
}

Schedule MakeSchedule(const RnnConfig& config, const SequenceShape& shape,
                      const KernelTraits& kernels) {
  Schedule schedule;
  schedule.recurrent_weights = RecurrentWeightPacking(shape, kernels);
  schedule.concurrent_layers = ConcurrentLayers(config, shape, kernels);
  schedule.input_weights = InputWeightPacking(shape, kernels, schedule);
  schedule.products_in_steps = ProductsInSteps(config, shape, kernels, schedule);
  schedule.steps_per_block = StepsPerBlock(config, shape, schedule);
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
                              const PassLengths& lengths, const PassThreads& threads) {
  PassSchedule result;
  result.num_blocks =
      std::min(kBlocksPerLayer * config.num_layers, lengths.longest / kStepsPerBlock);
  result.row_groups =
      RowGroups(config, shape, kernels, lengths, threads, schedule.HasProductsInSteps(pass));
  result.division =
      StepDivision(schedule, config, shape.batch_size, kernels, pass, result, threads);
  if (result.division.value != Division::kRows) result.row_groups = 1;
  result.gates = GateStorage(config, pass);
  return result;
}

std::string ExplainSchedule(const RnnConfig& config, const SequenceShape& shape,
                            const KernelTraits& kernels, bool is_training,
                            const PassThreads& threads) {
  const Schedule schedule = MakeSchedule(config, shape, kernels);
  const char* const factors = kernels.planes > 1 ? ", split factors"
                              : kernels.rounds() ? ", rounded factors"
                                                 : "";
  std::string text = Concatenate("kernels: ", kernels.instruction_set, ", ", kernels.lanes,
                                 " lanes", factors, "\n");
  text += Line("forward W", schedule.input_weights, kPackingNames);
  text += Line("forward R", schedule.recurrent_weights, kPackingNames);
  text += Concatenate("concurrent layers: ", schedule.concurrent_layers.value, " (",
                      schedule.concurrent_layers.reason, ")\n");
  if (!is_training) text += Line("input products", schedule.products_in_steps, kProductNames);
  if (!schedule.HasProductsInSteps(is_training ? Pass::kTraining : Pass::kInference)) {
    text += Concatenate("gates in the workspace: of ", schedule.steps_per_block.value,
                        " steps at a time (", schedule.steps_per_block.reason, ")\n");
  }
  const auto add_pass = [&](const std::string& name, Pass pass, const std::string& gates) {
    const PassSchedule decided =
        MakePassSchedule(schedule, config, shape, kernels, pass,
                         {shape.num_steps, shape.num_steps * shape.batch_size}, threads);
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
