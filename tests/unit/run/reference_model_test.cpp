#include "run/reference_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"
#include "device/ops/initialize.hpp"

namespace spillway {
namespace {

using P = Parameter;
using Row = std::vector<double>;

/// A dense layer, then MoE layers with a shared expert; grouped key/value heads.
ModelShape mixed_shape(bool head = true) {
  ModelShape s;
  s.hidden_size = 12;
  s.moe_intermediate_size = 6;
  s.num_experts = 5;
  s.num_experts_per_tok = 2;
  s.num_hidden_layers = 3;
  s.first_k_dense_replace = 1;
  s.intermediate_size = 10;
  s.shared_expert_intermediate_size = 7;
  s.num_attention_heads = 4;
  s.num_key_value_heads = 2;
  s.head_dim = 4;
  s.vocab_size = 11;
  s.head = head;
  return s;
}

/// Tokens, labels and distinct experts per token, functions of the seed.
class Batch {
 public:
  Batch(const ModelShape& shape, std::int64_t sequences, std::int64_t sequence_length, std::uint64_t seed = 3) {
    batch.sequences = sequences;
    batch.sequence_length = sequence_length;
    const CounterRandom random(seed);
    std::uint64_t draw = 0;
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int32_t>(random.below(draw++, static_cast<std::uint64_t>(n)));
    };
    for (std::int64_t t = 0; t < batch.total_tokens(); ++t) {
      batch.tokens.push_back(below(shape.vocab_size));
      batch.labels.push_back(below(shape.vocab_size));
    }
    for (int layer = 0; layer < shape.num_hidden_layers; ++layer)
      for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
        std::vector<std::int32_t>& list = experts[{layer, sequence}];
        for (std::int64_t t = 0; t < sequence_length; ++t) {
          std::vector<std::int32_t> all(static_cast<std::size_t>(shape.num_experts));
          std::iota(all.begin(), all.end(), 0);
          for (std::int64_t j = 0; j < shape.num_experts_per_tok; ++j) {
            const auto pick = all.begin() + below(std::ssize(all));
            list.push_back(*pick);
            all.erase(pick);
          }
        }
      }
    batch.choices = [this](int layer, std::int64_t sequence) -> std::span<const std::int32_t> {
      return experts.at({layer, sequence});
    };
  }
  Batch(const Batch&) = delete;

  std::map<std::pair<int, std::int64_t>, std::vector<std::int32_t>> experts;
  ReferenceBatch batch;
};

struct Named {
  int layer;
  ParameterShape shape;
};

/// Every parameter of the model with its layer.
std::vector<Named> all_parameters(const ModelShape& shape) {
  std::vector<Named> all;
  BlockContext context;
  context.shape = shape;
  const auto append = [&](BlockKind kind, int layer) {
    for (const ParameterShape& p : parameters(kind, context)) all.push_back({layer, p});
  };
  if (shape.head) append(BlockKind::embedding, -1);
  for (int layer = 0; layer < shape.num_hidden_layers; ++layer) {
    context.mlp_size = shape.mlp_size(layer);
    append(shape.is_moe_layer(layer) ? BlockKind::moe : BlockKind::dense, layer);
  }
  if (shape.head) append(BlockKind::head, -1);
  return all;
}

/// Gains start at 1, where a forgotten gain would not show.
void perturb_gains(ReferenceModel& model, const ModelShape& shape) {
  for (const Named& p : all_parameters(shape)) {
    if (p.shape.standard_deviation > 0) continue;
    const CounterRandom random(17, p.layer, static_cast<int>(p.shape.id));
    const auto gain = model.value(p.shape.id, p.layer);
    for (std::size_t i = 0; i < gain.size(); ++i) gain[i] += 0.3 * random.normal(i);
  }
}

