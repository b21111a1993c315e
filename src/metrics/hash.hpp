#pragma once
// The short name of what two results must share to be compared.
#include <string>
#include <string_view>

namespace spillway {

/// 8 hexadecimal digits over the canonical text of a configuration (nlohmann::json: sorted keys, no white space). The
/// caller puts in everything that changes what is run or timed: model, grid, training, routing, memory, margins and
/// fallback, machine file, clock and data. It leaves out what compared results may differ in: the list of policies,
/// output paths, and options that only change what is shown. FNV-1a of 64 bits, folded to 32; stable across machines.
std::string result_hash(std::string_view canonical_config);

}  // namespace spillway
