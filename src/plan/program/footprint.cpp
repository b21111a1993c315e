#include "plan/program/footprint.hpp"

#include <algorithm>

#include "workload/shape/quantized.hpp"

namespace spillway {
namespace {

/// Carries the device level through instructions.
struct Level {
  const FootprintSetting& setting;
  const BlockRows& rows;
  Bytes live, peak;

  void add(Tensor t) { live += round_up(bytes(t, setting.context, rows.whole), setting.alignment); }
  void run(const std::vector<Instruction>& instructions) {
    for (const Instruction& i : instructions) step(i);
  }
  void step(const Instruction& i) {
    const Change c = change(i, setting.context, setting.alignment, rows.of(i));
    live += c.device_before;
    if (c.device_before.value > 0) peak = std::max(peak, live);
    live = live - c.device_after;
  }
};

}  // namespace

FootprintSetting footprint_setting(BlockKind kind, const BlockContext& context, Bytes alignment) {
  return {context, alignment, kind != BlockKind::embedding && kind != BlockKind::synthetic_input,
          kind != BlockKind::head && kind != BlockKind::square_loss};
}

Change change(const Instruction& i, const BlockContext& context, Bytes alignment, const ExpertRows& rows) {
  Change c;
  for (const Tensor t : i.allocate) c.device_before += round_up(bytes(t, context, rows), alignment);
  for (const Tensor t : i.release) c.device_after += round_up(bytes(t, context, rows), alignment);
  if (i.action == Action::run || i.action == Action::drop) return c;
  const Bytes plain = round_up(bytes(i.subject, context, rows), alignment);
  const Bytes small = round_up(quantized_bytes(extent(i.subject, context, rows).elements()), alignment);
  if (i.action == Action::offload) c.host_before += plain;
  if (i.action == Action::reload) c.host_after += plain;
  if (i.action == Action::quantize) c.device_before += small;
  if (i.action == Action::dequantize) c.device_after += small;
  return c;
}

Footprint footprint(const BlockProgram& program, const FootprintSetting& setting, const BlockRows& rows) {
  Footprint f;
  const auto aligned = [&](Bytes b) { return round_up(b, setting.alignment); };
  Level level{setting, rows, {}, {}};
  if (setting.has_input) level.add(Tensor::block_input);
  level.peak = level.live;
  for (std::size_t i = 0; i < program.forward.size(); ++i) {
    level.step(program.forward[i]);
    if (i != program.gate) continue;
    f.forward = level.peak;
    level.peak = Bytes(0);
  }
  f.after_gate = level.peak;
  f.forward = std::max(f.forward, level.peak);
  const bool has_output = setting.receives_gradient;
  f.held = level.live - (has_output ? aligned(bytes(Tensor::block_output, setting.context, rows.whole)) : Bytes(0));

  for (const Instruction& i : program.reloads) {
    const Change c = change(i, setting.context, setting.alignment, rows.of(i));
    f.reloaded += c.device_before;
    f.host += c.host_after;
  }
  level.live = f.held + f.reloaded;
  if (setting.receives_gradient) level.add(Tensor::d_residual);
  level.peak = level.live;
  level.run(program.backward);
  f.backward = level.peak;
  return f;
}

}  // namespace spillway
