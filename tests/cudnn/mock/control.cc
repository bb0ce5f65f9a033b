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

template <typename Value, typename Given>
void SetOption(Value Options::*option, Given value) {
  Lock lock(GetState().mutex);
  GetState().record.options.*option = static_cast<Value>(value);
}

AlgorithmOptions& OptionsOf(int algorithm) {
  return GetState().record.options.algorithms[algorithm];
}

void InjectFailure(int64_t n, int failure, bool all_later) {
  Lock lock(GetState().mutex);
  Record& record = GetState().record;
  const bool fails = n > 0 && failure != MOCK_NO_FAILURE;
  record.failing_call = fails ? record.fallible_calls + n : 0;
  record.failure = failure;
  record.all_later_calls_fail = all_later;
}

}  // namespace
}  // namespace mock
}  // namespace cudnn_rnn

using namespace cudnn_rnn::mock;  // NOLINT: C functions are outside the namespace

extern "C" {

void mock_reset(void) {
  Lock lock(GetState().mutex);
  GetState().record = Record();
}

void mock_restart(void) {
  mock_reset();
  State& state = GetState();
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
  state.order = StreamOrder();
  state.failed_devices.clear();
}

int64_t mock_calls(const char* function_name) {
  Lock lock(GetState().mutex);
  const Record& record = GetState().record;
  if (function_name == nullptr) return static_cast<int64_t>(record.log.size());
  const auto found = record.calls.find(function_name);
  return found == record.calls.end() ? 0 : found->second;
}

const char* mock_log(void) {
  static thread_local std::string text;
  Lock lock(GetState().mutex);
  text = Lines(GetState().record.log);
  return text.c_str();
}

int64_t mock_host_waits(void) {
  Lock lock(GetState().mutex);
  return GetState().record.host_waits;
}

int64_t mock_violations(void) {
  Lock lock(GetState().mutex);
  return static_cast<int64_t>(GetState().record.violations.size());
}

const char* mock_violation_text(void) {
  static thread_local std::string text;
  Lock lock(GetState().mutex);
  text = Lines(GetState().record.violations);
  return text.c_str();
}

int64_t mock_live(const char* kind) {
  State& state = GetState();
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
  int64_t sum = 0;
  for (const auto& count : counts) sum += count.second;
  if (kind == nullptr) return sum;
  const auto found = counts.find(kind);
  return found == counts.end() ? -1 : found->second;
}

int64_t mock_fallible_calls(void) {
  Lock lock(GetState().mutex);
  return GetState().record.fallible_calls;
}

void mock_fail_call(int64_t n, int failure) { InjectFailure(n, failure, false); }
void mock_fail_calls_from(int64_t n, int failure) { InjectFailure(n, failure, true); }

void mock_set_version(int64_t version) { SetOption(&Options::version, version); }
void mock_set_num_devices(int num_devices) { SetOption(&Options::num_devices, num_devices); }
void mock_set_memory_limit(int64_t bytes) { SetOption(&Options::memory_limit, bytes); }
void mock_set_padded_weights(int padded) { SetOption(&Options::padded_weights, padded); }
void mock_set_pause(int64_t microseconds) { SetOption(&Options::pause_microseconds, microseconds); }
void mock_let_calls_meet(int64_t calls) { SetOption(&Options::calls_to_meet, calls); }
void mock_set_any_memory(int any_memory) { SetOption(&Options::any_memory, any_memory); }
void mock_set_wrong_bfloat16(int wrong_results, int fault) {
  SetOption(&Options::wrong_bfloat16, wrong_results);
  SetOption(&Options::bfloat16_fault, fault);
}
void mock_set_skip_input_biases(int exist) { SetOption(&Options::skip_input_biases, exist); }
void mock_set_loose_matrices(int are_loose) { SetOption(&Options::loose_matrices, are_loose); }

void mock_set_capturing(void* stream, int is_capturing) {
  Lock lock(GetState().mutex);
  std::set<const void*>& streams = GetState().record.options.capturing_streams;
  if (is_capturing) {
    streams.insert(stream);
  } else {
    streams.erase(stream);
  }
}

void mock_set_device(int device, int compute_capability, int multiprocessors,
                     int64_t memory_bytes) {
  Lock lock(GetState().mutex);
  GetState().record.options.devices[device] = {compute_capability, multiprocessors, memory_bytes};
}

int64_t mock_peak_memory(void) {
  Lock lock(GetState().mutex);
  return GetState().record.peak_memory;
}

void mock_set_algorithm_support(int algorithm, int support) {
  mock_limit_algorithm(algorithm, support, -1, -1, -1);
}

void mock_limit_algorithm(int algorithm, int support, int64_t max_steps, int64_t max_batch_size,
                          int min_compute_capability) {
  Lock lock(GetState().mutex);
  OptionsOf(algorithm).support = {support, max_steps, max_batch_size, min_compute_capability};
}

void mock_set_algorithm_time(int algorithm, double forward_ms, double backward_ms) {
  Lock lock(GetState().mutex);
  OptionsOf(algorithm).forward_ms = forward_ms;
  OptionsOf(algorithm).backward_ms = backward_ms;
}

void mock_register_memory(const void* data, int64_t bytes) {
  if (data == nullptr || bytes < 0) return;
  const InMock in_mock;
  Lock lock(GetState().mutex);
  GetState().registered_memory.emplace(reinterpret_cast<uintptr_t>(data),
                                       static_cast<size_t>(bytes));
}

void mock_unregister_memory(const void* data) {
  Lock lock(GetState().mutex);
  auto& memory = GetState().registered_memory;
  const auto found = memory.find(reinterpret_cast<uintptr_t>(data));
  if (found != memory.end()) memory.erase(found);
}

void mock_set_stream_device(void* stream, int device) {
  Lock lock(GetState().mutex);
  GetState().record.options.stream_devices[stream] = device;
}

void mock_set_thread_device(int device) {
  Lock lock(GetState().mutex);
  GetState().contexts[std::this_thread::get_id()].device = device;
}

}  // extern "C"
