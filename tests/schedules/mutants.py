"""Checks that tests/schedules finds errors: mutates the team, and explores each mutant.

Prints a line per mutant: what found it, or that it survived. A mutant that survives without being
listed as harmless is a failure, and so is a harmless one that is found.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CORE = pathlib.Path("cudnn_rnn/cc/core")
FOLDER = ROOT / ".build" / "schedules-mutant"
BUILD = ROOT / ".build" / "schedules-of-mutants"
FINISH = "{ finished_slices_.count.fetch_add(1, std::memory_order_acq_rel); }"
LOCK = "  std::lock_guard<std::mutex> lock(mutex_);\n"

# Name, file, text, replacement.
MUTANTS = [
    (
        "the barrier's load is relaxed",
        "team.h",
        "finished_slices_.count.load(std::memory_order_acquire)",
        "finished_slices_.count.load(std::memory_order_relaxed)",
    ),
    ("FinishSlice is relaxed", "team.h", FINISH, FINISH.replace("acq_rel", "relaxed")),
    ("FinishSlice only acquires", "team.h", FINISH, FINISH.replace("acq_rel", "acquire")),
    (
        "the barrier opens one slice early",
        "team.h",
        "memory_order_acquire) >= num_slices",
        "memory_order_acquire) + 1 >= num_slices",
    ),
    (
        "the barrier opens one slice late",
        "team.h",
        "memory_order_acquire) >= num_slices",
        "memory_order_acquire) > num_slices",
    ),
    (
        "Claim does not compare",
        "team.h",
        "last_phase.compare_exchange_strong(last, phase, std::memory_order_relaxed);",
        "(last_phase.store(phase, std::memory_order_relaxed), true);",
    ),
    ("Claim takes claimed slices", "team.h", "return last < phase &&", "return last <= phase &&"),
    (
        "helpers compute Single, too",
        "team.h",
        "if (index_ != 0) return WaitAtBarrierAsHelper(team_->serial_patience_ns());",
        "",
    ),
    (
        "num_helpers is relaxed",
        "team.h",
        "num_helpers_.load(std::memory_order_acquire)",
        "num_helpers_.load(std::memory_order_relaxed)",
    ),
    (
        "RemoveHelper is relaxed",
        "team.cc",
        "num_helpers_.fetch_sub(1, std::memory_order_release)",
        "num_helpers_.fetch_sub(1, std::memory_order_relaxed)",
    ),
    (
        "RemoveHelper uses the team after its last word",
        "team.cc",
        "  helper_indices_ &= ~(uint64_t(1) << index);\n"
        "  num_helpers_.fetch_sub(1, std::memory_order_release);\n",
        "  num_helpers_.fetch_sub(1, std::memory_order_release);\n"
        "  helper_indices_ &= ~(uint64_t(1) << index);\n",
    ),
    (
        "RemoveHelper without the lock",
        "team_recruiter.cc",
        LOCK + "  team->RemoveHelper(index);",
        "  team->RemoveHelper(index);",
    ),
    (
        "a task looks at its team after leaving it",
        "team_recruiter.cc",
        "team->RemoveHelper(index);",
        "team->RemoveHelper(index); (void)team->num_helpers();",
    ),
    (
        "Close does not wait for helpers",
        "team.cc",
        "while (num_helpers() > 0) patience.Wait();",
        "",
    ),
    ("Close leaves the team open", "team.cc", "  recruiter_->Close(this);\n", ""),
    (
        "Close removes the team when no helper is left",
        "team.cc",
        "  recruiter_->Close(this);\n  is_closed_.store(true, std::memory_order_release);\n"
        "  Backoff patience;\n  while (num_helpers() > 0) patience.Wait();\n",
        "  is_closed_.store(true, std::memory_order_release);\n  Backoff patience;\n"
        "  while (num_helpers() > 0) patience.Wait();\n  recruiter_->Close(this);\n",
    ),
    (
        "helpers stay when the team is closed",
        "team.cc",
        "if (team_->is_closed() || patience_.IsOver(patience))",
        "if (patience_.IsOver(patience))",
    ),
    (
        "the caller waits for a slice that threw",
        "team.cc",
        "if (team_->has_failed()) team_->RethrowFailure();",
        "",
    ),
    ("Run does not rethrow", "team.cc", "  if (has_failed()) RethrowFailure();\n", ""),
    (
        "has_failed is relaxed",
        "team.h",
        "has_failed_.load(std::memory_order_acquire)",
        "has_failed_.load(std::memory_order_relaxed)",
    ),
    (
        "has_failed is set relaxed",
        "team.cc",
        "has_failed_.store(true, std::memory_order_release)",
        "has_failed_.store(true, std::memory_order_relaxed)",
    ),
    (
        "has_failed is set before the failure",
        "team.cc",
        "    failure_ = std::current_exception();\n"
        "    has_failed_.store(true, std::memory_order_release);\n",
        "    has_failed_.store(true, std::memory_order_release);\n"
        "    failure_ = std::current_exception();\n",
    ),
    (
        "every helper that fails writes the failure",
        "team.cc",
        "    if (is_failing_.exchange(true)) return;\n",
        "",
    ),
    (
        "tasks that start are not counted",
        "team_recruiter.cc",
        "    --recruiter_->num_waiting_tasks_;\n",
        "",
    ),
    (
        "tasks that are destroyed stay counted",
        "team_recruiter.cc",
        "~Task() { Start(); }",
        "~Task() {}",
    ),
    (
        "tasks that run twice count twice",
        "team_recruiter.cc",
        "if (started_.exchange(true)) return false;",
        "if (started_.load()) return false;\n    started_ = true;",
    ),
    (
        "a caller helps itself inside Schedule",
        "team_recruiter.cc",
        "if (Start() && !is_scheduling)",
        "if (Start())",
    ),
    (
        "a helper whose time is up joins again",
        "team_recruiter.cc",
        "return num_recruitments_.load(std::memory_order_relaxed) != num_recruitments;",
        "return true;",
    ),
    (
        "helpers that lingered stay counted",
        "team_recruiter.cc",
        "  --num_lingering_;\n",
        "",
    ),
    (
        "Recruit throws what Schedule throws",
        "team_recruiter.cc",
        "    // Out of memory, or the pool",
        "    throw;\n    // Out of memory, or the pool",
    ),
    (
        "Open without the lock",
        "team_recruiter.cc",
        "::Open(Team* team) {\n" + LOCK,
        "::Open(Team* team) {\n",
    ),
    (
        "Join without the lock",
        "team_recruiter.cc",
        LOCK + "  Team* neediest = nullptr;",
        "  Team* neediest = nullptr;",
    ),
    (
        "Recruit without the lock",
        "team_recruiter.cc",
        "    std::lock_guard<std::mutex> lock(mutex_);\n    for",
        "    for",
    ),
    (
        "Recruit schedules for tasks that wait",
        "team_recruiter.cc",
        " - num_waiting_tasks_.load();",
        ";",
    ),
]

# They change no result and no order that matters; why: docs/reliability.md.
HARMLESS = [
    ("FinishSlice only releases", "team.h", FINISH, FINISH.replace("acq_rel", "release")),
    ("is_closed is relaxed", "team.h",
     "is_closed_.load(std::memory_order_acquire)", "is_closed_.load(std::memory_order_relaxed)"),
    ("is_closed is set relaxed", "team.cc",
     "is_closed_.store(true, std::memory_order_release)",
     "is_closed_.store(true, std::memory_order_relaxed)"),
    ("two helpers have one index", "team.cc", "  helper_indices_ |= uint64_t(1) << index;\n", ""),
    ("full teams take more helpers", "team_recruiter.cc",
     "    if (team->num_vacancies() == 0) continue;\n", ""),
]  # fmt: skip


def explore(name, file, text, replacement, arguments):
    """Builds the mutant and explores it; returns what was found, or None."""
    shutil.rmtree(str(FOLDER), ignore_errors=True)
    shutil.copytree(str(ROOT / CORE), str(FOLDER / CORE))
    source = (FOLDER / CORE / file).read_text(encoding="utf-8")
    if source.count(text) != 1:
        raise SystemExit("%s: %r is %d times in %s" % (name, text, source.count(text), file))
    (FOLDER / CORE / file).write_text(source.replace(text, replacement), encoding="utf-8")
    configure = ["cmake", "--preset=release", "-B", str(BUILD)]
    configure.append("-DCUDNN_RNN_TEAM_FOLDER=%s" % FOLDER)
    for command in configure, ["cmake", "--build", str(BUILD), "--target", "schedules"]:
        subprocess.check_call(command, cwd=str(ROOT), stdout=subprocess.DEVNULL)
    process = subprocess.run(
        [str(BUILD / "programs" / "schedules")] + arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    found = re.findall(r"FAILED ([^:]*): (.*?)(?: \[0x\w+\])?\n", process.stdout)
    if process.returncode == 0:
        return None
    return "%d cases, %s: %s" % ((len(found),) + found[0]) if found else process.stdout[-200:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="as the short form of the trial")
    parser.add_argument("--only", default="", help="mutants whose names contain this")
    chosen = parser.parse_args()
    num_found, wrong = 0, []
    for mutants, is_expected in [(MUTANTS, True), (HARMLESS, False)]:
        for mutant in mutants:
            if chosen.only not in mutant[0]:
                continue
            found = explore(*mutant, arguments=["--short"] * chosen.short)
            print("%s: %s" % (mutant[0], found or "survives"), flush=True)
            num_found += bool(found)
            wrong += [mutant[0]] * (bool(found) != is_expected)
    print("unexpected: %s" % ", ".join(wrong) if wrong else "as expected")
    print("result: %d mutants found" % num_found)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
