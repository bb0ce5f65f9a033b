// Several threads that run one program together, with a cheap barrier after each of its phases.
//
// Every member calls the program, which consists of phases: ForEach with the same arguments in the
// same order on all of them. A phase's items are cut into slices; each member takes those that are
// its own, then those that nobody has taken yet, and waits until all are done. So a member works
// on the same slice of like phases, whose data stay in its cache.
//
// Member 0 is the calling thread. It waits only for slices that another thread is computing, and
// slices wait for nothing, so no state of the thread pool can block a call. The other members are
// helpers, who come late, early or never. A late helper runs through the phases that are over
// without doing anything. A helper without work for a while leaves, and so gives its thread back;
// the caller recruits another one when there is enough to share again.
//
// A helper that has left still runs to the end of the program, with phases that do nothing. Hence
// a rule for programs: outside the work of its phases a program reads only what was there before
// RunTeam, or what the same member computed.
//
// Items are the same whatever the number of members, so results are too.
#ifndef CUDNN_RNN_CC_CORE_TEAM_H_
#define CUDNN_RNN_CC_CORE_TEAM_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/team_recruiter.h"

namespace cudnn_rnn {

class TeamMember;

// What the members share. Lives on the calling thread's stack, as long as there are helpers.
class Team {
 public:
  using Program = std::function<void(TeamMember*)>;

  static constexpr int64_t kMostMembers = 64;
  static constexpr int64_t kMostSlicesPerMember = 4;

  // At most `size` members, the caller included; at least 2. `runner` and `program` must outlive
  // the team.
  Team(ParallelRunner* runner, int64_t size, const Program& program);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Runs the program as member 0, and ends the team. Throws what the program throws on any member.
  void Run();

  int64_t size() const { return size_; }
  int64_t cycles_worth_waking() const { return cycles_worth_waking_; }
  int64_t cycles_worth_waiting() const { return cycles_worth_waiting_; }

  // For members.

  int64_t serial_patience() const { return serial_patience_; }
  int64_t shared_patience() const { return shared_patience_; }

  // True for one caller in each phase (counted from 1).
  bool Claim(int64_t slice, int64_t phase) {
    std::atomic<int64_t>& last_phase = claims_[static_cast<size_t>(slice)].last_phase;
    int64_t last = last_phase.load(std::memory_order_relaxed);
    return last < phase &&
           last_phase.compare_exchange_strong(last, phase, std::memory_order_relaxed);
  }

  // Whether `num_slices` slices have been done since the beginning.
  bool HasDone(int64_t num_slices) const {
    return done_.load(std::memory_order_acquire) >= num_slices;
  }
  void Done() { done_.fetch_add(1, std::memory_order_acq_rel); }

  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  // Throws what a helper's program threw.
  void RethrowFailure() const;

  // Schedules tasks for the vacancies, by member 0.
  void Recruit() { recruiter_->Recruit(runner_); }

  // The recruiter calls these, all but Help while it holds its lock.

  int64_t num_helpers() const { return num_helpers_.load(std::memory_order_acquire); }
  int64_t num_vacancies() const { return size_ - 1 - num_helpers(); }
  // Returns the new helper's index.
  int64_t AddHelper();
  void RemoveHelper(int64_t index);
  // Runs the program as a helper.
  void Help(int64_t index) noexcept;

 private:
  // Ends the team: no helper joins any more. Returns when all helpers have left; a second call does
  // nothing.
  void Close();

  // Written by different threads, so on cache lines of their own (whatever the alignment).
  struct Claimed {
    std::atomic<int64_t> last_phase{0};
    char padding[120];
  };

  ParallelRunner* const runner_;
  const std::shared_ptr<TeamRecruiter> recruiter_;
  const int64_t size_;
  const Program& program_;
  const int64_t cycles_worth_waking_;
  const int64_t cycles_worth_waiting_;
  const int64_t serial_patience_;
  const int64_t shared_patience_;
  std::vector<Claimed> claims_;
  uint64_t helper_indices_ = 0;  // a bit for each index in use; guarded by the recruiter's lock
  std::exception_ptr failure_;   // written once, before has_failed_
  char padding_[128];
  std::atomic<int64_t> done_{0};
  char more_padding_[128];
  // Written rarely, read in every phase.
  std::atomic<int64_t> num_helpers_{0};
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> is_failing_{false};
  std::atomic<bool> has_failed_{false};
};

// Time spent waiting for other threads: the first pauses keep the core, then the thread yields it,
// and at last (after milliseconds) it sleeps.
class Patience {
 public:
  void Wait();
  // Whether it has waited for longer than this since it was made or reset.
  bool IsOver(int64_t nanoseconds);
  void Reset() { num_waits_ = 0; }

