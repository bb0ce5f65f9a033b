// Finds helpers for the teams of one thread pool.
//
// A scheduled task is not tied to a call: when a thread runs it, the task joins the open team with
// the fewest helpers, or ends at once if no team has a vacancy. Tasks that have not started yet
// serve later calls, so a busy pool's queue holds at most one task per thread, and a task holds no
// memory of any call.
//
// If calls follow each other closely, as in a decode loop, waking a helper takes as long as a good
// part of a call. A helper that has left its team then lingers: for a bounded time it keeps its
// thread, and nothing of the call, and polls for the next recruitment. Calls that are further apart
// or overlap have no lingering helpers: other work wants the threads.
#ifndef CUDNN_RNN_CC_CORE_TEAM_RECRUITER_H_
#define CUDNN_RNN_CC_CORE_TEAM_RECRUITER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cudnn_rnn {

class ParallelRunner;
class Team;

// Thread-safe. Owned by the calls and the tasks that use it.
class TeamRecruiter : public std::enable_shared_from_this<TeamRecruiter> {
 public:
  // Lets helpers join the team. May throw std::bad_alloc; the team is then not open.
  void Open(Team* team);

  // Schedules tasks for the vacancies of all open teams, minus tasks that have not started yet.
  // Never throws, since a team also works without helpers.
  void Recruit(ParallelRunner* runner);

  // Stops helpers from joining the team. Helpers that joined before may still be working.
  void Close(Team* team);

 private:
  class Task;

  void RunTask();
  // Adds this thread to the neediest team, or returns null.
  Team* Join(int64_t* index);
  // Removes a helper from its team, which may be gone from there on. Returns the nanoseconds for
  // which it is expected to linger, counted as lingering, and the recruitments so far.
  int64_t Leave(Team* team, int64_t index, int64_t* num_recruitments);
  // Lingers. Returns whether somebody has recruited since, and counts on this thread. Otherwise it
  // must go, even if a team has a vacancy: its caller may have nothing to share for long.
  bool Linger(int64_t nanoseconds, int64_t num_recruitments);

  std::mutex mutex_;
  std::vector<Team*> open_teams_;  // guarded by mutex_, as are each team's helper indices
  std::atomic<int64_t> num_waiting_tasks_{0};  // scheduled, not started
  int64_t num_lingering_ = 0;                  // helpers; guarded by mutex_
  int64_t linger_ns_ = 0;                      // of the helpers that leave now; guarded by mutex_
  std::chrono::steady_clock::time_point last_end_;  // of a call; guarded by mutex_
  std::atomic<int64_t> num_recruitments_{0};        // written under mutex_
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_TEAM_RECRUITER_H_
