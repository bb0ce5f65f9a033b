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

Processor X86Processor() {
  Processor processor;
  processor.architecture = Architecture::kX86;
  return processor;
}
Processor Avx512Processor() {
  Processor processor = X86Processor();
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

Processor NeoverseN1() {
  Processor processor;
  processor.architecture = Architecture::kArm;
  return processor;
}
Processor NeoverseV1() {
  Processor processor = NeoverseN1();
  processor.has_neon_bf16 = true;
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
  Processor processor = X86Processor();
  for (DataType data_type : {DataType::kHalf, DataType::kBfloat16, DataType::kFloat}) {
    ExpectChoice(processor, data_type, InstructionSet::kPortable, "lacks");
    ExpectChoice(Processor(), data_type, InstructionSet::kPortable, "");
  }
  processor.has_avx2 = true;
  ExpectChoice(processor, DataType::kDouble, InstructionSet::kAvx2, "but not AVX-512");
  amx_requests = 0;
  for (const Processor& newer : {Avx512Processor(), Zen4(), SapphireRapids(RequestAmx<0>)}) {
    ExpectChoice(newer, DataType::kFloat, InstructionSet::kAvx512, "has AVX-512");
    ExpectChoice(newer, DataType::kDouble, InstructionSet::kAvx512, "has AVX-512");
  }
  EXPECT(amx_requests == 0, amx_requests);
  for (const Processor& arm : {NeoverseN1(), NeoverseV1()}) {
    ExpectChoice(arm, DataType::kFloat, InstructionSet::kNeon, "have NEON");
    ExpectChoice(arm, DataType::kDouble, InstructionSet::kNeon, "have NEON");
    ExpectChoice(arm, DataType::kHalf, InstructionSet::kNeon, "keep the sums in half");
  }
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
  ExpectChoice(NeoverseN1(), kType, InstructionSet::kNeon, "lacks bfloat16 dot products");
  ExpectChoice(NeoverseV1(), kType, InstructionSet::kNeonBf16, "has bfloat16 dot products");
}

#if defined(__x86_64__)
// Bfloat16 instructions that the system does not list may be emulated in this build.
TEST(ThisProcessorIsTheOneThatTheSystemLists) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (flags.empty() && std::getline(file, line)) {
    if (line.compare(0, 5, "flags") == 0) flags = line + " ";
  }
  EXPECT(!flags.empty());
  const auto has = [&flags](const char* flag) {
    return flags.find(Concatenate(" ", flag, " ")) != std::string::npos;
  };
  const Processor& processor = ThisProcessor();
  EXPECT(processor.architecture == Architecture::kX86);
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
#elif defined(__aarch64__)
// Linux emulates the registers that describe the processor.
TEST(ThisProcessorIsTheOneThatItsRegistersDescribe) {
  uint64_t features;
  asm("mrs %0, id_aa64isar1_el1" : "=r"(features));
  const bool has_bf16 = (features >> 44 & 0xf) != 0;
  const Processor& processor = ThisProcessor();
  EXPECT(processor.architecture == Architecture::kArm);
#if defined(CUDNN_RNN_HAS_NEON_BF16)
  EXPECT(processor.has_neon_bf16 == has_bf16, has_bf16);
#else
  EXPECT(!processor.has_neon_bf16);
#endif
  EXPECT(!processor.has_avx2 && !processor.has_avx512_bf16 && !processor.has_amx_bf16);
}
#endif

TEST(InstructionSetsByName) {
  const Processor processor = SapphireRapids(RequestAmx<0>);
  for (InstructionSet one : InstructionSetsOf(Architecture::kX86)) {
    if (one == InstructionSet::kAmxBf16x3) continue;  // below
    ExpectChoice(processor, DataType::kBfloat16, one, "by name", Name(one));
  }
  for (InstructionSet one : InstructionSetsOf(Architecture::kArm)) {
    ExpectChoice(NeoverseV1(), DataType::kBfloat16, one, "by name", Name(one));
  }
  amx_requests = 0;
  const char* const no_kernels = "adds no kernels for this dtype";
  ExpectChoice(processor, DataType::kFloat, InstructionSet::kAvx512, no_kernels, "amx_bf16");
  ExpectChoice(processor, DataType::kDouble, InstructionSet::kAvx512, no_kernels, "amx_bf16x3");
  ExpectChoice(processor, DataType::kBfloat16, InstructionSet::kAvx2, "by name", "avx2");
  EXPECT(amx_requests == 0, amx_requests);
  for (DataType data_type : {DataType::kHalf, DataType::kFloat, DataType::kDouble}) {
    ExpectChoice(NeoverseV1(), data_type, InstructionSet::kNeon, no_kernels, "neon_bf16");
  }
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
  EXPECT_ERROR(ChooseInstructionSet("neon_bf16", DataType::kFloat, NeoverseN1(), &choice),
               "does not support the instruction set neon_bf16", "default, or neon or portable.");
}

// Each architecture has names of its own, all of which an error lists.
TEST(UnknownNamesOfInstructionSets) {
  InstructionSetChoice choice;
  for (const char* name : {"sse9", "neon", "neon_bf16", "Portable", "avx512 "}) {
    EXPECT_ERROR(ChooseInstructionSet(name, DataType::kFloat, Zen4(), &choice),
                 "The instruction set must be portable, avx2, avx512, avx512_bf16, amx_bf16 or "
                 "amx_bf16x3, but is '",
                 name);
  }
  for (const char* name : {"sve", "avx2", "amx_bf16x3"}) {
    EXPECT_ERROR(ChooseInstructionSet(name, DataType::kFloat, NeoverseV1(), &choice),
                 "The instruction set must be portable, neon or neon_bf16, but is '", name);
  }
  EXPECT_ERROR(ChooseInstructionSet("neon", DataType::kFloat, Processor(), &choice),
               "The instruction set must be portable, but is 'neon'.");
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
