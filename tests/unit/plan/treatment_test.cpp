// What becomes of a layer's tensors, read from the program of each policy.
#include "plan/treatment.hpp"

#include <gmock/gmock.h>

#include <map>

#include "plan/policy/least.hpp"
#include "plan/step_plan.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

StageBlock moe_block() {
  StageSetup setup;
  setup.grid = {1, 2, 1, 2};
  setup.layers_of_pieces = {4};
  setup.sequence_length = 64;
  setup.shape.head = false;
  return stage_blocks(setup, 0)[1];
}

std::vector<TensorTreatment> treatments(const Mitigations& mitigations, double load = 1) {
  const StageBlock block = moe_block();
  return tensor_treatments(block, compile(block.kind, block.context, mitigations), balanced_rows(block.context, load));
}

std::vector<std::string> names(const Mitigations& mitigations, Treatment wanted) {
  std::vector<std::string> found;
  for (const TensorTreatment& t : treatments(mitigations))
    if (t.treatment == wanted) found.emplace_back(name(t.tensor));
  return found;
}

TEST(Treatments, AreReadFromTheCompiledProgram) {
  EXPECT_THAT(names(Mitigations::keep_all(), Treatment::recompute), ElementsAre());
  Mitigations mixed = Mitigations::keep_all();
  mixed.set(Tensor::fc2_input, Treatment::recompute);
  mixed.set(Tensor::qkv, Treatment::offload);
  mixed.set(Tensor::fc1_input, Treatment::quantize);
  EXPECT_THAT(names(mixed, Treatment::recompute), ElementsAre("fc2_input"));
  EXPECT_THAT(names(mixed, Treatment::offload), ElementsAre("qkv"));
  EXPECT_THAT(names(mixed, Treatment::quantize), ElementsAre("fc1_input"));
  EXPECT_THAT(names(least_mitigations(BlockKind::moe), Treatment::recompute),
              ElementsAre("attention_norm_output", "qkv", "attention_output", "log_sum_exp", "mlp_norm_input",
                          "mlp_norm_output", "router_state", "row_weight", "fc1_input", "fc1_output", "fc2_input"));
}

TEST(Treatments, BytesOfExpertTensorsFollowTheLoad) {
  std::map<Tensor, Bytes> balanced, doubled;
  for (const auto& t : treatments(Mitigations::keep_all())) balanced[t.tensor] = t.bytes;
  for (const auto& t : treatments(Mitigations::keep_all(), 2)) doubled[t.tensor] = t.bytes;
  EXPECT_EQ(balanced.at(Tensor::fc1_input), Bytes(64 * 2 * 64 * 4));  // k T rows of h fp32 elements
  EXPECT_EQ(doubled.at(Tensor::fc1_input), Bytes(2 * 64 * 2 * 64 * 4));
  EXPECT_EQ(doubled.at(Tensor::qkv), balanced.at(Tensor::qkv));
}

TEST(Treatments, AsTextOneLinePerTreatmentWithItsBytes) {
  Mitigations selective = Mitigations::keep_all();
  for (const Tensor t : {Tensor::attention_norm_output, Tensor::mlp_norm_output, Tensor::fc2_input})
    selective.set(t, Treatment::recompute);
  // 64 tokens of 64 fp32: 16 KiB; balanced 128 rows of 32: 16 KiB, at 1.5 times the load 24 KiB.
  const auto lines = treatment_lines(treatments(selective, 1.5));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], testing::StartsWith("keep "));
  EXPECT_EQ(lines[1],
            "recompute   56.0 KiB  attention_norm_output 16.0 KiB, mlp_norm_output 16.0 KiB, fc2_input 24.0 KiB");
  EXPECT_EQ(treatment_lines(treatments(Mitigations::keep_all())).size(), 1u);
}

}  // namespace
}  // namespace spillway
