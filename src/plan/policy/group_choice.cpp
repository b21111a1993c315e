#include "plan/policy/group_choice.hpp"

#include <algorithm>
#include <optional>

#include "plan/policy/least.hpp"

namespace spillway {

TensorSet collective_tensors(const BlockContext& context) {
  TensorSet set{Tensor::fc1_input};
  set.insert(context.weights_at_combine() ? Tensor::returned_rows : Tensor::row_weight);
  return set;
}

Mitigations least_under(const GroupChoice& choice, const BlockContext& context, bool offloads) {
  Mitigations least = least_mitigations(BlockKind::moe, choice.tiles_per_slice);
  if (!choice.dispatch_again) {
    TensorSet& where = offloads ? least.offload : least.keep;
    where = where | collective_tensors(context);
  }
  return least;
}

Mitigations least_under(const GroupChoice& choice, const StageBlock& block, bool offloads) {
  Mitigations least = least_under(choice, block.context, offloads);
  least.keep = least.keep | block.held;
  return least;
}

namespace {

/// At least the rows of any member, field by field.
ExpertRows hardest_rows(std::span<const ExpertRows> members) {
  ExpertRows most = members[0];
  for (const ExpertRows& m : members) {
    most.rows = std::max(most.rows, m.rows);
    most.active = std::max(most.active, m.active);
    if (m.sent) most.sent = std::max(most.sent, m.sent);
  }
  return most;
}

/// An offer as tight in every respect as the tightest. Empty where members gave away different tensors before the gate.
std::optional<Offer> tightest_offer(std::span<const Offer> offers) {
  Offer tightest = offers[0];
  Budget& least = tightest.budget;
  for (const Offer& o : offers) {
    if (!(o.offloaded == tightest.offloaded && o.quantized == tightest.quantized)) return std::nullopt;
    const Budget& b = o.budget;
    least = {std::min(least.forward, b.forward), std::min(least.held, b.held), std::min(least.ready, b.ready),
             std::min(least.backward, b.backward), std::min(least.host, b.host)};
  }
  return tightest;
}

bool fewer_rows(const ExpertRows& a, const ExpertRows& b) { return a.rows < b.rows; }

}  // namespace

/// What all choices are judged by.
struct GroupChooser::Group {
  explicit Group(const Situation& situation)
      : s(situation),
        tightest(tightest_offer(s.offers)),
        hardest(hardest_rows(s.received)),
        most_loaded(static_cast<std::size_t>(std::ranges::max_element(s.received, fewer_rows) - s.received.begin())) {}
  const Situation& s;
  std::optional<Offer> tightest;
  ExpertRows hardest;
  std::size_t most_loaded;
};

bool GroupChooser::fits_member(const GroupChoice& choice, const Situation& s, const Offer& offer,
                               const BlockRows& rows) {
  const Mitigations before{TensorSet::all() - (offer.offloaded | offer.quantized), offer.offloaded, offer.quantized, 0};
  for (const bool offloads : {false, true}) {
    if (offloads && (choice.dispatch_again || s.machine.shared_memory)) return false;
    const BlockDecision d(before, least_under(choice, s.block, offloads), static_cast<int>(rows.slices.size()));
    if (fits_after_gate(programs_.get(s.index, s.block, s.alignment, d).form.at(rows), offer.budget)) return true;
  }
  return false;
}

bool GroupChooser::fits_all(const GroupChoice& choice, const Group& group) {
  const Situation& s = group.s;
  const std::int64_t tiles = choice.tiles_per_slice;
  const auto fits_at = [&](std::size_t m, const BlockRows& rows) { return fits_member(choice, s, s.offers[m], rows); };
  // 1. the most loaded member is the likeliest not to
  const std::size_t first = group.most_loaded;
  BlockRows its{s.received[first], {}};
  if (tiles > 0) its.slices = s.dispatch->in_slices_of(static_cast<std::int64_t>(first), tiles);
  if (!fits_at(first, its)) return false;
  // 2. where the hardest that members could be together fits, all do
  const DispatchRows::Slices whole;
  const DispatchRows::Slices& slices = tiles > 0 ? s.dispatch->in_slices(tiles) : whole;
  if (group.tightest) {
    BlockRows hardest{group.hardest, {}};
    for (const auto& slice : slices) hardest.slices.push_back(hardest_rows(slice));
    if (fits_member(choice, s, *group.tightest, hardest)) return true;
  }
  // 3. otherwise the others one by one
  const std::size_t members = s.received.size();
  for (std::size_t i = 1; i < members; ++i) {
    const std::size_t m = (first + i) % members;
    BlockRows rows{s.received[m], {}};
    for (const auto& slice : slices) rows.slices.push_back(slice[m]);
    if (!fits_at(m, rows)) return false;
  }
  return true;
}

GroupChoice GroupChooser::choose(const Situation& s) {
  const Group group(s);
  for (const GroupChoice& whole : {GroupChoice{false, 0}, GroupChoice{true, 0}})
    if (fits_all(whole, group)) return whole;
  const std::int64_t most_tiles = s.dispatch->slice_count(1);
  for (std::int64_t slices = 2; slices < most_tiles; slices += (slices + 1) / 2) {
    const GroupChoice choice{true, (most_tiles + slices - 1) / slices};
    if (fits_all(choice, group)) return choice;
  }
  return {true, 1};
}

}  // namespace spillway
