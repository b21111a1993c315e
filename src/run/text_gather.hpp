#pragma once
// Texts of all ranks, one after the other, on the first rank.
#include <functional>
#include <string>
#include <string_view>

#include "run/session.hpp"

namespace spillway {

/// Collective over the world. On rank 0, `take` is given every rank's text in the order of ranks, a text that is long in
/// pieces; it must not throw.
using TakeText = std::function<void(int rank, std::string_view piece)>;
void gather_texts(const std::string& mine, const Session& session, const TakeText& take);

}  // namespace spillway
