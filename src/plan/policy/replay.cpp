// replay: carries out decisions read from a file (provisioning.replay_file). hindsight: those that a search found which knew
// every load of the iteration in advance; what no real system could decide, hence not ranked.
#include "base/error.hpp"
#include "plan/policy/decision_table.hpp"
#include "plan/policy/policy.hpp"

namespace spillway {
namespace {

class Replay final : public Policy {
 public:
  explicit Replay(const PolicyOptions& options) : decisions_(options.decisions), quantizes_(options.quantize) {}

  bool adapts() const override { return true; }
  bool exact() const override { return !quantizes_ && (decisions_ == nullptr || !decisions_->quantizes()); }
  Mitigations decide(const Situation& s) override {
    const Decision* found = decisions_ == nullptr ? nullptr : decisions_->find({s.iteration, s.micro_batch, s.index});
    if (found == nullptr)
      throw InputError(
          fmt::format("replay: no decision for iteration {}, micro-batch {}, block {} of this rank's stage; "
                      "export them all with --decisions",
                      s.iteration, s.micro_batch, s.index));
    return s.table != nullptr ? found->after : found->before;
  }

 private:
  std::shared_ptr<const DecisionTable> decisions_;
  bool quantizes_;
};

}  // namespace

std::unique_ptr<Policy> make_replay(const PolicyOptions& options) { return std::make_unique<Replay>(options); }

}  // namespace spillway
