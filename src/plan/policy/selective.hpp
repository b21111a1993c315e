#pragma once
// Megatron-LM's selective recompute as a treatment.
#include "plan/program/mitigations.hpp"

namespace spillway {

/// Outputs of norms and of the SwiGLU activation are recomputed, the rest is kept.
Mitigations selective_mitigations();

}  // namespace spillway
