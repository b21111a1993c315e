#pragma once
// What a block program needs: device and host bytes at its worst moments. Every block is rounded to the alignment, as in
// the ledger and the arena.
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

Footprint footprint(const BlockProgram& program, const FootprintSetting& setting, const BlockRows& rows);

/// Bytes that an instruction adds before it runs and takes away after it has run, on the device and in the host tier.
struct Change {
  Bytes device_before, device_after, host_before, host_after;
};
Change change(const Instruction& instruction, const BlockContext& context, Bytes alignment, const ExpertRows& rows);

}  // namespace spillway
