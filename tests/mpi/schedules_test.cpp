// Whatever the order of work on the stages, and whenever gradients are reduced, they are those of plain 1F1B in every bit.
#include "support.hpp"

namespace spillway::test {
namespace {

struct Variant {
  const char* name;
  Layout layout;
  int micro_batches;
  std::vector<std::string> settings;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
std::string name_of(const testing::TestParamInfo<Variant>& info) { return info.param.name; }

class Schedules : public testing::TestWithParam<Variant> {
 protected:
  Case laid_out(const std::vector<std::string>& order) const {
    const auto& [name, layout, micro_batches, settings] = GetParam();
    return tiny_case(joined(joined(settings_of(layout, layout.data * micro_batches),
                                   {"training.iterations=2", "provisioning.predicted_iterations=0",
                                    fmt::format("model.num_hidden_layers={}", 3 * layout.pipeline + 1)}),
                            joined(settings, order)));
  }
};

/// Gradients of the last iteration of `policy`, whose memory must be as predicted.
std::uint64_t gradients(const Case& c, const std::string& policy) {
  const Trial trial(c);
  PolicyRunner runner(trial.context(), policy);
  const PolicyRun run = runner.run();
  EXPECT_FALSE(run.infeasible) << *run.infeasible;
  EXPECT_THAT(run.reasons, testing::IsEmpty());
  for (const RankRecord& rank : run.ranks) {
    EXPECT_EQ(rank.peak.activation, *rank.predicted_activation_peak) << policy << ", rank " << rank.rank;
    if (policy != "oracle") {
      EXPECT_LE(rank.peak.total, c.memory.cap) << policy << ", rank " << rank.rank;
    }
  }
  return gradient_fingerprint(runner);
}

TEST_P(Schedules, GiveTheGradientsOfPlainOrder) {
  const std::uint64_t expected =
      gradients(laid_out({"parallel.virtual_stages=1", "parallel.schedule=1f1b", "parallel.layers_per_stage=[]",
                          "parallel.overlap_gradients=false"}),
                "oracle");
  Case c = laid_out({});
  EXPECT_EQ(gradients(c, "oracle"), expected);
  EXPECT_EQ(gradients(c, "full"), expected);
  Bytes least;
  const Trial trial(c);
  for (int stage = 0; stage < c.grid.pipeline_parallel; ++stage) {
    const auto policy = make_policy("flexible", c.provisioning.options);
    least = std::max(least, least_cap(c, StepPlan(step_setup(c, trial.context().schedule, stage, 1), *policy)));
  }
  c.memory.cap = least + Bytes(4096);
  EXPECT_EQ(gradients(c, "flexible"), expected);
}

const std::vector<std::string> two_chunks{"parallel.virtual_stages=2"}, three_chunks{"parallel.virtual_stages=3"},
    gpipe{"parallel.schedule=gpipe"}, fused{"parallel.schedule=dual_batch"},
    /// The last iteration is a spike, in which units are taken in turn from the first uneven gate on.
    fused_then_in_turn{"parallel.schedule=dual_batch", "training.iterations=6"},
    fused_chunks{"parallel.schedule=dual_batch", "parallel.virtual_stages=2"};
const std::vector<std::string> overlap{"parallel.overlap_gradients=true"};
/// Messages of 64 tokens x 64 numbers: 16 KiB, above what MPI libraries send before it is asked for.
const std::vector<std::string> large{"parallel.virtual_stages=2", "training.sequence_length=64",
                                     "model.hidden_size=64"};

INSTANTIATE_TEST_SUITE_P(Ranks1, Schedules,
                         testing::Values(Variant{"chunks_of_one_stage", {1, 1, 1}, 3, three_chunks},
                                         Variant{"fused_on_one_stage", {1, 1, 1}, 4, fused},
                                         Variant{"fused_without_room", {1, 1, 1}, 1, fused}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Ranks2, Schedules,
    testing::Values(
        Variant{"both_neighbours_are_one", {2, 1, 1}, 4, two_chunks},
        Variant{"short_last_group", {2, 1, 1}, 5, three_chunks}, Variant{"one_micro_batch", {2, 1, 1}, 1, three_chunks},
        Variant{"large_messages", {2, 1, 1}, 4, large},
        Variant{"uneven_chunks", {2, 1, 1}, 3, {"parallel.virtual_stages=2", "parallel.layers_per_stage=[3,1,1,2]"}},
        Variant{"all_forward_first", {2, 1, 1}, 3, gpipe}, Variant{"fused", {2, 1, 1}, 5, fused},
        Variant{"fused_expert_group", {1, 2, 2}, 4, fused},
        Variant{"fused_then_in_turn", {1, 2, 2}, 4, fused_then_in_turn},
        Variant{"reduced_beside", {1, 2, 1}, 4, overlap}, Variant{"reduced_beside_exchanges", {1, 2, 2}, 3, overlap},
        Variant{"reduced_beside_chunks", {1, 2, 1}, 3, joined(three_chunks, overlap)},
        Variant{"reduced_beside_tensor_ranks", {1, 1, 2, 2}, 3, overlap},
        Variant{"fused_uneven_chunks",
                {2, 1, 1},
                4,
                {"parallel.schedule=dual_batch", "parallel.virtual_stages=2", "parallel.layers_per_stage=[3,1,1,2]"}}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Ranks4, Schedules,
    testing::Values(Variant{"where_groups_of_p_wait_for_ever", {4, 1, 1}, 5, three_chunks},
                    Variant{"fewer_micro_batches_than_stages", {4, 1, 1}, 3, two_chunks},
                    Variant{"as_many_micro_batches_as_stages", {4, 1, 1}, 4, two_chunks},
                    Variant{"large_messages", {4, 1, 1}, 8, large}, Variant{"expert_groups", {2, 2, 2}, 3, two_chunks},
                    Variant{"all_forward_first", {4, 1, 1}, 5, gpipe}, Variant{"fused", {2, 2, 2}, 5, fused},
                    Variant{"fused_then_in_turn", {2, 2, 2}, 4, fused_then_in_turn},
                    Variant{"fused_large_messages", {4, 1, 1}, 6, joined(fused, large)},
                    Variant{"fused_chunks", {4, 1, 1}, 5, fused_chunks},
                    Variant{"reduced_beside_chunks", {2, 2, 2}, 5, joined(three_chunks, overlap)},
                    Variant{"reduced_beside_replicas", {2, 2, 1}, 4, overlap},
                    Variant{"reduced_beside_gpipe", {2, 2, 1}, 3, joined(gpipe, overlap)},
                    Variant{"reduced_beside_fused", {2, 2, 2}, 5, joined(fused, overlap)},
                    Variant{"reduced_beside_tensor_ranks", {1, 2, 2, 2}, 4, joined(two_chunks, overlap)}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Ranks8, Schedules,
    testing::Values(Variant{"two_replicas_of_four_stages", {4, 2, 1}, 6, two_chunks},
                    Variant{"short_last_group", {8, 1, 1}, 9, two_chunks},
                    Variant{"expert_groups", {2, 4, 4}, 5, three_chunks},
                    Variant{"fused_expert_groups", {2, 4, 4}, 4, fused_chunks},
                    Variant{"fused_two_replicas", {4, 2, 1}, 6, fused},
                    Variant{"reduced_beside_chunks", {2, 4, 2}, 5, joined(three_chunks, overlap)},
                    Variant{"reduced_beside_gpipe", {4, 2, 1}, 5, joined(gpipe, overlap)},
                    Variant{"reduced_beside_fused", {4, 2, 2}, 6, joined(fused_chunks, overlap)},
                    Variant{"reduced_beside_tensor_ranks", {2, 2, 4, 2}, 5, joined(two_chunks, overlap)}),
    name_of);

}  // namespace
}  // namespace spillway::test
