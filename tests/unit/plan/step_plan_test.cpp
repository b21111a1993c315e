// The books of an iteration: worked by hand, closed where they began, monotone in the load.
#include "plan/step_plan.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.hpp"
#include "one_block.hpp"

namespace spillway {
namespace {

/// Dense layers small enough to add up by hand. Bytes: [T, h] 128, q/k/v 384, log-sum-exp 32, fc1 output 512, fc2 input
/// 256; what keep leaves of a layer is 128 x 5 + 384 + 32 + 512 + 256 = 1824. 656 parameters a layer.
StageSetup dense_layers(std::vector<std::int64_t> layers_of_pieces) {
  StageSetup setup;
  ModelShape& s = setup.shape;
  s.hidden_size = 8;
  s.num_attention_heads = s.num_key_value_heads = 2;
  s.head_dim = 4;
  s.num_hidden_layers = s.first_k_dense_replace =
      std::accumulate(layers_of_pieces.begin(), layers_of_pieces.end(), std::int64_t{0});
  s.intermediate_size = 16;
  s.head = false;
  setup.sequence_length = 4;
  setup.grid.pipeline_parallel = static_cast<int>(std::ssize(layers_of_pieces));
  setup.layers_of_pieces = std::move(layers_of_pieces);
  return setup;
}
constexpr std::int64_t kept_layer = 1824, layer_parameters = 656;

struct Forecast {
  ByteLedger ledger;
  Bytes fixed;  ///< static memory
  Bytes moving() const { return ledger.peak() - fixed; }
};

Forecast forecast(const StageSetup& setup, int stage, std::string_view policy_name, int micro_batches,
                  const RowsOf& rows = {}, Bytes alignment = Bytes(1)) {
  const auto policy = make_policy(policy_name);
  const auto blocks = stage_blocks(setup, stage);
  const RankElements elements = rank_elements(blocks, Grid(setup.grid));
  const Schedule schedule = one_forward_one_backward({setup.grid.pipeline_parallel, micro_batches});
  StepPlan plan({blocks, schedule[static_cast<std::size_t>(stage)], elements, {alignment, plenty, plenty}, {}, 1.0},
                *policy);
  ByteLedger fixed(alignment);
  add_static_memory(fixed, elements, setup.shape.bytes_per_element);
  const RowsOf none = [](int, const StageBlock&) { return ExpertRows{}; };
  return {forecast_memory(plan, rows ? rows : none).ledger(), fixed.live()};
}

TEST(ForecastMemory, OneLayerAndOneMicroBatchByHand) {
  const StageSetup setup = dense_layers({1});
  // keep: 1824 kept and the 128 of the layer's output; backward peaks in SwiGLU's: + 128 d_residual + 512 - 128.
  const Forecast keep = forecast(setup, 0, "keep", 1);
  EXPECT_EQ(keep.fixed, Bytes(layer_parameters * 16));
  EXPECT_EQ(keep.ledger.activation_peak(), Bytes(kept_layer + 128));
  EXPECT_EQ(keep.moving(), Bytes(kept_layer + 128 + 512));
  // selective: 256 less in SwiGLU's backward (norm outputs gone), fc2's input just recomputed.
  EXPECT_EQ(forecast(setup, 0, "selective", 1).moving(), Bytes(kept_layer + 128 + 512 - 256));
  // full: alone, it recomputes until all of the layer is there again.
  EXPECT_EQ(forecast(setup, 0, "full", 1).moving(), Bytes(kept_layer + 128 + 512));
}

TEST(ForecastMemory, UnevenStagesByHand) {
  const StageSetup setup = dense_layers({2, 1});
  // Stage 0, F0 F1 B0 B1: two layers of two micro-batches, then d_residual and SwiGLU's gradient.
  const Forecast first = forecast(setup, 0, "keep", 2);
  EXPECT_EQ(first.fixed, Bytes(2 * layer_parameters * 16));
  EXPECT_EQ(first.moving(), Bytes(4 * kept_layer + 128 + 512));
  // full keeps inputs: three of them beside the one layer that is being recomputed.
  EXPECT_EQ(forecast(setup, 0, "full", 2).moving(), Bytes(3 * 128 + kept_layer + 128 + 512));
  // Stage 1, F0 B0 F1 B1: one layer of one micro-batch.
  const Forecast last = forecast(setup, 1, "keep", 2);
  EXPECT_EQ(last.fixed, Bytes(layer_parameters * 16));
  EXPECT_EQ(last.moving(), Bytes(kept_layer + 128 + 512));
}

/// Everything a model can have, four stages, two expert ranks.
StageSetup mixed(Inventory inventory = Inventory::lean, bool head = true) {
  StageSetup setup;
  setup.shape.num_hidden_layers = 6;
  setup.shape.first_k_dense_replace = 1;
  setup.shape.intermediate_size = 24;
  setup.shape.shared_expert_intermediate_size = 12;
  setup.shape.inventory = inventory;
  setup.shape.head = head;
  setup.grid = {4, 4, 1, 2};
  setup.sequence_length = 24;
  setup.layers_of_pieces = {2, 1, 1, 2};
  return setup;
}

/// Policies that decide by themselves; replay and hindsight carry out what others decided.
std::vector<std::string> deciding_policies() {
  std::vector<std::string> names = policy_names();
  std::erase_if(names, [](const std::string& name) { return name == "replay" || name == "hindsight"; });
  return names;
}

TEST(ForecastMemory, BooksEndWhereTheyBegan) {
  for (const Inventory inventory : {Inventory::lean, Inventory::standard, Inventory::with_combine})
    for (const bool head : {true, false})
      for (const std::string& policy : deciding_policies())
        for (int stage = 0; stage < 4; ++stage) {
          const CounterRandom random(7);
          const RowsOf rows = [&](int mb, const StageBlock& b) {
            return ExpertRows{static_cast<std::int64_t>(
                                  random.below(static_cast<std::uint64_t>(100 * mb + b.layer), 60)),
                              1};
          };
          const Forecast f = forecast(mixed(inventory, head), stage, policy, 5, rows, Bytes(256));
          ASSERT_EQ(f.ledger.live(), f.fixed) << policy << ", stage " << stage;
          for (const Category c :
               {Category::activation_moe, Category::activation_other, Category::communication, Category::workspace})
            ASSERT_EQ(f.ledger.live(c), Bytes(0));
        }
}

TEST(ForecastMemory, GrowsWithTheLoadAndWithWhatAPolicyKeeps) {
  const auto peak = [](const std::string& policy, std::int64_t rows) {
    return forecast(mixed(), 1, policy, 6,
                    [rows](int, const StageBlock&) {
                      return ExpertRows{rows, 4};
                    })
        .ledger.peak();
  };
  for (const std::string& policy : deciding_policies())
    for (std::int64_t rows = 0; rows < 200; rows += 8) ASSERT_LE(peak(policy, rows), peak(policy, rows + 8)) << policy;
  EXPECT_LT(peak("full", 96), peak("selective", 96));
  EXPECT_LT(peak("selective", 96), peak("keep", 96));
  EXPECT_EQ(peak("keep", 96), peak("oracle", 96));
}

TEST(ForecastMemory, CountsTheReceiveBufferOfTheGradientReduction) {
  const Forecast f = forecast(mixed(), 1, "full", 1);
  const RankElements elements = rank_elements(stage_blocks(mixed(), 1), Grid(mixed().grid));
  EXPECT_GE(f.ledger.peak(Category::communication),
            std::max(reduction_buffer(elements[0]), reduction_buffer(elements[1])));
}

TEST(BalancedRows, AreTheRoutedRowsTimesTheMarginRoundedUp) {
  const auto context = stage_blocks(mixed(), 1)[0].context;  // 24 tokens x 2 choices, 4 local experts
  EXPECT_EQ(balanced_rows(context, 1.0).rows, 48);
  EXPECT_EQ(balanced_rows(context, 1.15).rows, 56);  // 55.2
  EXPECT_EQ(balanced_rows(context, 1.0).active, 4);
}

/// Keeps everything of even micro-batches, nothing of odd ones.
class Alternating final : public Policy {
 public:
  Mitigations decide(const Situation& s) override {
    return {s.micro_batch % 2 == 0 ? TensorSet::all() : TensorSet{}, {}, {}, 0};
  }
};

TEST(StepPlan, EveryMicroBatchKeepsTheDecisionItWentForwardWith) {
  Alternating policy;
  const auto blocks = stage_blocks(mixed(), 1);
  StepPlan plan(stage_of(blocks, one_forward_one_backward({4, 5})[1]), policy);
  std::map<int, TensorSet> kept;
  for (int iteration = 0; iteration < 2; ++iteration)
    for (plan.begin_iteration(iteration); !plan.finished(); plan.advance()) {
      const Item& item = plan.current();
      if (item.kind == Item::Kind::forward)
        kept[item.micro_batch] = plan.decide_at(item.micro_batch, item.block, {8, 1, {}}).kept;
      if (item.kind == Item::Kind::backward) {
        EXPECT_EQ(plan.program(item.micro_batch, item.block).kept, kept[item.micro_batch]);
      }
    }
  EXPECT_EQ(&plan.program(0, 0), &plan.program(2, 0)) << "compiled once";
  EXPECT_NE(kept[0], kept[1]);
}

TEST(Books, ReleaseAtIssueWhatAnInstructionReleases) {
  const auto context = stage_blocks(mixed(), 1)[0].context;
  Books books(Bytes(256));
  const Instruction instruction{Op::fc1, PassKind::forward, false, {Tensor::fc1_output}, {Tensor::fc1_output}};
  const ExpertRows rows{10, 2};
  books.open(instruction, context, rows);
  EXPECT_EQ(books.ledger().live(Category::activation_moe),
            round_up(bytes(Tensor::fc1_output, context, rows), Bytes(256)));
  books.close(instruction, context, rows);
  EXPECT_EQ(books.ledger().live(), Bytes(0));
}

}  // namespace
}  // namespace spillway
