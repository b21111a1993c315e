#include "plan/policy/static_plan.hpp"

#include <algorithm>
#include <cmath>

namespace spillway {

ExpertRows rows_at(const BlockContext& c, double load) {
  const ExpertRows worst = worst_rows(c);
  const auto rows = static_cast<std::int64_t>(std::ceil(static_cast<double>(c.routed_rows()) * load));
  return {std::min(rows, worst.rows), std::min(c.local_experts(), worst.active), {}};
}

StaticPeak static_peak(const StageFacts& facts, const std::vector<Mitigations>& plan, double load) {
  StageMemory books = facts.books;
  std::vector<Footprint> footprints;
  for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
    const StageBlock& block = facts.blocks[b];
    const BlockRows rows{block.kind == BlockKind::moe ? rows_at(block.context, load) : ExpertRows{}, {}};
    footprints.push_back(footprint(compile(block.kind, block.context, plan[b]),
                                   footprint_setting(block.kind, block.context, facts.alignment), rows));
  }
  StaticPeak peak;
  for (books.restart(); !books.finished(); books.advance()) {
    const Item& item = books.current();
    if (item.kind == Item::Kind::forward)
      books.decide(item.micro_batch, item.block, footprints[static_cast<std::size_t>(item.block)]);
    peak.host = std::max(peak.host, books.host_level());
  }
  peak.device = books.forecast();
  return peak;
}

}  // namespace spillway
