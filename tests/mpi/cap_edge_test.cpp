// The edge of the cap at the worst imbalance that k distinct experts per token allow: with the least feasible cap a run
// that adapts goes through, one alignment unit below it is refused with the arithmetic.
#include "campaign_cases.hpp"

namespace spillway::test {
namespace {

constexpr const char* adapting[] = {"flexible:greedy", "flexible:ratio", "full:slices"};

struct Edge {
  Layout layout;
  std::int64_t experts, top_k;
  std::vector<std::string> settings;

  /// max/mean rows over the ranks of an expert group.
  double bound() const {
    const double ep = layout.expert, k = static_cast<double>(top_k);
    return ep * std::min(k, static_cast<double>(experts) / ep) / k;
  }
  std::vector<std::string> all() const {
    return joined(joined(settings_of(layout, 4 * layout.data, 2),
                         {fmt::format("model.num_experts={}", experts),
                          fmt::format("model.num_experts_per_tok={}", top_k), "training.iterations=2",
                          "routing.preset=hot_rank", "routing.hot_share=1", fmt::format("routing.peak={}", bound()),
                          fmt::format("routing.reference_ranks={}", layout.expert),
                          "provisioning.predicted_iterations=0"}),
                  settings);
  }
};

std::vector<Edge> edges(int ranks) {
  const std::vector<std::string> tiles = {"training.sequence_length=300", "model.hidden_size=8"};
  if (ranks == 2) return {{{1, 2, 2}, 4, 2, {}}, {{1, 2, 2}, 4, 3, tiles}};
  if (ranks == 4)
    return {{{1, 4, 4}, 8, 2, tiles},
            {{2, 2, 2}, 4, 1, {"training.micro_batches=1", "machine.shared_memory=true"}},
            {{1, 4, 4}, 4, 3, {"model.inventory=with_combine"}},
            {{2, 2, 2}, 8, 4, {"model.head=false", "memory.alignment=64"}}};
  return {{{2, 4, 4}, 8, 2, tiles}, {{1, 8, 8}, 16, 2, {}}};
}

TEST(CapEdge, TheLeastCapIsEnoughAtTheBoundOfImbalance) {
  for (const Edge& edge : edges(session().world())) {
    SCOPED_TRACE(as_arguments(edge.all()));
    Case c = tiny_case(edge.all());
    const Trial roomy(c);
    const auto oracle = checksums(roomy.run("oracle"));
    const Bytes least = least_cap_of(roomy);
    const Bytes unit = c.memory.alignment, plenty(std::int64_t{1} << 30);
    for (const auto& [cap, host] : {std::pair(least, Bytes(0)), std::pair(least + unit, plenty)}) {
      c.memory.cap = cap;
      c.memory.host_cap = host;
      const Trial trial(c);
      for (const char* policy : adapting) {
        SCOPED_TRACE(fmt::format("{}, cap {}, host {}", policy, cap.value, host.value));
        const PolicyRun run = trial.run(policy);
        EXPECT_FALSE(run.infeasible) << run.infeasible.value_or("");
        EXPECT_THAT(run.reasons, testing::IsEmpty());
        EXPECT_EQ(checksums(run), oracle);
        for (const IterationRecord& i : run.iterations) {
          EXPECT_TRUE(i.completed()) << i.oom->operator_name;
          EXPECT_DOUBLE_EQ(i.overload_max, edge.bound());
        }
        for (const RankRecord& rank : run.ranks) EXPECT_LE(rank.peak.total, cap) << "rank " << rank.rank;
      }
    }
  }
}

TEST(CapEdge, OneUnitBelowTheLeastCapIsRefusedWithTheArithmetic) {
  for (const Edge& edge : edges(session().world())) {
    SCOPED_TRACE(as_arguments(edge.all()));
    Case c = tiny_case(edge.all());
    const Bytes least = least_cap_of(Trial(c)), unit = c.memory.alignment;
    c.memory.cap = least - unit;
    const Trial trial(c);
    for (const char* policy : adapting) {
      const PolicyRun run = trial.run(policy);
      EXPECT_TRUE(run.iterations.empty());
      ASSERT_TRUE(run.infeasible);
      for (const Bytes figure : {least, c.memory.cap, unit})
        EXPECT_THAT(*run.infeasible, testing::HasSubstr(fmt::format(" {} ", figure.value))) << policy;
    }
  }
}

}  // namespace
}  // namespace spillway::test
