// The activation memory that the operator table predicts is what the arena hands out, to the byte, for every shape,
// layout and policy.
#include "support.hpp"

namespace spillway::test {
namespace {

const std::vector<std::string> even = {"routing.preset=balanced", "routing.reference_ranks=1",
                                       "routing.reference_stages=1"};
const std::vector<std::string> short_run = {"training.iterations=2"};

class PredictedMemory : public testing::TestWithParam<Variant> {};

TEST_P(PredictedMemory, IsTheArenasToTheByteOnEveryRankUnderEveryPolicy) {
  const auto& [name, layout, settings] = GetParam();
  const Trial trial(tiny_case(joined(joined(settings_of(layout, 4 * layout.data), short_run), settings)));
  std::map<std::int64_t, std::uint64_t> first;
  for (const char* policy : {"oracle", "keep", "selective", "full"}) {
    SCOPED_TRACE(policy);
    const PolicyRun run = trial.run(policy);
    EXPECT_THAT(run.reasons, testing::IsEmpty());
    if (session().rank() != 0) continue;
    ASSERT_FALSE(run.infeasible) << *run.infeasible;
    for (const RankRecord& rank : run.ranks) {
      Bytes forecast;
      for (std::int64_t i = 0; i < trial.run_case().training.iterations; ++i)
        forecast = std::max(forecast, trial.forecast(policy, rank.rank, i).activation_peak());
      EXPECT_EQ(rank.peak.activation, *rank.predicted_activation_peak) << "rank " << rank.rank;
      EXPECT_EQ(rank.peak.activation, forecast) << "rank " << rank.rank << ": the plan, without running";
      EXPECT_GT(forecast.value, 0);
    }
    if (first.empty()) first = checksums(run);
    EXPECT_EQ(checksums(run), first);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks1, PredictedMemory,
    testing::Values(
        Variant{"plain", {1, 1, 1}, {}},
        Variant{"one_expert", {1, 1, 1}, joined(even, {"model.num_experts=1", "model.num_experts_per_tok=1"})},
        Variant{"head_off_and_larger_micro_batches", {1, 1, 1}, {"model.head=false", "training.micro_batch_size=3"}},
        Variant{"dense_layers_alone", {1, 1, 1}, {"model.first_k_dense_replace=4"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Ranks2, PredictedMemory,
    testing::Values(
        Variant{"two_stages_uneven", {2, 1, 1}, {"model.num_hidden_layers=7"}},
        Variant{"two_stages_as_listed", {2, 1, 1}, {"model.num_hidden_layers=7", "parallel.layers_per_stage=[2, 5]"}},
        Variant{"one_micro_batch", {2, 1, 1}, {"training.micro_batches=1"}},
        Variant{"as_many_micro_batches_as_stages", {2, 1, 1}, {"training.micro_batches=2"}},
        Variant{"one_more_micro_batch_than_stages", {2, 1, 1}, {"training.micro_batches=3"}},
        Variant{"many_micro_batches", {2, 1, 1}, {"training.micro_batches=17"}},
        Variant{"messages_above_64_KiB",
                {2, 1, 1},
                {"training.sequence_length=256", "training.micro_batches=2", "model.hidden_size=96",
                 "model.num_hidden_layers=2"}},
        Variant{"messages_above_1_MiB",
                {2, 1, 1},
                {"training.sequence_length=1024", "training.micro_batches=3", "model.hidden_size=288",
                 "model.num_hidden_layers=2"}},
        Variant{"exchanges_above_1_MiB",
                {1, 2, 2},
                {"training.sequence_length=1024", "training.micro_batches=2", "model.hidden_size=288",
                 "model.num_hidden_layers=2"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Ranks4, PredictedMemory,
    testing::Values(Variant{"plain", {2, 2, 2}, {}}, Variant{"expert_replicas", {1, 4, 2}, {}},
                    Variant{"experts_on_every_rank", {2, 2, 1}, {}}, Variant{"one_local_expert", {1, 4, 4}, {}},
                    Variant{"fewer_micro_batches_than_stages", {4, 1, 1}, {"training.micro_batches=3"}},
                    Variant{"as_many_micro_batches_as_stages", {4, 1, 1}, {"training.micro_batches=4"}},
                    Variant{"one_more_micro_batch_than_stages", {4, 1, 1}, {"training.micro_batches=5"}},
                    Variant{"weights_at_combine", {2, 2, 2}, {"model.inventory=with_combine"}},
                    Variant{"weights_at_combine_without_exchange",
                            {2, 2, 1},
                            {"model.inventory=with_combine", "model.shared_expert_intermediate_size=0"}},
                    Variant{"standard_inventory", {2, 2, 2}, {"model.inventory=default"}},
                    Variant{"head_off", {2, 2, 2}, {"model.head=false"}},
                    Variant{"no_shared_expert", {2, 2, 2}, {"model.shared_expert_intermediate_size=0"}},
                    Variant{"no_dense_layer", {2, 2, 2}, {"model.first_k_dense_replace=0"}},
                    Variant{"a_stage_of_dense_layers", {2, 2, 2}, {"model.first_k_dense_replace=2"}},
                    Variant{"one_key_value_head", {2, 2, 2}, {"model.num_key_value_heads=1"}},
                    Variant{"top_k_of_all_experts", {2, 2, 2}, joined(even, {"model.num_experts_per_tok=4"})},
                    Variant{"one_token_per_micro_batch", {2, 2, 2}, joined(even, {"training.sequence_length=1"})},
                    Variant{"odd_sizes",
                            {2, 2, 2},
                            {"model.hidden_size=10", "model.num_attention_heads=1", "model.num_key_value_heads=1",
                             "model.head_dim=6", "model.moe_intermediate_size=7", "model.intermediate_size=5",
                             "model.shared_expert_intermediate_size=3", "model.vocab_size=37",
                             "training.sequence_length=13", "memory.alignment=512"}},
                    Variant{"ranks_without_tokens",
                            {1, 4, 4},
                            {"routing.preset=empty", "routing.reference_ranks=4", "model.num_experts=8"}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Ranks8, PredictedMemory,
                         testing::Values(Variant{"four_stages_two_replicas", {4, 2, 1}, {}},
                                         Variant{"two_groups_of_experts", {2, 4, 2}, {"training.micro_batch_size=2"}},
                                         Variant{"one_wide_stage", {1, 8, 4}, {"model.inventory=with_combine"}}),
                         name_of);

}  // namespace
}  // namespace spillway::test