/// Central differences by the element of largest gradient and three others of every parameter.
void expect_gradients_are_differences(const ModelShape& shape) {
  const Batch data(shape, 2, 5);
  ReferenceModel model(shape, 7);
  perturb_gains(model, shape);
  model.step_gradients(data.batch);
  const ReferenceModel before = model;
  for (const Named& p : all_parameters(shape)) {
    const std::span<const double> gradient = before.gradient(p.shape.id, p.layer);
    ASSERT_EQ(std::ssize(gradient), p.shape.size());
    const auto larger = [](double a, double b) { return std::abs(a) < std::abs(b); };
    std::vector<std::ptrdiff_t> elements = {std::ranges::max_element(gradient, larger) - gradient.begin()};
    EXPECT_NE(gradient[elements[0]], 0) << name(p.shape.id) << " of layer " << p.layer;
    for (std::uint64_t i = 0; i < 3; ++i)
      elements.push_back(static_cast<std::ptrdiff_t>(CounterRandom(5, p.layer, i).below(i, gradient.size())));
    for (const std::ptrdiff_t i : elements) {
      constexpr double step = 1e-5;
      double& x = model.value(p.shape.id, p.layer)[i];
      const double at = x;
      x = at + step;
      const double above = model.step_gradients(data.batch);
      x = at - step;
      const double below = model.step_gradients(data.batch);
      x = at;
      EXPECT_NEAR((above - below) / (2 * step), gradient[i], 1e-7 * std::max(1.0, std::abs(gradient[i])))
          << name(p.shape.id) << " of layer " << p.layer << ", element " << i;
    }
  }
}

TEST(ReferenceModel, GradientsAreTheFiniteDifferencesOfTheLossWithHead) {
  expect_gradients_are_differences(mixed_shape(true));
}

TEST(ReferenceModel, GradientsAreTheFiniteDifferencesOfTheLossWithoutHead) {
  expect_gradients_are_differences(mixed_shape(false));
}

Row norm(const Row& x, std::span<const double> gain) {
  const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
  Row out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = gain[i] * x[i] / std::sqrt(square + 1e-6);
  return out;
}

Row times(const Row& a, std::span<const double> w) {
  Row out(w.size() / a.size());
  for (std::size_t i = 0; i < w.size(); ++i) out[i % out.size()] += a[i / out.size()] * w[i];
  return out;
}

void add(const Row& x, double weight, Row& sum) {
  for (std::size_t i = 0; i < x.size(); ++i) sum[i] += weight * x[i];
}

Row mlp(const Row& u, std::span<const double> fc1, std::span<const double> fc2) {
  const Row gate_up = times(u, fc1);
  Row product(gate_up.size() / 2);
  for (std::size_t i = 0; i < product.size(); ++i)
    product[i] = gate_up[i] / (1 + std::exp(-gate_up[i])) * gate_up[product.size() + i];
  return times(product, fc2);
}

/// One token attends to itself alone and is not turned, so its attention output is its value heads.
Row one_token_attention(const Row& qkv, const ModelShape& s) {
  Row out(static_cast<std::size_t>(s.query_size()));
  for (std::int64_t head = 0; head < s.num_attention_heads; ++head)
    for (std::int64_t i = 0; i < s.head_dim; ++i) {
      const std::int64_t value =
          s.num_attention_heads + s.num_key_value_heads + head / (s.num_attention_heads / s.num_key_value_heads);
      out[head * s.head_dim + i] = qkv[value * s.head_dim + i];
    }
  return out;
}

void add_experts(const ReferenceModel& model, int layer, std::span<const std::int32_t> experts, const Row& u, Row& z) {
  const Row logits = times(u, model.value(P::router_weight, layer));
  double chosen = 0;
  for (const std::int32_t e : experts) chosen += std::exp(logits[e]);
  const auto part = [&](P id, std::int32_t e) {
    const auto all = model.value(id, layer);
    const std::size_t size = all.size() / logits.size();
    return all.subspan(static_cast<std::size_t>(e) * size, size);
  };
  for (const std::int32_t e : experts)
    add(mlp(u, part(P::fc1_weight, e), part(P::fc2_weight, e)), std::exp(logits[e]) / chosen, z);
}

TEST(ReferenceModel, LossOfOneTokenIsTheFormulaByHand) {
  const ModelShape shape = mixed_shape();
  const Batch data(shape, 1, 1);
  ReferenceModel changing(shape, 11);
  perturb_gains(changing, shape);
  const ReferenceModel& model = changing;

  const auto table = model.value(P::embedding, -1).subspan(data.batch.tokens[0] * shape.hidden_size, shape.hidden_size);
  Row x(table.begin(), table.end());
  for (int layer = 0; layer < shape.num_hidden_layers; ++layer) {
    const Row qkv = times(norm(x, model.value(P::attention_norm_gain, layer)), model.value(P::qkv_weight, layer));
    add(times(one_token_attention(qkv, shape), model.value(P::out_weight, layer)), 1, x);
    const Row u = norm(x, model.value(P::mlp_norm_gain, layer));
    add(mlp(u, model.value(P::mlp_fc1_weight, layer), model.value(P::mlp_fc2_weight, layer)), 1, x);
    if (shape.is_moe_layer(layer)) add_experts(model, layer, data.batch.choices(layer, 0), u, x);
  }
  const Row logits = times(norm(x, model.value(P::final_norm_gain, -1)), model.value(P::head_weight, -1));
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  EXPECT_NEAR(changing.step_gradients(data.batch), std::log(sum) - logits[data.batch.labels[0]], 1e-12);
}

