#include "plan/policy/decision_table.hpp"

namespace spillway {
namespace {

constexpr std::size_t numbers_per_treatment = 4, numbers_per_decision = 3 + 2 * numbers_per_treatment;

void append(const Mitigations& m, std::vector<std::int64_t>& to) {
  for (const TensorSet* set : {&m.keep, &m.offload, &m.quantize}) to.push_back(static_cast<std::int64_t>(set->bits()));
  to.push_back(m.tiles_per_slice);
}

Mitigations read(const std::int64_t* from) {
  const auto set = [&](int i) { return TensorSet::of_bits(static_cast<unsigned long long>(from[i])); };
  return {set(0), set(1), set(2), from[3]};
}

}  // namespace

void DecisionTable::append_to(std::vector<std::int64_t>& numbers) const {
  for (const auto& [key, d] : decisions_) {
    numbers.insert(numbers.end(), key.begin(), key.end());
    append(d.before, numbers);
    append(d.after, numbers);
  }
}

void DecisionTable::add_from(std::span<const std::int64_t> numbers) {
  for (; numbers.size() >= numbers_per_decision; numbers = numbers.subspan(numbers_per_decision))
    set({numbers[0], numbers[1], numbers[2]},
        {read(numbers.data() + 3), read(numbers.data() + 3 + numbers_per_treatment)});
}

}  // namespace spillway
