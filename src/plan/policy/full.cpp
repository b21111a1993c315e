// full (Megatron-LM, one layer at a time): a block keeps its input and repeats its forward pass, the dispatch included,
// up to fc2's input. The output head is not a transformer layer: it keeps what it needs. full:slices: the same with every
// dispatch in slices of one tile, the least memory that any load can be trained in.
#include "plan/policy/least.hpp"
#include "plan/policy/policy.hpp"

namespace spillway {
namespace {

class Full final : public Policy {
 public:
  Mitigations decide(const Situation& situation) override { return least_mitigations(situation.block.kind); }
};

class FullInSlices final : public Policy {
 public:
  Mitigations decide(const Situation& situation) override { return least_mitigations(situation.block.kind, 1); }
  bool adapts() const override { return true; }
};

}  // namespace

std::unique_ptr<Policy> make_full(const PolicyOptions&) { return std::make_unique<Full>(); }
std::unique_ptr<Policy> make_full_in_slices(const PolicyOptions&) { return std::make_unique<FullInSlices>(); }

}  // namespace spillway
