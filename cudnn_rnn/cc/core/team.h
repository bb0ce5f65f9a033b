// A team of threads that run one program together, with a cheap barrier after each phase.
//
// Every member calls the program, which consists of phases: calls of ForEach with the same
// arguments in the same order on all members. A phase divides its items into slices. Each member
// takes its own slices, then any that no member has taken, and waits at the barrier until all are
// done. In similar phases a member thus works on the same slices, whose data stay in its cache.
//
// Member 0 is the calling thread. It waits only for slices that another thread is computing, and
// slices wait for nothing, so no state of the thread pool can block a call. The other members are
// helpers, which may arrive at any time or never. A late helper skips the phases that are over. A
// helper that has had no work for a while leaves and gives its thread back; the caller recruits
// another one when there is enough to share again. A helper that has left may linger to join the
// next call (team_recruiter.h).
//
// A helper that has left still runs to the end of the program, with phases that do nothing. Hence,
// outside the work of its phases, a program may read only data that existed before RunTeam or that
// the same member computed.
//
// The items, and therefore the results, do not depend on the number of members.
#ifndef CUDNN_RNN_CC_CORE_TEAM_H_
#define CUDNN_RNN_CC_CORE_TEAM_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/team_recruiter.h"

namespace cudnn_rnn {

class TeamMember;

// The state that members share. Lives on the calling thread's stack until all helpers have left.
class Team {
 public:
  using Program = std::function<void(TeamMember*)>;

  static constexpr int64_t kMaxMembers = 64;
  // Most phases have this many slices per member.
  static constexpr int64_t kSlicesPerMember = 4;
  // Long phases have up to this many. All members wait for the slowest core, which another process
  // or machine may be using as well; with short slices they wait for a shorter time.
  static constexpr int64_t kMaxSlicesPerMember = 16;

  // Creates a team of at most `size` (at least 2) members, including the caller. `runner` and
  // `program` must outlive the team.
  Team(ParallelRunner* runner, int64_t size, const Program& program);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Runs the program as member 0 and closes the team. Throws what the program throws on any member.
  void Run();

  int64_t size() const { return size_; }
  const ParallelRunner& runner() const { return *runner_; }

  // Called by members.

  // Returns true to one caller for each of the `num_slices` slices of a phase. Phases count from 1.
  bool Claim(int64_t slice, int64_t num_slices, int64_t phase) {
    // Spreads few slices over all claims, so that slices of different members share no cache line.
    int64_t spread = kMaxSlicesPerMember;
    while (num_slices * spread > size_ * kMaxSlicesPerMember) spread /= 2;
    const size_t claim = static_cast<size_t>(slice * spread);
    std::atomic<int64_t>& last_phase =
        claims_[claim / kMaxSlicesPerMember].last_phases[claim % kMaxSlicesPerMember];
    int64_t last = last_phase.load(std::memory_order_relaxed);
    return last < phase &&
           last_phase.compare_exchange_strong(last, phase, std::memory_order_relaxed);
  }

  // The barrier at the end of a phase: it opens when `num_slices` slices, counted since the team
  // was created, have been finished.
  bool IsBarrierOpen(int64_t num_slices) const {
    return finished_slices_.count.load(std::memory_order_acquire) >= num_slices;
  }
  void FinishSlice() { finished_slices_.count.fetch_add(1, std::memory_order_acq_rel); }

  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  // Rethrows what a helper's program threw.
  void RethrowFailure() const { std::rethrow_exception(failure_); }

  // Schedules tasks to fill vacancies. Called by member 0.
  void Recruit() { recruiter_->Recruit(runner_); }

  int64_t num_helpers() const { return num_helpers_.load(std::memory_order_acquire); }
  int64_t num_vacancies() const { return size_ - 1 - num_helpers(); }

  // Called by the recruiter, which holds its lock except for Help.

  // Adds a helper and returns its index.
  int64_t AddHelper();
  void RemoveHelper(int64_t index);
  // Runs the program as a helper.
  void Help(int64_t index) noexcept;

 private:
  // Closes the team to new helpers and waits until all helpers have left. A second call does
  // nothing.
  void Close();

  // The claims on one member's slices, which mostly that member writes. The padding separates the
  // cache lines of two members, whatever the alignment.
  struct Claims {
    std::atomic<int64_t> last_phases[kMaxSlicesPerMember] = {};
    char padding[128];
  };
  // All members write it, so it shares no cache line with what they read.
  struct FinishedSlices {
    char padding[128];
    std::atomic<int64_t> count{0};
    char more_padding[128];
  };

  ParallelRunner* const runner_;
  const std::shared_ptr<TeamRecruiter> recruiter_;
  const int64_t size_;
  const Program& program_;
  std::vector<Claims> claims_;
  uint64_t helper_indices_ = 0;  // a bit for each index in use; guarded by the recruiter's lock
  std::exception_ptr failure_;   // written once, before has_failed_
  FinishedSlices finished_slices_;
  // Written rarely, read in every phase.
  std::atomic<int64_t> num_helpers_{0};
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> is_failing_{false};
  std::atomic<bool> has_failed_{false};
};

// A wait for other threads with backoff: pauses at first, unless other threads may want the core,
// then yields the core, and finally (after milliseconds) sleeps.
class Backoff {
 public:
  explicit Backoff(bool pauses = true) : pauses_(pauses) {}
  void Wait();
  // Returns whether the wait since construction or Reset is longer than `nanoseconds`.
  bool IsOver(int64_t nanoseconds);
  void Reset() { num_waits_ = 0; }

