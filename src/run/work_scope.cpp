#include "run/work_scope.hpp"

#include <Kokkos_Core.hpp>

namespace spillway {

WorkLabel work_label(const Instruction& i, int micro_batch, const StageBlock& block) {
  WorkLabel label{name(i), {}, WorkKind::forward, micro_batch, block.layer, i.slice};
  if (i.action != Action::run) {
    label.subject = i.action == Action::drop ? "" : name(i.subject);
    label.kind = WorkKind::mitigation;
  } else if (i.recompute) {
    label.kind = WorkKind::recompute;
  } else if (i.pass == PassKind::backward) {
    label.kind = WorkKind::backward;
  }
  return label;
}

WorkScope::WorkScope(LaneTimer& timer, const WorkLabel& label) {
  timer.label(label);
  Kokkos::Profiling::pushRegion(title(label));
}

WorkScope::~WorkScope() { Kokkos::Profiling::popRegion(); }

}  // namespace spillway
