#pragma once
// What a block program needs: device and host bytes at its worst moments. Every block is rounded to the alignment, as in
// the ledger and the arena.
#include <array>
#include <vector>

#include "plan/program/block_program.hpp"

namespace spillway {

/// Rows of a block's experts on a rank: the whole dispatch and, where it is done in slices, each of them.
struct BlockRows {
  ExpertRows whole;
  std::vector<ExpertRows> slices;

  const ExpertRows& of(const Instruction& i) const {
    return i.slice < 0 ? whole : slices[static_cast<std::size_t>(i.slice)];
  }
};

/// Bytes of one (micro-batch, block), counted from the level of everything else on the rank.
struct Footprint {
  Bytes forward;     ///< peak during forward, block_input and block_output included
  Bytes after_gate;  ///< the part of that peak that comes after the gate; the whole where there is none
  Bytes held;        ///< on the device between forward and backward; block_output belongs to the next block
  Bytes backward;    ///< peak during backward, reloads and d_residual included
  Bytes reloaded;    ///< device bytes that the reloads bring back
  Bytes host;        ///< in the host tier between forward and backward
  bool operator==(const Footprint&) const = default;
};

struct FootprintSetting {
  const BlockContext& context;
  Bytes alignment;
  bool has_input = true;          ///< block_input comes in (all but embedding and synthetic input)
  bool receives_gradient = true;  ///< d_residual comes in (all but head and loss)
};
FootprintSetting footprint_setting(BlockKind kind, const BlockContext& context, Bytes alignment);

/// A program's footprint as a function of its experts' rows. Extents are fixed, or as many rows as are received or sent;
/// so what lives at any moment is a fixed number of bytes and counts of tensors of a few sizes, and only moments that no
/// other exceeds in all of these can be the worst.
class FootprintForm {
 public:
  FootprintForm(const BlockProgram& program, const FootprintSetting& setting);
  Footprint at(const BlockRows& rows) const;

 private:
  static constexpr std::size_t most_sizes = 12;
  using Counts = std::array<std::int16_t, most_sizes>;
  /// Size of a tensor whose rows follow the load.
  struct Size {
    bool sent = false;  ///< as many rows as are sent, instead of received
    bool quantized = false;
    std::int64_t elements_per_row = 0, bytes_per_element = 0;
    bool operator==(const Size&) const = default;
    Bytes at(std::int64_t rows) const;
  };
  /// What lives at a moment: bytes that no load changes, and how many tensors of every size, of the whole dispatch and of
  /// one slice.
  struct Live {
    std::int64_t fixed = 0;
    Counts whole{}, in_slice{};
    int slice = -1;  ///< -1: nothing of a slice lives
    bool exceeds(const Live& o) const;
  };
  class Walk;
  class At;

  Bytes alignment_;
  std::int64_t routed_rows_;
  std::vector<Size> sizes_;
  std::vector<Live> before_gate_, after_gate_, backward_;  // moments that may be the worst
  Live held_, reloaded_;
};

Footprint footprint(const BlockProgram& program, const FootprintSetting& setting, const BlockRows& rows);

}  // namespace spillway
