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

namespace {

/// A member that is in every respect as constrained as the most constrained of all: where it fits, all do. Empty where
/// members gave away different tensors before the gate.
struct Hardest {
  Offer offer;
  BlockRows rows;
};
std::optional<Hardest> hardest(std::span<const Offer> offers, const std::vector<BlockRows>& rows) {
  Hardest h{offers[0], rows[0]};
  const auto grow = [](ExpertRows& a, const ExpertRows& b) {
    a.rows = std::max(a.rows, b.rows);
    a.active = std::max(a.active, b.active);
    if (b.sent) a.sent = std::max(a.sent, b.sent);
  };
  for (std::size_t m = 1; m < rows.size(); ++m) {
    if (!(offers[m].offloaded == h.offer.offloaded && offers[m].quantized == h.offer.quantized)) return std::nullopt;
    Budget& least = h.offer.budget;
    const Budget& b = offers[m].budget;
    least = {std::min(least.forward, b.forward), std::min(least.held, b.held), std::min(least.ready, b.ready),
             std::min(least.backward, b.backward), std::min(least.host, b.host)};
    grow(h.rows.whole, rows[m].whole);
    for (std::size_t j = 0; j < h.rows.slices.size(); ++j) grow(h.rows.slices[j], rows[m].slices[j]);
  }
  return h;
}

}  // namespace

bool GroupChooser::fits_member(const GroupChoice& choice, const Situation& s, const Offer& offer,
                               const BlockRows& rows) {
  const FootprintSetting setting = footprint_setting(s.block.kind, s.block.context, s.alignment);
  const Mitigations before{TensorSet::all() - (offer.offloaded | offer.quantized), offer.offloaded, offer.quantized, 0};
  for (const bool offloads : {false, true}) {
    if (offloads && (choice.dispatch_again || s.machine.shared_memory)) return false;
    const BlockDecision d(before, least_under(choice, s.block.context, offloads), static_cast<int>(rows.slices.size()));
    if (fits_after_gate(footprint(programs_.get(s.index, s.block, d), setting, rows), offer.budget)) return true;
  }
  return false;
}

bool GroupChooser::fits_all(const GroupChoice& choice, const Situation& s) {
  const auto slices = static_cast<int>(choice.tiles_per_slice > 0 ? slice_count(*s.table, choice.tiles_per_slice) : 0);
  std::vector<BlockRows> rows(s.offers.size());
  for (std::size_t m = 0; m < rows.size(); ++m) rows[m].whole = all_rows(*s.table, static_cast<std::int64_t>(m));
  for (int j = 0; j < slices; ++j) {
    const auto in_slice = slice_rows(*s.table, {choice.tiles_per_slice, j});
    for (std::size_t m = 0; m < rows.size(); ++m) rows[m].slices.push_back(in_slice[m]);
  }
  if (const auto h = hardest(s.offers, rows); h && fits_member(choice, s, h->offer, h->rows)) return true;
  for (std::size_t m = 0; m < rows.size(); ++m)
    if (!fits_member(choice, s, s.offers[m], rows[m])) return false;
  return true;
}

GroupChoice GroupChooser::choose(const Situation& s) {
  for (const GroupChoice& whole : {GroupChoice{false, 0}, GroupChoice{true, 0}})
    if (fits_all(whole, s)) return whole;
  std::int64_t most = 1;
  for (std::int64_t m = 0; m < s.table->members; ++m) most = std::max(most, tiles(*s.table, m));
  for (std::int64_t slices = 2; slices < most; slices += (slices + 1) / 2) {
    const GroupChoice choice{true, (most + slices - 1) / slices};
    if (fits_all(choice, s)) return choice;
  }
  return {true, 1};
}

}  // namespace spillway