 private:
  int64_t num_waits_ = 0;
  std::chrono::steady_clock::time_point start_;  // of the wait in which the clock was first read
};

class TeamMember {
 public:
  // Alone.
  TeamMember() : team_(nullptr), index_(0) {}
  TeamMember(Team* team, int64_t index) : team_(team), index_(index) {}

  int64_t team_size() const { return team_ == nullptr ? 1 : team_->size(); }

  // True for a helper that has left the team: a program may skip the remaining phases.
  bool has_left() const { return has_left_; }

  // Whether it is worth while to share a phase of so many processor cycles.
  bool Shares(int64_t cycles) const {
    return team_ != nullptr && cycles >= team_->cycles_worth_waiting();
  }

  // Calls work(begin, end) on disjoint ranges that together are [0, num_items), and returns when
  // all are done. `item_cost` is a rough number of processor cycles for one item. More slices
  // balance better; with one for each member, like phases have the same items on the same member.
  // Throws what `work` throws, on member 0 also what it threw elsewhere.
  template <typename Work>
  void ForEach(int64_t num_items, int64_t item_cost, const Work& work,
               int64_t slices_per_member = Team::kMostSlicesPerMember) {
    if (num_items <= 0) return;
    if (team_ == nullptr) {
      work(0, num_items);
      return;
    }
    if (has_left_) return;
    const int64_t cost = item_cost > kManyCycles ? item_cost : item_cost * num_items;
    const int64_t num_slices = NumSlices(num_items, cost, slices_per_member);
    ++phase_;
    target_ += num_slices;
    if (team_->HasDone(target_)) {
      has_left_ = index_ != 0 && team_->is_closed();
      return;
    }
    if (num_slices == 1) {
      if (index_ != 0) return WaitAsHelper(team_->serial_patience());
      work(0, num_items);
      team_->Done();
      return;
    }
    if (index_ == 0) RecruitFor(cost);
    const int64_t first = num_slices * index_ / team_->size();
    for (int64_t i = 0; i < num_slices; ++i) {
      const int64_t slice = (first + i) % num_slices;
      if (!team_->Claim(slice, phase_)) continue;
      work(num_items * slice / num_slices, num_items * (slice + 1) / num_slices);
      team_->Done();
      patience_.Reset();
    }
    if (index_ == 0) {
      WaitAsCaller();
    } else {
      WaitAsHelper(team_->shared_patience());
    }
  }

  // Calls work() once.
  template <typename Work>
  void Once(const Work& work) {
    ForEach(1, 1, [&](int64_t, int64_t) { work(); });
  }

 private:
  // So many that the product with a number of items might overflow.
  static constexpr int64_t kManyCycles = int64_t(1) << 20;

  // One where sharing is not worth while, and none that is much smaller than what is.
  int64_t NumSlices(int64_t num_items, int64_t cost, int64_t slices_per_member) const {
    if (!Shares(cost)) return 1;
    const int64_t least_cost = team_->cycles_worth_waiting() / 4;
    const int64_t affordable = least_cost == 0 ? num_items : cost / least_cost;
    return std::min(std::min(num_items, affordable), team_->size() * slices_per_member);
  }
  // Recruits helpers once the phases with vacancies were together worth waking a thread.
  void RecruitFor(int64_t cost) {
    if (team_->num_vacancies() == 0) return;
    unshared_cycles_ += std::min(cost, kManyCycles);
    if (unshared_cycles_ < team_->cycles_worth_waking()) return;
    unshared_cycles_ = 0;
    team_->Recruit();
  }
  void WaitAsCaller() const;
  void WaitAsHelper(int64_t patience);

  Team* const team_;
  const int64_t index_;
  int64_t phase_ = 0;
  int64_t target_ = 0;           // slices done when this member's current phase is over
  int64_t unshared_cycles_ = 0;  // of member 0, since it last recruited
  Patience patience_;            // of a helper, since it last worked
  bool has_left_ = false;
};

// Runs the program on the calling thread and, where `cost` (processor cycles, roughly) makes it
// worth while, on others of the runner. Returns when all of it is done. Throws what the program
// throws on any member, when all members have left it.
void RunTeam(ParallelRunner* runner, int64_t cost, const Team::Program& program);

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_TEAM_H_
