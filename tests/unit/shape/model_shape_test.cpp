// Parameters and FLOPs against published and hand-worked numbers; shapes that cannot exist.
#include "workload/shape/model_shape.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "base/error.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

/// The published family: 32 layers, attention without grouped heads as wide as the hidden size.
ModelShape published(std::int64_t hidden, std::int64_t expert_hidden, std::int64_t experts, std::int64_t k,
                     std::int64_t head_dim) {
  ModelShape s;
  s.hidden_size = hidden;
  s.moe_intermediate_size = expert_hidden;
  s.num_experts = experts;
  s.num_experts_per_tok = k;
  s.num_hidden_layers = 32;
  s.head_dim = head_dim;
  s.num_attention_heads = s.num_key_value_heads = hidden / head_dim;
  s.vocab_size = 151552;
  s.bytes_per_element = 2;
  return s;
}
const ModelShape shape_423b = published(8192, 4096, 128, 6, 128);

double billions(std::int64_t parameters) { return static_cast<double>(parameters) * 1e-9; }

TEST(ModelShape, Published423BHas423BillionParameters30BillionActive) {
  EXPECT_NEAR(billions(count_parameters(shape_423b).total()), 423.4, 0.05);
  EXPECT_NEAR(billions(count_active_parameters(shape_423b)), 30.4, 0.05);
  ModelShape blocks = shape_423b;
  blocks.head = false;
  EXPECT_NEAR(billions(count_parameters(blocks).total()), 420.9, 0.05);
  EXPECT_NEAR(billions(count_active_parameters(blocks)), 27.95, 0.005);
}

TEST(ModelShape, Published423BTakes1814e8FlopsPerToken) {
  const TokenFlops flops = model_flops_per_token(shape_423b, 4096);
  EXPECT_NEAR(flops.causal, 1.8140e11, 0.00005e11);
  EXPECT_NEAR(flops.noncausal - flops.causal, 6.44e9, 0.005e9);                // the other half of the scores
  EXPECT_NEAR((flops.causal - 6.0 * 32 * 4096 * 8192) / 6, 29.16e9, 0.005e9);  // matrix parameters
}

TEST(ModelShape, AllSevenPublishedNamesLieWithin65PerMilleOfTheirTotals) {
  struct Row {
    double name;
    ModelShape shape;
  };
  const Row rows[] = {{188, published(7168, 4096, 64, 4, 112)},
                      {319, published(8192, 4096, 96, 6, 128)},
                      {423, shape_423b},
                      {629, published(8192, 4096, 192, 6, 128)},
                      {783, published(8192, 5120, 192, 6, 128)},
                      {835, published(8192, 4096, 256, 6, 128)},
                      {1041, published(8192, 5120, 256, 6, 128)}};
  for (Row row : rows) {
    for (const std::int64_t vocabulary : {100'000, 151'552}) {
      row.shape.vocab_size = vocabulary;
      EXPECT_NEAR(billions(count_parameters(row.shape).total()), row.name, 0.0065 * row.name) << vocabulary;
    }
  }
}

// Worked by hand: h 8, experts 4 x 6 (top-2), 3 layers of which 1 dense (10), shared 5, heads 4 x 2, kv heads 2, V 11.
ModelShape by_hand() {
  ModelShape s;
  s.hidden_size = 8;
  s.moe_intermediate_size = 6;
  s.num_experts = 4;
  s.num_experts_per_tok = 2;
  s.num_hidden_layers = 3;
  s.first_k_dense_replace = 1;
  s.intermediate_size = 10;
  s.shared_expert_intermediate_size = 5;
  s.num_attention_heads = 4;
  s.num_key_value_heads = 2;
  s.head_dim = 2;
  s.vocab_size = 11;
  return s;
}

