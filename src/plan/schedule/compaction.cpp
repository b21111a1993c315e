#include "plan/schedule/compaction.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace spillway {
namespace {

Seconds total(const DualBatch& batch, Lane lane) {
  Seconds sum;
  for (const auto& chain : batch.chains)
    for (const Segment& s : chain)
      if (s.lane == lane) sum += s.seconds;
  return sum;
}

/// Whether an offload needs exactly the first `operators` of the forward chain. [operators]
std::vector<bool> needed_ends(const DualBatch& batch) {
  std::vector<bool> ends(batch.of(ChainId::forward).size() + 1, false);
  for (const Segment& s : batch.of(ChainId::offload)) ends[static_cast<std::size_t>(s.needs)] = true;
  return ends;
}

/// What one joined segment may be.
struct Limits {
  Seconds longest;
  std::vector<bool> must_end;  ///< [operators before]
};

void join(const std::vector<Segment>& operators, const Limits& limits, std::vector<Segment>& segments,
          std::vector<OperatorRange>& ranges) {
  for (std::size_t n = 0; n < operators.size(); ++n) {
    const Segment& s = operators[n];
    const bool joins = n > 0 && s.lane == Lane::compute && segments.back().lane == Lane::compute &&
                       segments.back().seconds + s.seconds <= limits.longest && !limits.must_end[n];
    if (joins) {
      segments.back().seconds += s.seconds;
      ++ranges.back().end;
    } else {
      segments.push_back(s);
      ranges.push_back({static_cast<int>(n), static_cast<int>(n) + 1});
    }
  }
}

}  // namespace

Compaction compact(const DualBatch& operators, const CompactionOptions& options) {
  validate(operators);
  const Seconds ideal = std::max(total(operators, Lane::compute), total(operators, Lane::network));
  Limits limits{ideal * options.longest, {}};
  Compaction c;
  c.batch.interference = operators.interference;
  for (std::size_t chain = 0; chain < chain_count; ++chain) {
    limits.must_end.assign(operators.chains[chain].size() + 1, false);
    if (chain == static_cast<std::size_t>(ChainId::forward)) limits.must_end = needed_ends(operators);
    join(operators.chains[chain], limits, c.batch.chains[chain], c.operators[chain]);
  }
  const auto& forward = c.operators[static_cast<std::size_t>(ChainId::forward)];
  for (Segment& s : c.batch.of(ChainId::offload)) {
    const auto ends_too_early = [&](const OperatorRange& r) { return r.end < s.needs; };
    if (s.needs > 0) s.needs = static_cast<int>(std::count_if(forward.begin(), forward.end(), ends_too_early)) + 1;
  }
  return c;
}

IssueOrder expand(const Compaction& compaction, std::span<const ChainId> order) {
  IssueOrder operators;
  std::array<std::size_t, chain_count> next{};
  for (const ChainId chain : order) {
    const auto c = static_cast<std::size_t>(chain);
    if (next[c] == compaction.operators[c].size())
      throw InternalError(fmt::format("{}: more segments of a chain than it has", to_text(order)));
    const OperatorRange& r = compaction.operators[c][next[c]++];
    operators.insert(operators.end(), static_cast<std::size_t>(r.end - r.begin), chain);
  }
  return operators;
}

}  // namespace spillway
