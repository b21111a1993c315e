#include "device/fault.hpp"

#include <array>

#include "base/error.hpp"

namespace spillway::device {

Fault parse_fault(std::string_view name) {
  static constexpr std::array<std::string_view, 13> names = {
      "none",          "dropped_token",     "swapped_experts",   "skipped_recompute",
      "stale_buffer",  "missing_reduction", "wrong_residual",    "wrong_router_weight",
      "lost_snapshot", "skipped_gradient",  "disagreeing_plans", "late_loss",
      "extra_product"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Fault>(i);
  throw InputError(fmt::format("fault '{}' is not known", name));
}

Phase parse_phase(std::string_view name) {
  static constexpr std::array<std::string_view, 9> names = {"start",     "verification", "measurement",
                                                            "gate",      "forward",      "backward",
                                                            "reduction", "restart",      "report"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Phase>(i);
  throw InputError(fmt::format("phase '{}' is not known", name));
}

}  // namespace spillway::device
