// Decisions written as JSON lines and read back: the same programs; what is wrong in a file is named with its line.
#include "run/decision_record.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "plan/policy/policy.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

constexpr int micro_batches = 3;

StepPlan::Setup one_stage() {
  StageSetup stage;
  stage.shape.head = false;
  stage.shape.num_hidden_layers = 2;
  stage.shape.first_k_dense_replace = 1;
  stage.shape.intermediate_size = 48;
  stage.grid = {1, 2, 1, 2};
  stage.sequence_length = 32;
  stage.layers_of_pieces = {2};
  const auto blocks = stage_blocks(stage, 0);  // synthetic input, dense, moe, loss
  const Bytes plenty(std::int64_t{1} << 50);
  return {blocks,
          one_forward_one_backward({1, micro_batches})[0],
          rank_elements(blocks, Grid(stage.grid)),
          {Bytes(256), plenty, plenty},
          {},
          1.0};
}

/// Something else for every micro-batch, before and after the gate; slices for the last.
class Various final : public Policy {
 public:
  Mitigations decide(const Situation& s) override {
    Mitigations m = Mitigations::keep_all();
    if (s.block.kind != BlockKind::moe && s.block.kind != BlockKind::dense) return m;
    m.set(Tensor::qkv, s.micro_batch == 0 ? Treatment::offload : Treatment::keep);
    m.set(Tensor::attention_norm_output, Treatment::recompute);
    if (s.table == nullptr) return m;
    m.set(Tensor::fc1_output, s.micro_batch == 1 ? Treatment::quantize : Treatment::recompute);
    m.set(Tensor::mlp_norm_output, Treatment::offload);
    if (s.micro_batch == 2) m.tiles_per_slice = 1;
    return m;
  }
};

GateTable even_table() {
  GateTable t{{}, 2, 8};
  t.rows.assign(16, 8);
  return t;
}

void run(StepPlan& plan) {
  const GateTable table = even_table();
  for (plan.begin_iteration(4); !plan.finished(); plan.advance()) {
    const Item item = plan.current();
    if (item.kind != Item::Kind::forward) continue;
    const BlockProgram& p = plan.decide(item.micro_batch, item.block);
    if (p.gate == p.forward.size()) continue;
    const std::vector<Offer> offers(2, plan.offer(item.micro_batch, item.block));
    plan.decide_after_gate(item.micro_batch, item.block, {table, offers, 0});
  }
}

std::string lines_of(const StepPlan& plan, int rank = 0) {
  std::string text;
  for (DecisionRecord& r : record_decisions(plan, 4)) {
    r.rank = rank;
    text += to_json(r, plan, "various").dump() + '\n';
  }
  return text;
}

/// Of as many iterations as the tests that read parts of a file need: none.
const ReplayScope scope{Grid(GridOptions{1, 2, 1, 2}), 0, micro_batches, {4}};

TEST(DecisionRecord, EveryDecisionOfAnIterationIsRecordedInOrder) {
  Various policy;
  StepPlan plan(one_stage(), policy);
  run(plan);
  const auto records = record_decisions(plan, 4);
  ASSERT_EQ(records.size(), static_cast<std::size_t>(micro_batches * 4));
  for (int n = 0; n < micro_batches * 4; ++n) {
    EXPECT_EQ(records[static_cast<std::size_t>(n)].micro_batch, n / 4);
    EXPECT_EQ(records[static_cast<std::size_t>(n)].block, n % 4);
    EXPECT_EQ(records[static_cast<std::size_t>(n)].iteration, 4);
  }
  EXPECT_EQ(records[2].layer, 1);
  EXPECT_EQ(records[2].rows.rows, 64);  // 2 ranks x 4 experts x 8 rows
  EXPECT_EQ(records[1].rows.rows, 0);
}

TEST(DecisionRecord, JsonSaysWhatIsNotKeptAndFromWhatItWasDecided) {
  Various policy;
  StepPlan plan(one_stage(), policy);
  run(plan);
  const auto json = to_json(record_decisions(plan, 4)[2], plan, "various");
  EXPECT_EQ(json.at("before").dump(), R"({"recompute":["attention_norm_output"],"offload":["qkv"]})");
  EXPECT_EQ(json.at("after").dump(),
            R"({"recompute":["attention_norm_output","fc1_output"],"offload":["qkv","mlp_norm_output"]})");
  EXPECT_EQ(json.at("tiles_per_slice"), 0);
  EXPECT_EQ(json.at("rows"), 64);
  EXPECT_EQ(json.at("budget_bytes").at("held"), plan.budget(0, 2).held.value);
}

TEST(DecisionRecord, ReplayingWhatWasRecordedRunsTheSamePrograms) {
  Various policy;
  StepPlan plan(one_stage(), policy);
  run(plan);
  PolicyOptions options;
  options.decisions = std::make_shared<DecisionTable>(read_decisions(lines_of(plan), "memory", scope, 0));
  const auto replay = make_policy("replay", options);
  StepPlan again(one_stage(), *replay);
  run(again);
  for (int mb = 0; mb < micro_batches; ++mb)
    for (int b = 0; b < 4; ++b) {
      EXPECT_EQ(to_text(again.program(mb, b).forward), to_text(plan.program(mb, b).forward)) << mb << ", " << b;
      EXPECT_EQ(to_text(again.program(mb, b).backward), to_text(plan.program(mb, b).backward)) << mb << ", " << b;
    }
  EXPECT_EQ(lines_of(again), lines_of(plan));
}

