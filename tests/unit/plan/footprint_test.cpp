// A footprint says what the books find when the same program is carried out instruction by instruction.
#include "plan/program/footprint.hpp"

#include "program_fixtures.hpp"

namespace spillway {
namespace {

using T = Tensor;

/// Carries a program out and notes what the books say.
class Account {
 public:
  Account(const FootprintSetting& setting, const BlockRows& rows)
      : setting_(setting), rows_(rows), books_(setting.alignment) {}

  Footprint of(const BlockProgram& p) {
    Footprint f;
    if (setting_.has_input) books_.add(T::block_input, setting_.context, rows_.whole);
    const std::size_t gate = std::min(p.gate + 1, p.forward.size());
    const std::span<const Instruction> all(p.forward);
    const Bytes before = live();
    f.forward = std::max(before, run(all.first(gate)));
    f.after_gate = gate < all.size() ? run(all.subspan(gate)) : f.forward;
    f.forward = std::max(f.forward, f.after_gate);
    if (setting_.receives_gradient) books_.remove(T::block_output, setting_.context, rows_.whole);
    f.held = live();
    f.host = books_.host().live();
    run(p.reloads);
    f.reloaded = live() - f.held;
    if (setting_.receives_gradient) books_.add(T::d_residual, setting_.context, rows_.whole);
    const Bytes ready = live();
    f.backward = std::max(ready, run(p.backward));
    return f;
  }
  Bytes live() const { return books_.ledger().live(); }
  Bytes host() const { return books_.host().live(); }

 private:
  /// Highest level that an instruction lifts the books to.
  Bytes run(std::span<const Instruction> instructions) {
    Bytes peak;
    for (const Instruction& i : instructions) {
      const Bytes before = live();
      books_.open(i, setting_.context, rows_.of(i));
      if (live() > before) peak = std::max(peak, live());
      books_.close(i, setting_.context, rows_.of(i));
    }
    return peak;
  }
  const FootprintSetting& setting_;
  const BlockRows& rows_;
  Books books_;
};

void expect_agreement(BlockKind kind, const BlockContext& c, const BlockDecision& d, const BlockRows& rows) {
  for (const Bytes alignment : {Bytes(1), Bytes(256)}) {
    const FootprintSetting setting = footprint_setting(kind, c, alignment);
    const BlockProgram p = compile(kind, c, d);
    Account account(setting, rows);
    const Footprint expected = account.of(p), f = footprint(p, setting, rows);
    ASSERT_EQ(f.forward, expected.forward);
    ASSERT_EQ(f.held, expected.held);
    ASSERT_EQ(f.reloaded, expected.reloaded);
    ASSERT_EQ(f.backward, expected.backward);
    ASSERT_EQ(f.host, expected.host);
    if (kind == BlockKind::moe) {
      ASSERT_EQ(f.after_gate, expected.after_gate);
    }
    ASSERT_EQ(account.host(), Bytes(0));
  }
}

TEST(Footprint, IsWhatTheBooksFindForAnyDecisionAndLoad) {
  for_every_moe_block([](const BlockContext& c) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(seed);
      const GateTable table = random_table(c, seed);
      const auto member = static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(c.expert_parallel));
      constexpr std::int64_t tile = 16;
      Mitigations after = random_mitigations(500 + seed);
      after.tiles_per_slice = static_cast<std::int64_t>(seed % 4);
      const BlockRows rows = rows_of_member(table, member, after.tiles_per_slice, tile);
      expect_agreement(BlockKind::moe, c, {random_mitigations(seed), after, static_cast<int>(rows.slices.size())},
                       rows);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// Rows from none to far beyond balance: the worst moment is another one for each.
TEST(Footprint, OneFormServesEveryLoad) {
  for_every_moe_block([](const BlockContext& c) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const BlockDecision d(random_mitigations(seed), random_mitigations(500 + seed), 0);
      const FootprintSetting setting = footprint_setting(BlockKind::moe, c, Bytes(256));
      const BlockProgram p = compile(BlockKind::moe, c, d);
      const FootprintForm form(p, setting);
      for (const std::int64_t rows : {0, 1, 16, 48, 49, 200, 5000}) {
        const BlockRows load{{rows, std::min(rows, c.local_experts()), {}}, {}};
        const Footprint expected = Account(setting, load).of(p);
        ASSERT_EQ(form.at(load), expected) << "seed " << seed << ", " << rows << " rows";
      }
    }
  });
}

TEST(Footprint, OfBlocksWithoutExperts) {
  const BlockContext c = moe_block(2, 8, Inventory::lean);
  for (const BlockKind kind :
       {BlockKind::embedding, BlockKind::synthetic_input, BlockKind::dense, BlockKind::head, BlockKind::square_loss})
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(::testing::Message() << name(kind) << ", seed " << seed);
      expect_agreement(kind, c, BlockDecision(random_mitigations(seed)), {});
    }
}

// Dense layer of 4 tokens: 1824 bytes kept and 128 of output; backward holds them, d_residual 128 and SwiGLU's gradient
// 512 when fc2's input (256) is gone and d_fc2_input (256) there.
TEST(Footprint, OfASmallDenseLayerByHand) {
  BlockContext c;
  c.shape.hidden_size = 8;
  c.shape.num_attention_heads = c.shape.num_key_value_heads = 2;
  c.shape.head_dim = 4;
  c.sequence_length = 4;
  c.mlp_size = 16;
  const FootprintSetting setting = footprint_setting(BlockKind::dense, c, Bytes(1));
  const Footprint keep = footprint(compile(BlockKind::dense, c, Mitigations::keep_all()), setting, {});
  EXPECT_EQ(keep, (Footprint{Bytes(1952), Bytes(1952), Bytes(1824), Bytes(1824 + 128 + 512), Bytes(0), Bytes(0)}));
  Mitigations m = Mitigations::keep_all();
  m.set(T::qkv, Treatment::offload);  // 384, gone before fc1 makes its output
  const Footprint moved = footprint(compile(BlockKind::dense, c, m), setting, {});
  EXPECT_EQ(moved.held, Bytes(1824 - 384));
  EXPECT_EQ(moved.reloaded, Bytes(384));
  EXPECT_EQ(moved.host, Bytes(384));
  EXPECT_EQ(moved.forward, Bytes(1952 - 384));
  EXPECT_EQ(moved.backward, keep.backward);
}

TEST(Footprint, TheLeastCoversFullRecomputeInSlicesOfOneTileAtAnyLoad) {
  const Mitigations least = least_mitigations(BlockKind::moe, 1);
  for_every_moe_block([&](BlockContext c) {
    c.sequence_length = 600;  // several tiles an expert
    const StageBlock block{BlockKind::moe, 0, c};
    const Footprint limit = least_footprint(block, Bytes(256));
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      const GateTable table = random_table(c, seed);
      for (std::int64_t member = 0; member < c.expert_parallel; ++member) {
        const BlockRows rows = rows_of_member(table, member, 1);
        const Footprint f = footprint(compile(BlockKind::moe, c, {least, least, static_cast<int>(rows.slices.size())}),
                                      footprint_setting(BlockKind::moe, c, Bytes(256)), rows);
        ASSERT_LE(f.forward, limit.forward);
        ASSERT_LE(f.held, limit.held);
        ASSERT_LE(f.backward, limit.backward);
      }
    }
  });
}

}  // namespace
}  // namespace spillway
