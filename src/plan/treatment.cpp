#include "plan/treatment.hpp"

#include <fmt/ranges.h>

namespace spillway {
namespace {

Treatment treatment_of(Tensor t, const BlockProgram& program) {
  if (program.kept.contains(t)) return Treatment::keep;
  if (program.offloaded.contains(t)) return Treatment::offload;
  return program.quantized.contains(t) ? Treatment::quantize : Treatment::recompute;
}

std::string readable(Bytes bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes.value);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace

std::vector<TensorTreatment> tensor_treatments(const StageBlock& block, const BlockProgram& program, ExpertRows rows) {
  const TensorSet read = compile(block.kind, block.context, Mitigations::keep_all()).kept;
  std::vector<TensorTreatment> list;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const auto tensor = static_cast<Tensor>(i);
    if (read.contains(tensor))
      list.push_back({tensor, bytes(tensor, block.context, rows), treatment_of(tensor, program)});
  }
  return list;
}

std::vector<std::string> treatment_lines(const std::vector<TensorTreatment>& list) {
  std::vector<std::string> lines;
  for (const Treatment treatment : {Treatment::keep, Treatment::offload, Treatment::quantize, Treatment::recompute}) {
    Bytes sum;
    std::vector<std::string> tensors;
    for (const TensorTreatment& t : list) {
      if (t.treatment != treatment) continue;
      sum += t.bytes;
      tensors.push_back(fmt::format("{} {}", name(t.tensor), readable(t.bytes)));
    }
    if (!tensors.empty())
      lines.push_back(fmt::format("{:<9} {:>10}  {}", name(treatment), readable(sum), fmt::join(tensors, ", ")));
  }
  return lines;
}

}  // namespace spillway
