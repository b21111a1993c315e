// Bytes that the plan predicts without data beside those of real runs, layout by layout, as a table: rank 0 appends its
// rows to the file SPILLWAY_PREDICTED_BYTES names. packaging/predicted_bytes.sh makes results/campaigns from it.
#include <cstdlib>
#include <fstream>

#include "campaign_cases.hpp"
#include "run/projection.hpp"

namespace spillway::test {
namespace {

struct Row {
  Layout layout;
  int micro_batches, micro_batch_size;
  std::vector<std::string> settings;
};

constexpr const char* overlap = "parallel.overlap_gradients=true";

std::vector<Row> rows(int ranks) {
  switch (ranks) {
    case 1:
      return {{{1, 1, 1}, 1, 1, {}}, {{1, 1, 1}, 4, 2, {}}, {{1, 1, 1}, 3, 3, {"model.inventory=with_combine"}}};
    case 2:
      return {{{2, 1, 1}, 1, 1, {}},
              {{2, 1, 1}, 5, 2, {}},
              {{1, 2, 2}, 3, 1, {}},
              {{1, 2, 1}, 2, 4, {}},
              {{1, 2, 1}, 2, 4, {overlap}}};
    case 4:
      return {{{2, 2, 2}, 4, 1, {}},
              {{1, 4, 4}, 2, 2, {"training.sequence_length=160"}},
              {{1, 4, 2}, 3, 2, {"model.shared_expert_intermediate_size=0"}},
              {{4, 1, 1}, 3, 1, {}},
              {{4, 1, 1}, 9, 1, {"model.head=false"}},
              {{2, 2, 1}, 5, 1, {}},
              {{2, 2, 2}, 2, 3, {"model.inventory=with_combine"}},
              {{2, 2, 1}, 4, 1, {overlap}}};
    default:
      return {{{2, 4, 4}, 3, 1, {}}, {{2, 4, 2}, 2, 2, {}}, {{1, 8, 8}, 2, 1, {}}, {{4, 2, 2}, 5, 1, {}},
              {{8, 1, 1}, 8, 1, {}}, {{1, 8, 4}, 2, 2, {}}, {{4, 2, 1}, 3, 2, {}}, {{2, 4, 2}, 3, 1, {overlap}}};
  }
}

Case case_of(const Row& row) {
  const int sequences = row.layout.data * row.micro_batches * row.micro_batch_size;
  return tiny_case(joined(joined(settings_of(row.layout, sequences, row.micro_batch_size),
                                 {"training.iterations=2", "training.sequence_length=48", "model.hidden_size=32",
                                  "model.num_hidden_layers=8", "model.num_experts=8", "model.vocab_size=64",
                                  "model.moe_intermediate_size=24", "routing.preset=hot_rank", "routing.peak=1.7",
                                  "provisioning.predicted_iterations=0"}),
                          row.settings));
}

struct Predicted {
  Bytes total, activation;
};

/// Of every rank, from a projection of all iterations.
std::vector<Predicted> predict(const Trial& trial, const std::string& policy) {
  const Case& c = trial.run_case();
  const MachineTime time(c.machine);
  Projection projection({c, trial.routing(), trial.context().schedule, time, policy});
  for (std::int64_t i = 0; i < c.training.iterations; ++i) projection.run(i);
  std::vector<Predicted> list;
  for (int r = 0; r < Grid(c.grid).ranks(); ++r) {
    const ByteLedger& ledger = projection.ledger(r);
    ByteLedger fixed(c.memory.alignment);
    add_static_memory(fixed, projection.plan(r).elements(), c.model.bytes_per_element);
    add_gradient_step(fixed, projection.plan(r).elements());
    list.push_back({std::max(ledger.peak(), fixed.peak()), ledger.activation_peak()});
  }
  return list;
}

std::string line(const Row& row, const std::string& policy, const Predicted& p, const RankRecord& r) {
  const double held = static_cast<double>(r.peak.total.value), reserved = static_cast<double>(r.reserved_bytes->value);
  return fmt::format(
      "{:>5} {:>4} {:>4} {:>4} {:>4} {:>4}  {:<15} {:>4} {:>11} {:>11} {:>11} {:>11} {:>11} {:>8.2f} %\n",
      row.layout.ranks(), row.layout.pipeline, row.layout.data, row.layout.expert, row.micro_batches,
      row.micro_batch_size, policy, r.rank, p.total.value, r.peak.total.value, p.activation.value,
      r.peak.activation.value, r.reserved_bytes->value, 100 * (reserved - held) / held);
}

TEST(PredictedBytes, AreThoseOfTheRun) {
  const char* const file = std::getenv("SPILLWAY_PREDICTED_BYTES");
  std::string table;
  for (const Row& row : rows(session().world())) {
    Case c = case_of(row);
    const Trial roomy(c);
    const Bytes least = least_cap_of(roomy), keep = roomy.forecast_peak("keep", 0);
    for (const char* policy : {"keep", "flexible:ratio"}) {
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", policy, row.layout.pipeline, row.layout.data, row.layout.expert));
      if (std::string(policy) != "keep")
        c.memory.cap = least + Bytes(std::max<std::int64_t>(0, (keep - least).value / 4));
      const Trial trial(c);
      const PolicyRun run = trial.run(policy);
      EXPECT_FALSE(run.infeasible) << run.infeasible.value_or("");
      EXPECT_THAT(run.reasons, testing::IsEmpty());
      if (session().rank() != 0) continue;
      const std::vector<Predicted> predicted = predict(trial, policy);
      std::size_t fullest = 0;
      for (std::size_t r = 0; r < run.ranks.size(); ++r) {
        EXPECT_EQ(predicted[r].total, run.ranks[r].peak.total) << "rank " << r;
        EXPECT_EQ(predicted[r].activation, run.ranks[r].peak.activation) << "rank " << r;
        EXPECT_GE(*run.ranks[r].reserved_bytes, run.ranks[r].peak.total) << "rank " << r;
        if (run.ranks[r].peak.total > run.ranks[fullest].peak.total) fullest = r;
      }
      table += line(row, policy, predicted[fullest], run.ranks[fullest]);
    }
  }
  if (session().rank() == 0 && file != nullptr) std::ofstream(file, std::ios::app) << table;
}

}  // namespace
}  // namespace spillway::test
