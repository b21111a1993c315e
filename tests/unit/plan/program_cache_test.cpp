// Programs are shared by blocks that are alike, and by no others.
#include "plan/program/program_cache.hpp"

#include "program_fixtures.hpp"

namespace spillway {
namespace {

TEST(ProgramCache, BlocksOfOneKindInOneContextShareTheirPrograms) {
  const BlockContext c = moe_block(2, 0, Inventory::lean);
  BlockContext longer = c;
  longer.sequence_length *= 2;
  const std::vector<StageBlock> blocks = {{BlockKind::moe, 3, c, 0},
                                          {BlockKind::moe, 7, c, 1},
                                          {BlockKind::dense, 4, c, 0},
                                          {BlockKind::moe, 5, longer, 0}};
  ProgramCache cache;
  const BlockDecision keep(Mitigations::keep_all());
  const auto get = [&](int b) { return &cache.get(b, blocks[static_cast<std::size_t>(b)], Bytes(256), keep); };
  EXPECT_EQ(get(0), get(1));
  EXPECT_NE(get(0), get(2));
  EXPECT_NE(get(0), get(3));
  EXPECT_EQ(cache.alike(0, blocks[0]), cache.alike(1, blocks[1]));
  for (const int b : {0, 1, 2, 3}) {
    const StageBlock& block = blocks[static_cast<std::size_t>(b)];
    const BlockProgram expected = compile(block.kind, block.context, keep);
    EXPECT_EQ(to_text(get(b)->program.backward), to_text(expected.backward));
    const BlockRows rows{{40, 2, {}}, {}};
    EXPECT_EQ(get(b)->form.at(rows),
              footprint(expected, footprint_setting(block.kind, block.context, Bytes(256)), rows));
  }
}

TEST(ProgramCache, TellsDecisionsApartByWhatTheyDoBeforeAndAfterTheGateAndByTheirSlices) {
  const StageBlock block{BlockKind::moe, 0, moe_block(2, 0, Inventory::lean)};
  ProgramCache cache;
  const Mitigations keep = Mitigations::keep_all(), least = least_mitigations(BlockKind::moe),
                    sliced = least_mitigations(BlockKind::moe, 1);
  const std::vector<BlockDecision> decisions = {
      {keep, keep, 0}, {keep, least, 0}, {least, least, 0}, {keep, sliced, 2}, {keep, sliced, 3}};
  std::set<const CompiledBlock*> found;
  for (int twice = 0; twice < 2; ++twice)
    for (const BlockDecision& d : decisions) found.insert(&cache.get(0, block, Bytes(256), d));
  EXPECT_EQ(found.size(), decisions.size());
}

}  // namespace
}  // namespace spillway
