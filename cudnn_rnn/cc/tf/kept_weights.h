// The packed weights of one inference kernel, kept between its calls.
//
// Packed weights are valid as long as the parameters are the same. The proof is the identity of the
// parameters' buffer while this object holds a reference to it: every op that writes into a buffer
// in place first makes sure that nobody else holds it, and otherwise writes into a copy. There are
// exceptions: TensorFlow 1's reference variables, memory that the program feeds, and the deprecated
// ops InplaceUpdate, InplaceAdd and InplaceSub, which write into any tensor. For the first two it
// depends on the graph whether they can be the source of a tensor. So only nodes whose attribute
// says that their parameters are a constant or a resource variable's value keep weights; Python
// sets it (graph/kept_weights.py).
#ifndef CUDNN_RNN_CC_TF_KEPT_WEIGHTS_H_
#define CUDNN_RNN_CC_TF_KEPT_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cudnn_rnn/cc/core/rnn_plan.h"
#include "cudnn_rnn/cc/tf/compat.h"
#include "tensorflow/core/framework/tensor.h"

namespace cudnn_rnn {

// A node's attribute: names of nodes that pass on a constant or a resource variable's value. If the
// parameters come from one of them, TensorFlow copies their buffer before it writes to it while a
// reference is held. An import may put a prefix before the names, or replace the parameters.
constexpr char kCopiedOnWriteAttribute[] = "_cudnn_rnn_copied_on_write";

// The environment variable that turns the keeping off if it is 0 or false.
constexpr char kKeepWeightsVariable[] = "CUDNN_RNN_KEEP_WEIGHTS";

// Sets whether a node keeps weights: its parameters come from a node that the attribute names, and
// the environment variable allows it.
TfStatus ReadKeepsWeights(::tensorflow::OpKernelConstruction* context, bool* keeps_weights);

// Thread-safe. Keeps at most one set of packed weights, and with it a reference to the parameters.
// Kernels with the same parameters share a set, such as the nodes of an unrolled loop. While it
// does, the next update of the variable has to copy it. So weights are packed only once successive
// calls have had the same parameters, and more calls are needed after each set that was hardly
// used: a program that trains between inference calls soon pays for neither.
class KeptWeights {
 public:
  // One set. Kernels and calls share it; it lives until the last of them lets go of it.
  struct Set {
    ::tensorflow::Tensor params;
    std::vector<int64_t> layout;
    ::tensorflow::Tensor memory;
    bool is_ready = false;  // its first user fills it
  };

  // Returns the set for a call with these parameters: ready, or to be filled by this call, which
  // then calls Keep. Null if the call does without.
  std::shared_ptr<Set> Find(::tensorflow::OpKernelContext* context,
                            const ::tensorflow::Tensor& params, const PackedWeightsSpec& spec);
  // Keeps a set that the call has filled.
  void Keep(std::shared_ptr<Set> set);

 private:
  // Successive calls with the same parameters before weights are packed: at first, and at most.
  static constexpr int64_t kFewestCalls = 2;
  static constexpr int64_t kMostCalls = 64;
  // A set with fewer uses was not worth packing.
  static constexpr int64_t kUsesWorthPacking = 4;

  bool IsWorthPacking(const void* params, const std::vector<int64_t>& layout);
  void Drop();

  std::mutex mutex_;
  std::shared_ptr<Set> set_;
  std::weak_ptr<Set> being_filled_;
  int64_t num_uses_ = 0;  // of set_
  // Successive calls that had no set and the same parameters, apparently: their buffer may have
  // been written to or given back since.
  const void* last_params_ = nullptr;
  std::vector<int64_t> last_layout_;
  int64_t num_similar_calls_ = 0;
  int64_t needed_calls_ = kFewestCalls;
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_TF_KEPT_WEIGHTS_H_
