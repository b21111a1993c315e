#include "plan/program/footprint.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/error.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway {
FootprintSetting footprint_setting(BlockKind kind, const BlockContext& context, Bytes alignment) {
  return {context, alignment, kind != BlockKind::embedding && kind != BlockKind::synthetic_input,
          kind != BlockKind::head && kind != BlockKind::square_loss};
}

Bytes FootprintForm::Size::at(std::int64_t rows) const {
  const std::int64_t elements = rows * elements_per_row;
  return quantized ? quantized_bytes(elements) : Bytes(elements * bytes_per_element);
}

bool FootprintForm::Live::exceeds(const Live& o) const {
  if (slice != o.slice || fixed < o.fixed) return false;
  for (std::size_t k = 0; k < most_sizes; ++k)
    if (whole[k] < o.whole[k] || in_slice[k] < o.in_slice[k]) return false;
  return true;
}

/// Carries what lives through instructions.
class FootprintForm::Walk {
 public:
  Walk(FootprintForm& form, const FootprintSetting& setting) : form_(form), setting_(setting) {}

  Live now;

  void add(Tensor t) { change(t, -1, 1); }
  void remove(Tensor t) { change(t, -1, -1); }
  /// Notes the moment before each instruction's releases, where it brings anything to life.
  void step(const Instruction& i, std::vector<Live>& moments) {
    if (i.slice >= 0 && i.slice != now.slice) enter(i.slice);
    for (const Tensor t : i.allocate) change(t, i.slice, 1);
    if (i.action == Action::quantize) change(i.subject, i.slice, 1, true);
    if (!i.allocate.empty() || i.action == Action::quantize) note(moments);
    for (const Tensor t : i.release) change(t, i.slice, -1);
    if (i.action == Action::dequantize) change(i.subject, i.slice, -1, true);
  }
  void note(std::vector<Live>& moments) const {
    Live moment = now;
    if (moment.in_slice == Counts{}) moment.slice = -1;
    // Those of a slice come in a row: it is enough to look back to where another begins.
    for (std::size_t m = moments.size(); m-- > 0 && moments[m].slice == moment.slice;) {
      if (moments[m].exceeds(moment)) return;
      if (moment.exceeds(moments[m])) moments.erase(moments.begin() + static_cast<std::ptrdiff_t>(m));
    }
    moments.push_back(moment);
  }

 private:
  void enter(int slice) {
    ensure(now.in_slice == Counts{}, "rows of slice {} still live in slice {}", now.slice, slice);
    now.slice = slice;
  }
  void change(Tensor t, int slice, int sign, bool quantized = false) {
    const Kind& kind = kind_of(t, quantized);
    now.fixed += sign * kind.fixed;
    if (kind.size < 0) return;
    std::int16_t& count = (slice < 0 ? now.whole : now.in_slice)[static_cast<std::size_t>(kind.size)];
    count = static_cast<std::int16_t>(count + sign);
  }
  /// Bytes of a tensor that no load changes, or the number of its size.
  struct Kind {
    std::int64_t fixed = 0;
    int size = -1;
  };
  const Kind& kind_of(Tensor t, bool quantized) {
    std::optional<Kind>& known = kinds_[quantized ? 1 : 0][static_cast<std::size_t>(t)];
    if (known) return *known;
    const BlockContext& c = setting_.context;
    const Extent none = extent(t, c, {0, 0, 0});
    const bool received = extent(t, c, {1, 0, 0}).rows != none.rows, sent = extent(t, c, {0, 0, 1}).rows != none.rows;
    if (received || sent)
      return known.emplace(Kind{0, number_of({sent, quantized, none.cols, none.bytes_per_element})});
    const Bytes plain = quantized ? quantized_bytes(none.elements()) : none.bytes();
    return known.emplace(Kind{round_up(plain, form_.alignment_).value, -1});
  }
  int number_of(const Size& size) {
    const auto at = std::find(form_.sizes_.begin(), form_.sizes_.end(), size);
    if (at != form_.sizes_.end()) return static_cast<int>(at - form_.sizes_.begin());
    ensure(form_.sizes_.size() < most_sizes, "tensors of more than {} sizes", most_sizes);
    form_.sizes_.push_back(size);
    return static_cast<int>(form_.sizes_.size()) - 1;
  }
  FootprintForm& form_;
  const FootprintSetting& setting_;
  std::array<std::array<std::optional<Kind>, tensor_count>, 2> kinds_;
};

