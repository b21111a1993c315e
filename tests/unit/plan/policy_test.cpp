// What each policy keeps, and that an unknown one is refused with the list of those there are.
#include "plan/policy/policy.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "one_block.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;
using T = Tensor;

TensorSet kept(std::string_view policy, BlockKind kind) { return decision(policy, kind, BlockContext{}).keep; }

TEST(Policy, UnknownNameIsRefusedWithTheListOfKnownOnes) {
  try {
    make_policy("selectiv");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'selectiv'"));
    for (const std::string& name : policy_names()) EXPECT_THAT(error.what(), HasSubstr(name));
  }
}

TEST(Policy, EveryNameOfTheTableMakesAPolicyAndSaysWhatItMeans) {
  EXPECT_THAT(policy_names(), testing::IsSupersetOf({"oracle", "keep", "selective", "full", "flexible"}));
  for (const PolicyEntry& entry : policy_table()) {
    EXPECT_NE(make_policy(entry.name), nullptr);
    EXPECT_FALSE(entry.meaning.empty());
  }
}

TEST(Policy, OnlyTheOracleMayExceedTheCap) {
  for (const std::string& name : policy_names()) EXPECT_EQ(make_policy(name)->obeys_cap(), name != "oracle");
}

TEST(Policy, OracleDecidesAsKeepDoes) {
  for (const BlockKind kind : {BlockKind::moe, BlockKind::dense, BlockKind::head}) {
    EXPECT_EQ(kept("oracle", kind), TensorSet::all());
    EXPECT_EQ(kept("keep", kind), TensorSet::all());
  }
}

TEST(Policy, SelectiveGivesUpNormOutputsAndActivationsOnly) {
  TensorSet expected = TensorSet::all();
  for (const T t : {T::attention_norm_output, T::mlp_norm_output, T::final_norm_output, T::mlp_fc2_input, T::fc2_input})
    expected.erase(t);
  for (const BlockKind kind : {BlockKind::moe, BlockKind::dense, BlockKind::head})
    EXPECT_EQ(kept("selective", kind), expected);
}

TEST(Policy, FullKeepsALayersInputAloneAndTheHeadWhole) {
  EXPECT_EQ(kept("full", BlockKind::moe), TensorSet{T::block_input});
  EXPECT_EQ(kept("full", BlockKind::dense), TensorSet{T::block_input});
  EXPECT_EQ(kept("full", BlockKind::head), TensorSet::all());
}

}  // namespace
}  // namespace spillway
