// The functions of mock_cudnn.h, by which tests control the mock.

#include <cstdlib>

#include "tests/cudnn/mock/state.h"

namespace cudnn_rnn {
namespace mock {
namespace {

using Lock = std::lock_guard<std::mutex>;

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Options& Settings() { return TheState().record.options; }

void OrderFailure(int64_t n, int failure, bool all_later) {
  Lock lock(TheState().mutex);
  Record& record = TheState().record;
  const bool fails = n > 0 && failure != MOCK_NO_FAILURE;
  record.failing_call = fails ? record.fallible_calls + n : 0;
  record.failure = failure;
  record.all_later_calls_fail = all_later;
}

}  // namespace
}  // namespace mock
}  // namespace cudnn_rnn

using cudnn_rnn::mock::Lines;
using cudnn_rnn::mock::Lock;
using cudnn_rnn::mock::Settings;
using cudnn_rnn::mock::State;
using cudnn_rnn::mock::TheState;

extern "C" {

void mock_reset(void) {
  Lock lock(TheState().mutex);
  TheState().record = cudnn_rnn::mock::Record();
}

void mock_restart(void) {
  mock_reset();
  State& state = TheState();
  Lock lock(state.mutex);
  for (const auto& allocation : state.allocations) {
    std::free(reinterpret_cast<void*>(allocation.first));
  }
  state.allocations.clear();
  state.is_initialized = false;
  state.handles.all().clear();
  state.tensor_descriptors.all().clear();
  state.dropout_descriptors.all().clear();
  state.rnn_descriptors.all().clear();
  state.rnn_data_descriptors.all().clear();
  state.events.all().clear();
  state.contexts.clear();
  state.stream_times_ms.clear();
}

int64_t mock_calls(const char* function_name) {
  Lock lock(TheState().mutex);
  const auto& record = TheState().record;
  if (function_name == nullptr) return static_cast<int64_t>(record.log.size());
  const auto found = record.calls.find(function_name);
  return found == record.calls.end() ? 0 : found->second;
}

const char* mock_log(void) {
  static thread_local std::string text;
  Lock lock(TheState().mutex);
  text = Lines(TheState().record.log);
  return text.c_str();
}

int64_t mock_host_waits(void) {
  Lock lock(TheState().mutex);
  return TheState().record.host_waits;
}

int64_t mock_dropout_initializations(void) {
  Lock lock(TheState().mutex);
  return TheState().record.dropout_initializations;
}

int64_t mock_violations(void) {
  Lock lock(TheState().mutex);
  return static_cast<int64_t>(TheState().record.violations.size());
}

const char* mock_violation_text(void) {
  static thread_local std::string text;
  Lock lock(TheState().mutex);
  text = Lines(TheState().record.violations);
  return text.c_str();
}

int64_t mock_live(const char* kind) {
  State& state = TheState();
  Lock lock(state.mutex);
  const std::map<std::string, int64_t> counts = {
      {"handle", state.handles.size()},
      {"tensor_descriptor", state.tensor_descriptors.size()},
      {"dropout_descriptor", state.dropout_descriptors.size()},
      {"rnn_descriptor", state.rnn_descriptors.size()},
      {"rnn_data_descriptor", state.rnn_data_descriptors.size()},
      {"event", state.events.size()},
      {"allocation", static_cast<int64_t>(state.allocations.size())},
      {"pushed_context", state.pushed_contexts()},
  };
  if (kind == nullptr) {
    int64_t sum = 0;
    for (const auto& count : counts) sum += count.second;
    return sum;
  }
  const auto found = counts.find(kind);
  return found == counts.end() ? -1 : found->second;
}

int64_t mock_allocated_bytes(void) {
  Lock lock(TheState().mutex);
  return TheState().allocated_bytes();
}

int64_t mock_fallible_calls(void) {
  Lock lock(TheState().mutex);
  return TheState().record.fallible_calls;
}

void mock_fail_call(int64_t n, int failure) { cudnn_rnn::mock::OrderFailure(n, failure, false); }

void mock_fail_calls_from(int64_t n, int failure) {
  cudnn_rnn::mock::OrderFailure(n, failure, true);
}

void mock_fail_function(const char* function_name, int failure) {
  Lock lock(TheState().mutex);
  auto& failing = TheState().record.failing_functions;
  if (function_name == nullptr) {
    if (failure == MOCK_NO_FAILURE) failing.clear();
  } else if (failure == MOCK_NO_FAILURE) {
    failing.erase(function_name);
  } else {
    failing[function_name] = failure;
  }
}

const char* mock_failed_function(void) {
  static thread_local std::string name;
  Lock lock(TheState().mutex);
  name = TheState().record.failed_function;
  return name.c_str();
}

void mock_set_version(int64_t version) {
  Lock lock(TheState().mutex);
  Settings().version = version;
}

void mock_set_driver_version(int version) {
  Lock lock(TheState().mutex);
  Settings().driver_version = version;
}

void mock_set_num_devices(int num_devices) {
  Lock lock(TheState().mutex);
  Settings().num_devices = num_devices;
}

void mock_set_memory_limit(int64_t bytes) {
  Lock lock(TheState().mutex);
  Settings().memory_limit = bytes;
}

void mock_set_algorithm_support(int algorithm, int support) {
  if (algorithm < 0 || algorithm >= cudnn_rnn::mock::kNumAlgorithms) return;
  Lock lock(TheState().mutex);
  Settings().algorithms[algorithm].support = support;
}

void mock_set_algorithm_time(int algorithm, double forward_ms, double backward_ms) {
  if (algorithm < 0 || algorithm >= cudnn_rnn::mock::kNumAlgorithms) return;
  Lock lock(TheState().mutex);
  Settings().algorithms[algorithm].forward_ms = forward_ms;
  Settings().algorithms[algorithm].backward_ms = backward_ms;
}

void mock_set_padded_weights(int padded) {
  Lock lock(TheState().mutex);
  Settings().padded_weights = padded != 0;
}

void mock_set_pause(int64_t microseconds) {
  Lock lock(TheState().mutex);
  Settings().pause_microseconds = microseconds;
}

void mock_let_calls_meet(int64_t calls) {
  Lock lock(TheState().mutex);
  Settings().calls_to_meet = calls;
}

void mock_register_memory(const void* data, int64_t bytes) {
  if (data == nullptr || bytes < 0) return;
  Lock lock(TheState().mutex);
  TheState().registered_memory.emplace(reinterpret_cast<uintptr_t>(data),
                                       static_cast<size_t>(bytes));
}

void mock_unregister_memory(const void* data) {
  Lock lock(TheState().mutex);
  auto& memory = TheState().registered_memory;
  const auto found = memory.find(reinterpret_cast<uintptr_t>(data));
  if (found != memory.end()) memory.erase(found);
}

void mock_set_any_memory(int any_memory) {
  Lock lock(TheState().mutex);
  Settings().any_memory = any_memory != 0;
}

void mock_set_stream_device(void* stream, int device) {
  Lock lock(TheState().mutex);
  Settings().stream_devices[stream] = device;
}

void mock_set_thread_device(int device) {
  Lock lock(TheState().mutex);
  TheState().contexts[std::this_thread::get_id()].device = device;
}

}  // extern "C"
