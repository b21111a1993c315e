// keep: everything that backward reads stays. oracle: the same, without a cap.
#include "plan/policy/policy.hpp"

namespace spillway {
namespace {

class Keep : public Policy {
 public:
  Mitigations decide(const Situation&) override { return Mitigations::keep_all(); }
};

class Oracle final : public Keep {
 public:
  bool obeys_cap() const override { return false; }
};

}  // namespace

std::unique_ptr<Policy> make_keep(const PolicyOptions&) { return std::make_unique<Keep>(); }
std::unique_ptr<Policy> make_oracle(const PolicyOptions&) { return std::make_unique<Oracle>(); }

}  // namespace spillway
