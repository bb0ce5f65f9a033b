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

constexpr FactorFormat kExact = FactorFormat::kExact, kSplit = FactorFormat::kSplit,
                       kRounded = FactorFormat::kRounded;

void ExpectChoice(const Processor& processor, FactorFormat factors, InstructionSet expected,
                  const std::string& part_of_reason, const std::string& wanted = "") {
  InstructionSetChoice choice;
  const Status status = ChooseInstructionSet(wanted, factors, processor, &choice);
  EXPECT(status.ok(), status.message());
  EXPECT(choice.instruction_set == expected, Name(choice.instruction_set), " for format ",
         static_cast<int>(factors));
  EXPECT(choice.reason.find(part_of_reason) != std::string::npos, "'", part_of_reason,
         "' in: ", choice.reason);
}

TEST(FactorsKeepWhatTheTypeAndThePrecisionSay) {
  for (Precision precision :
       {Precision::kDefault, Precision::kHighest, Precision::kHigh, Precision::kMedium}) {
    EXPECT(FactorFormatOf(DataType::kDouble, precision) == kExact);
    EXPECT(FactorFormatOf(DataType::kHalf, precision) == kSplit);
    EXPECT(FactorFormatOf(DataType::kBfloat16, precision) == kRounded);
  }
  EXPECT(FactorFormatOf(DataType::kFloat, Precision::kDefault) == kExact);
  EXPECT(FactorFormatOf(DataType::kFloat, Precision::kHighest) == kExact);
  EXPECT(FactorFormatOf(DataType::kFloat, Precision::kHigh) == kSplit);
  EXPECT(FactorFormatOf(DataType::kFloat, Precision::kMedium) == kRounded);
}

TEST(ExactFactorsUseTheWidestVectors) {
  Processor processor = X86Processor();
  for (FactorFormat factors : {kExact, kSplit, kRounded}) {
    ExpectChoice(processor, factors, InstructionSet::kPortable, "lacks");
    ExpectChoice(Processor(), factors, InstructionSet::kPortable, "");
  }
  processor.has_avx2 = true;
  ExpectChoice(processor, kExact, InstructionSet::kAvx2, "but not AVX-512");
  amx_requests = 0;
  for (const Processor& newer : {Avx512Processor(), Zen4(), SapphireRapids(RequestAmx<0>)}) {
    ExpectChoice(newer, kExact, InstructionSet::kAvx512, "has AVX-512");
  }
  EXPECT(amx_requests == 0, amx_requests);
  for (const Processor& arm : {NeoverseN1(), NeoverseV1()}) {
    ExpectChoice(arm, kExact, InstructionSet::kNeon, "have NEON");
    ExpectChoice(arm, kSplit, InstructionSet::kNeon, "lacks AMX");
  }
}

TEST(SplitFactorsUseAmxIfTheSystemPermitsIt) {
  for (const Processor& processor : {Avx512Processor(), Zen4()}) {
    ExpectChoice(processor, kSplit, InstructionSet::kAvx512, "computed in float; the processor or");
  }
  ExpectChoice(SapphireRapids(RequestAmx<EPERM>), kSplit, InstructionSet::kAvx512, "refuses");
  ExpectChoice(
      SapphireRapids(RequestAmx<0>), kSplit, InstructionSet::kAmxBf16,
      "for 8 sequences or more (16 with fewer than 96 units or 8 steps), with two bfloat16 "
      "numbers for each factor");
}

TEST(FactorsAreRoundedOnlyWhereThatIsFast) {
  ExpectChoice(Avx512Processor(), kRounded, InstructionSet::kAvx512, "lacks AVX512-BF16");
  ExpectChoice(CooperLake(), kRounded, InstructionSet::kAvx512, "slower than float");
  ExpectChoice(Zen4(), kRounded, InstructionSet::kAvx512Bf16, "full rate");
  amx_requests = 0;
  ExpectChoice(SapphireRapids(RequestAmx<0>), kRounded, InstructionSet::kAmxBf16, "permits");
  EXPECT(amx_requests == 1, amx_requests);
  ExpectChoice(SapphireRapids(RequestAmx<EPERM>), kRounded, InstructionSet::kAvx512, "refuses");
  ExpectChoice(SapphireRapids(RequestAmx<ENOSPC>), kRounded, InstructionSet::kAvx512,
               "signal stack");
  ExpectChoice(NeoverseN1(), kRounded, InstructionSet::kNeon, "lacks bfloat16 dot products");
  ExpectChoice(NeoverseV1(), kRounded, InstructionSet::kNeonBf16, "has bfloat16 dot products");
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
    ExpectChoice(processor, kRounded, one, "by name", Name(one));
  }
  for (InstructionSet one : InstructionSetsOf(Architecture::kArm)) {
    ExpectChoice(NeoverseV1(), kRounded, one, "by name", Name(one));
  }
  ExpectChoice(processor, kSplit, InstructionSet::kAmxBf16, "by name", "amx_bf16");
  amx_requests = 0;
  const char* const no_kernels = "adds no kernels for such models";
  ExpectChoice(processor, kExact, InstructionSet::kAvx512, no_kernels, "amx_bf16");
  for (FactorFormat factors : {kExact, kSplit}) {
    ExpectChoice(processor, factors, InstructionSet::kAvx512, no_kernels, "avx512_bf16");
    ExpectChoice(NeoverseV1(), factors, InstructionSet::kNeon, no_kernels, "neon_bf16");
  }
  ExpectChoice(processor, kRounded, InstructionSet::kAvx2, "by name", "avx2");
  EXPECT(amx_requests == 0, amx_requests);

  InstructionSetChoice choice;
  EXPECT_ERROR(
      ChooseInstructionSet("amx_bf16", kRounded, SapphireRapids(RequestAmx<EPERM>), &choice),
      "amx_bf16 cannot be used", "refuses", "use the default");
  EXPECT_ERROR(ChooseInstructionSet("amx_bf16", kExact, Zen4(), &choice),
               "does not support the instruction set amx_bf16", "avx2 or portable");
  EXPECT_ERROR(ChooseInstructionSet("neon_bf16", kExact, NeoverseN1(), &choice),
               "does not support the instruction set neon_bf16", "default, or neon or portable.");
}

// Each architecture has names of its own, all of which an error lists.
TEST(UnknownNamesOfInstructionSets) {
  InstructionSetChoice choice;
  for (const char* name : {"sse9", "neon", "neon_bf16", "Portable", "avx512 "}) {
    EXPECT_ERROR(ChooseInstructionSet(name, kExact, Zen4(), &choice),
                 "The instruction set must be portable, avx2, avx512, avx512_bf16 or amx_bf16, "
                 "but is '",
                 name);
  }
  for (const char* name : {"sve", "avx2", "amx_bf16"}) {
    EXPECT_ERROR(ChooseInstructionSet(name, kExact, NeoverseV1(), &choice),
                 "The instruction set must be portable, neon or neon_bf16, but is '", name);
  }
  EXPECT_ERROR(ChooseInstructionSet("neon", kExact, Processor(), &choice),
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
