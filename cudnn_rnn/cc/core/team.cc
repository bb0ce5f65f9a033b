#include "cudnn_rnn/cc/core/team.h"

namespace cudnn_rnn {

constexpr int64_t Team::kMaxMembers;
constexpr int64_t Team::kSlicesPerMember;
constexpr int64_t Team::kMaxSlicesPerMember;
constexpr int64_t TeamMember::kManyCycles;

Team::Team(ParallelRunner* runner, int64_t size, const Program& program)
    : runner_(runner),
      recruiter_(runner->recruiter()),
      size_(size),
      program_(program),
      claims_(static_cast<size_t>(size)) {
  recruiter_->Open(this);
}

Team::~Team() { Close(); }

void Team::Run() {
  Recruit();
  TeamMember caller(this, 0);
  program_(&caller);
  Close();
  if (has_failed()) RethrowFailure();
}

void Team::Close() {
  if (is_closed()) return;
  recruiter_->Close(this);
  is_closed_.store(true, std::memory_order_release);
  Backoff patience;
  while (num_helpers() > 0) patience.Wait();
}

int64_t Team::AddHelper() {
  int64_t index = 1;
  while ((helper_indices_ >> index & 1) != 0) ++index;
  helper_indices_ |= uint64_t(1) << index;
  num_helpers_.fetch_add(1, std::memory_order_relaxed);
  return index;
}

void Team::RemoveHelper(int64_t index) {
  helper_indices_ &= ~(uint64_t(1) << index);
  num_helpers_.fetch_sub(1, std::memory_order_release);
}

void Team::Help(int64_t index) noexcept {
  TeamMember helper(this, index);
  try {
    program_(&helper);
  } catch (...) {
    if (is_failing_.exchange(true)) return;
    failure_ = std::current_exception();
    has_failed_.store(true, std::memory_order_release);
  }
}

void TeamMember::WaitAtBarrierAsCaller() const {
  Backoff patience;
  while (!team_->IsBarrierOpen(barrier_)) {
    // If a helper failed, its slice is never finished.
    if (team_->has_failed()) team_->RethrowFailure();
    patience.Wait();
  }
}

void TeamMember::WaitAtBarrierAsHelper(int64_t patience) {
  while (!team_->IsBarrierOpen(barrier_)) {
    if (team_->is_closed() || patience_.IsOver(patience)) {
      has_left_ = true;
      return;
    }
    patience_.Wait();
  }
}

// Uses no more threads than the work justifies waking, even on a machine with many cores.
int64_t TeamSize(const ParallelRunner& runner, int64_t cost, int64_t max_members) {
  const int64_t wake_cost = runner.min_cycles_to_wake();
  const int64_t affordable = wake_cost == 0 ? Team::kMaxMembers : 1 + cost / wake_cost;
  return std::min({runner.num_threads(), Team::kMaxMembers, max_members, affordable});
}

void RunTeam(ParallelRunner* runner, int64_t cost, const Team::Program& program,
             int64_t max_members) {
  const int64_t size = TeamSize(*runner, cost, max_members);
  if (size <= 1) {
    TeamMember alone;
    program(&alone);
    return;
  }
  Team team(runner, size, program);
  team.Run();
}

}  // namespace cudnn_rnn