TEST(ModelShape, ParametersOfAShapeWithEverythingMatchTheHandCount) {
  const ParameterCount count = count_parameters(by_hand());
  const std::int64_t attention = 8 * (8 + 4 + 4) + 8 * 8;  // 192
  EXPECT_EQ(count.experts, 2 * 4 * 3 * 8 * 6);             // 2 layers of 4 experts
  EXPECT_EQ(count.other, 3 * (attention + 2 * 8) + 3 * 8 * 10 + 2 * (3 * 8 * 5 + 8 * 4));
  EXPECT_EQ(count.embedding, 2 * 11 * 8 + 8);
  EXPECT_EQ(count_active_parameters(by_hand()), count.total() - 2 * (4 - 2) * 3 * 8 * 6);
}

TEST(ModelShape, FlopsCountChosenExpertsDenseAndSharedButNoRouterNormOrInputEmbedding) {
  const double matrices = 3 * 192 + 3 * 8 * 10 + 2 * (3 * 8 * 5 + 2 * 3 * 8 * 6) + 8 * 11;
  const TokenFlops flops = model_flops_per_token(by_hand(), 7);
  EXPECT_EQ(flops.causal, 6 * matrices + 6 * 3 * 7 * 8);
  EXPECT_EQ(flops.noncausal, 6 * matrices + 12 * 3 * 7 * 8);
}

// Reported elsewhere: MoE FLOPs counted all experts, 288 instead of 80 TFLOP/s.
TEST(Reports19, FlopsDoNotGrowWithExpertsThatATokenDoesNotVisit) {
  ModelShape more = by_hand();
  more.num_experts *= 16;
  EXPECT_EQ(model_flops_per_token(more, 7).causal, model_flops_per_token(by_hand(), 7).causal);
}

TEST(ModelShape, DenseModelHasNoExpertsAndNoRouter) {
  ModelShape dense = by_hand();
  dense.first_k_dense_replace = 3;
  EXPECT_EQ(count_parameters(dense).experts, 0);
  EXPECT_EQ(count_parameters(dense).other, 3 * (192 + 2 * 8 + 3 * 8 * 10));
  EXPECT_NO_THROW(validate(dense));
}

TEST(ModelShape, ShapesThatCannotExistAreRefusedNamingKeyAndValue) {
  struct Fault {
    std::function<void(ModelShape&)> change;
    std::vector<std::string> named;
  };
  const Fault faults[] = {
      {[](ModelShape& s) { s.hidden_size = 0; }, {"hidden_size = 0"}},
      {[](ModelShape& s) { s.num_hidden_layers = -1; }, {"num_hidden_layers = -1"}},
      {[](ModelShape& s) { s.num_experts = 0; }, {"num_experts = 0"}},
      {[](ModelShape& s) { s.num_experts_per_tok = 0; }, {"num_experts_per_tok = 0"}},
      {[](ModelShape& s) { s.num_experts_per_tok = 5; }, {"num_experts_per_tok = 5", "num_experts = 4"}},
      {[](ModelShape& s) { s.moe_intermediate_size = 0; }, {"moe_intermediate_size = 0"}},
      {[](ModelShape& s) { s.num_key_value_heads = 3; }, {"num_attention_heads = 4", "num_key_value_heads = 3"}},
      {[](ModelShape& s) { s.head_dim = 3; }, {"head_dim = 3", "even"}},
      {[](ModelShape& s) { s.first_k_dense_replace = 4; }, {"first_k_dense_replace = 4", "num_hidden_layers = 3"}},
      {[](ModelShape& s) { s.intermediate_size = 0; }, {"intermediate_size = 0"}},
      {[](ModelShape& s) { s.shared_expert_intermediate_size = -1; }, {"shared_expert_intermediate_size = -1"}},
      {[](ModelShape& s) { s.vocab_size = 1; }, {"vocab_size = 1"}},
      {[](ModelShape& s) { s.bytes_per_element = 3; }, {"bytes_per_element = 3"}},
      {[](ModelShape& s) { s.hidden_size = std::int64_t{1} << 40; }, {"hidden_size = 1099511627776"}}};
  EXPECT_NO_THROW(validate(by_hand()));
  for (const Fault& fault : faults) {
    ModelShape s = by_hand();
    fault.change(s);
    try {
      validate(s);
      ADD_FAILURE() << "accepted: " << fault.named.front();
    } catch (const InputError& error) {
      for (const std::string& text : fault.named) EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
}

}  // namespace
}  // namespace spillway