FootprintForm::FootprintForm(const BlockProgram& program, const FootprintSetting& setting)
    : alignment_(setting.alignment), routed_rows_(setting.context.routed_rows()) {
  Walk walk(*this, setting);
  if (setting.has_input) walk.add(Tensor::block_input);
  const bool gate = program.gate < program.forward.size();
  walk.note(gate ? before_gate_ : after_gate_);
  for (std::size_t i = 0; i < program.forward.size(); ++i)
    walk.step(program.forward[i], gate && i <= program.gate ? before_gate_ : after_gate_);
  if (setting.receives_gradient) walk.remove(Tensor::block_output);
  held_ = walk.now;

  const auto reload = [&] {
    for (const Instruction& i : program.reloads)
      for (const Tensor t : i.allocate) walk.add(t);
  };
  walk.now = {};
  reload();
  reloaded_ = walk.now;
  walk.now = held_;
  reload();
  if (setting.receives_gradient) walk.add(Tensor::d_residual);
  walk.note(backward_);
  for (const Instruction& i : program.backward) walk.step(i, backward_);
}

/// The form's bytes at one load.
class FootprintForm::At {
 public:
  At(const FootprintForm& form, const BlockRows& rows)
      : form_(form),
        rows_(rows),
        power_of_two_(std::has_single_bit(static_cast<std::uint64_t>(form.alignment_.value))) {
    measure(rows.whole, whole_);
  }

  Bytes bytes(const Live& live) {
    if (live.slice >= 0 && live.slice != slice_at_) {
      measure(rows_.slices[static_cast<std::size_t>(live.slice)], slice_);
      slice_at_ = live.slice;
    }
    std::int64_t sum = live.fixed + product(live.whole, whole_);
    if (live.slice >= 0) sum += product(live.in_slice, slice_);
    return Bytes(sum);
  }
  Bytes worst(const std::vector<Live>& moments) {
    Bytes worst;
    for (const Live& moment : moments) worst = std::max(worst, bytes(moment));
    return worst;
  }

 private:
  using Measured = std::array<std::int64_t, most_sizes>;
  /// Over a fixed number of sizes, which takes few instructions: those that there are not count nothing.
  std::int64_t product(const Counts& counts, const Measured& sizes) const {
    constexpr std::size_t few = 8;
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < few; ++k) sum += counts[k] * sizes[k];
    if (form_.sizes_.size() > few)
      for (std::size_t k = few; k < most_sizes; ++k) sum += counts[k] * sizes[k];
    return sum;
  }
  void measure(const ExpertRows& rows, Measured& sizes) const {
    const std::int64_t sent = rows.sent.value_or(form_.routed_rows_);
    for (std::size_t k = 0; k < form_.sizes_.size(); ++k) {
      const Size& size = form_.sizes_[k];
      sizes[k] = aligned(size.at(size.sent ? sent : rows.rows));
    }
  }
  /// round_up, which divides, for what is asked many thousand times.
  std::int64_t aligned(Bytes bytes) const {
    const std::int64_t rest = form_.alignment_.value - 1;
    return power_of_two_ ? (bytes.value + rest) & ~rest : round_up(bytes, form_.alignment_).value;
  }
  const FootprintForm& form_;
  const BlockRows& rows_;
  bool power_of_two_;  ///< the alignment
  Measured whole_{}, slice_{};
  int slice_at_ = -1;
};

Footprint FootprintForm::at(const BlockRows& rows) const {
  At at(*this, rows);
  Footprint f;
  f.after_gate = at.worst(after_gate_);
  f.forward = std::max(at.worst(before_gate_), f.after_gate);
  f.held = at.bytes(held_);
  f.backward = at.worst(backward_);
  f.reloaded = f.host = at.bytes(reloaded_);
  return f;
}

Footprint footprint(const BlockProgram& program, const FootprintSetting& setting, const BlockRows& rows) {
  return FootprintForm(program, setting).at(rows);
}

}  // namespace spillway
