// One workload, many layouts: the same routing, and the losses and gradients of the serial reference in double.
#include <cmath>

#include "run/experiment.hpp"
#include "run/gradient_step.hpp"
#include "run/reference_model.hpp"
#include "support.hpp"
#include "workload/routing/tokens.hpp"

namespace spillway::test {
namespace {

constexpr int sequences = 16;
constexpr double loss_tolerance = 1e-5, gradient_tolerance = 2e-4;  // relative; fp32 against double

/// What every layout must find. Computed once per process, from nothing that knows of layouts.
struct Expected {
  std::vector<double> losses;
  std::uint64_t workload = 0;
  std::unique_ptr<ReferenceModel> model;  ///< after the gradients of the last iteration
};

std::vector<std::string> workload() {
  return {"training.iterations=3",         "training.adam_epsilon=1e-3",
          "model.num_experts=8",           "model.num_attention_heads=8",
          "model.num_key_value_heads=4",   "routing.reference_ranks=4",
          "routing.reference_sequences=4", "routing.peak=1.8",
          "routing.burst_fraction=0.3333", "provisioning.policies=[\"keep\"]"};
}

Expected compute() {
  const Case c = tiny_case(joined(settings_of({1, 1, 1}, sequences), workload()));
  const RoutingProblem problem = routing_problem(c);
  const auto routing = make_routing_source(c.routing, problem);
  Expected expected;
  for (std::int64_t i = 0; i < c.training.iterations; ++i)
    for (std::int64_t layer = c.model.first_k_dense_replace; layer < c.model.num_hidden_layers; ++layer)
      for (std::int64_t g = 0; g < sequences; ++g) expected.workload += workload_hash(*routing, problem, {i, layer, g});

  const std::int64_t s = c.training.sequence_length;
  const TokenSource source{c.training.seed, c.model.vocab_size};
  std::vector<std::int32_t> choices(s * c.model.num_experts_per_tok);
  expected.model = std::make_unique<ReferenceModel>(c.model, c.training.seed);
  for (std::int64_t i = 0; i < c.training.iterations; ++i) {
    ReferenceBatch batch{i, sequences, s, {}, {}, {}};
    batch.tokens.resize(sequences * s);
    for (std::int64_t g = 0; g < sequences; ++g) source.tokens(i, g, std::span(batch.tokens).subspan(g * s, s));
    for (const std::int32_t id : batch.tokens) batch.labels.push_back(source.label(id));
    batch.choices = [&](int layer, std::int64_t g) -> std::span<const std::int32_t> {
      routing->choices({i, layer, g}, choices);
      return choices;
    };
    expected.losses.push_back(expected.model->step_gradients(batch));
    const TrainingOptions& t = c.training;
    if (i + 1 < t.iterations)
      expected.model->adam({t.learning_rate, t.adam_beta1, t.adam_beta2, t.adam_epsilon, i + 1});
  }
  return expected;
}

const Expected& expected() {
  static const Expected once = compute();
  return once;
}

struct Variant {
  const char* name;
  Layout layout;
  int micro_batch_size;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class Layouts : public testing::TestWithParam<Variant> {
 protected:
  Case laid_out() const {
    const auto& [name, layout, size] = GetParam();
    return tiny_case(joined(settings_of(layout, sequences, size), workload()));
  }
};

TEST_P(Layouts, LeaveTheWorkloadAndTheRunIsValid) {
  const Report report = run_experiment(laid_out(), session());
  EXPECT_THAT(report.reasons, testing::IsEmpty());
  EXPECT_EQ(report.workload_checksum, expected().workload);
}

TEST_P(Layouts, FindTheLossesAndGradientsOfTheSerialReference) {
  const Trial trial(laid_out());
  PolicyRunner runner(trial.context(), "keep");
  const PolicyRun run = runner.run();
  ASSERT_EQ(run.iterations.size(), expected().losses.size());
  for (std::size_t i = 0; i < run.iterations.size(); ++i)
    EXPECT_NEAR(*run.iterations[i].loss, expected().losses[i], loss_tolerance * expected().losses[i])
        << "iteration " << i;

  // This rank's shard of every parameter's gradient.
  for (const auto& [key, place] : runner.engine().parameters.places()) {
    const GroupBuffers& group = runner.engine().parameters.group(place.shape.group);
    const auto [first, shard] = my_shard(runner.engine(), place.shape.group, group.elements.bucket_of(key.first));
    const auto in_layer = [&](std::int64_t i) {
      return ParameterStore::whole_index(place.shape, runner.engine().grid, runner.engine().communicators.here, i);
    };
    const int layer = runner.blocks()[key.first].layer;
    const auto reference = expected().model->gradient(key.second, layer);
    double scale = 0, worst = 0;
    for (const double g : reference) scale = std::max(scale, std::abs(g));
    for (std::int64_t i = std::max(place.offset, first); i < std::min(place.offset + place.shape.size(), first + shard);
         ++i)
      worst = std::max(worst, std::abs(group.gradients[i] - reference[in_layer(i - place.offset)]));
    EXPECT_GT(scale, 0) << name(key.second) << ", layer " << layer;
    EXPECT_LE(worst, gradient_tolerance * scale)
        << name(key.second) << ", layer " << layer << ", rank " << session().rank();
  }
}

std::string name_of(const testing::TestParamInfo<Variant>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Ranks1, Layouts,
                         testing::Values(Variant{"alone", {1, 1, 1}, 1}, Variant{"four_at_once", {1, 1, 1}, 4}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks2, Layouts,
                         testing::Values(Variant{"two_stages", {2, 1, 1}, 2}, Variant{"two_expert_ranks", {1, 2, 2}, 1},
                                         Variant{"two_replicas", {1, 2, 1}, 8},
                                         Variant{"two_tensor_ranks", {1, 1, 1, 2}, 2},
                                         Variant{"two_tensor_ranks_exchange", {1, 1, 2, 2}, 1}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks4, Layouts,
                         testing::Values(Variant{"two_stages_two_expert_ranks", {2, 2, 2}, 1},
                                         Variant{"four_expert_ranks", {1, 4, 4}, 2},
                                         Variant{"two_groups_of_two", {1, 4, 2}, 4},
                                         Variant{"four_stages", {4, 1, 1}, 1},
                                         Variant{"four_tensor_ranks", {1, 1, 2, 4}, 1},
                                         Variant{"two_stages_two_tensor_ranks", {2, 1, 2, 2}, 2},
                                         Variant{"expert_ranks_over_data_and_tensor", {1, 2, 4, 2}, 1}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks8, Layouts,
                         testing::Values(Variant{"two_stages_four_expert_ranks", {2, 4, 4}, 1},
                                         Variant{"two_stages_two_groups", {2, 4, 2}, 2},
                                         Variant{"eight_expert_ranks", {1, 8, 8}, 2},
                                         Variant{"two_stages_two_tensor_four_expert_ranks", {2, 2, 4, 2}, 1},
                                         Variant{"four_tensor_two_groups_of_two", {1, 2, 2, 4}, 2},
                                         Variant{"two_stages_four_tensor_ranks", {2, 1, 4, 4}, 1}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(Ranks16, Layouts,
                         testing::Values(Variant{"two_stages_two_tensor_four_expert_ranks", {2, 4, 4, 2}, 1},
                                         Variant{"two_stages_four_tensor_eight_expert_ranks", {2, 2, 8, 4}, 2}),
                         name_of);

}  // namespace
}  // namespace spillway::test
