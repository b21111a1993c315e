#include "campaign_cases.hpp"

#include <algorithm>
#include <numeric>

namespace spillway::test {
namespace {

/// Values of the dimensions of case `index`: dimension by dimension a random order of its list, over and over.
class Dimensions {
 public:
  Dimensions(int ranks, std::int64_t index) : ranks_(ranks), index_(index) {}

  template <class T>
  T of(const std::vector<T>& list) {
    const auto n = static_cast<std::int64_t>(list.size());
    std::vector<std::size_t> order(list.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    Draw draw(1, ranks_, dimension_++, index_ / n);
    for (std::int64_t i = n - 1; i > 0; --i)
      std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(draw.below(i + 1))]);
    return list[order[static_cast<std::size_t>(index_ % n)]];
  }
  std::int64_t of(std::initializer_list<std::int64_t> list) { return of(std::vector<std::int64_t>(list)); }
  std::string of(std::initializer_list<const char*> list) {
    return of(std::vector<std::string>(list.begin(), list.end()));
  }

 private:
  int ranks_;
  std::int64_t index_, dimension_ = 0;
};

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) list.push_back(d);
  return list;
}

/// Settings one after the other.
class Settings {
 public:
  template <class T>
  void set(const char* key, const T& value) {
    list_.push_back(fmt::format("{}={}", key, value));
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

struct Sizes {
  std::int64_t pipeline, data, tensor, expert, micro_batches, micro_batch_size, experts, top_k;
  /// The next multiple of tensor.
  std::int64_t shared(std::int64_t size) const { return (size + tensor - 1) / tensor * tensor; }
};

/// Every second case divides the tokens of a data-parallel rank, where there are ranks to do so.
std::int64_t draw_tensor_parallel(int ranks, std::int64_t index, std::int64_t plane) {
  const auto list = divisors(std::gcd(plane, std::int64_t{4}));  // 1 first
  if (index % 2 == 1 || list.size() == 1) return 1;
  return list[1 + static_cast<std::size_t>(Draw(2, ranks, index).below(std::ssize(list) - 1))];
}

Sizes draw_layout(Dimensions& d, int ranks, std::int64_t index) {
  Sizes s{};
  s.pipeline = d.of(divisors(ranks));
  const std::int64_t plane = ranks / s.pipeline;
  s.tensor = draw_tensor_parallel(ranks, index, plane);
  s.data = plane / s.tensor;
  auto expert_ranks = divisors(plane);
  if (plane > 1) expert_ranks.push_back(plane);  // exchanges are what most can go wrong with
  s.expert = d.of(expert_ranks);
  s.micro_batches =
      d.of({1, std::max<std::int64_t>(1, s.pipeline - 1), s.pipeline, s.pipeline + 1, 2 * s.pipeline + 1});
  s.micro_batch_size = d.of({1, 1, 2, 3});
  s.experts = std::max(s.expert, std::int64_t{2}) * d.of({1, 2, 3});
  s.top_k = std::min(s.experts, d.of({1, 2, 2, 3, 4}));
  return s;
}

void add_layout(Settings& to, const Sizes& s) {
  to.set("parallel.pipeline_parallel", s.pipeline);
  to.set("parallel.data_parallel", s.data);
  to.set("parallel.tensor_parallel", s.tensor);
  to.set("parallel.expert_parallel", s.expert);
  to.set("training.micro_batches", s.micro_batches);
  to.set("training.micro_batch_size", s.micro_batch_size);
}

/// Long sequences give an expert more than one tile of rows; they come with the narrowest shapes.
void add_shape(Settings& to, Dimensions& d, const Sizes& s) {
  const std::int64_t sequence = d.of({16, 5, 330, 24, 40, 1, 16, 33});
  to.set("training.sequence_length", s.shared(sequence));
  to.set("model.hidden_size", sequence > 100 ? 8 : d.of({16, 10, 24}));
  to.set("model.moe_intermediate_size", d.of({8, 3, 12}));
  to.set("model.num_experts", s.experts);
  to.set("model.num_experts_per_tok", s.top_k);
  const std::int64_t heads = sequence > 100 ? 2 : d.of({4, 1, 2});
  to.set("model.num_attention_heads", heads * s.tensor);
  to.set("model.num_key_value_heads", d.of(divisors(heads)) * s.tensor);
  to.set("model.head_dim", d.of({4, 2, 6}));
  to.set("model.shared_expert_intermediate_size", s.shared(d.of({8, 0, 5})));
  const std::string schedule = d.of({"1f1b", "dual_batch", "1f1b", "dual_batch", "gpipe"});
  const std::int64_t chunks = schedule == "gpipe" ? 1 : d.of({1, 2, 1, 3});
  const std::int64_t layers = s.pipeline * chunks + d.of({0, 1, 2, 3});
  to.set("parallel.schedule", schedule);
  to.set("parallel.virtual_stages", chunks);
  to.set("model.num_hidden_layers", layers);
  to.set("model.first_k_dense_replace", std::min(layers - 1, d.of({0, 1, 2})));
  to.set("model.intermediate_size", s.shared(d.of({24, 7})));
  to.set("model.vocab_size", s.shared(d.of({32, 17})));
  to.set("model.head", d.of({"true", "false", "true"}));
  to.set("model.inventory", d.of({"lean", "with_combine", "default"}));
}

/// Loads up to what k distinct experts per token allow.
void add_routing(Settings& to, Dimensions& d, const Sizes& s) {
  const std::int64_t ranks = s.expert > 1 ? s.expert : s.experts;
  const std::int64_t block = s.experts / ranks;
  const double bound = static_cast<double>(ranks * std::min(s.top_k, block)) / static_cast<double>(s.top_k);
  const double share = std::stod(d.of({"1", "0.5", "1", "0.8"}));
  const double calm = std::min(bound, 1.05), peak = share == 1 ? bound : calm + share * (bound - calm);
  std::string preset = d.of({"burst", "hot_rank", "burst", "rotating", "burst", "spread", "balanced"});
  to.set("routing.preset", preset);
  to.set("routing.reference_ranks", ranks);
  to.set("routing.reference_stages", s.pipeline);
  if (preset == "burst") {
    to.set("routing.calm", calm);
    to.set("routing.burst_fraction", 0.5);
    to.set("routing.burst_length", 1);
    to.set("routing.same_block", d.of({"true", "false"}));
  }
  if (preset != "balanced") {
    to.set("routing.peak", peak);
    to.set("routing.hot_share", d.of({"1", "0.5"}));
  }
  to.set("routing.seed", 1 + d.of({1, 2, 3, 4, 5, 6, 7}));
}

void add_rest(Settings& to, Dimensions& d) {
  to.set("training.iterations", 3);
  to.set("training.seed", d.of({1, 2, 3, 4, 5}));
  to.set("training.checkpoint_every", d.of({1, 2}));
  to.set("memory.alignment", d.of({256, 64, 1, 512}));
  to.set("machine.shared_memory", d.of({"false", "false", "true", "false", "false"}));
  to.set("provisioning.margin", d.of({"1.15", "1", "1.5"}));
  to.set("provisioning.predicted_iterations", 0);  // the campaign projects by itself
  to.set("kuai.smallest", d.of({256, 0, 4096}));
  to.set("paged.pool", d.of({0, 4096, 65536}));
}

Bytes part_of(Bytes whole, double share) {
  return Bytes(static_cast<std::int64_t>(static_cast<double>(whole.value) * share));
}

}  // namespace

Bytes least_cap_of(const Trial& trial) {
  const Case& c = trial.run_case();
  Bytes least;
  for (int stage = 0; stage < c.grid.pipeline_parallel; ++stage) {
    const auto policy = make_policy("flexible", c.provisioning.options);
    least = std::max(least, least_cap(c, StepPlan(step_setup(c, trial.context().schedule, stage, 1), *policy)));
  }
  return least;
}

RandomCase random_case(int ranks, std::int64_t index) {
  Dimensions d(ranks, index);
  const Sizes sizes = draw_layout(d, ranks, index);
  Settings settings;
  add_layout(settings, sizes);
  add_shape(settings, d, sizes);
  add_routing(settings, d, sizes);
  add_rest(settings, d);
  settings.set("parallel.overlap_gradients", Draw(3, ranks, index).below(2) == 1);

  RandomCase result;
  result.settings = settings.take();
  const Trial probe(tiny_case(result.settings));
  result.least = least_cap_of(probe);
  for (std::int64_t i = 0; i < probe.run_case().training.iterations; ++i)
    result.keep = std::max(result.keep, probe.forecast_peak("keep", i));
  const Bytes between = std::max(Bytes(0), result.keep - result.least);
  const double share = std::stod(d.of({"0.3", "0", "0.6", "0.15", "1"}));
  Settings memory;
  memory.set("memory.cap", (result.least + part_of(between, share)).value);
  memory.set("memory.host_cap", part_of(result.keep, std::stod(d.of({"100", "0.1", "0", "0.02"}))).value);
  result.settings = joined(result.settings, memory.take());
  result.drawn = tiny_case(result.settings);
  return result;
}

std::string as_arguments(const std::vector<std::string>& settings) {
  std::string text;
  for (const std::string& s : settings) text += fmt::format("{}--set {}", text.empty() ? "" : " ", s);
  return text;
}

}  // namespace spillway::test