TEST(ReferenceModel, BlocksThatAddNothingPassTheirInputOn) {
  const ModelShape shape = mixed_shape(false);
  Batch data(shape, 3, 4);
  data.batch.iteration = 2;
  ReferenceModel model(shape, 11);
  for (int layer = 0; layer < shape.num_hidden_layers; ++layer) {
    std::ranges::fill(model.value(P::out_weight, layer), 0.0);
    std::ranges::fill(model.value(P::mlp_fc2_weight, layer), 0.0);
    if (shape.is_moe_layer(layer)) std::ranges::fill(model.value(P::fc2_weight, layer), 0.0);
  }
  std::vector<float> noise(4 * 12);
  double squares = 0;
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    device::ops::initialize_normal({noise.data(), 4, 12}, mix(11, 0x1A9Bu, std::uint64_t{2}, sequence), 1.0, 0);
    for (const float x : noise) squares += double{x} * double{x};
  }
  EXPECT_NEAR(model.step_gradients(data.batch), squares / (2 * 3 * 4 * 12), 1e-12);
  std::ranges::fill(model.value(P::mlp_fc2_weight, 1), 0.1);
  EXPECT_GT(std::abs(model.step_gradients(data.batch) - squares / (2 * 3 * 4 * 12)), 1e-3);
}

TEST(ReferenceModel, AWrongRouterWeightChangesTheLossUnlessExpertsAreEqual) {
  const ModelShape shape = mixed_shape();
  const Batch data(shape, 2, 4);
  ReferenceModel model(shape, 1);
  const auto change = [&] {  // of the loss, when one router weight is off
    const double right = model.step_gradients(data.batch);
    model.value(P::router_weight, 2)[8] += 0.5;
    const double wrong = model.step_gradients(data.batch);
    model.value(P::router_weight, 2)[8] -= 0.5;
    return std::abs(wrong - right);
  };
  EXPECT_GT(change(), 1e-4);
  for (const P id : {P::fc1_weight, P::fc2_weight}) {
    const auto all = model.value(id, 2);
    const std::size_t size = all.size() / 5;
    for (std::size_t i = size; i < all.size(); ++i) all[i] = all[i % size];
  }
  EXPECT_LT(change(), 1e-12) << "the weights of a token's experts sum to 1";
}

TEST(ReferenceModel, SwappedExpertsChangeTheLossUnlessTheirParametersSwapToo) {
  const ModelShape shape = mixed_shape();
  Batch data(shape, 2, 4);
  ReferenceModel model(shape, 1);
  const double right = model.step_gradients(data.batch);
  for (std::int64_t sequence = 0; sequence < 2; ++sequence)
    for (std::int32_t& e : data.experts.at({1, sequence})) e = e == 0 ? 3 : e == 3 ? 0 : e;
  EXPECT_GT(std::abs(model.step_gradients(data.batch) - right), 1e-4);
  for (const P id : {P::fc1_weight, P::fc2_weight}) {
    const auto all = model.value(id, 1);
    const auto size = static_cast<std::ptrdiff_t>(all.size() / 5);
    std::swap_ranges(all.begin(), all.begin() + size, all.begin() + 3 * size);
  }
  const auto router = model.value(P::router_weight, 1);
  for (std::size_t row = 0; row < 12; ++row) std::swap(router[row * 5], router[row * 5 + 3]);
  EXPECT_NEAR(model.step_gradients(data.batch), right, 1e-12);
}

