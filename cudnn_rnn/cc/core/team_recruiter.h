// Finds helpers for the teams of one thread pool.
//
// A scheduled task belongs to no call: when a thread runs it, the task joins whichever open team
// has the fewest helpers, and ends at once if no team wants one. Tasks that have not started yet
// serve later calls, so a busy pool's queue holds at most one task for each of its threads, and a
// task holds no memory of any call.
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
  // From now on helpers may join the team. May throw std::bad_alloc; then the team is not open.
  void Open(Team* team);

  // Schedules tasks for the vacancies of all open teams, less those that have not started yet.
  // Never throws: a team works without helpers too.
  void Recruit(ParallelRunner* runner);

  // From now on no helper joins the team. Helpers that joined before may still be at work.
  void Close(Team* team);

 private:
  class Task;

  void RunTask();
  Team* Join(int64_t* index);

  std::mutex mutex_;
  std::vector<Team*> open_teams_;  // guarded by mutex_, as are the helpers' indices of each team
  std::atomic<int64_t> num_waiting_tasks_{0};  // scheduled, not started
};

}  // namespace cudnn_rnn

#endif  // CUDNN_RNN_CC_CORE_TEAM_RECRUITER_H_
