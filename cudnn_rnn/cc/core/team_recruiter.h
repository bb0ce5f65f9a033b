// Finds helpers for the teams of one thread pool.
//
// A scheduled task is not tied to a call: when a thread runs it, the task joins the open team with
// the fewest helpers, or ends at once if no team has a vacancy. Tasks that have not started yet
// serve later calls, so a busy pool's queue holds at most one task per thread, and a task holds no
// memory of any call.
#ifndef CUDNN_RNN_CC_CORE_TEAM_RECRUITER_H_
#define CUDNN_RNN_CC_CORE_TEAM_RECRUITER_H_

#include <atomic>
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
  Team* Join(int64_t* index);

  std::mutex mutex_;
  std::vector<Team*> open_teams_;  // guarded by mutex_, as are each team's helper indices
  std::atomic<int64_t> num_waiting_tasks_{0};  // scheduled, not started
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_TEAM_RECRUITER_H_
