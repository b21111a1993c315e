// Mitigation bandwidth: the published example, and crossovers against a search.
#include "plan/cost/roofline.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "base/random.hpp"

namespace spillway {
namespace {

using T = Tensor;
using S = MitigationStrategy;
constexpr std::int64_t MiB = 1 << 20;

/// Norms and linears of inputs/models/423b-a30b.toml without experts: 4096 tokens on TP 2, whose messages cost nothing here, a
/// 48 GB/s link each way.
CostSituation attention_of_423b() {
  CostSituation s;
  s.kind = BlockKind::dense;
  ModelShape& m = s.context.shape;
  m.hidden_size = 8192;
  m.num_attention_heads = m.num_key_value_heads = 64;
  m.head_dim = 128;
  m.bytes_per_element = 2;
  s.context.sequence_length = 4096;
  s.context.tensor_parallel = 2;
  s.context.mlp_size = 4096;
  s.machine.peak_flops = 480e12;
  s.machine.gemm_efficiency = 0.6;
  s.machine.memory_bandwidth = 2e12;
  s.machine.launch = Seconds(5e-6);
  s.machine.link_bandwidth = 48e9;
  s.machine.node_bandwidth = std::numeric_limits<double>::infinity();
  s.machine.node_latency = Seconds(0);
  return s;
}

TEST(Roofline, PublishedExampleOf96MegabytesInTwoAndTwoMillisecondsIs24GigabytesPerSecond) {
  CostSituation s = attention_of_423b();
  const MitigationRoofline offload = *roofline(s, T::qkv, S::offload);
  EXPECT_DOUBLE_EQ(offload.bandwidth, 24e9);
  EXPECT_DOUBLE_EQ(offload.seconds(Bytes(96'000'000)).value, 4e-3);
  // A launch of 5 us each way: 240 kB leave in one.
  EXPECT_EQ(offload.knee, Bytes(240'000));
  EXPECT_DOUBLE_EQ(offload.seconds(Bytes(1)).value, 10e-6);
  s.machine.launch = Seconds(1);  // moves the knee beyond the tensor, not the bandwidth
  EXPECT_DOUBLE_EQ(roofline(s, T::qkv, S::offload)->bandwidth, 24e9);
}

TEST(Roofline, AgreesWithTheCostItComesFrom) {
  const CostSituation s = attention_of_423b();
  for (const Tensor t : saved_tensors(s.kind, s.context))
    for (const S strategy : all_strategies) {
      const auto line = roofline(s, t, strategy);
      if (!line) continue;
      const MitigationCost cost = *mitigation_cost(s, t, strategy);
      EXPECT_NEAR(line->seconds(cost.freed).value, cost.total().value, 1e-6 * cost.total().value)  // whole bytes
          << name(t) << ' ' << name(strategy);
    }
}

TEST(Roofline, AFastLinkTurnsProductsToOffloadButNotNorms) {
  CostSituation s = attention_of_423b();
  const auto bandwidth = [&s](Tensor t, S strategy) { return roofline(s, t, strategy)->bandwidth; };
  // The qkv product frees 96 MiB for 0.82 TFLOP, 35 GB/s: more than a 48 GB/s link, out and back, but not much more.
  EXPECT_NEAR(bandwidth(T::qkv, S::recompute), 35e9, 1e9);
  s.machine.link_bandwidth = 200e9;
  EXPECT_GT(bandwidth(T::qkv, S::offload), bandwidth(T::qkv, S::recompute));
  EXPECT_GT(bandwidth(T::attention_norm_output, S::recompute), bandwidth(T::attention_norm_output, S::offload));
  EXPECT_GT(bandwidth(T::mlp_fc2_input, S::recompute), bandwidth(T::mlp_fc2_input, S::offload));
}

TEST(Roofline, LaunchesAndLatenciesMakeTheKneeOfARepeatedDispatch) {
  CostSituation s = attention_of_423b();
  s.kind = BlockKind::moe;
  s.context.mlp_size = 0;
  s.context.shape.num_experts = 128;
  s.context.shape.num_experts_per_tok = 6;
  s.context.expert_parallel = 64;
  s.rows = {12288, 2, {}};
  s.machine.network_latency = Seconds(40e-6);
  // Packing, the message, unpacking into expert order: two launches and a latency.
  EXPECT_NEAR(roofline(s, T::fc1_input, S::recompute)->least().value, 50e-6, 1e-9);
}

TEST(Roofline, NothingForWhatDoesNotExistOrFreesNothing) {
  CostSituation s = attention_of_423b();
  EXPECT_FALSE(roofline(s, T::block_input, S::recompute));
  s.machine.shared_memory = true;
  EXPECT_FALSE(roofline(s, T::qkv, S::offload));
  EXPECT_TRUE(roofline(s, T::qkv, S::quantize));
}

TEST(Crossover, WhereTheSmallerKneeMeetsTheHigherBandwidth) {
  // i starts at 2 s and frees 50 B/s, j starts at 4 s and frees 100 B/s: both take 4 s for 200 bytes.
  const MitigationRoofline i{Bytes(100), 50}, j{Bytes(400), 100};
  EXPECT_EQ(crossover(i, j), Bytes(200));
  EXPECT_EQ(crossover(j, i), std::nullopt);
}

TEST(Crossover, NoneWhereOneIsNeverBeaten) {
  const MitigationRoofline slow{Bytes(400), 50}, fast{Bytes(100), 100};
  EXPECT_EQ(crossover(slow, fast), std::nullopt);
  EXPECT_EQ(crossover(fast, slow), std::nullopt);
  EXPECT_EQ(crossover(fast, fast), std::nullopt);
}

TEST(Crossover, IsWhereASearchFindsItForRandomRooflines) {
  int found = 0;
  for (std::uint64_t draw = 0; draw < 400; ++draw) {
    const CounterRandom random(3, static_cast<std::int64_t>(draw));
    const auto pick = [&random](std::uint64_t k) { return static_cast<std::int64_t>(1 + random.below(k, 900)); };
    const MitigationRoofline i{Bytes(pick(0)), static_cast<double>(pick(1))};
    const MitigationRoofline j{Bytes(pick(2)), static_cast<double>(pick(3))};
    const auto x = crossover(i, j);
    std::int64_t changes = 0, last_cheaper = -1;  // sizes after which i is no longer the cheaper or equal one
    for (std::int64_t size = 0; size < 3000; ++size)
      if (i.seconds(Bytes(size)) <= j.seconds(Bytes(size)) && i.seconds(Bytes(size + 1)) > j.seconds(Bytes(size + 1))) {
        ++changes;
        last_cheaper = size;
      }
    if (x) {
      ++found;
      EXPECT_EQ(changes, 1) << "draw " << draw;
      EXPECT_NEAR(static_cast<double>(x->value), static_cast<double>(last_cheaper), 1) << "draw " << draw;  // rounding
      EXPECT_GE(*x, i.knee);
      EXPECT_LE(*x, j.knee);
    } else if (i.least() < j.least()) {
      EXPECT_EQ(changes, 0) << "draw " << draw;
    }
  }
  EXPECT_GT(found, 50);
}

TEST(RooflineTable, NamesEveryTensorAndWhatIsCheaperUpToWhichSize) {
  const CostSituation s = attention_of_423b();
  const std::string text = roofline_table(s);
  for (const Tensor t : saved_tensors(s.kind, s.context)) EXPECT_THAT(text, testing::HasSubstr(std::string(name(t))));
  EXPECT_THAT(text,
              testing::HasSubstr("qkv                    offload        96.000      0.229      24.0      4.1943"));
  EXPECT_THAT(text, testing::HasSubstr("offload, quantize up to 0.3353 MiB"));  // recomputing qkv
}

}  // namespace
}  // namespace spillway
