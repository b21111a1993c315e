// half: every second micro-batch keeps everything, the others keep block inputs alone. The example of CONTRIBUTING.md.
#include "plan/policy/least.hpp"
#include "plan/policy/policy.hpp"

namespace spillway {
namespace {

class Half final : public Policy {
 public:
  // The micro-batch is the same on the whole expert group, so all of it repeats a dispatch or none does.
  Mitigations decide(const Situation& s) override {
    return s.micro_batch % 2 == 0 ? Mitigations::keep_all() : least_mitigations(s.block.kind);
  }
};

std::unique_ptr<Policy> make_half(const PolicyOptions&) { return std::make_unique<Half>(); }

}  // namespace

std::vector<PolicyEntry> half_policies() {
  return {{"half", "keep everything of every second micro-batch, block inputs of the others", make_half}};
}

}  // namespace spillway