 private:
  const bool pauses_;
  int64_t num_waits_ = 0;
  std::chrono::steady_clock::time_point start_;  // first reading of the clock in this wait
};

class TeamMember {
 public:
  // A member without a team, which runs everything itself.
  TeamMember() : team_(nullptr), index_(0) {}
  TeamMember(Team* team, int64_t index) : team_(team), index_(index) {}

  int64_t team_size() const { return team_ == nullptr ? 1 : team_->size(); }

  // Returns true for a helper that has left the team: its program may skip the remaining phases.
  bool has_left() const { return has_left_; }

  // Returns the least processor cycles of a phase that is worth sharing.
  int64_t min_cycles_to_wait() const {
    return team_ == nullptr ? std::numeric_limits<int64_t>::max()
                            : team_->runner().min_cycles_to_wait();
  }

  // Calls work(begin, end) on disjoint ranges that cover [0, num_items); a barrier follows.
  // `item_cost` is the approximate number of processor cycles per item. More slices per member
  // balance better; with one, similar phases have the same items on the same member. Throws what
  // `work` throws; on member 0, also what `work` throws on other members.
  template <typename Work>
  void ForEach(int64_t num_items, int64_t item_cost, const Work& work,
               int64_t max_slices_per_member = Team::kMaxSlicesPerMember) {
    if (num_items <= 0) return;
    if (team_ == nullptr) {
      work(0, num_items);
      return;
    }
    if (has_left_) return;
    const int64_t cost = PhaseCost(num_items, item_cost);
    const int64_t num_slices = NumSlices(num_items, cost, max_slices_per_member);
    ++phase_;
    barrier_ += num_slices;
    if (team_->IsBarrierOpen(barrier_)) {
      has_left_ = index_ != 0 && team_->is_closed();
      return;
    }
    if (num_slices == 1) {
      if (index_ != 0) return WaitAtBarrierAsHelper(team_->runner().serial_patience_ns());
      work(0, num_items);
      team_->FinishSlice();
      return;
    }
    if (index_ == 0) RecruitFor(cost, num_slices);
    const int64_t first = num_slices * index_ / team_->size();
    for (int64_t i = 0; i < num_slices; ++i) {
      const int64_t slice = (first + i) % num_slices;
      if (!team_->Claim(slice, num_slices, phase_)) continue;
      work(num_items * slice / num_slices, num_items * (slice + 1) / num_slices);
      team_->FinishSlice();
      patience_.Reset();
    }
    if (index_ == 0) {
      WaitAtBarrierAsCaller();
    } else {
      WaitAtBarrierAsHelper(team_->runner().shared_patience_ns());
    }
  }

  // Calls work() once, on member 0.
  template <typename Work>
  void Single(const Work& work) {
    ForEach(1, 1, [&](int64_t, int64_t) { work(); });
  }

 private:
  // Above this cost, the product with a number of items might overflow.
  static constexpr int64_t kManyCycles = int64_t(1) << 20;

  // Returns the processor cycles of a phase; if the product might overflow, a lower bound.
  static int64_t PhaseCost(int64_t num_items, int64_t item_cost) {
    if (item_cost <= kManyCycles) return item_cost * num_items;
    return std::max(item_cost, kManyCycles * std::min(num_items, kManyCycles));
  }
  // Returns 1 if sharing is not worthwhile; otherwise limits the number so that no slice is tiny.
  // More than kSlicesPerMember must be longer: all members write the counter of finished slices,
  // so the time to write it grows with the team.
  int64_t NumSlices(int64_t num_items, int64_t cost, int64_t max_slices_per_member) const {
    const int64_t barrier_cost = min_cycles_to_wait();
    if (cost < barrier_cost) return 1;
    const auto limited = [&](int64_t least_cost, int64_t slices_per_member) {
      const int64_t affordable = least_cost == 0 ? num_items : cost / least_cost;
      return std::min({num_items, affordable, team_->size() * slices_per_member});
    };
    const int64_t usual = std::min(Team::kSlicesPerMember, max_slices_per_member);
    return std::max(limited(barrier_cost / 4, usual),
                    limited(8 * team_->size() * barrier_cost, max_slices_per_member));
  }
  // Recruits helpers once the phases with more slices than members add up to enough work to wake a
  // thread.
  void RecruitFor(int64_t cost, int64_t num_slices) {
    if (team_->num_helpers() + 1 >= std::min(num_slices, team_->size())) return;
    unshared_cycles_ += std::min(cost, kManyCycles);
    if (unshared_cycles_ < team_->runner().min_cycles_to_wake()) return;
    unshared_cycles_ = 0;
    team_->Recruit();
  }
  void WaitAtBarrierAsCaller() const;
  void WaitAtBarrierAsHelper(int64_t patience);

  Team* const team_;
  const int64_t index_;
  int64_t phase_ = 0;
  int64_t barrier_ = 0;          // slices finished in total at the end of the current phase
  int64_t unshared_cycles_ = 0;  // of member 0, since it last recruited
  Backoff patience_;             // of a helper, since it last worked
  bool has_left_ = false;
};

// Returns how many threads a program of `cost` processor cycles justifies, from 1 to `max_members`.
int64_t TeamSize(const ParallelRunner& runner, int64_t cost,
                 int64_t max_members = Team::kMaxMembers);

// Runs the program on the calling thread and, if `cost` (approximate processor cycles) justifies
// it, on other threads of the runner, in all at most `max_members`. Returns when the program is
// done. Throws what the program throws on any member, after all members have left it.
void RunTeam(ParallelRunner* runner, int64_t cost, const Team::Program& program,
             int64_t max_members = Team::kMaxMembers);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_TEAM_H_
