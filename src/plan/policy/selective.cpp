// selective (Megatron-LM): outputs of norms and of the SwiGLU activation are recomputed, cheap passes over memory.
#include "plan/policy/selective.hpp"

#include "plan/policy/policy.hpp"

namespace spillway {

Mitigations selective_mitigations() {
  TensorSet keep = TensorSet::all();
  for (const Tensor t : {Tensor::attention_norm_output, Tensor::mlp_norm_output, Tensor::final_norm_output,
                         Tensor::mlp_fc2_input, Tensor::fc2_input})
    keep.erase(t);
  return {keep, {}, {}, 0};
}

namespace {

class Selective final : public Policy {
 public:
  Mitigations decide(const Situation&) override { return selective_mitigations(); }
};

}  // namespace

std::unique_ptr<Policy> make_selective(const PolicyOptions&) { return std::make_unique<Selective>(); }

}  // namespace spillway
