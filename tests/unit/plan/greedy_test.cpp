// Algorithm 2 step by step, on a layer that can be worked through by hand (small_dense_layer).
#include "plan/policy/greedy.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "plan/policy/group_choice.hpp"
#include "planning_fixtures.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using T = Tensor;

const StageBlock small_layer{BlockKind::dense, 0, small_dense_layer()};

/// "fc1_output recompute at fc1, 512 freed, holds 1312" or "... conflicts (multi-device), holds ...".
std::vector<std::string> trace(const GreedyResult& result) {
  std::vector<std::string> lines;
  for (const GreedyStep& step : result.trace) {
    std::string consumers;
    for (const OperatorMitigation& m : step.candidate) consumers += fmt::format(" {}", name(m.consumer));
    const auto& first = step.candidate.front();
    lines.push_back(fmt::format("{} {} at{}: {}, holds {}", name(first.treatment), name(first.tensor), consumers,
                                step.conflict == Conflict::none ? fmt::format("frees {}", step.freed.value)
                                                                : std::string(name(step.conflict)),
                                step.held.value));
  }
  return lines;
}

GreedyProblem problem_of(GreedyChoice choice, std::int64_t held, const MachineProfile& machine) {
  return {small_layer, {}, held_at_most(held), Bytes(1), machine, choice, false, true, {}, {}};
}

TEST(Greedy, KeepsEverythingWhereItFits) {
  const MachineProfile machine;
  for (const GreedyChoice choice : {GreedyChoice::greedy, GreedyChoice::ratio}) {
    const GreedyResult result = plan_greedily(problem_of(choice, 1824, machine));
    EXPECT_TRUE(result.fits);
    EXPECT_TRUE(result.trace.empty());
    EXPECT_EQ(result.chosen, Mitigations::keep_all());
  }
}

// Largest reduction first; recompute before offload where both free the same, tensors in forward order:
//   fc1 output 512, qkv 384, fc2 input 256, then those of 128: x (it cannot be recomputed), attention norm's output,
//   the attention output, which either consumer alone cannot give up.
// 1824 - 512 - 384 - 256 - 128 - 128 - 128 = 288.
TEST(Greedy, LargestReductionFirstByHand) {
  const MachineProfile machine;
  const GreedyResult result = plan_greedily(problem_of(GreedyChoice::greedy, 300, machine));
  EXPECT_TRUE(result.fits);
  EXPECT_THAT(trace(result), ElementsAre("recompute mlp_fc1_output at mlp_swiglu: frees 512, holds 1312",
                                         "recompute qkv at attention_core: frees 384, holds 928",
                                         "recompute mlp_fc2_input at mlp_fc2: frees 256, holds 672",
                                         "offload block_input at attention_norm: frees 128, holds 544",
                                         "recompute attention_norm_output at qkv: frees 128, holds 416",
                                         "recompute attention_output at attention_core: multi-device, holds 416",
                                         "recompute attention_output at out_projection: multi-device, holds 416",
                                         "recompute attention_output at attention_core out_projection: frees 128, "
                                         "holds 288"));
}

TEST(Greedy, SaysSoWhereNothingIsLeftToTake) {
  const MachineProfile machine;
  GreedyProblem problem = problem_of(GreedyChoice::greedy, 127, machine);
  problem.offload = false;
  const GreedyResult result = plan_greedily(problem);
  EXPECT_FALSE(result.fits);
  EXPECT_EQ(result.trace.back().held, Bytes(128)) << "x alone, which nothing here can make again";
}

TEST(Greedy, OffloadFreesNothingWhereHostAndDeviceShareMemory) {
  MachineProfile machine;
  machine.shared_memory = true;
  EXPECT_FALSE(plan_greedily(problem_of(GreedyChoice::greedy, 127, machine)).fits);
}

/// Every operator takes a second, copies 64 bytes a second: 2 s for 128 bytes. The layer's forward pass hides 8 s of
/// copies out, its backward pass 8 s of copies back.
MachineProfile second_per_operator() {
  MachineProfile m;
  m.peak_flops = m.memory_bandwidth = 1e30;
  m.launch = Seconds(1);
  m.link_bandwidth = 64;
  return m;
}

// Least exposed time per byte first. Copies cost nothing as long as they hide, so they come first, in forward order, and
// where they no longer fit a tensor is computed again: 1 s for 512 bytes, then 1 s for 384.
//   x: copies 2 s; attention norm's output: 4; (qkv: 6 more do not hide: recomputing is 1/384, not 0)
//   attention output: 6, jointly; log-sum-exp: at least a launch, 7; 1 s left, which nothing fits.
TEST(Greedy, LeastExposedTimePerByteByHand) {
  const MachineProfile machine = second_per_operator();
  const GreedyProblem problem = problem_of(GreedyChoice::ratio, 520, machine);
  const GreedyResult result = plan_greedily(problem);
  EXPECT_TRUE(result.fits);
  EXPECT_THAT(trace(result), ElementsAre("offload block_input at attention_norm: frees 128, holds 1696",
                                         "offload attention_norm_output at qkv: frees 128, holds 1568",
                                         "offload attention_output at attention_core: multi-device, holds 1568",
                                         "offload attention_output at out_projection: multi-device, holds 1568",
                                         "offload attention_output at attention_core out_projection: frees 128, "
                                         "holds 1440",
                                         "offload log_sum_exp at attention_core: frees 32, holds 1408",
                                         "recompute mlp_fc1_output at mlp_swiglu: frees 512, holds 896",
                                         "recompute qkv at attention_core: frees 384, holds 512"));
  EXPECT_EQ(exposed_seconds(problem, result.chosen), Seconds(2));
}

