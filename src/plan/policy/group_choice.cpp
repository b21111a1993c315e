#include "plan/policy/group_choice.hpp"

#include <algorithm>

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

const BlockProgram& GroupChooser::program(const Situation& s, const Offer& offer, const Mitigations& after,
                                          int slices) {
  const std::array<unsigned long long, 6> key = {
      static_cast<unsigned long long>(s.index), after.keep.bits(),      after.offload.bits(),
      static_cast<unsigned long long>(slices),  offer.offloaded.bits(), offer.quantized.bits()};
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second;
  const Mitigations before{TensorSet::all() - (offer.offloaded | offer.quantized), offer.offloaded, offer.quantized, 0};
  return programs_.emplace(key, compile(s.block.kind, s.block.context, {before, after, slices})).first->second;
}

bool GroupChooser::fits_all(const GroupChoice& choice, const Situation& s) {
  const FootprintSetting setting = footprint_setting(s.block.kind, s.block.context, s.alignment);
  const auto slices = static_cast<int>(choice.tiles_per_slice > 0 ? slice_count(*s.table, choice.tiles_per_slice) : 0);
  std::vector<BlockRows> rows(s.offers.size());
  for (std::size_t m = 0; m < rows.size(); ++m) rows[m].whole = all_rows(*s.table, static_cast<std::int64_t>(m));
  for (int j = 0; j < slices; ++j) {
    const auto in_slice = slice_rows(*s.table, {choice.tiles_per_slice, j});
    for (std::size_t m = 0; m < rows.size(); ++m) rows[m].slices.push_back(in_slice[m]);
  }
  const auto fits_member = [&](std::size_t m, bool offloads) {
    const Mitigations least = least_under(choice, s.block.context, offloads);
    return fits_after_gate(footprint(program(s, s.offers[m], least, slices), setting, rows[m]), s.offers[m].budget);
  };
  for (std::size_t m = 0; m < rows.size(); ++m)
    if (!fits_member(m, false) && (choice.dispatch_again || s.machine.shared_memory || !fits_member(m, true)))
      return false;
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
