#include "tests/cudnn/mock/faults.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "cudnn_rnn/cc/core/param_layout.h"
#include "tests/cudnn/mock/mock_cudnn.h"

namespace cudnn_rnn {
namespace mock {
namespace {

// The part of the parameters that belongs to a layer and a direction: W, R, or the biases of one.
struct Part {
  char* data;
  int64_t bytes;
};

void ForParts(const RnnConfig& config, const ParamLayout& layout, char* weights,
              const std::function<void(const Part& part)>& function) {
  const int64_t size = SizeOf(config.data_type);
  const int64_t gate_rows = config.num_gates() * config.num_units * size;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (int64_t direction = 0; direction < config.num_directions(); ++direction) {
      const Part parts[] = {{weights + layout.InputWeights(layer, direction) * size,
                             gate_rows * layout.InputWeightColumns(layer)},
                            {weights + layout.RecurrentWeights(layer, direction) * size,
                             gate_rows * config.output_size()},
                            {weights + layout.InputBiases(layer, direction) * size, gate_rows},
                            {weights + layout.RecurrentBiases(layer, direction) * size, gate_rows}};
      for (const Part& part : parts) function(part);
    }
  }
}

void Transpose(int64_t order, int64_t element_size, char* matrix) {
  for (int64_t row = 0; row < order; ++row) {
    for (int64_t column = 0; column < row; ++column) {
      char* const below = matrix + (row * order + column) * element_size;
      char* const above = matrix + (column * order + row) * element_size;
      std::swap_ranges(below, below + element_size, above);
    }
  }
}

void TransposeRecurrentWeights(const RnnConfig& config, const ParamLayout& layout, char* weights) {
  const int64_t size = SizeOf(config.data_type), units = config.num_units;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (int64_t direction = 0; direction < config.num_directions(); ++direction) {
      char* const first = weights + layout.RecurrentWeights(layer, direction) * size;
      for (int64_t gate = 0; gate < config.num_gates(); ++gate) {
        Transpose(units, size, first + gate * units * units * size);
      }
    }
  }
}

// The parts of one direction follow those of the other: W and R together, and all biases together.
void ExchangeDirections(const RnnConfig& config, const ParamLayout& layout, char* weights) {
  if (config.num_directions() != 2) return;
  const int64_t size = SizeOf(config.data_type);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t starts[][2] = {{layout.InputWeights(layer, 0), layout.InputWeights(layer, 1)},
                                 {layout.InputBiases(layer, 0), layout.InputBiases(layer, 1)}};
    for (const auto& start : starts) {
      char* const forward = weights + start[0] * size;
      char* const backward = weights + start[1] * size;
      std::swap_ranges(forward, backward, backward);
    }
  }
}

}  // namespace

Status SpoilWeights(const RnnConfig& config, int fault, char* weights) {
  ParamLayout layout;
  CUDNN_RNN_RETURN_IF_ERROR(ParamLayout::Create(config, &layout));
  const int64_t size = SizeOf(config.data_type), bytes = layout.size() * size;
  switch (fault) {
    case MOCK_ZEROS:
      std::memset(weights, 0, static_cast<size_t>(bytes));
      break;
    case MOCK_EXCHANGED_GATES:
      ForParts(config, layout, weights, [&config](const Part& part) {
        std::rotate(part.data, part.data + part.bytes / config.num_gates(), part.data + part.bytes);
      });
      break;
    case MOCK_TRANSPOSED_RECURRENT_WEIGHTS:
      TransposeRecurrentWeights(config, layout, weights);
      break;
    case MOCK_SHIFTED_WEIGHTS:
      std::rotate(weights, weights + size, weights + bytes);
      break;
    case MOCK_EXCHANGED_DIRECTIONS:
      ExchangeDirections(config, layout, weights);
      break;
    case MOCK_MISSING_BIASES:
      std::memset(weights + layout.first_bias() * size, 0,
                  static_cast<size_t>(bytes - layout.first_bias() * size));
      break;
    default:
      break;
  }
  return Status();
}

void SpoilSequence(const SequenceShape& shape, int fault, int64_t bytes, char* sequence) {
  if (fault == MOCK_ZEROS) std::memset(sequence, 0, static_cast<size_t>(bytes));
  if (fault != MOCK_EXCHANGED_STEPS || shape.num_steps < 2) return;
  const int64_t step = bytes / shape.num_steps;
  std::swap_ranges(sequence, sequence + step, sequence + step);
}

}  // namespace mock
}  // namespace cudnn_rnn
