// The triangle, plateau and fall of activation memory under one forward, one backward, by hand.
#include "plan/program/memory_curve.hpp"

#include <gmock/gmock.h>

#include "plan/cost/operator_cost.hpp"

namespace spillway {
namespace {

std::vector<std::int64_t> live(const Schedule& schedule, int stage, const SavedBytes& saved) {
  std::vector<std::int64_t> values;
  for (const MemoryPoint& p : memory_curve(schedule[static_cast<std::size_t>(stage)], saved)) {
    EXPECT_EQ(p.task, static_cast<int>(values.size()));
    values.push_back(p.live.value);
  }
  return values;
}
const SavedBytes ten_each = [](const Task&) { return Bytes(10); };

TEST(MemoryCurve, WarmUpRisesSteadyStateStaysCoolDownFalls) {
  const Schedule schedule = one_forward_one_backward({3, 4});
  using List = std::vector<std::int64_t>;
  // F0 F1 F2 B0 F3 B1 B2 B3
  EXPECT_EQ(live(schedule, 0, ten_each), (List{10, 20, 30, 20, 30, 20, 10, 0}));
  EXPECT_EQ(live(schedule, 2, ten_each), (List{10, 0, 10, 0, 10, 0, 10, 0}));
  // With fewer micro-batches than stages nothing is steady.
  EXPECT_EQ(live(one_forward_one_backward({4, 2}), 0, ten_each), (List{10, 20, 10, 0}));
}

TEST(MemoryCurve, ASpikeStaysUntilItsOwnBackwardPass) {
  const SavedBytes spike = [](const Task& t) { return Bytes(t.micro_batch == 1 ? 100 : 10); };
  EXPECT_EQ(live(one_forward_one_backward({3, 4}), 0, spike),
            (std::vector<std::int64_t>{10, 110, 120, 110, 120, 20, 10, 0}));
}

TEST(MemoryCurve, HighestPointIsTheNumberOfLiveMicroBatches) {
  for (int stages = 1; stages <= 5; ++stages)
    for (int micro_batches = 1; micro_batches <= 7; ++micro_batches) {
      const Schedule schedule = one_forward_one_backward({stages, micro_batches});
      for (int stage = 0; stage < stages; ++stage) {
        const auto values = live(schedule, stage, ten_each);
        EXPECT_EQ(*std::max_element(values.begin(), values.end()), 10 * peak_live(schedule[stage]));
        EXPECT_EQ(values.back(), 0);
      }
    }
}

TEST(MemoryCurve, AMicroBatchKeepsWhatItsBlocksKeep) {
  // Two dense layers that keep 1824 bytes each (step_plan_test), and noise that keeps nothing; a loss keeps its input.
  StageSetup setup;
  ModelShape& m = setup.shape;
  m.hidden_size = 8;
  m.num_attention_heads = m.num_key_value_heads = 2;
  m.head_dim = 4;
  m.num_hidden_layers = m.first_k_dense_replace = 2;
  m.intermediate_size = 16;
  m.head = false;
  setup.sequence_length = 4;
  setup.layers_of_pieces = {2};
  const auto blocks = stage_blocks(setup, 0);
  EXPECT_EQ(micro_batch_bytes(blocks, std::vector<ExpertRows>(blocks.size())), Bytes(2 * 1824 + 128));
}

TEST(MemoryChart, ALinePerTaskWithABarToScale) {
  const Schedule schedule = one_forward_one_backward({2, 2});
  const SavedBytes mebibyte = [](const Task&) { return Bytes(1 << 20); };
  const std::string bar(60, '#'), half = std::string(30, '#') + std::string(30, ' '), none(60, ' ');
  EXPECT_EQ(memory_chart(schedule[0], memory_curve(schedule[0], mebibyte)),
            "F0     |" + half + "| 1.000 MiB\nF1     |" + bar + "| 2.000 MiB\nB0     |" + half +
                "| 1.000 MiB\nB1     |" + none + "| 0.000 MiB\n");
  EXPECT_EQ(memory_chart({}, {}), "");
}

}  // namespace
}  // namespace spillway