TEST(DecisionRecord, ReadsTheDecisionsOfOneRankOnly) {
  Various policy;
  StepPlan plan(one_stage(), policy);
  run(plan);
  const DecisionTable table = read_decisions(lines_of(plan, 1), "memory", scope, 0);
  EXPECT_EQ(table.find({4, 0, 2}), nullptr);
  EXPECT_NE(read_decisions(lines_of(plan, 1) + "\n" + lines_of(plan, 0), "memory", scope, 0).find({4, 0, 2}), nullptr);
}

std::string refusal(const std::string& text, const ReplayScope& asked = scope) {
  try {
    read_decisions(text, "decisions.jsonl", asked, 0);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string line(int rank, const std::string& after, int tiles = 0, const std::string& policy = "flexible") {
  return R"({"policy": ")" + policy + R"(", "iteration": 0, "rank": )" + std::to_string(rank) +
         R"(, "micro_batch": 0, "block": 2, "before": {}, "after": )" + after + R"(, "tiles_per_slice": )" +
         std::to_string(tiles) + "}\n";
}

TEST(DecisionRecord, RefusesWhatCannotBeReadAndNamesTheLine) {
  EXPECT_EQ(refusal(line(0, "{}") + line(1, "{}")), "accepted");
  EXPECT_THAT(refusal(line(0, "{}") + "{"), HasSubstr("decisions.jsonl:2"));
  EXPECT_THAT(refusal(line(0, R"({"offload": ["qvk"]})")), HasSubstr("no tensor \"qvk\"; nearest: "));
  EXPECT_THAT(refusal(line(0, R"({"offload": ["qvk"]})")), HasSubstr("qkv"));
  EXPECT_THAT(refusal(line(0, R"({"offlaod": ["qkv"]})")), HasSubstr("no treatment \"offlaod\""));
  EXPECT_THAT(refusal(line(2, "{}")), HasSubstr("\"rank\" is 2: expected a whole number, 0 to 1"));
  EXPECT_THAT(refusal(line(0, "{}", -1)), HasSubstr("\"tiles_per_slice\" is -1"));
  EXPECT_THAT(refusal(line(0, "{}") + line(1, "{}", 0, "keep")), HasSubstr("decisions.jsonl:2"));
  EXPECT_THAT(refusal("{\"rank\": 0}"), HasSubstr("decisions.jsonl:1"));
  EXPECT_THAT(refusal(line(0, R"({"offload": ["qkv"], "recompute": ["qkv"]})")), HasSubstr("treats qkv twice"));
  EXPECT_THAT(refusal(line(0, R"({"offload": "qkv"})")), HasSubstr("expected a list"));
  EXPECT_THAT(refusal(line(0, "null")), HasSubstr("\"after\" is null"));
}

TEST(DecisionRecord, RefusesAFileThatLeavesADecisionOut) {
  ReplayScope one = scope;
  one.iterations = one.micro_batches = 1;
  EXPECT_THAT(refusal(line(0, "{}") + line(1, "{}"), one),
              HasSubstr("no decision for iteration 0, micro-batch 0, block 0 of rank 0"));
}

TEST(DecisionRecord, RefusesMembersOfAGroupThatWouldTakePartInDifferentCollectives) {
  const std::string again = R"({"recompute": ["fc1_input"]})", locally = R"({"recompute": ["fc1_output"]})";
  EXPECT_THAT(refusal(line(0, again) + line(1, "{}")), HasSubstr("decisions.jsonl:2"));
  EXPECT_THAT(refusal(line(0, again) + line(1, "{}")), HasSubstr("same collectives"));
  EXPECT_THAT(refusal(line(0, "{}", 1) + line(1, "{}", 2)), HasSubstr("same collectives"));
  EXPECT_EQ(refusal(line(0, again) + line(1, again)), "accepted");
  EXPECT_EQ(refusal(line(0, locally) + line(1, "{}")), "accepted") << "what is local may differ";
}

TEST(DecisionRecord, RefusesTensorParallelRanksThatWouldNotRecomputeTogether) {
  ReplayScope together = scope;
  together.grid = Grid({1, 1, 2, 2});
  for (const std::string tensor : {"qkv", "mlp_norm_input", "mlp_fc1_output"}) {
    const std::string again = R"({"recompute": [")" + tensor + R"("]})", away = R"({"offload": [")" + tensor + R"("]})";
    EXPECT_EQ(refusal(line(0, again) + line(1, "{}")), "accepted") << "data-parallel ranks may differ";
    EXPECT_THAT(refusal(line(0, again) + line(1, "{}"), together), HasSubstr("recompute together"));
    EXPECT_EQ(refusal(line(0, again) + line(1, again), together), "accepted");
    EXPECT_EQ(refusal(line(0, away) + line(1, "{}"), together), "accepted") << "a copy is local";
  }
}

}  // namespace
}  // namespace spillway
