// full (Megatron-LM, one layer at a time): a block keeps its input and repeats its forward pass, the dispatch included,
// up to fc2's input. The output head is not a transformer layer: it keeps what it needs.
#include "plan/policy/least.hpp"
#include "plan/policy/policy.hpp"

namespace spillway {
namespace {

class Full final : public Policy {
 public:
  Mitigations decide(const Situation& situation) override { return least_mitigations(situation.block.kind); }
};

}  // namespace

std::unique_ptr<Policy> make_full(const PolicyOptions&) { return std::make_unique<Full>(); }

}  // namespace spillway