TEST(ReferenceModel, ABatchIsTheMeanOfItsSequences) {
  const ModelShape shape = mixed_shape();
  const Batch data(shape, 2, 4);
  ReferenceModel both(shape, 1);
  const double loss = both.step_gradients(data.batch);
  std::vector<ReferenceModel> single(2, ReferenceModel(shape, 1));
  double mean = 0;
  for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
    ReferenceBatch one = data.batch;
    one.sequences = 1;
    for (auto* ids : {&one.tokens, &one.labels})
      *ids = {ids->begin() + sequence * 4, ids->begin() + (sequence + 1) * 4};
    one.choices = [&](int layer, std::int64_t) { return data.batch.choices(layer, sequence); };
    mean += single[static_cast<std::size_t>(sequence)].step_gradients(one) / 2;
  }
  EXPECT_NEAR(loss, mean, 1e-12);
  for (const Named& p : all_parameters(shape))
    for (std::int64_t i = 0; i < p.shape.size(); ++i)
      ASSERT_NEAR(both.gradient(p.shape.id, p.layer)[i],
                  (single[0].gradient(p.shape.id, p.layer)[i] + single[1].gradient(p.shape.id, p.layer)[i]) / 2, 1e-12)
          << name(p.shape.id) << " of layer " << p.layer;
}

TEST(ReferenceModel, LossFallsOverTwentyAdamSteps) {
  for (const bool head : {true, false}) {
    const ModelShape shape = mixed_shape(head);
    const Batch data(shape, 2, 6);
    ReferenceModel model(shape, 1);
    const double first = model.step_gradients(data.batch);
    double last = first;
    for (std::int64_t step = 1; step <= 20; ++step) {
      model.adam({.learning_rate = 1e-2, .step = step});
      last = model.step_gradients(data.batch);
    }
    EXPECT_LT(last, 0.5 * first) << (head ? "with" : "without") << " head";
  }
}

TEST(ReferenceModel, InitialValuesAreTheProgramsAtAnyLayout) {
  const ModelShape shape = mixed_shape();
  const ReferenceModel model(shape, 42);
  // Expert 3 of layer 2 as a rank that holds it alone draws it.
  std::vector<float> expert(12 * 2 * 6);
  device::ops::initialize_normal({expert.data(), 12, 12},
                                 mix(42, static_cast<std::uint64_t>(P::fc1_weight), std::uint64_t{3}),
                                 1 / std::sqrt(12.0), 3 * expert.size());
  const auto experts = model.value(P::fc1_weight, 2);
  ASSERT_EQ(experts.size(), 5 * expert.size());
  for (std::size_t i = 0; i < expert.size(); ++i) ASSERT_EQ(experts[3 * expert.size() + i], double{expert[i]});
  for (const double gain : model.value(P::attention_norm_gain, 0)) EXPECT_EQ(gain, 1);
  EXPECT_NE(model.value(P::qkv_weight, 0)[0], model.value(P::qkv_weight, 1)[0]);
}

TEST(ReferenceModel, GradientsBelongToTheLastBatchAlone) {
  const ModelShape shape = mixed_shape();
  const Batch first(shape, 2, 4, 1), second(shape, 3, 2, 2);
  ReferenceModel used(shape, 1), fresh(shape, 1);
  used.step_gradients(first.batch);
  EXPECT_EQ(used.step_gradients(second.batch), fresh.step_gradients(second.batch));
  for (const Named& p : all_parameters(shape))
    EXPECT_TRUE(std::ranges::equal(used.gradient(p.shape.id, p.layer), fresh.gradient(p.shape.id, p.layer)))
        << name(p.shape.id) << " of layer " << p.layer;
}

TEST(ReferenceModel, RefusesABatchThatDoesNotFit) {
  const ModelShape shape = mixed_shape();
  ReferenceModel model(shape, 1);
  const auto refuses = [&](const std::function<void(Batch&)>& spoil) {
    Batch data(shape, 2, 4);
    model.step_gradients(data.batch);
    spoil(data);
    EXPECT_THROW(model.step_gradients(data.batch), InternalError);
  };
  refuses([](Batch& b) { b.batch.labels.pop_back(); });
  refuses([](Batch& b) { b.batch.tokens[3] = 11; });
  refuses([](Batch& b) { b.batch.choices = nullptr; });
  refuses([](Batch& b) { b.experts.at({1, 1}).pop_back(); });
  refuses([](Batch& b) { b.experts.at({1, 1})[0] = 5; });
  refuses([](Batch& b) { b.experts.at({1, 1})[0] = b.experts.at({1, 1})[1]; });
  EXPECT_THROW(model.gradient(P::router_weight, 0), InternalError) << "layer 0 is dense";
  EXPECT_THROW(model.gradient(P::qkv_weight, 3), InternalError);
}

}  // namespace
}  // namespace spillway
