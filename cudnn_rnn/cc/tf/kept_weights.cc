#include "cudnn_rnn/cc/tf/kept_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cudnn_rnn/cc/core/environment.h"
#include "cudnn_rnn/cc/tf/adapter.h"

namespace cudnn_rnn {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// Whether both are the same part of the same buffer. The address alone proves nothing: the memory
// of a fed array may be that of the previous call, with other contents.
bool IsSame(const Tensor& a, const Tensor& b) {
  return a.SharesBufferWith(b) && DataOf(a) == DataOf(b) && a.NumElements() == b.NumElements();
}

// Returns whether an input of a node comes from the node called `name`. Input: "a/b/name:0", as a
// whole or after the prefixes of an import or a function's call.
bool ComesFrom(const std::string& input, const std::string& name) {
  const std::string node = input.substr(0, input.find(':'));
  if (name.empty() || node.size() < name.size()) return false;
  const size_t prefix = node.size() - name.size();
  return node.compare(prefix, name.size(), name) == 0 && (prefix == 0 || node[prefix - 1] == '/');
}

// The filled sets of all kernels. Kernels own them.
class ReadySets {
 public:
  using Set = KeptWeights::Set;

  static ReadySets* Get() {
    static ReadySets* const sets = new ReadySets();
    return sets;
  }

  std::shared_ptr<Set> Find(const Tensor& params, const std::vector<int64_t>& layout) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const std::weak_ptr<Set>& entry : sets_) {
      std::shared_ptr<Set> set = entry.lock();
      if (set != nullptr && set->layout == layout && IsSame(set->params, params)) return set;
    }
    return nullptr;
  }

  void Add(const std::shared_ptr<Set>& set) {
    std::lock_guard<std::mutex> lock(mutex_);
    sets_.erase(std::remove_if(sets_.begin(), sets_.end(),
                               [](const std::weak_ptr<Set>& entry) { return entry.expired(); }),
                sets_.end());
    sets_.push_back(set);
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Set>> sets_;
};

}  // namespace

TfStatus ReadKeepsWeights(::tensorflow::OpKernelConstruction* context, bool* keeps_weights) {
  *keeps_weights = true;
  if (!ReadEnvironment(kKeepWeightsVariable).empty()) {
    TF_RETURN_IF_ERROR(ToTf(ReadEnvironmentSwitch(kKeepWeightsVariable, keeps_weights)));
  }
  if (!context->HasAttr(kCopiedOnWriteAttribute)) *keeps_weights = false;
  if (!*keeps_weights) return TfStatus();
  std::vector<std::string> names;
  TF_RETURN_IF_ERROR(context->GetAttr(kCopiedOnWriteAttribute, &names));
  constexpr int kParams = 3;  // an input of all versions of the op
  const ::tensorflow::NodeDef& node = context->def();
  *keeps_weights = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return node.input_size() > kParams && ComesFrom(node.input(kParams), name);
  });
  return TfStatus();
}

std::shared_ptr<KeptWeights::Set> KeptWeights::Find(OpKernelContext* context, const Tensor& params,
                                                    const PackedWeightsSpec& spec) {
  if (spec.bytes == 0) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  if (set_ != nullptr) {
    const bool is_same = IsSame(set_->params, params);
    if (is_same && set_->layout == spec.layout) {
      ++num_uses_;
      num_similar_calls_ = 0;
      return set_;
    }
    if (!is_same) Drop();
  }
  if (!IsWorthPacking(DataOf(params), spec.layout)) return nullptr;
  if (std::shared_ptr<Set> found = ReadySets::Get()->Find(params, spec.layout)) {
    Drop();
    set_ = found;
    num_uses_ = 1;
    return found;
  }
  if (being_filled_.lock() != nullptr) return nullptr;
  Drop();
  const auto created = std::make_shared<Set>();
  if (!AllocateWithoutRetry(context, TensorShape({spec.bytes}), &created->memory)) return nullptr;
  created->params = params;
  created->layout = spec.layout;
  being_filled_ = created;
  return created;
}

void KeptWeights::Keep(std::shared_ptr<Set> set) {
  std::lock_guard<std::mutex> lock(mutex_);
  set->is_ready = true;
  ReadySets::Get()->Add(set);
  set_ = std::move(set);
  being_filled_.reset();
  num_uses_ = 0;
}

bool KeptWeights::IsWorthPacking(const void* params, const std::vector<int64_t>& layout) {
  if (params != last_params_ || layout != last_layout_) num_similar_calls_ = 0;
  last_params_ = params;
  last_layout_ = layout;
  return ++num_similar_calls_ >= needed_calls_;
}

void KeptWeights::Drop() {
  if (set_ == nullptr) return;
  const int64_t more_calls = needed_calls_ < kMostCalls ? 2 * needed_calls_ : kMostCalls;
  needed_calls_ = num_uses_ < kUsesWorthPacking ? more_calls : int64_t{kFewestCalls};
  num_similar_calls_ = 0;
  set_.reset();
}

}  // namespace cudnn_rnn