TEST(Greedy, CopiesBeyondWhatThePassesHideAreExposedBothWays) {
  const MachineProfile machine = second_per_operator();
  const GreedyProblem problem = problem_of(GreedyChoice::ratio, 0, machine);
  Mitigations m = Mitigations::keep_all();
  m.set(T::mlp_fc1_output, Treatment::offload);  // 8 s
  EXPECT_EQ(exposed_seconds(problem, m), Seconds(0));
  m.set(T::block_input, Treatment::offload);  // 2 s more, out and back
  EXPECT_EQ(exposed_seconds(problem, m), Seconds(4));
  MachineProfile interfering = machine;
  interfering.interference = 1.5;  // 10 s each way at half the speed lost
  EXPECT_EQ(exposed_seconds(problem_of(GreedyChoice::ratio, 0, interfering), m), Seconds(14));
}

/// A byte a second and nothing else: attention norm again 128 + 32 + 128 = 288 s, qkv 128 + 768 + 384 + 512 = 1792,
/// attention core 384 + 128 + 32 = 544, both norms alike, fc1 128 + 1024 + 512 = 1664, SwiGLU 512 + 256 = 768.
MachineProfile byte_per_second() {
  MachineProfile m;
  m.peak_flops = 1e30;
  m.memory_bandwidth = 1;
  m.launch = Seconds(0);
  return m;
}

// Per byte: norms 2.25, fc2 input 3, fc1 output 3.25, then attention 4.25 and more. After four rounds 800 bytes are
// held where 1311 are allowed; what cost most is given back first, as long as it fits: fc1's output (1664 s) does not,
// fc2's input (768 s) does, and so does attention norm's (288 s): 800 + 256 + 128 = 1184, and 128 more do not fit.
TEST(Greedy, GivesBackWhatIsNotNeededTheMostExpensiveFirst) {
  const MachineProfile machine = byte_per_second();
  GreedyProblem problem = problem_of(GreedyChoice::ratio, 1311, machine);
  problem.offload = false;
  const GreedyResult result = plan_greedily(problem);
  EXPECT_THAT(trace(result), ElementsAre("recompute attention_norm_output at qkv: frees 128, holds 1696",
                                         "recompute mlp_norm_output at mlp_fc1: frees 128, holds 1568",
                                         "recompute mlp_fc2_input at mlp_fc2: frees 256, holds 1312",
                                         "recompute mlp_fc1_output at mlp_swiglu: frees 512, holds 800"));
  EXPECT_TRUE(result.fits);
  Mitigations expected = Mitigations::keep_all();
  expected.set(T::mlp_fc1_output, Treatment::recompute);
  expected.set(T::mlp_norm_output, Treatment::recompute);
  EXPECT_EQ(result.chosen, expected);
  EXPECT_EQ(exposed_seconds(problem, result.chosen), Seconds(1664 + 288));
}

TEST(Greedy, RatioIsNeverSlowerThanThePublishedOrderOnThePublishedLayer) {
  const StageBlock block{BlockKind::moe, 0, published_layer()};
  const MachineProfile machine;
  for (const std::int64_t mebibytes : {50, 100, 200, 400, 600}) {
    const auto exposed = [&](GreedyChoice choice) {
      const GreedyProblem problem{block,
                                  {balanced_rows(block.context, 1), {}},
                                  held_at_most(mebibytes << 20),
                                  Bytes(256),
                                  machine,
                                  choice,
                                  false,
                                  true,
                                  {},
                                  {}};
      const GreedyResult result = plan_greedily(problem);
      EXPECT_TRUE(result.fits) << mebibytes << " MiB";
      return exposed_seconds(problem, result.chosen).value;
    };
    EXPECT_LE(exposed(GreedyChoice::ratio), exposed(GreedyChoice::greedy)) << mebibytes << " MiB";
  }
}

// Large budgets after small ones and small after large ones: a path remembers its rounds, not who asked for them.
TEST(Greedy, APathGivesEveryBudgetWhatItWouldGetAlone) {
  const MachineProfile machine;
  const StageBlock block{BlockKind::moe, 0, published_layer()};
  for (const GreedyChoice choice : {GreedyChoice::greedy, GreedyChoice::ratio})
    for (const bool quantize : {false, true}) {
      GreedyProblem problem{block, {balanced_rows(block.context, 1.3), {}}, {}, Bytes(256), machine, choice, quantize,
                            true,  collective_tensors(block.context),       {}};
      ProgramCache programs;
      GreedyPath path(problem, programs, 0);
      for (const std::int64_t mebibytes : {500, 900, 40, 1000, 300, 0, 700, 301}) {
        problem.budget = held_at_most(mebibytes << 20);
        problem.budget.backward = Bytes((mebibytes + 1200) << 20);
        const GreedyResult alone = plan_greedily(problem);
        const GreedyPath::End end = path.within(problem.budget);
        EXPECT_EQ(end.chosen, alone.chosen) << mebibytes << " MiB";
        EXPECT_EQ(end.fits, alone.fits);
        EXPECT_EQ(end.rounds, alone.trace.size());
      }
    }
}

TEST(Greedy, LeavesAloneWhatMustNotBeRecomputedOrIsDecidedAlready) {
  const MachineProfile machine;
  GreedyProblem problem = problem_of(GreedyChoice::greedy, 0, machine);
  problem.not_recomputed = {T::qkv};
  problem.start.set(T::mlp_fc1_output, Treatment::quantize);
  const GreedyResult result = plan_greedily(problem);
  EXPECT_EQ(result.chosen.of(T::qkv), Treatment::offload);
  EXPECT_EQ(result.chosen.of(T::mlp_fc1_output), Treatment::quantize);
}

}  // namespace
}  // namespace spillway
