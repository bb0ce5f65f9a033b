// Tests the choice of the instruction set, on processors described by their features, and the use
// of AMX on this one by threads and processes other than the one that requested it.

#include "cudnn_rnn/cc/cpu/instruction_set.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/plan_runner.h"
#include "tests/core/testing.h"
#include "tests/core/threads.h"

namespace cudnn_rnn {
namespace {

int amx_requests = 0;

template <int error>
int RequestAmx() {
  ++amx_requests;
  return error;
}

Processor Avx512Processor() {
  Processor processor;
  processor.has_avx2 = processor.has_avx512 = true;
  processor.request_amx = RequestAmx<0>;
  return processor;
}
Processor CooperLake() {
  Processor processor = Avx512Processor();
  processor.has_avx512_bf16 = true;
  return processor;
}
Processor Zen4() {
  Processor processor = CooperLake();
  processor.is_amd = true;
  return processor;
}
Processor SapphireRapids(int (*request_amx)()) {
  Processor processor = CooperLake();
  processor.has_amx_bf16 = true;
  processor.request_amx = request_amx;
  return processor;
}

void ExpectChoice(const Processor& processor, DataType data_type, InstructionSet expected,
                  const std::string& part_of_reason, const std::string& wanted = "") {
  InstructionSetChoice choice;
  const Status status = ChooseInstructionSet(wanted, data_type, processor, &choice);
  EXPECT(status.ok(), status.message());
  EXPECT(choice.instruction_set == expected, Name(choice.instruction_set), " for ",
         Name(data_type));
  EXPECT(choice.reason.find(part_of_reason) != std::string::npos, "'", part_of_reason,
         "' in: ", choice.reason);
}

TEST(FloatModelsUseTheWidestVectors) {
  Processor processor;
  for (DataType data_type : {DataType::kHalf, DataType::kBfloat16, DataType::kFloat}) {
    ExpectChoice(processor, data_type, InstructionSet::kPortable, "");
  }
  processor.has_avx2 = true;
  ExpectChoice(processor, DataType::kDouble, InstructionSet::kAvx2, "but not AVX-512");
  amx_requests = 0;
  for (const Processor& newer : {Avx512Processor(), Zen4(), SapphireRapids(RequestAmx<0>)}) {
    ExpectChoice(newer, DataType::kFloat, InstructionSet::kAvx512, "has AVX-512");
    ExpectChoice(newer, DataType::kDouble, InstructionSet::kAvx512, "has AVX-512");
  }
  EXPECT(amx_requests == 0, amx_requests);
}

TEST(HalfModelsUseAmxIfTheSystemPermitsIt) {
  for (const Processor& processor :
       {Avx512Processor(), Zen4(), SapphireRapids(RequestAmx<EPERM>)}) {
    ExpectChoice(processor, DataType::kHalf, InstructionSet::kAvx512, "AVX512-FP16");
  }
  ExpectChoice(SapphireRapids(RequestAmx<0>), DataType::kHalf, InstructionSet::kAmxBf16x3,
               "hold a half exactly");
}

TEST(Bfloat16ModelsUseBfloat16ProductsOnlyIfTheyAreFast) {
  constexpr DataType kType = DataType::kBfloat16;
  ExpectChoice(Avx512Processor(), kType, InstructionSet::kAvx512, "lacks AVX512-BF16");
  ExpectChoice(CooperLake(), kType, InstructionSet::kAvx512, "slower than float");
  ExpectChoice(Zen4(), kType, InstructionSet::kAvx512Bf16, "full rate");
  amx_requests = 0;
  ExpectChoice(SapphireRapids(RequestAmx<0>), kType, InstructionSet::kAmxBf16, "permits");
  EXPECT(amx_requests == 1, amx_requests);
  ExpectChoice(SapphireRapids(RequestAmx<EPERM>), kType, InstructionSet::kAvx512, "refuses");
  ExpectChoice(SapphireRapids(RequestAmx<ENOSPC>), kType, InstructionSet::kAvx512, "signal stack");
}

// Bfloat16 instructions that the system does not list may be emulated in this build.
TEST(ThisProcessorIsTheOneThatTheSystemLists) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (flags.empty() && std::getline(file, line)) {
    if (line.compare(0, 5, "flags") == 0) flags = line + " ";
  }
  if (flags.empty()) return;  // not Linux on x86
  const auto has = [&flags](const char* flag) {
    return flags.find(Concatenate(" ", flag, " ")) != std::string::npos;
  };
  const Processor& processor = ThisProcessor();
  EXPECT(processor.has_avx2 == (has("avx2") && has("fma")));
  const bool has_avx512 = has("avx512f") && has("avx512dq") && has("avx512bw") && has("avx512vl");
  EXPECT(processor.has_avx512 == (processor.has_avx2 && has_avx512));
#if defined(CUDNN_RNN_HAS_AVX512_BF16)
  if (has_avx512 && has("avx512_bf16")) EXPECT(processor.has_avx512_bf16);
#endif
#if defined(CUDNN_RNN_HAS_AMX_BF16)
  if (has_avx512 && has("avx512_bf16") && has("amx_bf16")) EXPECT(processor.has_amx_bf16);
#endif
  EXPECT(processor.request_amx != nullptr && processor.request_amx() >= 0);
}

TEST(InstructionSetsByName) {
  const Processor processor = SapphireRapids(RequestAmx<0>);
  for (const char* name : {"portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"}) {
    InstructionSetChoice choice;
    EXPECT(ChooseInstructionSet(name, DataType::kBfloat16, processor, &choice).ok(), name);
    EXPECT(Name(choice.instruction_set) == std::string(name), Name(choice.instruction_set));
  }
  amx_requests = 0;
  const char* const no_kernels = "adds no kernels for this dtype";
  ExpectChoice(processor, DataType::kFloat, InstructionSet::kAvx512, no_kernels, "amx_bf16");
  ExpectChoice(processor, DataType::kDouble, InstructionSet::kAvx512, no_kernels, "amx_bf16x3");
  ExpectChoice(processor, DataType::kBfloat16, InstructionSet::kAvx2, "by name", "avx2");
  EXPECT(amx_requests == 0, amx_requests);
  for (DataType data_type : {DataType::kHalf, DataType::kFloat}) {
    ExpectChoice(processor, data_type, InstructionSet::kAmxBf16x3, "by name", "amx_bf16x3");
  }
  ExpectChoice(processor, DataType::kBfloat16, InstructionSet::kAmxBf16, no_kernels, "amx_bf16x3");

  InstructionSetChoice choice;
  EXPECT_ERROR(ChooseInstructionSet("amx_bf16", DataType::kBfloat16,
                                    SapphireRapids(RequestAmx<EPERM>), &choice),
               "amx_bf16 cannot be used", "refuses", "use the default");
  EXPECT_ERROR(ChooseInstructionSet("amx_bf16", DataType::kFloat, Zen4(), &choice),
               "does not support the instruction set amx_bf16", "avx2 or portable");
  EXPECT_ERROR(ChooseInstructionSet("sse9", DataType::kFloat, Zen4(), &choice), "'sse9'", "avx2");
}

// Returns the output of a bfloat16 model with the default kernels.
Vector Bfloat16Output() {
  Problem problem;
  problem.config.data_type = DataType::kBfloat16;
  problem.config.num_units = problem.config.input_size = 40;
  problem.shape = {3, 17};
  Tensors tensors = MakeTensors(problem);
  SerialRunner runner;
  RunCpuPlan(problem, &runner, /*is_training=*/false, &tensors);
  return tensors.output;
}

// TensorFlow's threads are older than the first bfloat16 model, which requests AMX.
TEST(ThreadsMayUseAmxThatIsRequestedLater) {
  std::promise<void> start;
  const std::shared_future<void> started = start.get_future().share();
  std::vector<Vector> outputs(3);
  std::vector<std::thread> threads;
  for (Vector& output : outputs) {
    threads.emplace_back([&output, started] {
      started.wait();
      output = Bfloat16Output();
    });
  }
  const Vector expected = Bfloat16Output();
  start.set_value();
  for (std::thread& thread : threads) thread.join();
  for (const Vector& output : outputs) EXPECT(SameBits(output, expected));
}

TEST(ForkedProcessesMayUseAmx) {
  const Vector expected = Bfloat16Output();
  const pid_t child = fork();
  if (child == 0) _exit(SameBits(Bfloat16Output(), expected) ? 0 : 1);
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0, status);
}

}  // namespace
}  // namespace cudnn_rnn
