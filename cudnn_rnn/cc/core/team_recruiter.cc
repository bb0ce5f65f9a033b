#include "cudnn_rnn/cc/core/team_recruiter.h"

#include <algorithm>

#include "cudnn_rnn/cc/core/parallel_runner.h"
#include "cudnn_rnn/cc/core/team.h"

namespace cudnn_rnn {
namespace {

// True while this thread is inside ParallelRunner::Schedule. A pool with a full queue runs the task
// there; the thread then has work of its own and must not help another team first.
thread_local bool is_scheduling = false;

class SchedulingScope {
 public:
  SchedulingScope() : outer_(is_scheduling) { is_scheduling = true; }
  ~SchedulingScope() { is_scheduling = outer_; }

 private:
  const bool outer_;
};

}  // namespace

// A scheduled task, counted as waiting until it starts. A pool may also destroy it unused.
class TeamRecruiter::Task {
 public:
  explicit Task(std::shared_ptr<TeamRecruiter> recruiter) : recruiter_(std::move(recruiter)) {
    ++recruiter_->num_waiting_tasks_;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { Start(); }

  void Run() {
    if (Start() && !is_scheduling) recruiter_->RunTask();
  }

 private:
  // Returns true to the first caller.
  bool Start() {
    if (started_.exchange(true)) return false;
    --recruiter_->num_waiting_tasks_;
    return true;
  }

  const std::shared_ptr<TeamRecruiter> recruiter_;
  std::atomic<bool> started_{false};
};

void TeamRecruiter::Open(Team* team) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t wanted = team->runner().linger_ns();
  const bool is_soon =
      wanted > 0 && open_teams_.empty() &&
      std::chrono::steady_clock::now() - last_end_ <= std::chrono::nanoseconds(wanted);
  linger_ns_ = is_soon ? wanted : 0;
  open_teams_.push_back(team);
}

void TeamRecruiter::Recruit(ParallelRunner* runner) {
  int64_t num_vacancies = 0, num_lingering;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Team* team : open_teams_) num_vacancies += team->num_vacancies();
    num_lingering = num_lingering_;
    num_recruitments_.fetch_add(1, std::memory_order_release);
  }
  // Computed before the loop: a runner that runs each task immediately leaves none waiting.
  const int64_t num_tasks =
      std::min(num_vacancies, runner->num_threads()) - num_lingering - num_waiting_tasks_.load();
  const SchedulingScope scope;
  try {
    for (int64_t i = 0; i < num_tasks; ++i) {
      const auto task = std::make_shared<Task>(shared_from_this());
      runner->Schedule([task] { task->Run(); });
    }
  } catch (...) {
    // Out of memory, or the pool refused the task: the present members do the work.
  }
}

void TeamRecruiter::Close(Team* team) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find(open_teams_.begin(), open_teams_.end(), team);
  if (found != open_teams_.end()) open_teams_.erase(found);
  if (team->runner().linger_ns() > 0) last_end_ = std::chrono::steady_clock::now();
}

Team* TeamRecruiter::Join(int64_t* index) {
  std::lock_guard<std::mutex> lock(mutex_);
  Team* neediest = nullptr;
  for (Team* team : open_teams_) {
    if (team->num_vacancies() == 0) continue;
    if (neediest == nullptr || team->num_helpers() < neediest->num_helpers()) neediest = team;
  }
  if (neediest != nullptr) *index = neediest->AddHelper();
  return neediest;
}

int64_t TeamRecruiter::Leave(Team* team, int64_t index, int64_t* num_recruitments) {
  std::lock_guard<std::mutex> lock(mutex_);
  team->RemoveHelper(index);
  if (linger_ns_ == 0) return 0;
  ++num_lingering_;
  *num_recruitments = num_recruitments_.load(std::memory_order_relaxed);
  return linger_ns_;
}

bool TeamRecruiter::Linger(int64_t nanoseconds, int64_t num_recruitments) {
  Backoff patience(/*pauses=*/false);
  while (!patience.IsOver(nanoseconds) &&
         num_recruitments_.load(std::memory_order_acquire) == num_recruitments) {
    patience.Wait();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  --num_lingering_;
  return num_recruitments_.load(std::memory_order_relaxed) != num_recruitments;
}

void TeamRecruiter::RunTask() {
  int64_t index = 0, linger_ns, num_recruitments = 0;
  do {
    Team* const team = Join(&index);
    if (team == nullptr) return;
    team->Help(index);
    linger_ns = Leave(team, index, &num_recruitments);
  } while (linger_ns > 0 && Linger(linger_ns, num_recruitments));
}

}  // namespace cudnn_rnn
